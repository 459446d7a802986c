// The CUDA runtime's functions on host memory. Work of a stream runs when somebody waits for it, so that a
// missing event or wait shows as a wrong result. So do copies from and to pageable memory, which "might be
// synchronous" (API synchronization behavior), and then might not.
#include "tests/cuda_emulator/runtime.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda_emulator/device.h"
#include "tests/cuda_emulator/streams.h"

using namespace emulator;

struct CUgraph_st {
  std::vector<GraphItem> work;
};
struct CUgraphExec_st {
  std::vector<GraphItem> work;
};

namespace emulator {

std::recursive_mutex g_mutex;

std::vector<CUstream_st*>& streams() {
  static std::vector<CUstream_st*> all;
  return all;
}

namespace {
CUstream_st* null_stream() {
  static CUstream_st* stream = [] {
    auto* made = new CUstream_st;
    streams().push_back(made);
    return made;
  }();
  return stream;
}
}  // namespace
CUstream_st* stream_of(cudaStream_t stream) { return stream != nullptr ? stream : null_stream(); }

void run_until(CUstream_st* stream, uint64_t position) {
  while (stream->done < position) {
    const std::function<void()> work = std::move(stream->queue.front());
    stream->queue.pop_front();
    ++stream->done;
    work();
  }
}
void run_all() {
  for (CUstream_st* stream : streams()) run_until(stream, stream->issued);
}

cudaError_t outside_of_captures(const char* call, bool whole_device) {
  cudaError_t error = cudaSuccess;
  for (CUstream_st* stream : streams())
    if (stream->capture != nullptr &&
        (whole_device || stream->capture->thread == std::this_thread::get_id())) {
      stream->capture->is_invalid = true;
      error = cudaErrorStreamCaptureUnsupported;
    }
  if (error != cudaSuccess) std::fprintf(stderr, "cuda emulator: %s during a capture\n", call);
  return report(error);
}

void enqueue_work(cudaStream_t given, std::function<void()> work, double seconds) {
  const std::lock_guard lock(g_mutex);
  CUstream_st* stream = stream_of(given);
  stream->ends_in_kernel = false;
  // The order in which it was issued is one that its events allow.
  if (stream->capture != nullptr) {
    stream->awaited[stream] = ++stream->capture->issued[stream];
    stream->capture->graph.push_back({std::move(work), seconds});
    return;
  }
  stream->queue.push_back(std::move(work));
  ++stream->issued;
  stream->clock_s += seconds;
}

void capture_issue(cudaStream_t given, std::function<void(cudaStream_t)> issue) {
  const std::lock_guard lock(g_mutex);
  CUstream_st* stream = stream_of(given);
  stream->ends_in_kernel = false;
  stream->awaited[stream] = ++stream->capture->issued[stream];
  stream->capture->graph.push_back({.work = {}, .issue = std::move(issue)});
}

namespace {
// By device: the last meeting of each stream.
std::map<int, Issued>& meetings_by_device() {
  static std::map<int, Issued> all;
  return all;
}
}  // namespace

bool follows_meetings(cudaStream_t given) {
  const std::lock_guard lock(g_mutex);
  CUstream_st* const stream = stream_of(given);
  if (stream->capture != nullptr)
    return std::ranges::all_of(stream->capture->meetings, [&](const auto& last) {
      return last.first == stream || stream->awaited[last.first] >= last.second;
    });
  return std::ranges::all_of(meetings_by_device()[stream->device], [&](const auto& last) {
    return last.first == stream || last.first->done >= last.second ||
           stream->known[last.first] >= last.second;
  });
}

void note_meeting(cudaStream_t given) {
  const std::lock_guard lock(g_mutex);
  CUstream_st* const stream = stream_of(given);
  if (stream->capture != nullptr)
    stream->capture->meetings[stream] = stream->capture->issued[stream] + 1;
  else
    meetings_by_device()[stream->device][stream] = stream->issued + 1;
}

void enqueue_meeting(const std::vector<cudaStream_t>& given, std::function<void()> work) {
  struct Meeting {
    std::vector<std::pair<CUstream_st*, uint64_t>> places;  // how much each stream does before it
    std::function<void()> work;
    bool is_over = false;
  };
  const std::lock_guard lock(g_mutex);
  const auto meeting = std::make_shared<Meeting>();
  meeting->work = std::move(work);
  for (const cudaStream_t each : given)
    meeting->places.emplace_back(stream_of(each), stream_of(each)->issued);
  for (const cudaStream_t each : given)
    enqueue_work(each, [meeting, mine = stream_of(each)] {
      if (meeting->is_over) return;
      for (const auto& [stream, position] : meeting->places)
        if (stream != mine) run_until(stream, position);
      meeting->is_over = true;
      meeting->work();
    });
}

}  // namespace emulator

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) {
  const std::lock_guard lock(g_mutex);
  *out = new CUstream_st;
  streams().push_back(*out);
  return cudaSuccess;
}
// The struct stays: events may name it.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(g_mutex);
  run_until(stream, stream->issued);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t given) {
  const std::lock_guard lock(g_mutex);
  CUstream_st* stream = stream_of(given);
  if (stream->capture != nullptr) {
    stream->capture->is_invalid = true;
    std::fprintf(stderr, "cuda emulator: a wait for a stream that is captured\n");
    return report(cudaErrorStreamCaptureUnsupported);
  }
  run_until(stream, stream->issued);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  const std::lock_guard lock(g_mutex);
  if (const cudaError_t error = outside_of_captures("cudaDeviceSynchronize", true); error != cudaSuccess)
    return error;
  run_all();
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  *out = new CUevent_st;
  (*out)->has_time = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::lock_guard lock(g_mutex);
  for (const cudaEvent_t event : {begin, end}) {
    if (!event->has_time || event->stream == nullptr || event->capture != nullptr)
      return report(cudaErrorInvalidResourceHandle);
    if (event->stream->done < event->at) return report(cudaErrorNotReady);
  }
  *milliseconds = static_cast<float>(1e3 * (end->clock_s - begin->clock_s));
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t given) {
  const std::lock_guard lock(g_mutex);
  event->stream = stream_of(given);
  event->at = event->stream->issued;
  event->clock_s = event->stream->clock_s;
  event->capture = event->stream->capture;
  event->awaited = event->stream->awaited;
  event->known = event->stream->known;
  event->known[event->stream] = event->at;
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t given, unsigned flags) {
  const std::lock_guard lock(g_mutex);
  CUstream_st* stream = stream_of(given);
  stream->ends_in_kernel = false;
  if (flags != cudaEventRecordExternal) return cudaEventRecord(event, given);
  if (stream->capture == nullptr) return report(cudaErrorIllegalState);
  stream->capture->graph.push_back({{}, 0, event});
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t given, cudaStreamCaptureStatus* out) {
  const std::lock_guard lock(g_mutex);
  *out = stream_of(given)->capture != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t given, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(g_mutex);
  if (event->stream == nullptr) return cudaSuccess;
  CUstream_st* stream = stream_of(given);
  stream->ends_in_kernel = false;
  if (event->capture != nullptr) {  // joins it
    if (event->capture->has_ended) return report(cudaErrorCapturedEvent);
    if (stream->capture != nullptr && stream->capture != event->capture) {
      stream->capture->is_invalid = event->capture->is_invalid = true;
      return report(cudaErrorStreamCaptureMerge);
    }
    stream->capture = event->capture;
    for (const auto& [other, count] : event->awaited)
      stream->awaited[other] = std::max(stream->awaited[other], count);
    return cudaSuccess;
  }
  if (stream->capture != nullptr) {
    stream->capture->is_invalid = true;
    return report(cudaErrorStreamCaptureIsolation);
  }
  for (const auto& [other, count] : event->known)
    stream->known[other] = std::max(stream->known[other], count);
  emulator::enqueue_work(given, [stream = event->stream, at = event->at] { run_until(stream, at); });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::lock_guard lock(g_mutex);
  if (const cudaError_t error = outside_of_captures("cudaEventSynchronize"); error != cudaSuccess)
    return error;
  if (event->capture != nullptr) return report(cudaErrorCapturedEvent);
  if (event->stream != nullptr) run_until(event->stream, event->at);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const std::lock_guard lock(g_mutex);
  if (stream == nullptr || stream->capture != nullptr) return report(cudaErrorStreamCaptureUnsupported);
  stream->ends_in_kernel = false;
  stream->capture = std::make_shared<Capture>(Capture{stream, std::this_thread::get_id()});
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  std::vector<GraphItem> made;  // where it is no graph, what it holds ends after the lock does
  const std::lock_guard lock(g_mutex);
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr || capture->origin != stream) return report(cudaErrorIllegalState);
  bool is_joined = true;
  for (const auto& [other, count] : capture->issued) is_joined = is_joined && stream->awaited[other] == count;
  for (CUstream_st* other : streams())
    if (other->capture == capture) {
      other->capture = nullptr;
      other->awaited.clear();
    }
  capture->has_ended = true;
  made = std::move(capture->graph);
  *out = nullptr;
  if (capture->is_invalid) return report(cudaErrorStreamCaptureInvalidated);
  if (!is_joined) return report(cudaErrorStreamCaptureUnjoined);
  *out = new CUgraph_st{std::move(made)};
  return cudaSuccess;
}
// TESSERA_EMULATED_GRAPHS_FAIL_ON: a device on which there are none.
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  const char* failing = std::getenv("TESSERA_EMULATED_GRAPHS_FAIL_ON");
  if (failing != nullptr && std::atoi(failing) == emulator::current_device())
    return report(cudaErrorMemoryAllocation);
  *out = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}
// Nobody may launch it meanwhile, and what it wants of the device it has then.
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t stream) {
  const std::lock_guard lock(g_mutex);
  return stream_of(stream)->capture != nullptr ? report(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  for (const GraphItem& item : graph->work)
    if (item.event != nullptr)
      (void)cudaEventRecord(item.event, stream);
    else if (item.issue)
      item.issue(stream);
    else
      emulator::enqueue_work(stream, item.work, item.seconds);
  return cudaSuccess;
}

}  // extern "C"
