// Runs that stand still are ended with names; slow ones are left alone.
#include "runtime/watchdog.h"

#include <doctest/doctest.h>

#include <chrono>
#include <semaphore>

#include "program_builder.h"
#include "runtime/session.h"
#include "test_devices.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;

// The cpu backend, with a fault: the end of rank 0 stays inside its first collective until it is aborted.
std::atomic<bool> g_hang{false};
std::counting_semaphore<> g_aborted{0};
tsr_backend_api g_api;
const tsr_backend_api* g_cpu = nullptr;
std::atomic<tsr_abi_comm*> g_end{nullptr};
tsr_host_api g_host;

const tsr_backend_api* hanging_entry(const tsr_host_api* host) {
  g_host = *host;
  g_cpu = tsr_cpu_backend_entry(host);
  g_api = *g_cpu;
  g_api.comm_create = [](tsr_abi_device* const* devices, int32_t count, tsr_abi_comm** out) {
    tsr_abi_error* error = g_cpu->comm_create(devices, count, out);
    if (error == nullptr) g_end = out[0];
    return error;
  };
  g_api.comm_collective = [](tsr_abi_comm* comm, tsr_abi_stream* stream, const tsr_abi_collective* what,
                             const void* in, void* out) {
    if (comm == g_end && g_hang.exchange(false)) g_aborted.acquire();
    return g_cpu->comm_collective(comm, stream, what, in, out);
  };
  g_api.comm_abort = [](tsr_abi_comm* comm) {
    g_cpu->comm_abort(comm);
    g_aborted.release();
  };
  return &g_api;
}

TEST_CASE("a run that stands still is ended, and every rank says where it waits") {
  RegistryOptions options = test::cpu_options();
  options.built_in = {hanging_entry};
  BackendRegistry registry(options);
  auto devices = DeviceSet::open(registry, "cpu:3").value();
  auto session =
      Session::create(Executable::prepare(devices, test::data_parallel_program(*devices, 6)).value(),
                      {.watchdog_s = 0.2})
          .value();
  const std::vector<float> data(24, 1.0F);
  REQUIRE(
      session->write("w", HostTensor::copy_of<float>({DType::kF32, {4, 3}}, std::span(data).first(12))).ok());
  REQUIRE(session->feed("step", "x", HostTensor::copy_of<float>({DType::kF32, {6, 4}}, data)).ok());
  REQUIRE(session->run("step").ok());
  while (g_aborted.try_acquire()) {
  }
  g_hang = true;
  const auto begin = std::chrono::steady_clock::now();
  const Status status = session->run("step");
  CHECK(std::chrono::steady_clock::now() - begin < 10s);
  CHECK(status.code() == StatusCode::kTimeout);
  const std::string message(status.message());
  for (const char* part :
       {"entry 'step'", "rank 0 at instruction 2 (all_reduce dp, micro-batch 0) with ranks 1, 2",
        "rank 1 at instruction 2 (all_reduce dp, micro-batch 0) with ranks 0, 2",
        "rank 2 at instruction 2 (all_reduce dp, micro-batch 0) with ranks 0, 1"})
    CHECK_MESSAGE(message.find(part) != std::string::npos, message);
  REQUIRE(session->restore().ok());
  CHECK(session->run("step").ok());
}

// Stalls that a watchdog of 40 ms reports in 200 ms of what `poll` shows.
int stalls_of(std::function<Watchdog::Progress()> poll) {
  std::atomic<int> count{0};
  {
    Watchdog watchdog(0.04, std::move(poll), [&] { ++count; });
    watchdog.expect_run();
    std::this_thread::sleep_for(200ms);
  }
  return count;
}

TEST_CASE("a watchdog reports a stall once") {
  CHECK(stalls_of([] { return Watchdog::Progress{true, false, true, 7}; }) == 1);
}

TEST_CASE("a watchdog leaves long kernels, slow progress and idleness alone") {
  CHECK(stalls_of([] { return Watchdog::Progress{true, true, true, 7}; }) == 0);
  CHECK(stalls_of([] { return Watchdog::Progress{false, false, false, 7}; }) == 0);
  int64_t done = 0;
  CHECK(stalls_of([&] { return Watchdog::Progress{true, false, true, ++done}; }) == 0);
}

}  // namespace
}  // namespace tessera
