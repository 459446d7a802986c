// Slots in host memory and in a file: moved, read, written, measured, limited.
#include <doctest/doctest.h>

#include <filesystem>

#include "graph/base/text.h"
#include "program_builder.h"
#include "runtime/session.h"
#include "test_devices.h"

namespace tessera {
namespace {

constexpr int64_t kCount = 20000;
const TensorType kType{DType::kF32, {kCount}};

int32_t slot_in(RankProgram& part, Tier tier, std::string name, SlotKind kind) {
  int64_t& arena = tier == Tier::kHost ? part.host_arena_bytes : part.file_arena_bytes;
  const int64_t offset = (arena + 63) / 64 * 64;
  part.slots.push_back({std::move(name), kind, tier, bytes(kType), offset});
  arena = offset + bytes(kType);
  return static_cast<int32_t>(part.slots.size()) - 1;
}

void move(EntryPoint& entry, int32_t from, int32_t to) {
  CopyInst copy;
  copy.in = {from, 0};
  copy.out = {to, 0};
  copy.row_bytes = copy.in_stride_bytes = copy.out_stride_bytes = bytes(kType);
  entry.code.emplace_back(copy);
}

// "step" of one rank: total (a state in `home`) and w (a parameter in `home`) come to the device, total =
// total + w goes back. `through_host`: file <-> host <-> device, and the sum is made in host slots.
Program offloading_program(const DeviceSet& devices, Tier home, bool through_host) {
  Program program;
  program.ranks.resize(1);
  RankProgram& part = program.ranks[0];
  test::RankBuilder build(part, devices.catalog());
  const int32_t w = slot_in(part, home, "w", SlotKind::kParameter),
                total = slot_in(part, home, "total", SlotKind::kState);
  const auto near = [&](std::string name) {
    return through_host ? slot_in(part, Tier::kHost, std::move(name), SlotKind::kTransient)
                        : build.slot(std::move(name), SlotKind::kTransient, kType);
  };
  const int32_t w_near = near("w near"), total_near = near("total near"), sum = near("sum");
  const int32_t out = build.slot("out", SlotKind::kOutput, kType);
  EntryPoint& step = build.entry("step");
  move(step, w, w_near);
  move(step, total, total_near);
  build.launch("step", "add", {kType, kType}, {total_near, w_near}, {sum});
  move(step, sum, total);
  move(step, sum, out);
  part.parameters.push_back({"w", kType, {{{w, 0}, {{0, kCount}}}}});
  part.states.push_back({"total", kType, {{{total, 0}, {{0, kCount}}}}});
  step.outputs.push_back({"out", kType, {{{out, 0}, {{0, kCount}}}}});
  return program;
}

struct Fixture {
  Fixture() : registry(test::cpu_options()), devices(DeviceSet::open(registry, "cpu:1").value()) {}
  Result<std::unique_ptr<Session>> session(Program program, SessionOptions options) {
    return Session::create(Executable::prepare(devices, std::move(program)).value(), options);
  }
  BackendRegistry registry;
  std::shared_ptr<DeviceSet> devices;
};

TEST_CASE("parameters and states live in host memory or in a file") {
  const std::string folder = std::filesystem::temp_directory_path() / format("tiers.{}", getpid());
  std::filesystem::create_directory(folder);
  for (const Tier home : {Tier::kHost, Tier::kFile}) {
    for (const bool through_host : {false, true}) {
      if (home == Tier::kHost && through_host) continue;
      Fixture f;
      Program program = offloading_program(*f.devices, home, through_host);
      const RankProgram part = program.ranks[0];
      auto session = f.session(std::move(program), {.measure_memory = true, .file_folder = folder}).value();
      CHECK(std::filesystem::is_empty(folder));  // a process that dies leaves nothing
      std::vector<float> w(kCount);
      for (size_t i = 0; i < w.size(); ++i) w[i] = 1.0F + static_cast<float>(i);
      REQUIRE(session->write("w", HostTensor::copy_of<float>(kType, w)).ok());
      for (int run = 0; run < 3; ++run) {
        const Status status = session->run("step");
        REQUIRE_MESSAGE(status.ok(), status.to_string());
      }
      const HostTensor total = session->read("total").value(), out = session->fetch("step", "out").value();
      CHECK(total.as<float>()[5] == 18.0F);
      CHECK(total.as<float>()[kCount - 1] == 3.0F * kCount);
      CHECK(out.as<float>()[kCount - 1] == 3.0F * kCount);
      CHECK(session->read("w").value().as<float>()[7] == 8.0F);
      const MemoryReport report = session->memory()[0];
      CHECK(report.predicted_bytes == part.arena_bytes);
      CHECK(report.measured_bytes == part.arena_bytes);
      CHECK(report.host_predicted_bytes == part.host_arena_bytes);
      CHECK(report.host_measured_bytes == part.host_arena_bytes);
      CHECK(report.file_predicted_bytes == part.file_arena_bytes);
      CHECK(report.file_measured_bytes == part.file_arena_bytes);
      REQUIRE(session->zero_state().ok());
      CHECK(session->read("total").value().as<float>()[kCount - 1] == 0.0F);
    }
  }
  std::filesystem::remove(folder);
}

TEST_CASE("moves between tiers have a stream where something can run concurrently") {
  Fixture f;
  auto session = f.session(offloading_program(*f.devices, Tier::kHost, false), {.trace = true}).value();
  REQUIRE(session->write("w", HostTensor::copy_of<float>(kType, std::vector<float>(kCount, 1.0F))).ok());
  REQUIRE(session->run("step").ok());
  // The move back and the one out are independent; all others are in each other's way.
  for (const TraceEvent& event : session->take_trace()) {
    CHECK(event.begin_ns <= event.end_ns);
    if (event.name == "copy device -> host total") CHECK(event.stream == "copies");
    if (event.name == "copy out") CHECK(event.stream == "compute");
  }
}

TEST_CASE("host memory over its limit is refused before anything is allocated") {
  Fixture f;
  const int64_t needed = offloading_program(*f.devices, Tier::kHost, false).ranks[0].host_arena_bytes;
  const auto refused =
      f.session(offloading_program(*f.devices, Tier::kHost, false), {.host_memory_limit = needed - 1});
  REQUIRE(!refused.ok());
  CHECK(refused.status().code() == StatusCode::kOutOfMemory);
  CHECK(refused.status().message().find(format("({} bytes)", needed)) != std::string::npos);
  CHECK(f.session(offloading_program(*f.devices, Tier::kHost, false), {.host_memory_limit = needed}).ok());
}

TEST_CASE("a folder that does not exist, or a disk without room, is an error that says so") {
  Fixture f;
  const auto nowhere =
      f.session(offloading_program(*f.devices, Tier::kFile, false), {.file_folder = "/nonexistent/folder"});
  REQUIRE(!nowhere.ok());
  CHECK(nowhere.status().code() == StatusCode::kIo);
  CHECK(nowhere.status().message().find("'/nonexistent/folder'") != std::string::npos);
  Program large = offloading_program(*f.devices, Tier::kFile, false);
  large.ranks[0].file_arena_bytes = int64_t{1} << 52;
  const auto full = f.session(std::move(large), {});
  REQUIRE(!full.ok());
  CHECK(full.status().code() == StatusCode::kIo);
  CHECK(full.status().message().find("has no room for") != std::string::npos);
}

TEST_CASE("a kernel cannot be given bytes of a file") {
  Fixture f;
  Program program = offloading_program(*f.devices, Tier::kFile, false);
  std::get<KernelInst>(program.ranks[0].entries[0].code[2]).inputs[0].slot = 1;  // "total" itself
  const Status status = Executable::prepare(f.devices, std::move(program)).status();
  CHECK(status.message().find("slot 'total' lies in a file") != std::string::npos);
}

}  // namespace
}  // namespace tessera
