// EntryGraph: an entry point of one rank as one launch, on backends that can capture (CUDA graphs). The first
// run is issued instruction by instruction, so that everything is loaded; the second is captured and
// launched; later ones are launched. Only what needs the host at no point can be captured: no file, no
// message, and of collectives those that the backend says so of; whether ranks capture them is theirs to
// agree on (capture_agreement.h).
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "graph/base/result.h"
#include "runtime/backend_abi.h"

namespace tessera {

class EntryGraph {
 public:
  EntryGraph() = default;
  ~EntryGraph();
  EntryGraph(const EntryGraph&) = delete;
  EntryGraph& operator=(const EntryGraph&) = delete;

  // Until then nothing is ever captured.
  void allow(const tsr_backend_api& api, tsr_abi_device* device);
  bool is_captured() const { return graph_ != nullptr; }
  bool has_run() const { return runs_ > 0; }
  // After a run that was issued: the next one may be captured.
  void note_run() { runs_ += 1; }
  bool wants_capture() const { return api_ != nullptr && runs_ > 0 && graph_ == nullptr && !has_failed_; }

  // Captures what `issue` issues to `streams`, of which the first takes the launch. An error leaves nothing
  // under way, and is the last try.
  Status capture(std::span<tsr_abi_stream* const> streams, const std::function<Status()>& issue);
  Status launch(tsr_abi_stream* stream) const;
  void give_up();  // no graph, and no other try
  void forget();   // no graph, and what follows is a first run

 private:
  Status spread(std::span<tsr_abi_stream* const> streams);
  Status join(std::span<tsr_abi_stream* const> streams);

  const tsr_backend_api* api_ = nullptr;
  tsr_abi_device* device_ = nullptr;
  std::vector<tsr_abi_event*> events_;  // by stream: the first forks, the others join
  void* graph_ = nullptr;
  int runs_ = 0;
  bool has_failed_ = false;
};

// The backend has all that capturing takes.
bool can_capture(const tsr_backend_api& api);

}  // namespace tessera
