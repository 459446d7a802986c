// What products in 8 bits send: codes where they are gathered, and one number, the largest of the shards'
// scales, for every tensor that is split.
#include <doctest/doctest.h>

#include "graph/base/text.h"
#include "tests/parallel/step_graphs.h"
#include "tests/parallel/volumes.h"

using namespace tessera;

namespace {

constexpr std::string_view kModel = "llama:L=2,C=64,H=8,KV=4,F=176,V=512,T=16";
constexpr int64_t kBatch = 12, kTokens = 16;

Program lowered(std::string_view words, DType compute = DType::kBF16) {
  const Graph step = training_step(kModel, true, 0, compute, true).value();
  auto program = program_of(step, words, kBatch, kTokens);
  REQUIRE_MESSAGE(program.ok(), program.status().to_string());
  return std::move(*program);
}

// Collectives of rank 0, by kind and element type; of scalars or not.
struct Count {
  int64_t calls = 0, elements = 0;
};
Count count(const Program& program, CollectiveKind kind, DType dtype, bool scalars = false) {
  Count counted;
  for (const Instruction& instruction : program.ranks[0].entries[0].code)
    if (const auto* it = std::get_if<CollectiveInst>(&instruction);
        it != nullptr && it->kind == kind && it->dtype == dtype && (it->elements == 1) == scalars)
      ++counted.calls, counted.elements += it->elements;
  return counted;
}

int64_t largest_of(const Program& program) {
  int64_t calls = 0;
  for (const Instruction& instruction : program.ranks[0].entries[0].code)
    if (const auto* it = std::get_if<CollectiveInst>(&instruction);
        it != nullptr && it->reduce == ReduceKind::kMax)
      calls += it->elements == 1 && it->kind == CollectiveKind::kAllReduce;
  return calls;
}

constexpr int64_t kBlockWeights = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 176);
constexpr int64_t kWeights = 2 * 7, kActivations = 2 * 4, kGradients = 2 * 7;

}  // namespace

TEST_CASE("weights of 8 bits are gathered as codes, a byte an element, and never in f32") {
  for (const std::string_view words : {"dp=2,zero=1", "dp=2,zero=2", "dp=2,zero=3,keep"}) {
    CAPTURE(words);
    const Program program = lowered(words);
    CHECK(count(program, CollectiveKind::kAllGather, DType::kE4M3).elements == kBlockWeights);
    CHECK(count(program, CollectiveKind::kAllGather, DType::kBF16).elements ==
          512 * 64 + 5 * 64);  // table, norms
    CHECK(count(program, CollectiveKind::kAllGather, DType::kF32).elements == 0);
    // The maxima: of each weight's shards, of each activation and gradient over dp.
    CHECK(largest_of(program) == kWeights + kActivations + kGradients);
  }
  const Program again = lowered("dp=2,zero=3");
  CHECK(count(again, CollectiveKind::kAllGather, DType::kE4M3).elements == 2 * kBlockWeights);
  CHECK(largest_of(again) == kWeights + kActivations + kGradients);
}

TEST_CASE("weights are quantized once a step, whatever the number of micro-batches") {
  for (const std::string_view words :
       {"dp=2,mb=2", "dp=2,zero=1,mb=2", "dp=2,zero=3,mb=2", "dp=2,zero=3,mb=2,recompute=full"}) {
    CAPTURE(words);
    const Program program = lowered(words);
    const RankProgram& rank = program.ranks[0];
    int64_t scales = 0, codes = 0;
    for (const Instruction& instruction : rank.entries[0].code) {
      const auto* it = std::get_if<KernelInst>(&instruction);
      if (it == nullptr) continue;
      const KernelDesc& kernel = rank.kernels[static_cast<size_t>(it->kernel)];
      if (kernel.inputs.empty() || kernel.inputs[0].shape.rank() != 2)
        continue;  // activations have three dims
      scales += kernel.op->name == "quantize_scale";
      codes += kernel.op->name == "quantize";
    }
    CHECK(scales == kWeights);
    CHECK(codes == kWeights);
  }
}

TEST_CASE("what tensor parallelism gathers and saves of activations is codes") {
  const Program program = lowered("tp=2,sp");
  // Forward: what norms leave, for q, k and v together and for gate and up; backward: the gradients of o and
  // down.
  constexpr int64_t kTokensOfBatch = kBatch * kTokens * 64;
  CHECK(count(program, CollectiveKind::kAllGather, DType::kE4M3).elements >= 2 * 2 * kTokensOfBatch);
  CHECK(count(program, CollectiveKind::kAllGather, DType::kE5M2).elements == 2 * 2 * kTokensOfBatch);
}

TEST_CASE("on one device products in 8 bits send nothing") {
  const Program narrow = lowered("single");
  for (const Instruction& instruction : narrow.ranks[0].entries[0].code)
    CHECK(!std::holds_alternative<CollectiveInst>(instruction));
}
