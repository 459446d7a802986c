#include "runtime/session.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "allocation_count.h"
#include "graph/base/status_codes.h"
#include "graph/base/text.h"
#include "program_builder.h"
#include "test_devices.h"

namespace tessera {
namespace {

using test::cpu_options;
using test::data_parallel_program;

HostTensor values(Shape shape, float first) {
  std::vector<float> data(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < data.size(); ++i) data[i] = first + static_cast<float>(i) * 0.25f;
  return HostTensor::copy_of<float>({DType::kF32, shape}, data);
}

std::vector<float> floats(const HostTensor& tensor) {
  return {tensor.as<float>().begin(), tensor.as<float>().end()};
}

// A session on the data-parallel program with w and x in place.
struct Fixture {
  explicit Fixture(int32_t ranks, RegistryOptions registry_options = cpu_options(),
                   SessionOptions options = {}, int64_t rows = 5)
      : registry(std::move(registry_options)) {
    devices = DeviceSet::open(registry, format("cpu:{}", ranks)).value();
    executable = Executable::prepare(devices, data_parallel_program(*devices, rows)).value();
    session = Session::create(executable, options).value();
    REQUIRE(session->write("w", values({4, 3}, 1)).ok());
    REQUIRE(session->feed("step", "x", values({rows, 4}, -2)).ok());
  }
  BackendRegistry registry;
  std::shared_ptr<DeviceSet> devices;
  std::shared_ptr<Executable> executable;
  std::unique_ptr<Session> session;
};

TEST_CASE("rows_of_a_state_or_a_written_parameter_are_written_and_nothing_else_is") {
  Fixture f(2);
  const Shape shape = f.session->read("count")->type.shape;
  const HostTensor before = f.session->read("count").value();
  REQUIRE(shape.rank() == 1);
  REQUIRE(f.session->write_rows("count", shape[0] - 1, values({1}, 41)).ok());
  std::vector<float> wanted = floats(before);
  wanted.back() = 41;
  CHECK(floats(f.session->read("count").value()) == wanted);
  std::vector<float> last(1);
  const auto bytes_of_last = std::as_writable_bytes(std::span(last));
  REQUIRE(f.session->read_rows_into("count", shape[0] - 1, bytes_of_last).ok());
  CHECK(last[0] == 41);
  CHECK(f.session->read_rows_into("count", shape[0], bytes_of_last).message().find("of 'count'") != std::string_view::npos);
  CHECK(f.session->read_rows_into("count", 0, bytes_of_last.first(3)).message().find("3 bytes") != std::string_view::npos);
  CHECK(f.session->write_rows("count", shape[0], values({1}, 0)).message().find("of 'count'") !=
        std::string_view::npos);
  std::vector<float> parameter = floats(f.session->read("w").value());
  REQUIRE(f.session->write_rows("w", 2, values({1, 3}, 7)).ok());
  const std::vector<float> row = floats(values({1, 3}, 7));
  std::copy(row.begin(), row.end(), parameter.begin() + 6);
  CHECK(floats(f.session->read("w").value()) == parameter);
  std::vector<float> read(3);
  REQUIRE(f.session->read_rows_into("w", 2, std::as_writable_bytes(std::span(read))).ok());
  CHECK(read == row);
  const auto unwritten = Session::create(f.executable, {}).value();
  CHECK(unwritten->write_rows("w", 0, values({1, 3}, 0)).message().find("wanted a state") != std::string_view::npos);
  CHECK(unwritten->read_rows_into("w", 0, bytes_of_last).message().find("wanted a state") != std::string_view::npos);
}

TEST_CASE("any_number_of_ranks_computes_the_same_step") {
  std::vector<float> y(15), total(3);
  for (size_t row = 0; row < 5; ++row)
    for (size_t n = 0; n < 3; ++n) {
      for (size_t k = 0; k < 4; ++k)
        y[row * 3 + n] +=
            (-2 + 0.25f * static_cast<float>(row * 4 + k)) * (1 + 0.25f * static_cast<float>(k * 3 + n));
      total[n] += y[row * 3 + n];
    }
  for (const int32_t ranks : {1, 2, 3, 6}) {  // with six, one has no row
    Fixture f(ranks);
    for (int run = 1; run <= 3; ++run) {
      const Status status = f.session->run("step");
      REQUIRE_MESSAGE(status.ok(), status.to_string());
      const auto found_y = floats(f.session->fetch("step", "y").value());
      const auto found_total = floats(f.session->fetch("step", "total").value());
      const auto count = floats(f.session->read("count").value());
      for (size_t i = 0; i < y.size(); ++i) CHECK(found_y[i] == doctest::Approx(y[i]));
      for (size_t i = 0; i < 3; ++i) CHECK(found_total[i] == doctest::Approx(total[i]));
      for (size_t i = 0; i < 3; ++i) CHECK(count[i] == doctest::Approx(total[i] * static_cast<float>(run)));
    }
    CHECK(floats(f.session->read("w").value()) == floats(values({4, 3}, 1)));
    REQUIRE(f.session->zero_state().ok());
    CHECK(floats(f.session->read("count").value()) == std::vector<float>(3, 0));
    const auto comm = f.session->communication();
    REQUIRE(comm.size() == 1);
    CHECK(comm[0].collective == "all_reduce");
    CHECK(comm[0].axis == "dp");
    CHECK(comm[0].calls == 3);
    CHECK(comm[0].bytes == 3 * 2 * (ranks - 1) * 3 * 4);
  }
}

TEST_CASE("the_same_bits_for_any_thread_count") {
  std::vector<std::vector<float>> results;
  for (const int32_t threads : {1, 2, 3}) {
    Fixture f(2, cpu_options(threads), {}, 1000);
    REQUIRE(f.session->run("step").ok());
    results.push_back(floats(f.session->fetch("step", "total").value()));
  }
  CHECK(results[0] == results[1]);
  CHECK(results[0] == results[2]);
}

TEST_CASE("a_run_allocates_nothing") {
  Fixture f(3);
  REQUIRE(f.session->run("step").ok());
  const HostTensor x = values({5, 4}, 3);
  std::vector<std::byte> total(12);
  const int64_t before = test::allocation_count();
  bool ok = true;
  for (int run = 0; run < 20; ++run) {
    ok = ok && f.session->run("step").ok() && f.session->feed("step", "x", x).ok() &&
         f.session->fetch_into("step", "total", total).ok();
  }
  const int64_t made = test::allocation_count() - before;
  CHECK(ok);
  CHECK(made == 0);
  CHECK(f.session->allocations() == 0);
  const int64_t again = test::allocation_count();  // the counter counts
  ::operator delete(::operator new(1));
  CHECK(test::allocation_count() - again == 1);
}

TEST_CASE("measured_memory_is_the_predicted_arena") {
  for (const int32_t ranks : {1, 2, 3}) {
    Fixture f(ranks, cpu_options(), {.measure_memory = true});
    REQUIRE(f.session->run("step").ok());
    REQUIRE(f.session->run("step").ok());
    REQUIRE(f.session->run("step").ok());
    for (const MemoryReport& report : f.session->memory())
      CHECK(report.measured_bytes == report.predicted_bytes);
    CHECK(floats(f.session->read("count").value())[0] != 0);  // poisoning left the state alone
  }
  Fixture unmeasured(1);
  CHECK(unmeasured.session->memory()[0].measured_bytes == -1);
}

TEST_CASE("a_slot_that_nobody_writes_shows_in_the_measurement") {
  BackendRegistry registry(cpu_options());
  auto devices = DeviceSet::open(registry, "cpu:1").value();
  Program program = data_parallel_program(*devices, 5);
  const int64_t used = program.ranks[0].arena_bytes;
  program.ranks[0].slots.push_back(
      {"unused", SlotKind::kTransient, Tier::kDevice, 4096, (used + 63) / 64 * 64});
  program.ranks[0].arena_bytes = (used + 63) / 64 * 64 + 4096;
  auto session =
      Session::create(Executable::prepare(devices, std::move(program)).value(), {.measure_memory = true})
          .value();
  REQUIRE(session->write("w", values({4, 3}, 1)).ok());
  REQUIRE(session->feed("step", "x", values({5, 4}, 1)).ok());
  REQUIRE(session->run("step").ok());
  REQUIRE(session->run("step").ok());
  CHECK(session->memory()[0].measured_bytes == used);
  CHECK(session->memory()[0].predicted_bytes > used);
}

TEST_CASE("a_byte_that_equals_the_poison_is_still_seen") {
  // The topmost transient bytes are a copy of what the caller feeds: all ones, as the first pattern is.
  BackendRegistry registry(cpu_options());
  auto devices = DeviceSet::open(registry, "cpu:1").value();
  Program program;
  program.ranks.resize(1);
  test::RankBuilder build(program.ranks[0], devices->catalog());
  const TensorType type{DType::kI32, {100}};
  const int32_t in = build.slot("in", SlotKind::kInput, type),
                out = build.slot("top", SlotKind::kTransient, type);
  CopyInst copy;
  copy.in = {in, 0};
  copy.out = {out, 0};
  copy.row_bytes = 400;
  build.entry("copy").code.emplace_back(copy);
  build.entry("copy").inputs.push_back({"in", type, {{{in, 0}, {{0, 100}}}}});
  auto session =
      Session::create(Executable::prepare(devices, std::move(program)).value(), {.measure_memory = true})
          .value();
  REQUIRE(
      session->feed("copy", "in", HostTensor::copy_of<int32_t>(type, std::vector<int32_t>(100, -1))).ok());
  REQUIRE(session->run("copy").ok());
  REQUIRE(session->run("copy").ok());
  CHECK(session->memory()[0].measured_bytes == session->memory()[0].predicted_bytes);
}

TEST_CASE("writing_past_the_arena_is_a_fault") {
  BackendRegistry registry(cpu_options());
  const tsr_backend_api* api = registry.find("cpu").value();
  tsr_abi_device* device = nullptr;
  REQUIRE(take_error(api->device_open(&registry.host(), 0, &device)).ok());
  for (const int64_t bytes : {int64_t{1}, int64_t{100}, int64_t{4096}, int64_t{4097}, int64_t{9} << 20}) {
    void* memory = nullptr;
    REQUIRE(take_error(api->memory_alloc(device, 0, bytes, TSR_ALLOC_GUARDED, &memory)).ok());
    CHECK(reinterpret_cast<uintptr_t>(memory) % 64 == 0);
    char* begin = static_cast<char*>(memory);
    begin[0] = begin[bytes - 1] = 1;
    const auto faults = [](char* at) {
      const pid_t child = fork();
      if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        *static_cast<volatile char*>(at) = 1;
        _exit(0);
      }
      int state = 0;
      waitpid(child, &state, 0);
      return WIFSIGNALED(state);
    };
    CHECK(faults(begin + (bytes + 63) / 64 * 64));
    CHECK_FALSE(faults(begin + bytes - 1));
    api->memory_free(device, 0, memory, bytes);
  }
  api->device_close(device);
}

// The cpu backend, but launches fail, or hang, on one device on request.
struct Trouble {
  static inline const tsr_backend_api* real = nullptr;
  static inline tsr_backend_api table;
  static inline const tsr_host_api* host = nullptr;
  static inline std::atomic<int> fail_on_launch{-1};  // the n-th launch from now
  static inline std::atomic<bool> stall{false};       // launches wait until this is cleared

