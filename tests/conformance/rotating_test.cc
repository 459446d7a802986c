// Keys and values that rotate around the ranks of an axis (ring attention), put into plans by hand.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/conformance/parity_harness.h"

using namespace tessera;
using namespace tessera::parity;

namespace {

// Attention over the last axis of the mesh: its queries split along the sequence, its keys on the way.
Status rotate_attention(const Graph& step, Plan& plan) {
  const auto axis = static_cast<AxisId>(plan.stages[0].mesh.axes.size() - 1);
  const int32_t ranks = plan.stages[0].mesh.axes[axis].size;
  int changed = 0;
  for (size_t n = 0; n < step.nodes().size(); ++n) {
    if (step.nodes()[n].op->name != "attention" && step.nodes()[n].op->name != "attention_grad") continue;
    NodePlan& node = plan.nodes[n];
    std::erase_if(node.factor_axes,
                  [&](const auto& entry) { return entry.second == std::vector<AxisId>{axis}; });
    node.factor_axes.emplace_back('t', std::vector<AxisId>{axis});
    std::ranges::sort(node.factor_axes);
    node.factor_units.clear();
    node.chunk_factor = 's';
    node.chunks = ranks;
    node.chunk_order = ChunkOrder::kRotating;
    ++changed;
  }
  return changed > 0 ? Status() : Status(StatusCode::kInternal, "no attention in the graph");
}

}  // namespace

TEST_SUITE("parity rotating") {
  TEST_CASE("keys that rotate give what keys at rest give") {
    print_header();
    for (const DType dtype : {DType::kF64, DType::kF32})
      for (const char* model : {"gpt2:L=2,C=32,H=8,V=61,T=16", "llama:L=2,C=32,H=8,KV=4,F=48,V=61,T=16",
                                "encoder:L=2,C=32,H=8,F=48,V=61,T=16"}) {
        Job job;
        job.model = model;
        job.dtype = dtype;
        for (const char* words : {"tp=2,sp", "tp=3,sp", "tp=4,sp", "dp=3,tp=2,sp", "tp=4"})
          check(measure(job, words, rotate_attention, std::string("rotating in ") + words));
      }
  }
}
