// In mixed precision weights travel in the element type in which they are used: the shard is cast, then
// gathered. Gradients are summed in f32.
#include <doctest/doctest.h>

#include "graph/base/text.h"
#include "parallel/strategy/apply_pins.h"
#include "tests/parallel/step_graphs.h"
#include "tests/parallel/volumes.h"

using namespace tessera;

namespace {

constexpr std::string_view kModel = "llama:L=2,C=64,H=8,KV=4,F=172,V=512,T=16";
constexpr int64_t kBatch = 12, kTokens = 16;
constexpr double kNarrow = 2, kWide = 4;  // bytes of an element
constexpr double kTable = 512 * 64;

// Tied, so that backward reads every weight again.
Graph step_of(DType precision) { return training_step(kModel, true, 0, precision).value(); }

struct Counted {
  std::map<std::string, Sent> sent;
  int64_t parameter_bytes = 0, arena_bytes = 0;  // of rank 0
  bool wide_gathers = false;                     // of anything but scalars
};

Counted count(const Graph& step, std::string_view words) {
  CAPTURE(words);
  const auto program = program_of(step, words, kBatch, kTokens);
  REQUIRE_MESSAGE(program.ok(), program.status().to_string());
  Counted counted;
  counted.sent = count_sent(*program);
  counted.arena_bytes = program->ranks[0].arena_bytes;
  for (const Slot& slot : program->ranks[0].slots)
    if (slot.kind == SlotKind::kParameter) counted.parameter_bytes += slot.bytes;
  for (const Instruction& instruction : program->ranks[0].entries[0].code)
    if (const auto* it = std::get_if<CollectiveInst>(&instruction))
      counted.wide_gathers |= it->kind == CollectiveKind::kAllGather && it->dtype == DType::kF32;
  return counted;
}

double bytes_of(const Counted& counted, const std::string& what) {
  const auto at = counted.sent.find(what);
  return at == counted.sent.end() ? 0 : at->second.bytes;
}

}  // namespace

TEST_CASE("in mixed precision zero gathers narrow weights and scatters f32 gradients, exactly") {
  for (const DType precision : {DType::kBF16, DType::kF16}) {
    const Graph step = step_of(precision);
    const auto psi = static_cast<double>(parameter_elements(step));
    for (const int n : {2, 4})
      for (const int m : {1, 3}) {
        const auto counted = [&](std::string_view words) {
          return count(step, format("dp={},{},mb={}", n, words, kBatch / n / m));
        };
        const double once = (n - 1) * psi;
        // The new value is cast and gathered once a step, whatever the number of micro-batches.
        for (const std::string_view words : {"zero=1", "zero=2", "zero=3,keep"}) {
          const Counted it = counted(words);
          CAPTURE(words);
          CHECK(bytes_of(it, "all_gather dp") == kNarrow * once);
          CHECK(bytes_of(it, "reduce_scatter dp") == kWide * once * (words == "zero=1" ? 1 : m));
          CHECK(!it.wide_gathers);
        }
        // Once for each forward and each backward pass.
        for (const std::string_view words : {"zero=3", "zero=3,chunks=3", "zero=3,recompute=full"}) {
          const Counted it = counted(words);
          CAPTURE(words);
          // Readers of slices of the tied table gather their own, twice in forward.
          const double again = words.find("chunks") != words.npos ? (n - 1) * kTable * m : 0;
          CHECK(bytes_of(it, "all_gather dp") ==
                doctest::Approx(kNarrow * (2 * m * once + again)).epsilon(1e-12));
          CHECK(bytes_of(it, "reduce_scatter dp") == doctest::Approx(kWide * m * once).epsilon(1e-12));
          CHECK(!it.wide_gathers);
        }
      }
    const Counted hybrid = count(step, "dp=4,zero=3:2");
    CHECK(bytes_of(hybrid, "all_gather dp") == kNarrow * 2 * 2 * psi);
    CHECK(bytes_of(hybrid, "reduce_scatter dp") == kWide * 2 * psi);
    CHECK(bytes_of(hybrid, "all_reduce dp_groups") == kWide * 2 * psi);
  }
}

TEST_CASE("in mixed precision a grid gathers narrow weights, half the bytes of f32") {
  const Counted narrow = count(step_of(DType::kBF16), "tp=2d:2x2"),
                wide = count(step_of(DType::kF32), "tp=2d:2x2");
  CHECK(bytes_of(narrow, "all_gather x") == bytes_of(wide, "all_gather x") / 2);
  CHECK(bytes_of(narrow, "reduce_scatter x") == bytes_of(wide, "reduce_scatter x"));
  CHECK(!narrow.wide_gathers);
}