  static const tsr_backend_api* entry(const tsr_host_api* given) {
    host = given;
    real = tsr_cpu_backend_entry(given);
    table = *real;
    table.kernel_launch = [](tsr_abi_kernel* kernel, tsr_abi_stream* stream, const void* const* in,
                             void* const* out, void* workspace) -> tsr_abi_error* {
      if (fail_on_launch.fetch_sub(1) == 0) return host->make_error(host->host, 4, "planted failure");
      while (stall) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return real->kernel_launch(kernel, stream, in, out, workspace);
    };
    return &table;
  }
  static RegistryOptions options() {
    RegistryOptions options;
    options.built_in = {entry};
    return options;
  }
};

TEST_CASE("an_error_on_one_rank_ends_the_run_on_all_and_restore_makes_the_session_usable") {
  Fixture f(4, Trouble::options());
  REQUIRE(f.session->run("step").ok());
  for (int launch = 0; launch < 8;
       ++launch) {  // two launches on each of four ranks come before the all_reduce
    Trouble::fail_on_launch = launch;
    const Status status = f.session->run("step");
    CHECK(status.code() == StatusCode::kUnsupported);
    CHECK(status.message().find("planted failure") != std::string_view::npos);
    CHECK(status.message().find("rank ") == 0);
    CHECK(status.message().find("entry 'step', instruction ") != std::string_view::npos);
    CHECK(f.session->run("step").code() == kValuesLost);
    REQUIRE(f.session->restore().ok());
    CHECK(floats(f.session->read("count").value()) == std::vector<float>(3, 0));
    const Status after = f.session->run("step");
    CHECK_MESSAGE(after.ok(), after.to_string());
  }
  CHECK(f.session->communication()[0].calls >= 9);  // what was counted before a restore stays counted
}

TEST_CASE("cancel_ends_the_run_in_progress") {
  Fixture f(3, Trouble::options());
  f.session->cancel();  // nothing runs: no effect
  REQUIRE(f.session->run("step").ok());
  Trouble::stall = true;
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    f.session->cancel();
    Trouble::stall = false;
  });
  const Status status = f.session->run("step");
  canceller.join();
  CHECK(status.code() == StatusCode::kCancelled);
  REQUIRE(f.session->restore().ok());
  CHECK(f.session->run("step").ok());
}

