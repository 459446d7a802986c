#include "runtime/device_catalog.h"

#include <bit>

#include "graph/base/hash.h"
#include "runtime/host_services.h"
#include "runtime/kernel_description.h"

namespace tessera {

Result<KernelChoice> DeviceCatalog::ask(const OpDef& op, const OpView& view,
                                        const std::string& variant) const {
  const KernelDescription description(op, view, variant);
  tsr_abi_kernel_info info{};
  info.struct_size = sizeof(info);
  TSR_RETURN_IF_ERROR(take_error(api_.kernel_query(ordinal_, &description.abi(), &info)));
  return KernelChoice{info.variant, info.workspace_bytes, info.seconds * seconds_scale_};
}

Result<KernelChoice> DeviceCatalog::query(const OpDef& op, const OpView& view) const {
  std::string key = question_key(op, view);
  std::string named;
  uint64_t asked_with = 0;
  {
    const std::lock_guard lock(mutex_);
    asked_with = algorithms_hash_;
    if (const auto found = answers_.find(key); found != answers_.end()) return found->second;
    if (!algorithms_.empty())
      if (const auto found = algorithms_.find(question_text(op, view)); found != algorithms_.end())
        named = found->second;
  }
  Result<KernelChoice> answer = ask(op, view, named);
  const std::lock_guard lock(mutex_);
  if (asked_with != algorithms_hash_) return answer;  // the algorithms changed since the query
  return answers_.emplace(std::move(key), std::move(answer)).first->second;
}

bool DeviceCatalog::use(const AlgorithmChoices& algorithms) {
  if (algorithms.choices.empty()) return true;
  if (algorithms.backend != backend()) return false;
  const std::lock_guard lock(mutex_);
  Hash hash;
  algorithms_.clear();
  for (const AlgorithmChoice& choice : algorithms.choices) {
    algorithms_[choice.kernel] = choice.variant;
    hash.add(choice.kernel);
    hash.add(choice.variant);
  }
  algorithms_hash_ = hash.value();
  answers_.clear();
  return true;
}

uint64_t DeviceCatalog::backend() const { return api_.kernel_fingerprint(ordinal_); }

bool DeviceCatalog::fuses() const { return has_flag(api_, TSR_BACKEND_FUSES); }

bool DeviceCatalog::fuses_exactly() const { return fuses() || has_flag(api_, TSR_BACKEND_FUSES_EXACTLY); }

uint64_t DeviceCatalog::fingerprint() const {
  const std::lock_guard lock(mutex_);
  return backend() ^ (std::bit_cast<uint64_t>(seconds_scale_) * 0x9e3779b97f4a7c15u) ^ algorithms_hash_;
}

}  // namespace tessera
