#include <doctest/doctest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "program_builder.h"
#include "runtime/backends/null/null_backend.h"
#include "runtime/session.h"

namespace tessera {
namespace {

struct Log {
  std::mutex mutex;
  std::vector<std::string> lines;
  static void append(void* self, int32_t, const char* line) {
    auto* log = static_cast<Log*>(self);
    const std::lock_guard lock(log->mutex);
    log->lines.emplace_back(line);
  }
};

TEST_CASE("the_null_backend_runs_whole_programs_and_records_them") {
  Log log;
  RegistryOptions options;
  options.built_in = {tsr_null_backend_entry};
  options.log = Log::append;
  options.log_context = &log;
  BackendRegistry registry(options);
  auto devices = DeviceSet::open(registry, "null:2").value();
  CHECK(devices->cluster().kinds[0].memory_bytes == int64_t{80} << 30);
  // Its memory cannot be touched, so this also proves that the host goes through the table for every byte.
  auto session =
      Session::create(Executable::prepare(devices, test::data_parallel_program(*devices, 5)).value()).value();
  const std::vector<float> data(20);
  REQUIRE(
      session->write("w", HostTensor::copy_of<float>({DType::kF32, {4, 3}}, std::span(data).first(12))).ok());
  REQUIRE(
      session->feed("step", "x", HostTensor::copy_of<float>({DType::kF32, {5, 4}}, std::span(data))).ok());
  log.lines.clear();
  REQUIRE(session->run("step").ok());
  CHECK(session->fetch("step", "y").ok());
  std::vector<std::string> of_rank_1;
  for (const std::string& line : log.lines)
    if (line.rfind("null:1 ", 0) == 0) of_rank_1.push_back(line.substr(7, line.find(' ', 7) - 7));
  REQUIRE(of_rank_1.size() >= 4);
  of_rank_1.resize(4);
  CHECK(of_rank_1 == std::vector<std::string>{"matmul", "sum_leading", "collective", "add"});
  REQUIRE(session->communication().size() == 1);
  CHECK(session->communication()[0].bytes == 2 * 3 * 4);
}

TEST_CASE("a_trace_has_the_times_of_a_device_that_tells_them") {
  RegistryOptions options;
  options.built_in = {tsr_null_backend_entry};
  BackendRegistry registry(options);
  auto devices = DeviceSet::open(registry, "null:2").value();
  auto executable = Executable::prepare(devices, test::data_parallel_program(*devices, 5)).value();
  auto session = Session::create(executable, {.trace = true}).value();
  const std::vector<float> data(20);
  REQUIRE(
      session->write("w", HostTensor::copy_of<float>({DType::kF32, {4, 3}}, std::span(data).first(12))).ok());
  REQUIRE(
      session->feed("step", "x", HostTensor::copy_of<float>({DType::kF32, {5, 4}}, std::span(data))).ok());
  REQUIRE(session->run("step").ok());
  const std::vector<TraceEvent> events = session->take_trace();
  REQUIRE(events.size() == 8);
  const RankProgram& rank = executable->program().ranks[0];
  for (const TraceEvent& event : events) {
    CHECK(event.entry == "step");
    if (event.category != "kernel") continue;
    const auto desc = std::ranges::find_if(
        rank.kernels, [&](const KernelDesc& kernel) { return event.name.starts_with(kernel.op->name); });
    REQUIRE(desc != rank.kernels.end());
    // Its invented time: 5 us a launch, and of so little work less than a nanosecond.
    CHECK(event.end_ns - event.begin_ns == 5000);
    CHECK(event.variant == desc->variant);
    CHECK(event.memory_bytes > 0);
  }
  CHECK(events[0].operands == "f32[3, 4] f32[4, 3]");
  CHECK(events[0].flops == 2.0 * 3 * 4 * 3);
  CHECK(events[1].begin_ns >= events[0].end_ns);
}

TEST_CASE("a_report_tells_what_a_device_holds_beside_its_arena") {
  RegistryOptions options;
  options.built_in = {tsr_null_backend_entry};
  BackendRegistry registry(options);
  auto devices = DeviceSet::open(registry, "null:2").value();
  auto executable = Executable::prepare(devices, test::data_parallel_program(*devices, 5)).value();
  auto first = Session::create(executable).value();
  auto second = Session::create(executable).value();
  const int64_t arena = executable->program().ranks[0].arena_bytes;
  CHECK(first->memory()[0].device_predicted_bytes == arena);
  CHECK(second->memory()[0].device_predicted_bytes == 2 * arena);
  CHECK(second->memory()[0].device_measured_bytes == 2 * arena);
  first.reset();
  CHECK(second->memory()[0].device_measured_bytes == arena);
}

}  // namespace
}  // namespace tessera