TEST_CASE("what_is_missing_or_wrong_is_named") {
  BackendRegistry registry(cpu_options());
  auto devices = DeviceSet::open(registry, "cpu:2").value();
  auto executable = Executable::prepare(devices, data_parallel_program(*devices, 5)).value();
  auto session = Session::create(executable).value();
  CHECK(session->run("step").message() ==
        "parameter 'w' has not been written (1 in all); write every parameter and constant before a run");
  REQUIRE(session->write("w", values({4, 3}, 1)).ok());
  CHECK(session->run("step").message() == "input 'x' of entry 'step' has never been fed");
  CHECK(session->run("stap").message() == "entry point 'stap' does not exist; nearest: step");
  CHECK(session->write("ww", values({4, 3}, 1)).message() == "tensor 'ww' does not exist; nearest: w");
  CHECK(session->write("w", values({3, 4}, 1)).message() ==
        "tensor 'w' is f32[3, 4], the program wants f32[4, 3]");
  CHECK(session->feed("step", "z", values({5, 4}, 1)).code() == StatusCode::kNotFound);
  CHECK(session->fetch("step", "z").status().code() == StatusCode::kNotFound);
  CHECK(session->fetch("step", "total").status().message() ==
        "output 'total' holds nothing yet: entry 'step' has not run");

  Program other_variant = data_parallel_program(*devices, 5);
  other_variant.ranks[1].kernels[0].variant = "no_such";
  const Status status = Executable::prepare(devices, std::move(other_variant)).status();
  CHECK(status.message() == "rank 1: preparing matmul: the cpu backend has no variant 'no_such' of 'matmul'");
  auto three = DeviceSet::open(registry, "cpu:3").value();
  CHECK(Executable::prepare(three, data_parallel_program(*devices, 5)).status().code() ==
        StatusCode::kInvalidArgument);
}

