// Helpers of reference kernels over rows of a tensor: rows and row length of an operand, rows a task, and the
// figures of the time estimate.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "runtime/backends/cpu/cpu_kernel.h"

namespace tessera::cpu {

// An operand [..., C] as rows x cols. A scalar is one row of one.
struct Rows {
  int64_t count = 1, cols = 1;
};

inline Rows rows_of(std::span<const int64_t> dims) {
  Rows rows;
  for (size_t i = 0; i + 1 < dims.size(); ++i) rows.count *= dims[i];
  if (!dims.empty()) rows.cols = dims.back();
  return rows;
}

// Rows of `work` operations each that make a task worth handing out.
inline int64_t row_grain(int64_t work) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, work)); }

// Columns that a sum over rows keeps in double on the stack.
inline constexpr int64_t kColumnBlock = 64;

// x [R, C] -> sums [C]; rows ascending.
template <class T>
void column_sums(const Pool& pool, Rows rows, const T* x, T* sums) {
  pool.parallel_ranges(rows.cols, kColumnBlock, [&](int64_t begin, int64_t end) {
    double sum[kColumnBlock] = {};
    for (int64_t r = 0; r < rows.count; ++r)
      for (int64_t c = begin; c < end; ++c) sum[c - begin] += static_cast<double>(x[r * rows.cols + c]);
    for (int64_t c = begin; c < end; ++c) sums[c] = static_cast<T>(sum[c - begin]);
  });
}

// A reference kernel: plain loops reach some percent of the peak.
inline PreparedKernel reference_kernel(const KernelSpec& spec, std::unique_ptr<Kernel> kernel, double flops,
                                       int64_t workspace_bytes = 0) {
  double traffic = 0;
  const auto add = [&](const tsr_abi_tensor& t) {
    traffic += static_cast<double>(dtype_bytes(static_cast<DType>(t.dtype), KernelSpec::elements(t)));
  };
  for (int i = 0; i < spec.input_count(); ++i) add(spec.input(i));
  for (int i = 0; i < spec.output_count(); ++i) add(spec.output(i));
  return PreparedKernel{std::move(kernel), workspace_bytes, flops, traffic, 0.03};
}

}  // namespace tessera::cpu
