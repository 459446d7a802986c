// ForeignPlan: a training plan as other systems run it, in the words of --parallel plus schedule and
// recomputation, and the features of the software that ran it. Such plans are priced, never lowered.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "graph/base/dtype.h"
#include "graph/base/result.h"
#include "parallel/analytic/transformer.h"

namespace tessera {

enum class Recompute : uint8_t { kNone, kSelective, kFull };  // selective: the attention scores
enum class ForeignSchedule : uint8_t { kGpipe, k1F1B, kInterleaved };

struct ForeignPlan {
  int32_t dp = 1, tp = 1, pp = 1;
  ForeignSchedule schedule = ForeignSchedule::k1F1B;
  int32_t virtual_stages = 1;  // chunks of one device (interleaved)
  int64_t micro_batch = 1;     // sequences per data-parallel rank
  Recompute recompute = Recompute::kNone;
  int32_t zero = 0;  // 0..3 over dp

  // Features of the software.
  bool fused_attention = true;     // scores stay on chip
  bool sequence_parallel = false;  // over tp
  bool dp_overlap = true;          // gradients are reduced beside the last backward pass
  bool scatter_sends = false;      // each tp rank sends its part between stages, gathered there
  DType compute_dtype = DType::kBF16;
  DType grad_dtype = DType::kF32;

  int32_t devices() const { return dp * tp * pp; }
};

// parallel "tp=8,dp=32,pp=2:1f1b,mb=4,recompute=full,zero=1" (pp=P:interleaved:V for V chunks a device);
// features "attention=unfused|fused, sp=on|off, dp_overlap=on|off, scatter_sends=on|off, dtype=f16|bf16|f32,
// grad_dtype=f32|f16|bf16". What is not said keeps the defaults above.
Result<ForeignPlan> parse_foreign_plan(std::string_view parallel, std::string_view features);

// In the words of --parallel: "tp=8,dp=16,pp=8:1f1b,mb=1,zero=1,recompute=full".
std::string to_text(const ForeignPlan& plan);

// Whether the words are only such as a foreign plan has (pp with a schedule, recompute), so that pricing is
// meant.
Status check_foreign_plan(const ForeignPlan& plan, const TransformerShape& model, int64_t global_batch,
                          int32_t devices);

}  // namespace tessera