TEST_CASE("a_ring_may_send_before_it_receives") {
  for (const int32_t ranks : {2, 3, 5}) {
    BackendRegistry registry(cpu_options());
    auto devices = DeviceSet::open(registry, format("cpu:{}", ranks)).value();
    Program program;
    program.ranks.resize(static_cast<size_t>(ranks));
    const TensorType piece{DType::kI32, {2}};
    const TensorType whole{DType::kI32, {2 * ranks}};
    for (int32_t rank = 0; rank < ranks; ++rank) {
      RankProgram& part = program.ranks[static_cast<size_t>(rank)];
      test::RankBuilder build(part, devices->catalog());
      const int32_t in = build.slot("in", SlotKind::kInput, piece),
                    out = build.slot("out", SlotKind::kOutput, piece);
      // A ring in which everybody sends both halves to the next before it receives from the one before.
      const int32_t next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
      EntryPoint& entry = build.entry("turn");
      for (int32_t half = 0; half < 2; ++half) entry.code.emplace_back(SendInst{next, 4, {in, 4 * half}});
      for (int32_t half = 0; half < 2; ++half) entry.code.emplace_back(RecvInst{before, 4, {out, 4 * half}});
      entry.inputs.push_back({"in", whole, {{{in, 0}, {{2 * rank, 2 * rank + 2}}}}});
      entry.outputs.push_back({"out", whole, {{{out, 0}, {{2 * rank, 2 * rank + 2}}}}});
    }
    auto session = Session::create(Executable::prepare(devices, std::move(program)).value()).value();
    std::vector<int32_t> in, expected;
    for (int32_t i = 0; i < 2 * ranks; ++i) in.push_back(i);
    for (int32_t i = 0; i < 2 * ranks; ++i) expected.push_back((i + 2 * ranks - 2) % (2 * ranks));
    REQUIRE(session->feed("turn", "in", HostTensor::copy_of<int32_t>(whole, in)).ok());
    for (int run = 0; run < 50; ++run) REQUIRE(session->run("turn").ok());
    const HostTensor out = session->fetch("turn", "out").value();
    CHECK(std::vector<int32_t>(out.as<int32_t>().begin(), out.as<int32_t>().end()) == expected);
    for (const CommReport& report : session->communication()) {
      CHECK(report.axis == "p2p");
      CHECK(report.calls == 100);
      CHECK(report.bytes == (report.collective == "send" ? 50 * 8 * ranks : 0));
    }
  }
}