TEST_CASE("what is gathered in chunks is cast before, and is never whole") {
  const Graph step = step_of(DType::kBF16);
  const auto program = program_of(step, "dp=2,zero=3,chunks=4", kBatch, kTokens);
  REQUIRE(program.ok());
  int64_t slices = 0;
  for (const Instruction& instruction : program->ranks[0].entries[0].code)
    if (const auto* it = std::get_if<CollectiveInst>(&instruction);
        it != nullptr && it->kind == CollectiveKind::kAllGather) {
      ++slices;
      CHECK(it->dtype == DType::kBF16);
      CHECK(it->elements < 512 * 64);  // of the table
    }
  CHECK(slices > 4 * 2 * 14);  // the products' weights, for both passes
}

// A rank's memory between steps: below zero 3 too, the f32 parameter of its part alone.
TEST_CASE("in mixed precision f32 parameters are spread from zero 1 on, and kept whole by none") {
  const Graph step = step_of(DType::kBF16);
  const int64_t psi = parameter_elements(step);
  for (const std::string_view words : {"zero=1", "zero=2", "zero=3"})
    CHECK(count(step, format("dp=4,{}", words)).parameter_bytes == 4 * psi / 4);
  CHECK(count(step, "dp=4").parameter_bytes == 4 * psi);
}

TEST_CASE("a parameter pinned to be spread is gathered as its cast") {
  const Graph step = step_of(DType::kBF16);
  auto plan = plan_of(step, "dp=2", kBatch, kTokens);
  REQUIRE(plan.ok());
  PlanPins pins;
  pins.stored.emplace_back("block.0.gate", "{[dp], []}");
  const std::vector<std::pair<std::string, int64_t>> symbols = {{"T", kTokens}};
  REQUIRE(apply_pins(step.bind_partly(symbols).value(), pins, *plan).ok());
  const EntrySpec entry{"train_step", &step, &*plan};
  const auto program = lower(std::span(&entry, 1), FakeCatalog());
  REQUIRE_MESSAGE(program.ok(), program.status().to_string());
  const auto sent = count_sent(*program);
  CHECK(sent.at("all_gather dp").bytes >= kNarrow * 2 * 172 * 64);
  for (const Instruction& instruction : program->ranks[0].entries[0].code)
    if (const auto* it = std::get_if<CollectiveInst>(&instruction);
        it != nullptr && it->kind == CollectiveKind::kAllGather && it->dtype == DType::kF32)
      CHECK(step.node(it->node).phase == Phase::kUpdate);  // its state is whole
}

TEST_CASE("casts are made once a step, before everything else, so that gathers can run ahead") {
  const Graph step = step_of(DType::kBF16);
  for (const std::string_view words :
       {"dp=2,mb=2", "dp=2,zero=1,mb=2", "dp=2,zero=3,mb=2", "pp=2:1f1b,mb=3"}) {
    CAPTURE(words);
    const auto program = program_of(step, words, kBatch, kTokens);
    REQUIRE_MESSAGE(program.ok(), program.status().to_string());
    int64_t narrowing = 0;
    bool others = false, late = false;
    const RankProgram& rank = program->ranks[0];
    for (const Instruction& instruction : rank.entries[0].code) {
      const auto* it = std::get_if<KernelInst>(&instruction);
      if (it == nullptr) continue;
      const KernelDesc& kernel = rank.kernels[static_cast<size_t>(it->kernel)];
      // The first stage of a pipeline only looks up in the table: it is cast for that, and not held.
      const bool held = !words.starts_with("pp") || kernel.inputs[0].shape[0] != 512;
      const bool narrows = held && step.node(it->node).phase == Phase::kForward &&
                           kernel.op->name == "cast" && kernel.outputs[0].dtype == DType::kBF16 &&
                           kernel.inputs[0].dtype == DType::kF32;
      narrowing += narrows;
      late |= narrows && others;
      others |= !narrows;
    }
    CHECK(narrowing == (words.starts_with("pp") ? 9 : 20));  // 9 weights of a block; all, the table once
    CHECK(!late);
  }
}

// The table is cast by every stage that reads it, from its own copy of the parameter; the stage that owns it
// is sent the sum of the other's gradients, in f32, and sends the new value: once a step, as in f32.
TEST_CASE("in mixed precision a pipeline sends a tied table and its gradient once a step") {
  const auto large = [](DType precision, int64_t m) {
    const auto program =
        program_of(step_of(precision), format("pp=2:1f1b,mb={}", kBatch / m), kBatch, kTokens);
    REQUIRE_MESSAGE(program.ok(), program.status().to_string());
    std::vector<int64_t> sent;
    for (const RankProgram& rank : program->ranks)
      for (const Instruction& instruction : rank.entries[0].code)
        if (const auto* it = std::get_if<SendInst>(&instruction);
            it != nullptr && it->bytes >= kNarrow * kTable)
          sent.push_back(it->bytes);
    return sent;
  };
  for (const int64_t m : {2, 4, 6}) {
    const std::vector<int64_t> twice(2, static_cast<int64_t>(kWide * kTable));
    CHECK(large(DType::kF32, m) == twice);
    CHECK(large(DType::kBF16, m) == twice);
  }
}
