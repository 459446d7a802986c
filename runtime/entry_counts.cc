#include "runtime/entry_counts.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "runtime/backend_collective.h"

namespace tessera {

namespace {

void add_to(tsr_abi_comm_counters& sum, const tsr_abi_comm_counters& addend, int64_t times) {
  for (size_t kind = 0; kind < std::size(sum.calls); ++kind) {
    sum.calls[kind] += times * addend.calls[kind];
    sum.bytes[kind] += times * addend.bytes[kind];
  }
}

}  // namespace

tsr_abi_comm_counters counted(const tsr_backend_api& api, tsr_abi_comm* comm) {
  tsr_abi_comm_counters counters{};
  counters.struct_size = sizeof(counters);
  api.comm_counters(comm, &counters);
  return counters;
}

void EntryCounts::begin(const tsr_backend_api& api, std::span<CommEnd* const> ends) {
  counts_.clear();
  for (CommEnd* end : ends)
    if (std::ranges::find(counts_, end, &std::pair<CommEnd*, tsr_abi_comm_counters>::first) == counts_.end())
      counts_.emplace_back(end, counted(api, end->comm));
}

void EntryCounts::end(const tsr_backend_api& api) {
  for (auto& [end, counts] : counts_) {
    tsr_abi_comm_counters now = counted(api, end->comm);
    add_to(now, counts, -1);
    counts = now;
  }
}

bool EntryCounts::may_all_be_captured() const {
  return std::ranges::all_of(counts_, [](const auto& count) {
    const int64_t* calls = count.second.calls;
    return std::accumulate(calls, calls + kCapturable, int64_t{0}) == calls[kCapturable];
  });
}

void EntryCounts::add(int64_t times) const {
  for (const auto& [end, counts] : counts_) add_to(end->replayed, counts, times);
}

}  // namespace tessera
