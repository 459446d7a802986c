// What the symbolic profile says is kept for backward is what the lowered program of one device keeps: bytes
// that forward instructions write and later phases read.
#include <doctest/doctest.h>

#include "graph/analysis/graph_profile.h"
#include "graph/analysis/instructions.h"
#include "tests/parallel/step_graphs.h"

using namespace tessera;

namespace {

int64_t kept_by(const RankProgram& rank, const Graph& step) {
  enum : uint8_t { kNobody, kForward, kKept, kOther };
  std::vector<uint8_t> bytes(static_cast<size_t>(rank.arena_bytes), kNobody);
  std::vector<bool> counts(bytes.size(), false);
  for (const Slot& slot : rank.slots)
    if (slot.kind == SlotKind::kTransient && slot.tier == Tier::kDevice)
      std::fill_n(counts.begin() + slot.offset, slot.bytes, true);
  std::vector<ByteAccess> accesses;
  for (const Instruction& instruction : rank.entries[0].code) {
    const auto* kernel = std::get_if<KernelInst>(&instruction);
    REQUIRE(kernel != nullptr);
    const bool forward = step.node(kernel->node).phase == Phase::kForward;
    find_accesses(rank, instruction, accesses);
    for (const ByteAccess& access : accesses)
      for (int64_t at = access.begin; at < access.end; ++at) {
        uint8_t& byte = bytes[static_cast<size_t>(at)];
        if (access.is_write)
          byte = byte == kKept ? kKept : forward ? kForward : kOther;
        else if (!forward && byte == kForward)
          byte = kKept;
      }
  }
  int64_t kept = 0;
  for (size_t at = 0; at < bytes.size(); ++at) kept += counts[at] && bytes[at] == kKept;
  return kept;
}

}  // namespace

TEST_CASE("the profile's saved bytes are those that the lowered step keeps from forward for backward") {
  for (const std::string_view model :
       {"gpt2:L=2,C=32,H=4,V=64,T=16", "gpt2:L=3,C=48,H=3,V=50,T=16",
        "llama:L=2,C=32,H=4,KV=2,F=80,V=64,T=16", "moe:L=1,C=32,H=4,KV=2,F=48,E=4,K=2,V=64,T=16"})
    for (const bool tied : {true, false}) {
      CAPTURE(model);
      const Result<Graph> step = training_step(model, tied, 1.0);
      REQUIRE(step.ok());
      const Result<Program> program = program_of(*step, "dp=1", 4, 16);
      REQUIRE(program.ok());
      const std::vector<std::pair<std::string, int64_t>> symbols = {{"B", 4}, {"T", 16}};
      const Result<Graph> bound = step->bind(symbols);
      REQUIRE(bound.ok());
      const Result<GraphProfile> profile = profile_graph(*bound);
      REQUIRE(profile.ok());
      CHECK(profile->total().saved_bytes == kept_by(program->ranks[0], *bound));
      CHECK(profile->total().saved_bytes > 0);
      CHECK(profile->total().saved_bytes + profile->parameter_bytes < program->ranks[0].arena_bytes);
    }
}
