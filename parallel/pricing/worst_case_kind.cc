#include "parallel/pricing/worst_case_kind.h"

#include <algorithm>

#include "graph/base/text.h"
#include "parallel/pricing/reserved_memory.h"

namespace tessera {

bool is_same_kind(DeviceKind a, const DeviceKind& b) {
  a.name = b.name;
  return a == b;
}

DeviceKind worst_case_kind(const DeviceKind& a, const DeviceKind& b) {
  DeviceKind it = a;
  it.name = format("{}+{}", a.name, b.name);
  for (const MatrixRate& rate : b.matrix_rates)
    if (std::ranges::find(it.matrix_rates, rate.dtype, &MatrixRate::dtype) == it.matrix_rates.end())
      it.matrix_rates.push_back({rate.dtype, a.matmul_flops_per_s});
  // 8-bit floats have no slower fallback.
  const auto lacks = [](const DeviceKind& kind) {
    return std::ranges::find(kind.matrix_rates, DType::kE4M3, &MatrixRate::dtype) == kind.matrix_rates.end();
  };
  if (lacks(a) || lacks(b))
    std::erase_if(it.matrix_rates, [](const MatrixRate& rate) { return rate.dtype == DType::kE4M3; });
  for (MatrixRate& rate : it.matrix_rates)
    rate.flops_per_s = std::min(rate.flops_per_s, matrix_rate(b, rate.dtype));
  // 0 bytes: unknown, so no limit.
  if (b.memory_bytes > 0)
    it.memory_bytes = a.memory_bytes > 0 ? std::min(a.memory_bytes, b.memory_bytes) : b.memory_bytes;
  if (a.reserved_bytes >= 0 || b.reserved_bytes >= 0)
    it.reserved_bytes = std::max(reserved_bytes(a), reserved_bytes(b));
  it.matmul_flops_per_s = std::min(a.matmul_flops_per_s, b.matmul_flops_per_s);
  it.memory_bytes_per_s = std::min(a.memory_bytes_per_s, b.memory_bytes_per_s);
  it.launch_s = std::max(a.launch_s, b.launch_s);
  it.issue_s = std::max(a.issue_s, b.issue_s);
  it.tile_ramp = std::max(a.tile_ramp, b.tile_ramp);
  it.batched_share = std::min(a.batched_share, b.batched_share);
  return it;
}

}  // namespace tessera
