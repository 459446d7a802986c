// Declarations shared by the parts of the emulator.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/cuda_emulator/emulator.h"

namespace emulator {

inline constexpr size_t kMostUnaskedShared = 49152;  // of a block, static and dynamic
size_t most_shared();                                // that a kernel may ask for on this device
bool is_device_memory(const void* at);               // allocated, pinned memory of the host too
void note_work();                                    // an allocation, a launch, or that something is compiled
void run_kernel(const Config& config, const std::function<void()>& body);
// On `stream`, as late as it may be. `seconds` is what events say that it took.
void enqueue_work(cudaStream_t stream, std::function<void()> work, double seconds = 0);

// Into the capture that `stream` belongs to: each launch of its graph comes to `issue` with the stream that
// it goes to. It may wait for other threads, and what it holds lives as long as a graph does.
void capture_issue(cudaStream_t stream, std::function<void(cudaStream_t)> issue);

// Whether what is issued or captured next on `stream` comes after all meetings of other streams of its
// device. Else two of them may each hold the room that the other one's members wait for.
bool follows_meetings(cudaStream_t stream);
// Marks the next operation issued or captured on `stream` as a meeting.
void note_meeting(cudaStream_t stream);

// Work that begins when all of `streams` have come to it, and that all of them wait for.
void enqueue_meeting(const std::vector<cudaStream_t>& streams, std::function<void()> work);

}  // namespace emulator
