// EntryCapture: how the runs of one entry point of one rank go on a backend that does not block. The first is
// issued instruction by instruction, so that everything is loaded; the second is captured and launched where
// that is possible, for an entry that communicates on all ranks that do; later ones are launched. What cannot
// be captured is issued, then and from there on.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/capture_agreement.h"
#include "runtime/collective_order.h"
#include "runtime/entry_counts.h"
#include "runtime/entry_graph.h"

namespace tessera {

// The rank's thread calls, except for `stop`.
class EntryCapture {
 public:
  // Issues the instructions to `streams`, collectives in `order`.
  using Issue = std::function<Status(CollectiveOrder& order)>;
  // A line of the log: what has become of the entry.
  using Tell = std::function<void(int32_t level, const std::string& what)>;

  // The first of `streams` takes the launches.
  EntryCapture(const tsr_backend_api& api, tsr_abi_device* device, std::vector<tsr_abi_stream*> streams,
               Issue issue, Tell tell)
      : api_(api),
        device_(device),
        streams_(std::move(streams)),
        issue_(std::move(issue)),
        tell_(std::move(tell)),
        order_(api, device) {}

  // Before the first run. Until it is allowed nothing is ever captured.
  void allow() { graph_.allow(api_, device_); }
  // It was wished for, but what the entry does cannot be captured: `why` is told with the second run.
  void refuse(std::string why) { why_not_ = std::move(why); }
  // With the other ranks that communicate in the entry, of which this one has become a member.
  void agree_with(CaptureAgreement& others) { others_ = &others; }

  // Issues or launches one run; waits for other ranks that capture. `ends`: the ends of communicators that
  // the rank holds. An error of what is issued is the run's; one of a capture is told and no more.
  Status run(std::span<CommEnd* const> ends);
  bool is_captured() const { return graph_.is_captured(); }

  void stop();  // from any thread, once the run has failed: nobody waits for other ranks any more
  // Before communicators end: drops the graph that holds them. What communicates begins with a first run.
  void leave_comms();

 private:
  void try_capture(std::span<CommEnd* const> ends);
  Status issue();
  void tell_refusal(std::string_view why);

  const tsr_backend_api& api_;
  tsr_abi_device* device_;
  const std::vector<tsr_abi_stream*> streams_;
  const Issue issue_;
  const Tell tell_;
  std::string why_not_;  // until it was told
  CollectiveOrder order_;
  EntryGraph graph_;
  CaptureAgreement* others_ = nullptr;  // where the entry communicates
  EntryCounts counts_;                  // of its first run, or of what is captured
};

}  // namespace tessera
