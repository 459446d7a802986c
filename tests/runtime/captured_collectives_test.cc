// Steps that communicate as graphs: of sessions on the backend under test, which captures where every rank
// has a device of its own (cuda, and NCCL there), and issues elsewhere.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "graph/base/text.h"
#include "program_builder.h"
#include "runtime/session.h"
#include "test_devices.h"

namespace tessera {
namespace {

constexpr int32_t kRanks = 4;
constexpr int64_t kMany = 16384;  // f32: 64 KiB, which have a stream of their own
constexpr int64_t kFew = 96;      // which have not

struct Shape4 {
  bool sends = false;   // to the next rank
  bool uneven = false;  // gathers pieces that are not all as long: NCCL does not
};

// "step" on a mesh of 2 x 2: sum = all_reduce(x + x) over the first axis beside few = all_reduce(s + s) over
// the second and square = x * x; y = square + sum; count = count + sum; seen = seen + few.
Program step_program(const DeviceSet& devices, const Shape4& shape) {
  const TensorType many{DType::kF32, {kMany}}, few{DType::kF32, {kFew}};
  const TensorType all_many{DType::kF32, {kMany * kRanks}}, all_few{DType::kF32, {kFew * kRanks}};
  Program program;
  program.ranks.resize(kRanks);
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    RankProgram& part = program.ranks[static_cast<size_t>(rank)];
    test::RankBuilder build(part, devices.catalog());
    const int32_t x = build.slot("x", SlotKind::kInput, many), s = build.slot("s", SlotKind::kInput, few),
                  y = build.slot("y", SlotKind::kOutput, many),
                  count = build.slot("count", SlotKind::kState, many),
                  seen = build.slot("seen", SlotKind::kState, few),
                  twice = build.slot("twice", SlotKind::kTransient, many),
                  sum = build.slot("sum", SlotKind::kTransient, many),
                  square = build.slot("square", SlotKind::kTransient, many),
                  few_twice = build.slot("few_twice", SlotKind::kTransient, few),
                  few_sum = build.slot("few_sum", SlotKind::kTransient, few);
    const int32_t row = rank / 2, column = rank % 2;
    part.groups.push_back({{column, column + 2}, row, "dp"});
    part.groups.push_back({{2 * row, 2 * row + 1}, column, "tp"});
    EntryPoint& step = build.entry("step");
    const auto reduce = [&](int32_t group, int64_t elements, int32_t in, int32_t out) {
      CollectiveInst inst;
      inst.group = group;
      inst.elements = elements;
      inst.in = {in, 0};
      inst.out = {out, 0};
      step.code.emplace_back(inst);
    };
    build.launch("step", "add", {many, many}, {x, x}, {twice});
    reduce(0, kMany, twice, sum);
    build.launch("step", "add", {few, few}, {s, s}, {few_twice});
    reduce(1, kFew, few_twice, few_sum);
    build.launch("step", "mul", {many, many}, {x, x}, {square});
    build.launch("step", "add", {few, few}, {seen, few_sum}, {seen});
    build.launch("step", "add", {many, many}, {square, sum}, {y});
    build.launch("step", "add", {many, many}, {count, sum}, {count});
    if (shape.uneven) {
      const int32_t whole = build.slot("whole", SlotKind::kTransient, many);
      CollectiveInst gather;
      gather.kind = CollectiveKind::kAllGather;
      gather.group = 0;
      gather.extents = {kMany - 1, 1};
      gather.elements = kMany;
      gather.in = {twice, 0};
      gather.out = {whole, 0};
      step.code.emplace_back(gather);
    }
    if (shape.sends) {
      const int32_t got = build.slot("got", SlotKind::kTransient, many);
      step.code.emplace_back(SendInst{(rank + 1) % kRanks, kMany * 4, {y, 0}});
      step.code.emplace_back(RecvInst{(rank + kRanks - 1) % kRanks, kMany * 4, {got, 0}});
    }
    const Box mine{{rank * kMany, (rank + 1) * kMany}}, my_few{{rank * kFew, (rank + 1) * kFew}};
    part.states.push_back({"count", all_many, {{{count, 0}, mine}}});
    part.states.push_back({"seen", all_few, {{{seen, 0}, my_few}}});
    step.inputs.push_back({"x", all_many, {{{x, 0}, mine}}});
    step.inputs.push_back({"s", all_few, {{{s, 0}, my_few}}});
    step.outputs.push_back({"y", all_many, {{{y, 0}, mine}}});
  }
  return program;
}

struct Steps {
  explicit Steps(bool capture, const Shape4& shape = {}) : registry(options()) {
    auto devices = DeviceSet::open(registry, test::devices_for(registry, kRanks).value()).value();
    SessionOptions wanted;
    wanted.capture = capture;
    wanted.streams = StreamOptions{};
    session =
        Session::create(Executable::prepare(devices, step_program(*devices, shape)).value(), wanted).value();
    feed(0.001F);
    expects_graphs = test::test_backend() == "cuda" &&
                     registry.find("cuda").value()->device_count() >= kRanks &&
                     std::getenv("TESSERA_EMULATED_NCCL") == nullptr;
  }
  RegistryOptions options() {
    RegistryOptions options = test::cpu_options();
    options.log = [](void* self, int32_t level, const char* line) {
      auto* steps = static_cast<Steps*>(self);
      const std::lock_guard lock(steps->mutex);
      if (level >= 1) steps->log += std::string(line) + "\n";
    };
    options.log_context = this;
    return options;
  }
  void feed(float scale) {
    std::vector<float> x(kMany * kRanks), s(kFew * kRanks);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 1013) * scale - 0.3F;
    for (size_t i = 0; i < s.size(); ++i) s[i] = static_cast<float>(i) * scale;
    const TensorType many{DType::kF32, {kMany * kRanks}}, few{DType::kF32, {kFew * kRanks}};
    REQUIRE(session->feed("step", "x", HostTensor::copy_of<float>(many, x)).ok());
    REQUIRE(session->feed("step", "s", HostTensor::copy_of<float>(few, s)).ok());
  }
  void run() {
    const Status status = session->run("step");
    REQUIRE_MESSAGE(status.ok(), status.to_string());
  }
  std::vector<float> floats(const HostTensor& tensor) const {
    return {tensor.as<float>().begin(), tensor.as<float>().end()};
  }
  void check_same(Steps& other) {
    CHECK(floats(session->fetch("step", "y").value()) == floats(other.session->fetch("step", "y").value()));
    for (const char* name : {"count", "seen"})
      CHECK(floats(session->read(name).value()) == floats(other.session->read(name).value()));
  }
  bool is_captured() const { return session->is_captured("step"); }

