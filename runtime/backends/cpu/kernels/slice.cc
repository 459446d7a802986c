// slice, pad and concat move runs: a tensor is [outer, extent of the dim, inner], and a run is inner * rows
// of it.
#include <cstring>
#include <vector>

#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"

namespace tessera::cpu {

namespace {

struct Runs {
  int64_t outer = 1, row_bytes = 0;

  Runs(const KernelSpec& spec, int64_t dim) {
    const auto dims = spec.output_dims(0);
    int64_t inner = 1;
    for (size_t i = 0; i < dims.size(); ++i) {
      if (static_cast<int64_t>(i) < dim) outer *= dims[i];
      if (static_cast<int64_t>(i) > dim) inner *= dims[i];
    }
    row_bytes = dtype_bytes(spec.output_dtype(0), inner);
  }
};

int64_t rows_of(const tsr_abi_tensor& tensor, int64_t dim) { return tensor.dims[dim]; }

}  // namespace

Result<PreparedKernel> prepare_slice(const KernelSpec& spec) {
  const int64_t dim = spec.i64("dim");
  const Runs runs(spec, dim);
  const int64_t in_run = rows_of(spec.input(0), dim) * runs.row_bytes;
  const int64_t out_run = rows_of(spec.output(0), dim) * runs.row_bytes;
  const int64_t skipped = spec.i64("begin") * runs.row_bytes;
  return reference_kernel(spec, 0, make_kernel([=](const LaunchArgs& args) {
                            if (out_run == 0) return;
                            args.pool.parallel_ranges(runs.outer, 64, [&](int64_t begin, int64_t end) {
                              for (int64_t i = begin; i < end; ++i)
                                std::memcpy(args.out<char>(0) + i * out_run,
                                            args.in<char>(0) + i * in_run + skipped,
                                            static_cast<size_t>(out_run));
                            });
                          }));
}

Result<PreparedKernel> prepare_pad(const KernelSpec& spec) {
  const int64_t dim = spec.i64("dim");
  const Runs runs(spec, dim);
  const int64_t in_run = rows_of(spec.input(0), dim) * runs.row_bytes;
  const int64_t before = spec.i64("before") * runs.row_bytes, after = spec.i64("after") * runs.row_bytes;
  return reference_kernel(spec, 0, make_kernel([=](const LaunchArgs& args) {
                            const int64_t out_run = before + in_run + after;
                            if (out_run == 0) return;
                            args.pool.parallel_ranges(runs.outer, 64, [&](int64_t begin, int64_t end) {
                              for (int64_t i = begin; i < end; ++i) {
                                char* to = args.out<char>(0) + i * out_run;
                                std::memset(to, 0, static_cast<size_t>(before));
                                if (in_run > 0)
                                  std::memcpy(to + before, args.in<char>(0) + i * in_run,
                                              static_cast<size_t>(in_run));
                                std::memset(to + before + in_run, 0, static_cast<size_t>(after));
                              }
                            });
                          }));
}

Result<PreparedKernel> prepare_concat(const KernelSpec& spec) {
  const int64_t dim = spec.i64("dim");
  const Runs runs(spec, dim);
  std::vector<int64_t> pieces;
  for (int i = 0; i < spec.input_count(); ++i) pieces.push_back(rows_of(spec.input(i), dim) * runs.row_bytes);
  const int64_t out_run = rows_of(spec.output(0), dim) * runs.row_bytes;
  return reference_kernel(spec, 0, make_kernel([=](const LaunchArgs& args) {
                            if (out_run == 0) return;
                            args.pool.parallel_ranges(runs.outer, 64, [&](int64_t begin, int64_t end) {
                              for (int64_t i = begin; i < end; ++i) {
                                char* to = args.out<char>(0) + i * out_run;
                                for (size_t piece = 0; piece < pieces.size(); ++piece) {
                                  const int64_t run = pieces[piece];
                                  if (run > 0)
                                    std::memcpy(to, args.in<char>(static_cast<int>(piece)) + i * run,
                                                static_cast<size_t>(run));
                                  to += run;
                                }
                              }
                            });
                          }));
}

}  // namespace tessera::cpu