TEST_CASE("boxes_of_any_cut_scatter_and_assemble") {
  // One tensor [3, 4, 2, 5] cut along every dim in turn, over three ranks.
  for (int cut = 0; cut < 4; ++cut) {
    BackendRegistry registry(cpu_options());
    auto devices = DeviceSet::open(registry, "cpu:3").value();
    Program program;
    program.ranks.resize(3);
    const TensorType type{DType::kF32, {3, 4, 2, 5}};
    for (int32_t rank = 0; rank < 3; ++rank) {
      test::RankBuilder build(program.ranks[static_cast<size_t>(rank)], devices->catalog());
      Box box{{0, 3}, {0, 4}, {0, 2}, {0, 5}};
      box[static_cast<size_t>(cut)] = split_range({0, type.shape[cut]}, 1, 3, rank);
      int64_t count = 1;
      for (const Range& range : box) count *= range.size();
      const int32_t slot = build.slot("t", SlotKind::kParameter, count * 4);
      program.ranks[static_cast<size_t>(rank)].parameters.push_back({"t", type, {{{slot, 0}, box}}});
    }
    auto session = Session::create(Executable::prepare(devices, std::move(program)).value()).value();
    const HostTensor value = values(type.shape, 7);
    REQUIRE(session->write("t", value).ok());
    CHECK(floats(session->read("t").value()) == floats(value));
  }
}

TEST_CASE("a_trace_names_every_instruction") {
  Fixture f(2, cpu_options(), {.trace = true});
  REQUIRE(f.session->run("step").ok());
  const auto trace = f.session->take_trace();
  REQUIRE(trace.size() == 8);
  CHECK(trace[0].name == "matmul y");
  CHECK(trace[0].category == "kernel");
  CHECK(trace[2].name == "all_reduce dp");
  CHECK(trace[2].category == "collective");
  CHECK(trace[2].end_ns >= trace[2].begin_ns);
  CHECK(f.session->take_trace().empty());
}

TEST_CASE("sessions_on_one_executable_run_at_once_and_share_nothing") {
  Fixture f(2);
  auto other = Session::create(f.executable).value();
  REQUIRE(other->write("w", values({4, 3}, 5)).ok());
  REQUIRE(other->feed("step", "x", values({5, 4}, 2)).ok());
  REQUIRE(f.session->run("step").ok());
  REQUIRE(other->run("step").ok());
  const auto mine = floats(f.session->fetch("step", "total").value());
  const auto theirs = floats(other->fetch("step", "total").value());
  std::thread thread([&] {
    for (int i = 0; i < 100; ++i) CHECK(other->run("step").ok());
  });
  for (int i = 0; i < 100; ++i) CHECK(f.session->run("step").ok());
  thread.join();
  CHECK(floats(f.session->fetch("step", "total").value()) == mine);
  CHECK(floats(other->fetch("step", "total").value()) == theirs);
  CHECK(mine != theirs);
}

TEST_CASE("a_forked_child_gets_an_error_from_run_and_can_leave") {
  Fixture f(2);
  REQUIRE(f.session->run("step").ok());
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);  // a hang becomes a signal
    const bool refused = f.session->run("step").code() == kForked;
    f.session.reset();
    _exit(refused ? 0 : 1);
  }
  int state = 0;
  REQUIRE(waitpid(child, &state, 0) == child);
  CHECK(WIFEXITED(state));
  CHECK(WEXITSTATUS(state) == 0);
  CHECK(f.session->run("step").ok());
}

}  // namespace
}  // namespace tessera
