// Streams, events and captures as the emulator's functions share them. All of it under g_mutex.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/cuda_emulator/device.h"

namespace emulator {

extern std::recursive_mutex g_mutex;

// A captured graph: the operations that a launch enqueues, and the events that it records.
struct GraphItem {
  std::function<void()> work;
  double seconds = 0;
  cudaEvent_t event = nullptr;
  std::function<void(cudaStream_t)> issue = {};  // in place of work
};

// A capture: the number of operations issued on each of its streams, as far as known.
using Issued = std::map<const CUstream_st*, uint64_t>;
struct Capture {
  const CUstream_st* origin;
  std::thread::id thread;   // that began it, in the thread's own mode
  bool is_invalid = false;  // something happened that may not happen meanwhile
  bool has_ended = false;
  Issued issued = {};
  Issued meetings = {};  // the last of each stream
  std::vector<GraphItem> graph = {};
};

}  // namespace emulator

struct CUstream_st {
  int device = emulator::current_device();
  std::deque<std::function<void()>> queue;
  bool ends_in_kernel = false;  // that something may overlap with
  int carveout = -1;            // of that kernel
  uint64_t issued = 0, done = 0;
  double clock_s = 0;                          // of all that was issued
  std::shared_ptr<emulator::Capture> capture;  // that it belongs to
  emulator::Issued awaited;                    // of the capture
  emulator::Issued known;                      // outside: of other streams, before whatever comes next
};
struct CUevent_st {
  CUstream_st* stream = nullptr;
  uint64_t at = 0;
  std::shared_ptr<emulator::Capture> capture;  // recorded in it
  emulator::Issued awaited, known;
  bool has_time = false;
  double clock_s = 0;
};

namespace emulator {

// Returns the stream's state, also for a null stream.
CUstream_st* stream_of(cudaStream_t stream);
std::vector<CUstream_st*>& streams();
void run_until(CUstream_st* stream, uint64_t position);
void run_all();

// A call that is illegal while this thread captures (it might wait for what is only recorded), or, of a
// device as a whole, while anybody does. It fails, and so does the capture.
cudaError_t outside_of_captures(const char* call, bool whole_device = false);

}  // namespace emulator
