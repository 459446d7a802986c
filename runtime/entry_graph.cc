#include "runtime/entry_graph.h"

#include <cstddef>

#include "runtime/host_services.h"

namespace tessera {

bool can_capture(const tsr_backend_api& api) {
  return api.struct_size >= offsetof(tsr_backend_api, graph_destroy) + sizeof(api.graph_destroy) &&
         api.capture_begin != nullptr && api.capture_end != nullptr && api.replay != nullptr &&
         api.graph_destroy != nullptr;
}

EntryGraph::~EntryGraph() {
  forget();
  for (tsr_abi_event* event : events_) api_->event_destroy(event);
}

void EntryGraph::allow(const tsr_backend_api& api, tsr_abi_device* device) {
  if (!can_capture(api)) return;
  api_ = &api;
  device_ = device;
}

// Streams belong to a capture once they wait for an event of it, and have to be waited for before it ends.
Status EntryGraph::spread(std::span<tsr_abi_stream* const> streams) {
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
  Status status = spread(streams);
  if (status.ok()) status = catch_status(issue);  // streams are never left to a capture
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

void EntryGraph::forget() {
  give_up();
  runs_ = 0;
  has_failed_ = false;
}

Status EntryGraph::launch(tsr_abi_stream* stream) const { return take_error(api_->replay(stream, graph_)); }

}  // namespace tessera
