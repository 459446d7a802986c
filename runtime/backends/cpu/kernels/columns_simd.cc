// Column ops on a matrix in f32: add_bias, sum_leading, and the gradient of an embedding table.
#include <algorithm>

#include "runtime/backends/cpu/factor_index.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"
#include "runtime/backends/cpu/kernels/table_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/columns_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

void add_bias_rows(const float* x, const float* b, float* y, int64_t cols, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r)
    for_vectors(0, cols, [&](auto at) HWY_ATTR {
      at.store(hn::Add(at.load(x + r * cols), at.load(b)), y + r * cols);
    });
}

// y[c] = sum over rows of x[row, c] for columns [begin, end): at most 64 rows in a register, then the sum of
// those.
void sum_columns(const float* x, float* y, int64_t rows, int64_t cols, int64_t begin, int64_t end) {
  constexpr int64_t kRowBlock = 64;
  const DR d;
  for_vectors(begin, end, [&](auto at) HWY_ATTR {
    VR sum = hn::Zero(d);
    for (int64_t block = 0; block < rows; block += kRowBlock) {
      VR part = hn::Zero(d);
      for (int64_t r = block; r < std::min(rows, block + kRowBlock); ++r)
        part = hn::Add(part, at.load(x + r * cols));
      sum = hn::Add(sum, part);
    }
    at.store(sum, y);
  });
}

// out = sum of the rows of x at `positions`, in their order
void sum_rows_at(const float* x, const int64_t* positions, int64_t count, int64_t cols, float* out) {
  const DR d;
  for_vectors(0, cols, [&](auto at) HWY_ATTR {
    VR sum = hn::Zero(d);
    for (int64_t i = 0; i < count; ++i) sum = hn::Add(sum, at.load(x + positions[i] * cols));
    at.store(sum, out);
  });
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(add_bias_rows);
HWY_EXPORT(sum_columns);
HWY_EXPORT(sum_rows_at);

// x [..., N], b [N] -> y [..., N]
Result<PreparedKernel> prepare_add_bias_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const Rows rows = rows_of(spec.input_dims(0));
  return simd_prepared(
      spec, static_cast<double>(spec.input_elements(0)), make_kernel([=](const LaunchArgs& args) {
        args.pool.parallel_ranges(rows.count, row_grain(rows.cols), [&](int64_t begin, int64_t end) {
          HWY_DYNAMIC_DISPATCH(add_bias_rows)
          (args.in<float>(0), args.in<float>(1), args.out<float>(0), rows.cols, begin, end);
        });
      }));
}

// x [..., N] -> y [N]
Result<PreparedKernel> prepare_sum_leading_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const Rows rows = rows_of(spec.input_dims(0));
  constexpr int64_t kColumns = 128;  // of a task
  return simd_prepared(spec, static_cast<double>(spec.input_elements(0)),
                       make_kernel([=](const LaunchArgs& args) {
                         args.pool.parallel_ranges(rows.cols, kColumns, [&](int64_t begin, int64_t end) {
                           HWY_DYNAMIC_DISPATCH(sum_columns)
                           (args.in<float>(0), args.out<float>(0), rows.count, rows.cols, begin, end);
                         });
                       }));
}

// ids [R], dy [R, C] -> dtable [V, C]. Row by row: the same bits for any number of threads, and each table
// row is written once.
Result<PreparedKernel> prepare_embedding_grad_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const int64_t V = spec.output_dims(0)[0], C = spec.output_dims(0)[1], count = spec.input_elements(0);
  const FactorIndex v(spec.factor('v'));
  return simd_prepared(spec, static_cast<double>(count * C), make_kernel([=](const LaunchArgs& args) {
                         const float* dy = args.in<float>(1);
                         float* dtable = args.out<float>(0);
                         const TableRows rows(v, V, args.in<int32_t>(0), count, args.workspace);
                         args.pool.parallel_ranges(V, row_grain(C), [&](int64_t begin, int64_t end) {
                           for (int64_t row = begin; row < end; ++row) {
                             const int64_t *from = rows.begin(row), *to = rows.end(row);
                             if (from == to) {
                               std::fill_n(dtable + row * C, C, 0.0f);
                             } else {
                               HWY_DYNAMIC_DISPATCH(sum_rows_at)(dy, from, to - from, C, dtable + row * C);
                             }
                           }
                         });
                       }),
                       TableRows::bytes(V, count));
}

}  // namespace tessera::cpu
#endif
