// Lower bounds of one configuration's step, made to check those of the search: they share prices (StageTimes,
// after_pipeline) with it, and nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/analytic/stage_time.h"
#include "parallel/analytic/step_space.h"

namespace tessera {

class CertificateBounds {
 public:
  CertificateBounds(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
                    const ForeignPlan& plan);

  // A stage's passes are convex in its blocks (a device's or a host's, whichever is longer), so
  // that secants bound them. For 1F1B with h_s = f_s + b_s and g_s = (m - 1) b_s + (m - w_s) f_s, any weights
  // y >= 0 that add up to 1:  T >= sum_s h_s + y_s g_s.
  double closed_form() const;

  // Whether no plan of this configuration within the memory limit is faster than `target_s`: over all cuts,
  // with the least recomputation that fits each stage.
  bool none_below(double target_s) const;
  // Whether no plan of it is within the memory limit.
  bool none_fits() const;
  // All that device `device` holds with these virtual stages.
  int64_t memory_bytes(int32_t device, const std::vector<StageBlocks>& stages) const;
  int64_t limit() const { return limit_; }

 private:
  bool chunked() const { return plan_.virtual_stages > 1; }
  bool recomputes(Recompute way) const;
  StagePasses passes(const StageBlocks& blocks, int32_t virtual_stage) const;
  StageBlocks fastest(int64_t count) const;  // recomputing as little as may be
  std::optional<StageBlocks> contents(int32_t device, int64_t count) const;
  double step_after(double pipeline_s) const;
  double chunked_pipeline() const;

  const TransformerShape& model_;
  const Cluster& cluster_;
  const StepSearchOptions& options_;
  const ForeignPlan plan_;
  const StageTimes times_;
  const int64_t m_, limit_;
};

}  // namespace tessera
