// Overlap of a rank's streams on a backend that blocks (cpu) and on one that does not (null).
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "allocation_count.h"
#include "graph/base/text.h"
#include "program_builder.h"
#include "runtime/backends/null/null_backend.h"
#include "runtime/session.h"
#include "test_devices.h"

namespace tessera {
namespace {

constexpr int64_t kCount = 8192;  // f32 in every tensor: 32 KiB, enough to be worth a stream

// "step" on every rank: double = x + x; sum = all_reduce(double), concurrent with square = x * x; y = square + sum; y
// goes to the next rank, what comes from the one before is `got`; `got` and `square` make z. Bytes of
// `double` are reused for got.
Program overlapping_program(const DeviceSet& devices) {
  const auto ranks = static_cast<int32_t>(devices.size());
  const TensorType type{DType::kF32, {kCount}}, all{DType::kF32, {kCount * ranks}};
  Program program;
  program.ranks.resize(static_cast<size_t>(ranks));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    RankProgram& part = program.ranks[static_cast<size_t>(rank)];
    test::RankBuilder build(part, devices.catalog());
    const int32_t x = build.slot("x", SlotKind::kInput, type), y = build.slot("y", SlotKind::kOutput, type),
                  z = build.slot("z", SlotKind::kOutput, type),
                  twice = build.slot("double", SlotKind::kTransient, type),
                  sum = build.slot("sum", SlotKind::kTransient, type),
                  square = build.slot("square", SlotKind::kTransient, type);
    part.slots.push_back({"got", SlotKind::kTransient, Tier::kDevice, kCount * 4,
                          part.slots[static_cast<size_t>(twice)].offset});
    const auto got = static_cast<int32_t>(part.slots.size()) - 1;
    Group everyone;
    for (int32_t member = 0; member < ranks; ++member) everyone.ranks.push_back(member);
    everyone.position = rank;
    everyone.axis = "dp";
    part.groups.push_back(everyone);

    build.launch("step", "add", {type, type}, {x, x}, {twice});
    CollectiveInst reduce;
    reduce.group = 0;
    reduce.elements = kCount;
    reduce.in = {twice, 0};
    reduce.out = {sum, 0};
    EntryPoint& step = build.entry("step");
    step.code.emplace_back(reduce);
    build.launch("step", "mul", {type, type}, {x, x}, {square});
    build.launch("step", "add", {type, type}, {square, sum}, {y});
    if (ranks > 1) {
      step.code.emplace_back(SendInst{(rank + 1) % ranks, kCount * 4, {y, 0}});
      step.code.emplace_back(RecvInst{(rank + ranks - 1) % ranks, kCount * 4, {got, 0}});
    }
    build.launch("step", "add", {type, type}, {ranks > 1 ? got : twice, square}, {z});
    const Box mine{{rank * kCount, (rank + 1) * kCount}};
    step.inputs.push_back({"x", all, {{{x, 0}, mine}}});
    step.outputs.push_back({"y", all, {{{y, 0}, mine}}});
    step.outputs.push_back({"z", all, {{{z, 0}, mine}}});
  }
  return program;
}

std::vector<float> inputs(int32_t ranks) {
  std::vector<float> x(static_cast<size_t>(kCount * ranks));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 1013) * 0.001F - 0.3F;
  return x;
}

struct Run {
  Run(int32_t ranks, SessionOptions options) : registry(test::cpu_options()) {
    auto devices = DeviceSet::open(registry, format("cpu:{}", ranks)).value();
    session =
        Session::create(Executable::prepare(devices, overlapping_program(*devices)).value(), options).value();
    const TensorType all{DType::kF32, {kCount * ranks}};
    REQUIRE(session->feed("step", "x", HostTensor::copy_of<float>(all, inputs(ranks))).ok());
  }
  std::vector<float> fetch(std::string_view name) {
    const HostTensor tensor = session->fetch("step", name).value();
    return {tensor.as<float>().begin(), tensor.as<float>().end()};
  }
  BackendRegistry registry;
  std::unique_ptr<Session> session;
};

