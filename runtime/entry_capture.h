// Capture of entry points: runs of one entry of one rank as one launch, on backends that can capture (CUDA
// graphs). EntryCapture decides; EntryGraph holds the graph; CaptureVote keeps ranks in agreement;
// CollectiveOrder and EntryCounts keep collectives in order and counted.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "runtime/backend_abi.h"
#include "runtime/comm_end.h"

namespace tessera {

// CaptureVote: ranks that communicate in an entry capture it together or not at all,
// since one may not issue what another captures. Each rank votes twice: whether it can
// capture, and whether it did. One object per entry, shared by the ranks' threads.
class CaptureVote {
 public:
  // Adds a member before the first run. A member that can never capture decides for all.
  void add_member(bool can_capture) {
    members_ += 1;
    is_possible_ = is_possible_ && can_capture;
  }
  bool is_possible() const { return is_possible_; }

  // Waits for all members; true when every one of them voted yes. False, at once, after a stop.
  bool vote(bool yes);
  void stop();   // wakes all waiters; from any thread
  void reset();  // after a stop, once no member waits

 private:
  int members_ = 0;
  bool is_possible_ = true;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  int arrived_ = 0, round_ = 0;
  bool is_yes_ = true;     // of the present round
  bool last_yes_ = false;  // of the previous round
  bool is_stopped_ = false;
};

// CollectiveOrder: runs a rank's collectives on its device in the order of issue, on any
// stream. Streams and graph branches are unordered, and kernels of two communicators that
// start in different orders on two devices may wait for each other's room forever. Ranks
// issue in consistent orders (graph/analysis/issue_order.h), so this order cannot deadlock.
class CollectiveOrder {
 public:
  CollectiveOrder(const tsr_backend_api& api, tsr_abi_device* device) : api_(api), device_(device) {}
  ~CollectiveOrder();
  CollectiveOrder(const CollectiveOrder&) = delete;
  CollectiveOrder& operator=(const CollectiveOrder&) = delete;

  void begin() { last_ = nullptr; }  // starts a new order
  // Called before and after one collective is issued to `stream`.
  Status before(tsr_abi_stream* stream);
  Status after(tsr_abi_stream* stream);

 private:
  const tsr_backend_api& api_;
  tsr_abi_device* device_;
  tsr_abi_event* done_ = nullptr;   // recorded after the last collective
  tsr_abi_stream* last_ = nullptr;  // its stream
};

// EntryCounts: the communication counts of one run, which are added
// for each launch of its graph, since launches call no communicator.
class EntryCounts {
 public:
  // Called before and after a run that is issued, or a capture. `members` may repeat.
  void begin(std::span<CommMember* const> members);
  void end();
  // Whether every call between the two can be captured.
  bool is_all_capturable() const;
  // Adds the counts `times` times to the members' `replayed`.
  void add(int64_t times) const;

 private:
  std::vector<std::pair<CommMember*, tsr_abi_comm_counters>> counts_;
};

// EntryGraph: the captured graph of one entry point. Only instructions that never need the host can be
// captured: no files, no messages, and those collectives that the backend allows.
class EntryGraph {
 public:
  EntryGraph() = default;
  ~EntryGraph();
  EntryGraph(const EntryGraph&) = delete;
  EntryGraph& operator=(const EntryGraph&) = delete;

  // Enables captures, which are off at first.
  void allow(const tsr_backend_api& api, tsr_abi_device* device);
  bool is_captured() const { return graph_ != nullptr; }
  bool has_run() const { return runs_ > 0; }
  // Counts a run that was issued: the next one may be captured.
  void count_run() { runs_ += 1; }
  bool wants_capture() const { return api_ != nullptr && runs_ > 0 && graph_ == nullptr && !has_failed_; }

  // Captures the work that `issue` issues to `streams`, of which the first takes the launch. After an error
  // no capture is left open, and none is tried again.
  Status capture(std::span<tsr_abi_stream* const> streams, const std::function<Status()>& issue);
  Status launch(tsr_abi_stream* stream) const;
  void give_up();  // drops the graph, and tries no other
  void reset();    // drops the graph; the next run is a first one

 private:
  Status fork(std::span<tsr_abi_stream* const> streams);
  Status join(std::span<tsr_abi_stream* const> streams);

  const tsr_backend_api* api_ = nullptr;
  tsr_abi_device* device_ = nullptr;
  std::vector<tsr_abi_event*> events_;  // by stream: the first forks, the others join
  void* graph_ = nullptr;
  int runs_ = 0;
  bool has_failed_ = false;
};

// Whether the backend has all functions that capturing needs.
bool can_capture(const tsr_backend_api& api);

// EntryCapture: the way one entry of one rank runs on an asynchronous backend. The first
// run is issued instruction by instruction, so that everything is loaded; the second is
// captured if possible (for a communicating entry, on all its ranks); later runs launch
// the graph. Other entries are issued every time. The rank's thread calls, except `stop`.
class EntryCapture {
 public:
  // Issues the instructions to `streams`, collectives in `order`.
  using Issue = std::function<Status(CollectiveOrder& order)>;
  // Logs the state of the entry.
  using Log = std::function<void(int32_t level, const std::string& what)>;

  // The first of `streams` takes the launches.
  EntryCapture(const tsr_backend_api& api, tsr_abi_device* device, std::vector<tsr_abi_stream*> streams,
               Issue issue, Log log)
      : api_(api),
        device_(device),
        streams_(std::move(streams)),
        issue_(std::move(issue)),
        log_(std::move(log)),
        order_(api, device) {}

  // Enables captures; call before the first run.
  void allow() { graph_.allow(api_, device_); }
  // Capture was requested but is impossible; the reason is logged with the second run.
  void refuse(std::string why) { why_not_ = std::move(why); }
  // Votes with the other ranks that communicate in the entry; this rank has become a member.
  void set_vote(CaptureVote& vote) { vote_ = &vote; }

  // Issues or launches one run; waits for other ranks that capture. `members`: the rank's
  // communicators. An error while issuing fails the run; an error while capturing is only logged.
  Status run(std::span<CommMember* const> members);
  bool is_captured() const { return graph_.is_captured(); }

  void stop();  // once the run has failed: no rank waits for another's vote; from any thread
  // Drops a graph that holds communicators, before these end. An entry that communicates starts over.
  void release_comms();

 private:
  void try_capture(std::span<CommMember* const> members);
  Status issue();
  void log_refusal(std::string_view why);

  const tsr_backend_api& api_;
  tsr_abi_device* device_;
  const std::vector<tsr_abi_stream*> streams_;
  const Issue issue_;
  const Log log_;
  std::string why_not_;  // until it is logged
  CollectiveOrder order_;
  EntryGraph graph_;
  CaptureVote* vote_ = nullptr;  // null: the entry does not communicate
  EntryCounts counts_;           // of its first run, or of its graph
};

}  // namespace tessera
