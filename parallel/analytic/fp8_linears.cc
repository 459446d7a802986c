#include "parallel/analytic/fp8_linears.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera {

namespace {

constexpr int64_t kUnit = 16;  // bytes that tensor cores read at once

bool multiplies(const DeviceKind& kind) {
  return std::ranges::find(kind.matrix_rates, DType::kE4M3, &MatrixRate::dtype) != kind.matrix_rates.end();
}

}  // namespace

Fp8Linears fp8_linears(const TransformerShape& model, const ForeignPlan& plan) {
  if (!plan.fp8_linears) return {};
  const auto fits = [](int64_t extent) { return extent > 0 && extent % kUnit == 0; };
  const bool C = fits(model.C), mixed = fits(model.mixed_width()),
             feed_forward = C && model.E == 0 && fits(model.F);
  return {C && mixed && fits(model.KV * model.head_size()), C && mixed, feed_forward, feed_forward,
          model.gated};
}

Status check_fp8_linears(const TransformerShape& model, const ForeignPlan& plan,
                         std::span<const Cluster> clusters) {
  if (!plan.fp8_linears) return {};
  for (const Cluster& cluster : clusters)
    for (const int32_t at : cluster.devices) {
      const DeviceKind& kind = cluster.kinds[static_cast<size_t>(at)];
      if (!multiplies(kind))
        return Status(
            StatusCode::kUnsupported,
            format("fp8: {} lists no rate of products of 8-bit floats, which GPUs have from compute "
                   "capability 8.9 on (L40S, H100): name bf16, a cluster of such devices, or, in a "
                   "file, the rate among its matrix_rates, with dtype e4m3",
                   kind.name));
    }
  if (plan.form != TensorForm::k1d)
    return Status(StatusCode::kUnsupported,
                  "fp8: grids of tensor parallelism are not priced with products of 8-bit floats; name tp=N, "
                  "or bf16");
  if (!fp8_linears(model, plan).any())
    return Status(
        StatusCode::kInvalidArgument,
        format("fp8: no linear layer of a block has a weight whose extents are multiples of {} (C = "
               "{}, F = {}, heads x their size = {}; experts stay in bf16); name bf16",
               kUnit, model.C, model.F, model.mixed_width()));
  return {};
}

}  // namespace tessera