TEST_CASE("what overlaps computes what it would in order") {
  for (const int32_t ranks : {1, 2, 3, 5}) {
    Run in_order(ranks, {.streams = StreamOptions{.inline_below_bytes = INT64_MAX}});
    Run overlapped(ranks, {.streams = StreamOptions{}});
    REQUIRE(in_order.session->run("step").ok());
    const std::vector<float> x = inputs(ranks);
    for (int run = 0; run < 20; ++run) {
      const Status status = overlapped.session->run("step");
      REQUIRE_MESSAGE(status.ok(), status.to_string());
      CHECK(overlapped.fetch("y") == in_order.fetch("y"));
      CHECK(overlapped.fetch("z") == in_order.fetch("z"));
    }
    double sum = 0;
    for (int32_t rank = 0; rank < ranks; ++rank) sum += 2 * x[static_cast<size_t>(rank * kCount + 7)];
    CHECK(overlapped.fetch("y")[7] == doctest::Approx(x[7] * x[7] + sum).epsilon(1e-5));
  }
}

TEST_CASE("perturbed runs give the same bits") {
  Run plain(3, {.streams = StreamOptions{}});
  REQUIRE(plain.session->run("step").ok());
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Run perturbed(3, {.watchdog_s = 20, .streams = StreamOptions{}, .perturbation_seed = seed});
    for (int run = 0; run < 3; ++run) {
      REQUIRE(perturbed.session->run("step").ok());
      CHECK(perturbed.fetch("y") == plain.fetch("y"));
      CHECK(perturbed.fetch("z") == plain.fetch("z"));
    }
  }
}

TEST_CASE("a trace has every instruction on the stream it ran on, in order") {
  Run run(2, {.trace = true, .streams = StreamOptions{}});
  REQUIRE(run.session->run("step").ok());
  std::map<std::string, std::string> stream_of;
  const std::vector<TraceEvent> events = run.session->take_trace();
  REQUIRE(events.size() == 14);
  for (size_t i = 0; i < events.size(); ++i) {
    if (events[i].rank == 0) stream_of[events[i].name] = events[i].stream;
    CHECK(events[i].end_ns >= events[i].begin_ns);
    if (i > 0 && events[i].rank == events[i - 1].rank && events[i].track == events[i - 1].track)
      CHECK(events[i].begin_ns >= events[i - 1].end_ns);
  }
  CHECK(stream_of["all_reduce dp"] == "collectives");
  CHECK(stream_of["mul square"] == "compute");
  CHECK(stream_of["send to 1"] == "send to 1");
  CHECK(stream_of["recv from 1"] == "receive from 1");
  const auto reduce = std::ranges::find(events, "all_reduce dp", &TraceEvent::name);
  CHECK(reduce->bytes == kCount * 4);
  CHECK(reduce->category == "collective");
}

TEST_CASE("a run over several streams allocates nothing") {
  Run run(2, {});
  REQUIRE(run.session->run("step").ok());
  const int64_t before = test::allocation_count();
  bool ok = true;
  for (int i = 0; i < 20; ++i) ok = ok && run.session->run("step").ok();
  CHECK(test::allocation_count() == before);
  CHECK(ok);
}

TEST_CASE("a cancelled run over several streams ends, and the session recovers") {
  Run run(2, {});
  for (int i = 0; i < 20; ++i) {
    std::thread other([&] { run.session->cancel(); });
    const Status status = run.session->run("step");
    other.join();
    if (!status.ok()) {
      CHECK(status.code() == StatusCode::kCancelled);
      REQUIRE(run.session->restore().ok());
    }
  }
  CHECK(run.session->run("step").ok());
}

struct Log {
  std::mutex mutex;
  std::vector<std::string> lines;
  static void append(void* self, int32_t, const char* line) {
    auto* log = static_cast<Log*>(self);
    const std::lock_guard lock(log->mutex);
    log->lines.emplace_back(line);
  }
};

TEST_CASE("a backend that does not block gets streams and events") {
  Log log;
  RegistryOptions options;
  options.built_in = {tsr_null_backend_entry};
  options.log = Log::append;
  options.log_context = &log;
  BackendRegistry registry(options);
  auto devices = DeviceSet::open(registry, "null:2").value();
  auto session = Session::create(Executable::prepare(devices, overlapping_program(*devices)).value()).value();
  const TensorType all{DType::kF32, {kCount * 2}};
  REQUIRE(session->feed("step", "x", HostTensor::copy_of<float>(all, inputs(2))).ok());
  log.lines.clear();
  REQUIRE(session->run("step").ok());
  const auto done_us = [&](std::string_view what) {
    for (const std::string& line : log.lines)
      if (line.starts_with(format("null:1 {}", what)))
        return parse_f64(line.substr(line.find(" at ") + 4, line.rfind(" us") - line.find(" at ") - 4))
            .value();
    return -1.0;
  };
  // The product is issued after the reduction and done before it.
  CHECK(done_us("mul") > 0);
  CHECK(done_us("mul") < done_us("collective 0"));
}

}  // namespace
}  // namespace tessera
