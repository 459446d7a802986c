// EntryCounts: what one run of an entry point counts at the ends of communicators that its rank holds, so
// that runs of a captured one, in which nobody calls them, are counted too.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "runtime/backend_abi.h"

namespace tessera {

// One end of a communicator.
struct CommEnd {
  tsr_abi_comm* comm = nullptr;
  // Beside what the backend has counted: graphs' launches, less the captures that made them.
  tsr_abi_comm_counters replayed{};
};

// By the backend, since the communicator was made.
tsr_abi_comm_counters counted(const tsr_backend_api& api, tsr_abi_comm* comm);

class EntryCounts {
 public:
  // Around a run that is issued, or a capture. An end may be among `ends` more than once.
  void begin(const tsr_backend_api& api, std::span<CommEnd* const> ends);
  void end(const tsr_backend_api& api);
  // Of what was counted in between.
  bool may_all_be_captured() const;
  // All of it `times` more at the ends' `replayed`.
  void add(int64_t times) const;

 private:
  std::vector<std::pair<CommEnd*, tsr_abi_comm_counters>> counts_;
};

}  // namespace tessera
