// Weights that are cast where they are used are split as the weights themselves would be.
#include <doctest/doctest.h>

#include "graph/transform/fusion.h"
#include "graph/transform/precision.h"
#include "tests/parallel/step_graphs.h"
#include "tests/parallel/volumes.h"

using namespace tessera;

namespace {

Graph step_of(std::string_view shorthand, bool mixed, bool fused, bool tied) {
  ModelConfig config = parse_shorthand(shorthand).value();
  config.flags["tied"] = tied;
  Graph forward = build_model(config).value();
  REQUIRE(add_token_loss(forward).ok());
  if (fused) forward = with_fused_loss(forward).value();
  if (mixed) forward = with_mixed_precision(forward, DType::kBF16).value();
  auto step = make_training_step(forward, {});
  REQUIRE_MESSAGE(step.ok(), step.status().to_string());
  return std::move(step).value();
}

int64_t bytes_of(const Program& program, SlotKind kind) {
  int64_t bytes = 0;
  for (const Slot& slot : program.ranks[0].slots)
    if (slot.kind == kind) bytes += slot.bytes;
  return bytes;
}

int64_t kernels_of(const Program& program, std::string_view op) {
  int64_t count = 0;
  for (const KernelDesc& kernel : program.ranks[0].kernels) count += kernel.op->name == op;
  return count;
}

}  // namespace

TEST_CASE("in mixed precision parameters and optimizer state are spread as they are in f32") {
  constexpr std::string_view kModel = "llama:L=2,C=32,H=8,KV=4,F=52,V=61,T=16";
  for (const bool tied : {true, false})
    for (const bool fused : {false, true})
      for (const std::string_view words : {"tp=2", "tp=4,sp", "dp=2,tp=2,sp,zero=3", "tp=2d:2x2",
                                           "tp=3d:2x2x2", "dp=2,zero=1", "dp=2,zero=2", "pp=2:1f1b"}) {
        CAPTURE(words);
        CAPTURE(tied);
        CAPTURE(fused);
        const auto in_f32 = program_of(step_of(kModel, false, fused, tied), words, 8, 16);
        const auto mixed = program_of(step_of(kModel, true, fused, tied), words, 8, 16);
        REQUIRE_MESSAGE(in_f32.ok(), in_f32.status().to_string());
        REQUIRE_MESSAGE(mixed.ok(), mixed.status().to_string());
        // Below zero 3 the cast is gathered: the parameter itself is spread at every stage.
        const bool spreads = words.find("zero=1") != words.npos || words.find("zero=2") != words.npos;
        const auto as_stored =
            spreads ? program_of(step_of(kModel, false, fused, tied), "dp=2,zero=3", 8, 16) : in_f32;
        CHECK(bytes_of(*mixed, SlotKind::kParameter) == bytes_of(*as_stored, SlotKind::kParameter));
        CHECK(bytes_of(*mixed, SlotKind::kState) == bytes_of(*in_f32, SlotKind::kState));
        CHECK(kernels_of(*mixed, "matmul") == kernels_of(*in_f32, "matmul"));
      }
}
