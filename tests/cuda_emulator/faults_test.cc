// Faults that the emulator refuses: each is planted and found, and the same code without the fault passes.
#include "tests/cuda_emulator/faults.h"

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace {

struct Ended {
  bool well;
  std::string said;
};

// Runs in a process of its own, which a fault ends.
Ended run(const faults::Fault& fault, bool planted) {
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipe_ends[1], STDERR_FILENO);
    signal(SIGABRT, SIG_DFL);
    fault.launch(planted);
    _exit(cudaGetLastError() == cudaSuccess ? 0 : 1);
  }
  close(pipe_ends[1]);
  Ended ended{};
  char buffer[512];
  for (ssize_t got; (got = read(pipe_ends[0], buffer, sizeof(buffer))) > 0;)
    ended.said.append(buffer, static_cast<size_t>(got));
  close(pipe_ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  ended.well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return ended;
}

struct Stream {
  cudaStream_t at = nullptr;
  Stream() { (void)cudaStreamCreateWithFlags(&at, cudaStreamNonBlocking); }
  ~Stream() { (void)cudaStreamDestroy(at); }
};

cudaError_t begin(cudaStream_t stream) {
  return cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
}
cudaError_t end(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream, &graph);
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  return error;
}

}  // namespace

TEST_CASE("every_planted_fault_of_a_kernel_is_found_and_nothing_where_there_is_none") {
  for (const faults::Fault& fault : faults::all()) {
    CAPTURE(std::string(fault.name));
    const Ended right = run(fault, false);
    CHECK(right.well);
    CHECK(right.said == "");
    const Ended wrong = run(fault, true);
    CAPTURE(wrong.said);
    CHECK_FALSE(wrong.well);
    CHECK(wrong.said.find(fault.said) != std::string::npos);
  }
}

TEST_CASE("a_capture_of_what_was_launched_before_is_a_graph") {
  const Stream stream;
  faults::launch_something(stream.at);
  CHECK(begin(stream.at) == cudaSuccess);
  faults::launch_something(stream.at);
  CHECK(end(stream.at) == cudaSuccess);
}

TEST_CASE("a_kernel_that_a_capture_launches_first_ends_it") {
  const Stream stream;
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 128) == cudaSuccess);
  CHECK(begin(stream.at) == cudaSuccess);
  faults::launch_something_else(stream.at, memory);
  CHECK(cudaGetLastError() != cudaSuccess);
  CHECK(end(stream.at) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaFree(memory) == cudaSuccess);
}

TEST_CASE("memory_and_waits_in_the_thread_that_captures_end_the_capture_elsewhere_only_waits_for_all_do") {
  const Stream stream;
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 64) == cudaSuccess);
  const auto ends_capture = [&](auto&& call) {
    CHECK(begin(stream.at) == cudaSuccess);
    call();
    return end(stream.at) == cudaErrorStreamCaptureInvalidated;
  };
  void* other = nullptr;
  CHECK(ends_capture([&] { CHECK(cudaMalloc(&other, 64) == cudaErrorStreamCaptureUnsupported); }));
  CHECK(ends_capture([&] { CHECK(cudaFree(memory) == cudaErrorStreamCaptureUnsupported); }));
  CHECK(ends_capture([&] { CHECK(cudaMemset(memory, 0, 64) == cudaErrorStreamCaptureUnsupported); }));
  CHECK(ends_capture([&] { CHECK(cudaDeviceSynchronize() == cudaErrorStreamCaptureUnsupported); }));
  CHECK(ends_capture([&] { CHECK(cudaStreamSynchronize(stream.at) == cudaErrorStreamCaptureUnsupported); }));
  CHECK_FALSE(
      ends_capture([&] { std::thread([&] { CHECK(cudaMalloc(&other, 64) == cudaSuccess); }).join(); }));
  CHECK(ends_capture([&] { std::thread([&] { CHECK(cudaDeviceSynchronize() != cudaSuccess); }).join(); }));
  (void)cudaGetLastError();
  CHECK(cudaFree(memory) == cudaSuccess);
  CHECK(cudaFree(other) == cudaSuccess);
}

TEST_CASE("a_copy_to_pageable_memory_is_there_once_it_is_waited_for_and_part_of_no_capture") {
  const Stream stream;
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 4) == cudaSuccess);
  REQUIRE(cudaMemset(memory, 7, 4) == cudaSuccess);
  char here[4] = {};
  CHECK(cudaMemcpyAsync(here, memory, 4, cudaMemcpyDefault, stream.at) == cudaSuccess);
  CHECK(here[0] == 0);
  CHECK(cudaStreamSynchronize(stream.at) == cudaSuccess);
  CHECK(here[0] == 7);
  CHECK(begin(stream.at) == cudaSuccess);
  CHECK(cudaMemcpyAsync(here, memory, 4, cudaMemcpyDefault, stream.at) == cudaErrorStreamCaptureUnsupported);
  CHECK(end(stream.at) == cudaErrorStreamCaptureInvalidated);
  (void)cudaGetLastError();
  CHECK(cudaFree(memory) == cudaSuccess);
}

TEST_CASE("streams_that_joined_a_capture_are_waited_for_before_it_ends") {
  const Stream first, second;
  cudaEvent_t fork = nullptr, join = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&join, cudaEventDisableTiming) == cudaSuccess);
  faults::launch_something(first.at);
  for (const bool joined : {true, false}) {
    CHECK(begin(first.at) == cudaSuccess);
    CHECK(cudaEventRecord(fork, first.at) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(second.at, fork, 0) == cudaSuccess);
    faults::launch_something(second.at);
    if (joined) {
      CHECK(cudaEventRecord(join, second.at) == cudaSuccess);
      CHECK(cudaStreamWaitEvent(first.at, join, 0) == cudaSuccess);
    }
    CHECK(end(first.at) == (joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined));
  }
  // An ended capture allows no wait for its events.
  CHECK(cudaStreamWaitEvent(second.at, fork, 0) == cudaErrorCapturedEvent);
  (void)cudaGetLastError();
  (void)cudaEventDestroy(fork);
  (void)cudaEventDestroy(join);
}
