// A backend that can capture, and writes down what it is called with: streams and events are numbers, ends of
// communicators their counters. From any thread.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "runtime/backend_abi.h"

namespace tessera::test {

struct Recorder {
  std::mutex mutex;                          // guards what follows
  std::string log;                           // what was called since it was last cleared
  int events = 0, graphs = 0, captures = 0;  // that there are; that are under way
  int next_event = 100;

  void note(const std::string& what) {
    const std::lock_guard lock(mutex);
    log += what;
  }
};
inline Recorder& recorder() {
  static Recorder recorder;
  return recorder;
}
inline thread_local bool is_capturing = false;
inline std::string number(const void* handle) { return std::to_string(reinterpret_cast<uintptr_t>(handle)); }

// Begins a new log.
inline tsr_backend_api recording_api() {
  Recorder& fresh = recorder();
  fresh.log.clear();
  fresh.events = fresh.graphs = fresh.captures = 0;
  fresh.next_event = 100;
  tsr_backend_api api{};
  api.struct_size = sizeof(api);
  api.event_create = [](tsr_abi_device*, tsr_abi_event** out) -> tsr_abi_error* {
    const std::lock_guard lock(recorder().mutex);
    ++recorder().events;
    *out = reinterpret_cast<tsr_abi_event*>(static_cast<uintptr_t>(recorder().next_event++));
    return nullptr;
  };
  api.event_destroy = [](tsr_abi_event*) {
    const std::lock_guard lock(recorder().mutex);
    --recorder().events;
  };
  api.event_record = [](tsr_abi_event* event, tsr_abi_stream* stream) -> tsr_abi_error* {
    recorder().note(" record " + number(event) + " on " + number(stream) + ";");
    return nullptr;
  };
  api.stream_wait = [](tsr_abi_stream* stream, tsr_abi_event* event) -> tsr_abi_error* {
    recorder().note(" " + number(stream) + " waits for " + number(event) + ";");
    return nullptr;
  };
  api.capture_begin = [](tsr_abi_stream* stream) -> tsr_abi_error* {
    recorder().note(" begin on " + number(stream) + ";");
    const std::lock_guard lock(recorder().mutex);
    ++recorder().captures;
    is_capturing = true;
    return nullptr;
  };
  api.capture_end = [](tsr_abi_stream* stream, void** out) -> tsr_abi_error* {
    recorder().note(" end on " + number(stream) + ";");
    const std::lock_guard lock(recorder().mutex);
    --recorder().captures;
    is_capturing = false;
    ++recorder().graphs;
    *out = &recorder();
    return nullptr;
  };
  api.replay = [](tsr_abi_stream* stream, void*) -> tsr_abi_error* {
    recorder().note(" replay on " + number(stream) + ";");
    return nullptr;
  };
  api.graph_destroy = [](void*) {
    const std::lock_guard lock(recorder().mutex);
    --recorder().graphs;
  };
  api.comm_counters = [](tsr_abi_comm* comm, tsr_abi_comm_counters* out) {
    *out = *reinterpret_cast<tsr_abi_comm_counters*>(comm);
  };
  return api;
}

inline std::vector<tsr_abi_stream*> two_streams() {
  return {reinterpret_cast<tsr_abi_stream*>(1), reinterpret_cast<tsr_abi_stream*>(2)};
}

}  // namespace tessera::test
