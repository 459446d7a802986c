// Named strategies: the words of --parallel ("dp=2,tp=2,sp,zero=1") and the plan that they pin. No strategy
// has code of its own: each is a way to fill in factor assignments and stored specs, found by propagation
// over the graph.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/plan.h"

namespace tessera {

struct StrategySpec {
  int32_t dp = 1;
  int32_t tp = 1;
  bool sp = false;          // Megatron sequence parallelism over tp
  int32_t zero = 0;         // 0..3 over dp
  int32_t zero_group = 0;   // shard inside groups of this many (zero=3:G); 0: the whole of dp
  int64_t micro_batch = 0;  // sequences per data-parallel rank (mb=); 0: the planner chooses
  int32_t devices() const { return dp * tp; }
  friend bool operator==(const StrategySpec&, const StrategySpec&) = default;
};

// Which of the words the user pinned; the rest is the planner's.
struct StrategyPins {
  StrategySpec spec;
  bool dp = false, tp = false, sp = false, zero = false, micro_batch = false;
};

// Errors name the word found, the words known (nearest first) and an example.
Result<StrategyPins> parse_parallel(std::string_view text);
std::string to_text(const StrategySpec& spec);  // canonical: "dp=2,tp=2,sp,zero=1"; "single" for one device

// Fills in a whole Plan (all nodes, stored specs) for a step graph whose symbols are bound except "B".
//   global_batch  sequences in a step; cut into micro_batches equal parts (an error when it does not divide)
// An inadmissible combination (more tp parts than heads, say) is refused with the nearest admissible one.
Result<Plan> apply_strategy(const Graph& graph, const StrategySpec& spec, int64_t global_batch);

}  // namespace tessera
