// slice, pad and concat move runs: a tensor is [outer, extent of the dim, inner], and a run is inner * rows
// of it.
#include <vector>

#include "runtime/backends/cuda/copies.h"
#include "runtime/backends/cuda/cuda_status.h"
#include "runtime/backends/cuda/kernels/kernels.h"

namespace tessera::cuda {

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

}  // namespace

Result<PreparedKernel> prepare_slice(const KernelSpec& spec) {
  const int64_t dim = spec.i64("dim");
  const Runs runs(spec, dim);
  const int64_t in_run = spec.input(0).dims[dim] * runs.row_bytes;
  const int64_t out_run = spec.output(0).dims[dim] * runs.row_bytes;
  const int64_t skipped = spec.i64("begin") * runs.row_bytes;
  PreparedKernel prepared =
      memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                     return from_cuda(copy_rows(args.stream, args.in<char>(0) + skipped, args.outputs[0],
                                                runs.outer, out_run, in_run, out_run),
                                      "slice");
                   }));
  prepared.bytes = 2 * operand_bytes(spec, 0);
  return prepared;
}

Result<PreparedKernel> prepare_pad(const KernelSpec& spec) {
  const int64_t dim = spec.i64("dim");
  const Runs runs(spec, dim);
  const int64_t in_run = spec.input(0).dims[dim] * runs.row_bytes;
  const int64_t before = spec.i64("before") * runs.row_bytes, after = spec.i64("after") * runs.row_bytes;
  return memory_bound(
      spec, make_kernel([=](const LaunchArgs& args) -> Status {
        const int64_t out_run = before + in_run + after;
        char* to = args.out<char>(0);
        TSR_RETURN_IF_ERROR(
            from_cuda(copy_rows(args.stream, nullptr, to, runs.outer, before, 0, out_run), "pad"));
        if (in_run > 0)
          TSR_RETURN_IF_ERROR(from_cuda(
              copy_rows(args.stream, args.inputs[0], to + before, runs.outer, in_run, in_run, out_run),
              "pad"));
        return from_cuda(copy_rows(args.stream, nullptr, to + before + in_run, runs.outer, after, 0, out_run),
                         "pad");
      }));
}

Result<PreparedKernel> prepare_concat(const KernelSpec& spec) {
  const int64_t dim = spec.i64("dim");
  const Runs runs(spec, dim);
  std::vector<int64_t> pieces;
  for (int i = 0; i < spec.input_count(); ++i) pieces.push_back(spec.input(i).dims[dim] * runs.row_bytes);
  const int64_t out_run = spec.output(0).dims[dim] * runs.row_bytes;
  return memory_bound(
      spec, make_kernel([=](const LaunchArgs& args) -> Status {
        char* to = args.out<char>(0);
        for (size_t piece = 0; piece < pieces.size(); ++piece) {
          const int64_t run = pieces[piece];
          if (run > 0)
            TSR_RETURN_IF_ERROR(from_cuda(
                copy_rows(args.stream, args.inputs[piece], to, runs.outer, run, run, out_run), "concat"));
          to += run;
        }
        return {};
      }));
}

}  // namespace tessera::cuda