  std::mutex mutex;
  std::string log;
  BackendRegistry registry;
  std::unique_ptr<Session> session;
  bool expects_graphs;  // where nothing goes by way of the host
};

bool says(const std::vector<CommReport>& left, const std::vector<CommReport>& right) {
  return std::ranges::equal(left, right, [](const CommReport& a, const CommReport& b) {
    return a.collective == b.collective && a.axis == b.axis && a.calls == b.calls && a.bytes == b.bytes;
  });
}

TEST_CASE("a_captured_step_with_collectives_leaves_the_bits_and_counts_of_one_that_is_issued") {
  Steps captured(true), issued(false);
  for (int step = 0; step < 5; ++step) {
    for (Steps* each : {&captured, &issued}) {
      each->feed(0.001F * static_cast<float>(step + 1));
      each->run();
    }
    captured.check_same(issued);
    CHECK(captured.is_captured() == (captured.expects_graphs && step > 0));
    CHECK(!issued.is_captured());
    CHECK(says(captured.session->communication(), issued.session->communication()));
    if (step == 2)
      for (Steps* each : {&captured, &issued}) each->session->reset_communication();
  }
  const std::vector<CommReport> reports = captured.session->communication();
  REQUIRE(reports.size() == 2);
  CHECK(reports[0].calls == 2);
  CHECK(reports[0].bytes == 2 * (kRanks * kMany * 4));  // 2 (N - 1) / N each way, of 2 members, by 4 ranks
  if (captured.expects_graphs) CHECK(captured.log.find("captured: it is one launch") != std::string::npos);
}

TEST_CASE("a_step_that_goes_by_way_of_the_host_anywhere_is_captured_on_no_rank") {
  for (const Shape4& shape : {Shape4{.sends = true}, Shape4{.uneven = true}}) {
    Steps wanted(true, shape), issued(false, shape);
    for (int step = 0; step < 3; ++step) {
      for (Steps* each : {&wanted, &issued}) each->run();
      wanted.check_same(issued);
      CHECK(!wanted.is_captured());
    }
    CHECK(says(wanted.session->communication(), issued.session->communication()));
    // Known before anybody begins a capture.
    CHECK(wanted.log.find("could not be on another rank") == std::string::npos);
    if (wanted.expects_graphs && shape.uneven)
      CHECK(wanted.log.find("it communicates by way of the host") != std::string::npos);
  }
}

TEST_CASE("where_one_rank_cannot_capture_none_does") {
  Steps wanted(true), issued(false);
  if (!wanted.expects_graphs) return;
  setenv("TESSERA_EMULATED_GRAPHS_FAIL_ON", "2", 1);
  for (int step = 0; step < 4; ++step) {
    for (Steps* each : {&wanted, &issued}) each->run();
    wanted.check_same(issued);
  }
  unsetenv("TESSERA_EMULATED_GRAPHS_FAIL_ON");
  if (wanted.is_captured()) return;  // a GPU, which nothing fails on
  CHECK(wanted.log.find("rank 2, entry 'step' is not captured, and is issued kernel by kernel: ") !=
        std::string::npos);
  CHECK(wanted.log.find("it could not be on another rank") != std::string::npos);
  CHECK(says(wanted.session->communication(), issued.session->communication()));
}

TEST_CASE("after_an_abort_no_graph_of_before_is_launched") {
  Steps aborted(true), fresh(true);
  for (int round = 0; round < 6; ++round) {
    for (int step = 0; step < 3; ++step) aborted.run();
    CHECK(aborted.is_captured() == aborted.expects_graphs);
    Status status;
    while (status.ok()) {  // however it comes to meet the run
      std::thread other([&] { aborted.session->cancel(); });
      status = aborted.session->run("step");
      other.join();
    }
    CHECK(status.code() == StatusCode::kCancelled);
    if (round == 5) break;  // a session may also end as it is
    REQUIRE(aborted.session->restore().ok());
    CHECK(!aborted.is_captured());
  }
  REQUIRE(aborted.session->restore().ok());
  for (int step = 0; step < 3; ++step) {
    for (Steps* each : {&aborted, &fresh}) each->run();
    aborted.check_same(fresh);
    CHECK(aborted.is_captured() == (aborted.expects_graphs && step > 0));
  }
  std::thread other([&] { fresh.session->cancel(); });
  (void)fresh.session->run("step");
  other.join();
}

}  // namespace
}  // namespace tessera
