// Sessions of four ranks whose one step communicates in several ways, on the backend under test, with what
// they log.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "program_builder.h"
#include "runtime/session.h"
#include "test_devices.h"

namespace tessera::test {

inline constexpr int32_t kRanks = 4;
inline constexpr int64_t kStepMany = 16384;  // f32: 64 KiB, which have a stream of their own
inline constexpr int64_t kStepFew = 96;      // which have not

struct Shape4 {
  bool sends = false;   // to the next rank
  bool uneven = false;  // gathers pieces that are not all as long: NCCL does not
  bool reduces = true;  // over the first axis; else it gathers such pieces there instead
};

// "step" on a mesh of 2 x 2: sum = all_reduce(x + x) over the first axis, concurrent with few = all_reduce(s + s) over
// the second and square = x * x; y = square + sum; count = count + sum; seen = seen + few.
inline Program step_program(const DeviceSet& devices, const Shape4& shape) {
  const TensorType many{DType::kF32, {kStepMany}}, few{DType::kF32, {kStepFew}};
  const TensorType all_many{DType::kF32, {kStepMany * kRanks}}, all_few{DType::kF32, {kStepFew * kRanks}};
  Program program;
  program.ranks.resize(kRanks);
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    RankProgram& part = program.ranks[static_cast<size_t>(rank)];
    RankBuilder build(part, devices.catalog());
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
    const auto gather = [&](int32_t in, int32_t out) {
      CollectiveInst inst;
      inst.kind = CollectiveKind::kAllGather;
      inst.group = 0;
      inst.extents = {kStepMany - 1, 1};
      inst.elements = kStepMany;
      inst.in = {in, 0};
      inst.out = {out, 0};
      step.code.emplace_back(inst);
    };
    build.launch("step", "add", {many, many}, {x, x}, {twice});
    if (shape.reduces)
      reduce(0, kStepMany, twice, sum);
    else
      gather(twice, sum);
    build.launch("step", "add", {few, few}, {s, s}, {few_twice});
    reduce(1, kStepFew, few_twice, few_sum);
    build.launch("step", "mul", {many, many}, {x, x}, {square});
    build.launch("step", "add", {few, few}, {seen, few_sum}, {seen});
    build.launch("step", "add", {many, many}, {square, sum}, {y});
    build.launch("step", "add", {many, many}, {count, sum}, {count});
    if (shape.uneven) gather(twice, build.slot("whole", SlotKind::kTransient, many));
    if (shape.sends) {
      const int32_t got = build.slot("got", SlotKind::kTransient, many);
      step.code.emplace_back(SendInst{(rank + 1) % kRanks, kStepMany * 4, {y, 0}});
      step.code.emplace_back(RecvInst{(rank + kRanks - 1) % kRanks, kStepMany * 4, {got, 0}});
    }
    const Box mine{{rank * kStepMany, (rank + 1) * kStepMany}},
        my_few{{rank * kStepFew, (rank + 1) * kStepFew}};
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
    auto devices = DeviceSet::open(registry, devices_for(registry, kRanks).value()).value();
    SessionOptions wanted;
    wanted.capture = capture;
    wanted.streams = StreamOptions{};
    executable = Executable::prepare(devices, step_program(*devices, shape)).value();
    session = Session::create(executable, wanted).value();
    feed(0.001F);
    expects_graphs = test_backend() == "cuda" && registry.find("cuda").value()->device_count() >= kRanks &&
                     std::getenv("TESSERA_EMULATED_NCCL") == nullptr;
  }
  RegistryOptions options() {
    RegistryOptions options = cpu_options();
    options.log = [](void* self, int32_t level, const char* line) {
      auto* steps = static_cast<Steps*>(self);
      const std::lock_guard lock(steps->mutex);
      if (level >= 1) steps->log += std::string(line) + "\n";
    };
    options.log_context = this;
    return options;
  }
  void feed(float scale) { feed(*session, scale); }
  void feed(Session& into, float scale) {
    std::vector<float> x(kStepMany * kRanks), s(kStepFew * kRanks);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 1013) * scale - 0.3F;
    for (size_t i = 0; i < s.size(); ++i) s[i] = static_cast<float>(i) * scale;
    const TensorType many{DType::kF32, {kStepMany * kRanks}}, few{DType::kF32, {kStepFew * kRanks}};
    REQUIRE(into.feed("step", "x", HostTensor::copy_of<float>(many, x)).ok());
    REQUIRE(into.feed("step", "s", HostTensor::copy_of<float>(few, s)).ok());
  }
  void run() {
    const Status status = session->run("step");
    REQUIRE_MESSAGE(status.ok(), status.to_string());
  }
  std::vector<float> floats(const HostTensor& tensor) const {
    return {tensor.as<float>().begin(), tensor.as<float>().end()};
  }
  void check_same(Steps& other) { check_same(*other.session); }
  void check_same(Session& other) {
    CHECK(floats(session->fetch("step", "y").value()) == floats(other.fetch("step", "y").value()));
    for (const char* name : {"count", "seen"})
      CHECK(floats(session->read(name).value()) == floats(other.read(name).value()));
  }
  std::string logged() {
    const std::lock_guard lock(mutex);
    return log;
  }
  bool is_captured() const { return session->is_captured("step"); }

  std::mutex mutex;
  std::string log;
  BackendRegistry registry;
  std::shared_ptr<Executable> executable;
  std::unique_ptr<Session> session;
  bool expects_graphs;  // where nothing goes by way of the host
};

}  // namespace tessera::test
