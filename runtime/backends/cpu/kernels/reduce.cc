#include <algorithm>
#include <limits>

#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"
#include "runtime/backends/cpu/kernels/strided.h"

namespace tessera::cpu {

namespace {

bool contains(std::span<const int64_t> axes, int dim) { return std::ranges::find(axes, dim) != axes.end(); }

// The product of the global extents of `axes`, whose factors are 'a' + axis.
double global_count(const KernelSpec& spec, std::span<const int64_t> axes) {
  double count = 1;
  for (int64_t axis : axes)
    count *= static_cast<double>(spec.factor(static_cast<char>('a' + axis)).global_extent);
  return count;
}

// y = finish(combine over the axes of x, from `start`), in double, in row-major order of the reduced dims.
template <class Combine>
Result<PreparedKernel> reduce(const KernelSpec& spec, double start, double factor, Combine combine) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const auto dims = spec.input_dims(0), axes = spec.ints("axes");
    int64_t strides[TSR_ABI_MAX_RANK];
    row_major_strides(dims, strides);
    StridedBox kept, reduced;
    for (int dim = 0; dim < static_cast<int>(dims.size()); ++dim)
      (contains(axes, dim) ? reduced : kept).add(dims[static_cast<size_t>(dim)], strides[dim]);
    const int64_t results = kept.elements(), each = reduced.elements();
    const int64_t grain = std::max<int64_t>(1, kElementGrain / std::max<int64_t>(1, each));
    return reference_kernel(spec, static_cast<double>(spec.input_elements(0)),
                            make_kernel([=](const LaunchArgs& args) {
                              const T* x = args.in<T>(0);
                              T* y = args.out<T>(0);
                              args.pool.parallel_ranges(results, grain, [&](int64_t begin, int64_t end) {
                                int64_t i = begin;
                                kept.for_each_offset(begin, end, [&](int64_t base) {
                                  double value = start;
                                  reduced.for_each_offset(0, each, [&](int64_t offset) {
                                    value = combine(value, static_cast<double>(x[base + offset]));
                                  });
                                  y[i++] = static_cast<T>(value * factor);
                                });
                              });
                            }));
  });
}

double plus(double a, double b) { return a + b; }

}  // namespace

Result<PreparedKernel> prepare_reduce_sum(const KernelSpec& spec) { return reduce(spec, 0, 1, plus); }

Result<PreparedKernel> prepare_reduce_mean(const KernelSpec& spec) {
  const double count = global_count(spec, spec.ints("axes"));
  return reduce(spec, 0, count == 0 ? 0 : 1 / count, plus);
}

// A NaN stays: comparisons with it are false on the side that keeps it.
Result<PreparedKernel> prepare_reduce_max(const KernelSpec& spec) {
  return reduce(spec, -std::numeric_limits<double>::infinity(), 1,
                [](double a, double b) { return a >= b || a != a ? a : b; });
}

// x [M, N] -> y [N]; rows ascending.
Result<PreparedKernel> prepare_sum_leading(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Rows rows = rows_of(spec.input_dims(0));
    auto launch = [rows](const LaunchArgs& args) {
      column_sums<T>(args.pool, rows, args.in<T>(0), args.out<T>(0));
    };
    return reference_kernel(spec, make_kernel(launch), static_cast<double>(spec.input_elements(0)));
  });
}

Result<PreparedKernel> prepare_broadcast(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const auto dims = spec.output_dims(0), axes = spec.ints("axes");
    int64_t strides[TSR_ABI_MAX_RANK];
    row_major_strides(spec.input_dims(0), strides);
    StridedBox box;
    int x_dim = 0;
    for (int dim = 0; dim < static_cast<int>(dims.size()); ++dim)
      box.add(dims[static_cast<size_t>(dim)], contains(axes, dim) ? 0 : strides[x_dim++]);
    const double count = spec.i64("mean") == 1 ? global_count(spec, axes) : 1;
    const double factor = count == 0 ? 0 : 1 / count;
    const int64_t elements = spec.output_elements(0);
    PreparedKernel prepared = reference_kernel(
        spec, 0, make_kernel([=](const LaunchArgs& args) {
          const T* x = args.in<T>(0);
          T* y = args.out<T>(0);
          args.pool.parallel_ranges(elements, kElementGrain, [&](int64_t begin, int64_t end) {
            T* to = y + begin;
            box.for_each_offset(begin, end, [&](int64_t offset) {
              *to++ = static_cast<T>(static_cast<double>(x[offset]) * factor);
            });
          });
        }));
    prepared.bytes = operand_bytes(spec, 1);
    return prepared;
  });
}

}  // namespace tessera::cpu
