#include "runtime/entry_capture.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>
#include <utility>

#include "graph/base/text.h"
#include "runtime/backend_collective.h"
#include "runtime/host_services.h"

namespace tessera {

namespace {

constexpr int32_t kInfo = 1, kWarning = 2;  // levels of the log

void add_to(tsr_abi_comm_counters& sum, const tsr_abi_comm_counters& addend, int64_t times) {
  for (size_t kind = 0; kind < std::size(sum.calls); ++kind) {
    sum.calls[kind] += times * addend.calls[kind];
    sum.bytes[kind] += times * addend.bytes[kind];
  }
}

}  // namespace

// ---- CaptureVote

bool CaptureVote::vote(bool yes) {
  std::unique_lock lock(mutex_);
  if (is_stopped_) return false;
  is_yes_ = is_yes_ && yes;
  if (++arrived_ == members_) {
    arrived_ = 0;
    round_ += 1;
    last_yes_ = std::exchange(is_yes_, true);
    changed_.notify_all();
    return last_yes_;
  }
  // The next round cannot end before this member votes in it.
  changed_.wait(lock, [&, round = round_] { return round_ != round || is_stopped_; });
  return last_yes_ && !is_stopped_;
}

void CaptureVote::stop() {
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  changed_.notify_all();
}

void CaptureVote::reset() {
  const std::lock_guard lock(mutex_);
  is_stopped_ = false;
  is_yes_ = true;
  arrived_ = 0;
}

// ---- CollectiveOrder

CollectiveOrder::~CollectiveOrder() {
  if (done_ != nullptr) api_.event_destroy(done_);
}

Status CollectiveOrder::before(tsr_abi_stream* stream) {
  if (last_ == nullptr || last_ == stream) return {};
  return take_error(api_.stream_wait(stream, done_));
}

Status CollectiveOrder::after(tsr_abi_stream* stream) {
  if (done_ == nullptr) TSR_RETURN_IF_ERROR(take_error(api_.event_create(device_, &done_)));
  last_ = stream;
  return take_error(api_.event_record(done_, stream));
}

// ---- EntryCounts

void EntryCounts::begin(std::span<CommMember* const> members) {
  counts_.clear();
  for (CommMember* member : members)
    if (std::ranges::find(counts_, member, &std::pair<CommMember*, tsr_abi_comm_counters>::first) ==
        counts_.end())
      counts_.emplace_back(member, member->end->counters());
}

void EntryCounts::end() {
  for (auto& [member, counts] : counts_) {
    tsr_abi_comm_counters now = member->end->counters();
    add_to(now, counts, -1);
    counts = now;
  }
}

bool EntryCounts::is_all_capturable() const {
  return std::ranges::all_of(counts_, [](const auto& count) {
    const int64_t* calls = count.second.calls;
    return std::accumulate(calls, calls + kCapturable, int64_t{0}) == calls[kCapturable];
  });
}

void EntryCounts::add(int64_t times) const {
  for (const auto& [member, counts] : counts_) add_to(member->replayed, counts, times);
}

// ---- EntryGraph

bool can_capture(const tsr_backend_api& api) {
  return api.struct_size >= offsetof(tsr_backend_api, graph_destroy) + sizeof(api.graph_destroy) &&
         api.capture_begin != nullptr && api.capture_end != nullptr && api.replay != nullptr &&
         api.graph_destroy != nullptr;
}

EntryGraph::~EntryGraph() {
  reset();
  for (tsr_abi_event* event : events_) api_->event_destroy(event);
}

void EntryGraph::allow(const tsr_backend_api& api, tsr_abi_device* device) {
  if (!can_capture(api)) return;
  api_ = &api;
  device_ = device;
}

// Makes the streams part of the capture: they wait for an event of it. `join` waits for them before it ends.
Status EntryGraph::fork(std::span<tsr_abi_stream* const> streams) {
  while (events_.size() < streams.size()) {
    events_.push_back(nullptr);
    TSR_RETURN_IF_ERROR(take_error(api_->event_create(device_, &events_.back())));
  }
  TSR_RETURN_IF_ERROR(take_error(api_->event_record(events_[0], streams[0])));
  for (size_t i = 1; i < streams.size(); ++i)
    TSR_RETURN_IF_ERROR(take_error(api_->stream_wait(streams[i], events_[0])));
  return {};
}

Status EntryGraph::join(std::span<tsr_abi_stream* const> streams) {
  for (size_t i = 1; i < streams.size(); ++i) {
    TSR_RETURN_IF_ERROR(take_error(api_->event_record(events_[i], streams[i])));
    TSR_RETURN_IF_ERROR(take_error(api_->stream_wait(streams[0], events_[i])));
  }
  return {};
}

Status EntryGraph::capture(std::span<tsr_abi_stream* const> streams, const std::function<Status()>& issue) {
  has_failed_ = true;
  TSR_RETURN_IF_ERROR(take_error(api_->capture_begin(streams[0])));
  Status status = fork(streams);
  if (status.ok()) status = catch_status(issue);  // a capture must be ended after an exception too
  if (status.ok()) status = join(streams);
  void* graph = nullptr;
  const Status ended = take_error(api_->capture_end(streams[0], &graph));
  if (status.ok()) status = ended;
  if (!status.ok()) {
    if (graph != nullptr) api_->graph_destroy(graph);
    return status;
  }
  graph_ = graph;
  has_failed_ = false;
  return {};
}

void EntryGraph::give_up() {
  if (graph_ != nullptr) api_->graph_destroy(graph_);
  graph_ = nullptr;
  has_failed_ = true;
}

void EntryGraph::reset() {
  give_up();
  runs_ = 0;
  has_failed_ = false;
}

Status EntryGraph::launch(tsr_abi_stream* stream) const { return take_error(api_->replay(stream, graph_)); }

// ---- EntryCapture

Status EntryCapture::run(std::span<CommMember* const> members) {
  if (graph_.wants_capture()) try_capture(members);
  if (!why_not_.empty() && graph_.has_run()) log_refusal(std::exchange(why_not_, {}));
  if (graph_.is_captured()) {
    counts_.add(1);
    return graph_.launch(streams_[0]);
  }
  const bool counts = vote_ != nullptr && !graph_.has_run();
  if (counts) counts_.begin(members);
  TSR_RETURN_IF_ERROR(issue());
  if (counts) counts_.end();
  graph_.count_run();
  return {};
}

Status EntryCapture::issue() {
  order_.begin();
  return issue_(order_);
}

void EntryCapture::log_refusal(std::string_view why) {
  log_(kInfo, format("not captured, and is issued kernel by kernel: {}", why));
}

void EntryCapture::try_capture(std::span<CommMember* const> members) {
  if (vote_ != nullptr && !vote_->is_possible()) {
    graph_.give_up();
    return log_refusal("another rank sends, receives or uses a file in it");
  }
  if (vote_ != nullptr && !vote_->vote(counts_.is_all_capturable())) {
    graph_.give_up();
    return log_refusal("it communicates by way of the host, or through a library that cannot be captured");
  }
  if (vote_ != nullptr) counts_.begin(members);
  Status status = graph_.capture(streams_, [&] { return issue(); });
  if (vote_ != nullptr) {
    counts_.end();
    counts_.add(-1);  // the capture is no run; launches are counted instead
    if (!vote_->vote(status.ok()) && status.ok()) {
      graph_.give_up();
      status = Status(StatusCode::kAborted, "it could not be on another rank");
    }
  }
  if (status.ok()) return log_(kInfo, "captured: it is one launch from here on");
  log_(kWarning, format("not captured, and is issued kernel by kernel: {}", status.to_string()));
}

void EntryCapture::stop() {
  if (vote_ != nullptr) vote_->stop();
}

void EntryCapture::release_comms() {
  if (vote_ == nullptr) return;
  graph_.reset();
  counts_ = {};
  vote_->reset();
}

}  // namespace tessera
