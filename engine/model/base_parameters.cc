#include "engine/model/base_parameters.h"

#include <algorithm>
#include <span>

#include "engine/base/ordered_tasks.h"
#include "serialize/hash_stream.h"

namespace tessera {

Result<BaseParameters> BaseParameters::of(const SharedModel& model, const std::vector<std::string>& names) {
  BaseParameters base;
  for (const std::string& name : names) {
    TSR_ASSIGN_OR_RETURN(const std::optional<SharedModel::Value> given, model.find(name));
    if (given && given->tensor.keep_alive)
      base.parameters_.emplace(name, Parameter{given->tensor, {}, false});
  }
  base.file_ = model.source();
  if (base.file_)
    if (std::vector<std::string> paths = base.file_->paths(); !paths.empty()) base.path_ = paths.front();
  return base;
}

const HostTensor* BaseParameters::find(std::string_view name) const {
  const auto found = parameters_.find(name);
  return found == parameters_.end() ? nullptr : &found->second.value;
}

bool BaseParameters::is_replaced(std::string_view name) const {
  const auto found = parameters_.find(name);
  return found != parameters_.end() && found->second.is_replaced;
}

bool BaseParameters::is_own(std::string_view name, const HostTensor& value) const {
  const HostTensor* given = find(name);
  return given != nullptr && given->type == value.type && std::ranges::equal(given->data, value.data);
}

void BaseParameters::set_replaced(std::string_view name, bool is_replaced) {
  const auto found = parameters_.find(name);
  if (found != parameters_.end()) found->second.is_replaced = is_replaced;
}

Result<std::vector<BaseTensor>> BaseParameters::hashed(const std::vector<std::string>& names, size_t threads,
                                                       const std::atomic<bool>& cancelled) {
  // Reading past the end of a truncated mapping would kill the process.
  if (file_) TSR_RETURN_IF_ERROR(file_->unchanged());
  std::vector<Parameter*> unknown;
  for (const std::string& name : names)
    if (Parameter& it = parameters_.find(name)->second; !it.xxh3) unknown.push_back(&it);
  // Hashes in slices, with cancellation points between them.
  constexpr size_t kSliceBytes = size_t{16} << 20;
  const auto make = [&](size_t at) -> Result<uint64_t> {
    HashStream hash;
    for (std::span<const std::byte> rest = unknown[at]->value.data; !rest.empty() && !cancelled;) {
      const std::span<const std::byte> slice = rest.first(std::min(kSliceBytes, rest.size()));
      hash.add(slice);
      rest = rest.subspan(slice.size());
    }
    return hash.digest();
  };
  const auto use = [&](size_t at, uint64_t xxh3) -> Status {
    if (cancelled) return Status(StatusCode::kCancelled, "reading the model's parameters was cancelled");
    unknown[at]->xxh3 = xxh3;
    return {};
  };
  TSR_RETURN_IF_ERROR(run_ordered_tasks<uint64_t>(unknown.size(), threads, make, use));
  std::vector<BaseTensor> tensors;
  for (const std::string& name : names) {
    const Parameter& it = parameters_.find(name)->second;
    tensors.push_back({name, it.value.type, *it.xxh3});
  }
  return tensors;
}

}  // namespace tessera
