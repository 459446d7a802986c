#include "parallel/pricing/absent_catalog.h"

#include <algorithm>

namespace tessera {

Result<KernelChoice> AbsentCatalog::query(const OpDef& op, const OpView& view) const {
  if (op.cost == nullptr) return KernelChoice{"absent", 0, kind_.launch_s};
  const OpCost cost = op.cost(view);
  const double rate = matrix_rate(kind_, view.inputs.empty() ? DType::kF32 : view.inputs[0].dtype);
  const double computed = rate > 0 ? cost.flops / rate : 0;
  const double moved =
      kind_.memory_bytes_per_s > 0 ? (cost.bytes_read + cost.bytes_written) / kind_.memory_bytes_per_s : 0;
  return KernelChoice{"absent", 0, std::max(computed, moved) + kind_.launch_s};
}

}  // namespace tessera
