// Code that backends share: errors at the ABI, the choice of a kernel from a table, and
// the fingerprint of an answer. Header-only, so that a plugin links nothing of libtessera.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "runtime/backend_adapter.h"

namespace tessera {

// BackendErrors: makes error objects, also for calls without a device. A backend keeps nothing else
// from its entry. All hosts of a process pass the same function, which ignores its first argument.
class BackendErrors {
 public:
  void keep(const tsr_host_api& host) { make_error_.store(host.make_error); }

  // Runs a body that returns Status, and catches exceptions before the ABI.
  template <class Body>
  tsr_abi_error* guarded(Body&& body) const {
    const Status status = catch_status(body);
    if (status.ok()) return nullptr;
    return make_error_.load()(nullptr, static_cast<int32_t>(status.code()),
                              std::string(status.message()).c_str());
  }

 private:
  std::atomic<decltype(tsr_host_api::make_error)> make_error_{nullptr};
};

// PreparedChoice: a kernel prepared by a row of a table; its name is the row's or the description's.
template <class PreparedKernel>
struct PreparedChoice {
  std::string_view variant;
  PreparedKernel prepared;
};

// Whether `wanted` names the row's variant. With `has_algorithms` the name may continue after a colon, which
// the row's `prepare` reads (kernel_tune).
template <class Entry>
bool names_variant(const Entry& row, std::string_view wanted) {
  if (wanted == row.variant) return true;
  if constexpr (requires { row.has_algorithms; })
    return row.has_algorithms && wanted.starts_with(row.variant) && wanted[row.variant.size()] == ':';
  return false;
}

// Rows have `op`, `variant` and `prepare`, best first; kUnsupported declines, and the
// op's next row is tried. Returns the first that accepts, or exactly the wanted variant.
template <class Entry>
auto choose_kernel(std::string_view backend, std::span<const Entry> table, const tsr_abi_kernel_desc& desc) {
  using Made = std::invoke_result_t<decltype(Entry::prepare), const KernelSpec&>;
  using Choice = PreparedChoice<std::remove_cvref_t<decltype(std::declval<Made&>().value())>>;
  using Answer = Result<Choice>;
  const KernelSpec spec(desc);
  std::string declined;
  bool known = false;
  for (const Entry& row : table) {
    if (row.op != spec.op() || row.prepare == nullptr) continue;
    known = true;
    if (desc.variant != nullptr && !names_variant(row, desc.variant)) continue;
    Made prepared = row.prepare(spec);
    if (prepared.ok())
      return Answer(Choice{desc.variant != nullptr ? std::string_view(desc.variant) : row.variant,
                           std::move(prepared).value()});
    if (prepared.status().code() != StatusCode::kUnsupported)
      return Answer(prepared.status().with_context(format("{} ({})", row.op, row.variant)));
    declined += format("{}{}: {}", declined.empty() ? "" : "; ", row.variant, prepared.status().message());
  }
  if (!known)
    return Answer(
        Status(StatusCode::kUnsupported, format("the {} backend has no kernel for '{}'", backend, desc.op)));
  if (declined.empty())
    return Answer(
        Status(StatusCode::kUnsupported, format("the {} backend has no variant '{}' of '{}'", backend,
                                                desc.variant ? desc.variant : "", desc.op)));
  return Answer(Status(StatusCode::kUnsupported, format("no kernel for '{}': {}", desc.op, declined)));
}

// seconds = max(flops / (efficiency * peak), bytes / bandwidth) + launch cost.
template <class PreparedKernel, class Rates>
Status answer_query(const PreparedChoice<PreparedKernel>& choice, const Rates& rates,
                    tsr_abi_kernel_info& out) {
  if (choice.variant.size() >= sizeof(out.variant))
    return Status(StatusCode::kInternal, format("variant name '{}' is too long", choice.variant));
  std::memset(out.variant, 0, sizeof(out.variant));
  choice.variant.copy(out.variant, choice.variant.size());
  out.workspace_bytes = choice.prepared.workspace_bytes;
  const double compute_s =
      choice.prepared.flops / (std::max(choice.prepared.efficiency, 1e-6) * rates.matmul_flops_per_s);
  out.seconds = std::max(compute_s, choice.prepared.bytes / rates.memory_bytes_per_s) + rates.launch_s;
  return {};
}

// FNV-1a over `basis` (all inputs of answers except the table) and the table.
template <class Entry>
uint64_t table_fingerprint(std::string_view basis, std::span<const Entry> table) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
    hash = (hash ^ 0xff) * 0x100000001b3u;
  };
  if (!basis.empty()) add(basis);
  for (const Entry& row : table) {
    add(row.op);
    add(row.variant);
  }
  return hash;
}

// Copies into the caller's struct, which may be shorter.
inline void copy_counters(const tsr_abi_comm_counters& counters, tsr_abi_comm_counters* out) {
  const size_t bytes = std::min(out->struct_size, sizeof(counters));
  std::memcpy(out, &counters, bytes);
  out->struct_size = bytes;
}

}  // namespace tessera
