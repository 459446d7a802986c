#include "parallel/pricing/absent_catalog.h"

#include <algorithm>
#include <optional>

#include "parallel/pricing/device_time.h"
#include "parallel/sharding/rule_factors.h"

namespace tessera {

namespace {

// Matmuls with on-chip results, such as attention scores; other work runs between them.
constexpr double kOnChipShare = 0.6;
// Share of one matmul's operations; ops below it are none (such as a table lookup).
constexpr double kLeastShare = 0.2;

struct MatmulSizes {
  double count = 1, m = 1, n = 1, k = 1;
  bool on_chip = false;  // no result has both m and n, and there are several
  double flops() const { return 2 * count * m * n * k; }
};

// The matmul of operands `a` and `b`: common factors are summed, except
// those in every operand; rows are a's own factors, columns b's.
std::optional<MatmulSizes> matmul_of(const ShardingRule& rule, size_t a, size_t b) {
  MatmulSizes matmul;
  bool rows = false, columns = false, summed = false;
  std::string outer;
  for (const Factor& factor : rule.factors) {
    const auto extent = static_cast<double>(factor.extent);
    const auto lacks = [&](const ShardingRule::OperandDims& dims) {
      return !dims.empty() && !has(dims, factor.name);
    };
    const bool in_a = has(rule.inputs[a], factor.name), in_b = has(rule.inputs[b], factor.name);
    if (in_a != in_b) {
      (in_a ? matmul.m : matmul.n) *= extent;
      (in_a ? rows : columns) = true;
      outer += factor.name;
    } else if (in_a && std::ranges::none_of(rule.inputs, lacks) &&
               std::ranges::none_of(rule.outputs, lacks)) {
      matmul.count *= extent;
    } else if (in_a) {
      matmul.k *= extent;
      summed = true;
    }
  }
  if (!rows || !columns || !summed) return std::nullopt;
  matmul.on_chip =
      matmul.count > 1 && std::ranges::none_of(rule.outputs, [&](const ShardingRule::OperandDims& dims) {
        return std::ranges::all_of(outer, [&](char factor) { return has(dims, factor); });
      });
  return matmul;
}

std::optional<MatmulSizes> matmul_of(const OpDef& op, const OpView& view) {
  if (op.sharding == nullptr) return std::nullopt;
  ShardingRule rule = op.sharding({view.attrs, view.inputs, view.outputs, {}});
  if (!bind_extents(rule, view.inputs, view.outputs).ok()) return std::nullopt;
  for (size_t a = 0; a < rule.inputs.size(); ++a)
    for (size_t b = a + 1; b < rule.inputs.size(); ++b)
      if (const auto matmul = matmul_of(rule, a, b)) return matmul;
  return std::nullopt;
}

}  // namespace

Result<KernelChoice> AbsentCatalog::query(const OpDef& op, const OpView& view) const {
  if (op.cost == nullptr) return KernelChoice{"absent", 0, kind_.launch_s};
  const OpCost cost = op.cost(view);
  DType dtype = view.inputs.empty() ? DType::kF32 : view.inputs[0].dtype;
  if (dtype == DType::kE5M2)
    dtype = DType::kE4M3;  // all 8-bit float formats have one rate
  const double rate = matrix_rate(kind_, dtype);
  double seconds = std::max(rate > 0 ? cost.flops / rate + kind_.launch_s : 0,
                            streaming_seconds(kind_, cost.bytes_read + cost.bytes_written));
  const auto matmul = cost.flops > 0 && kind_.multiprocessors > 0 ? matmul_of(op, view) : std::nullopt;
  if (matmul && cost.flops >= kLeastShare * matmul->flops()) {
    const double one = matmul->on_chip ? matmul->flops() / (rate * kOnChipShare)
                                       : batched_matmul_seconds(kind_, dtype, matmul->count, matmul->m,
                                                                matmul->n, matmul->k) -
                                              kind_.launch_s;
    seconds = std::max(seconds, cost.flops / matmul->flops() * one + kind_.launch_s);
  }
  return KernelChoice{"absent", 0, seconds};
}

}  // namespace tessera
