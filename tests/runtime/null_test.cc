#include <doctest/doctest.h>

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

}  // namespace
}  // namespace tessera
