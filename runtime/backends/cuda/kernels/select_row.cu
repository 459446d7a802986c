// select_row: a row of every sequence.
#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

template <class T>
struct SelectRow {
  const T* x;
  const int32_t* length;
  T* y;
  int64_t rows, cols;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t b) const {
    const int64_t at = length[b];
    const bool there = at >= 1 && at <= rows;
    team.each(cols, [&](int64_t c) { y[b * cols + c] = there ? x[(b * rows + at - 1) * cols + c] : T(0); });
  }
};

// A kernel that moves rows of `cols` elements, 16 bytes at a time where rows and addresses allow it:
// make(U{}, cols) moves rows of so many U.
template <class Make>
Result<PreparedKernel> by_moved_rows(const KernelSpec& spec, int64_t cols, Make make) {
  return dispatch_element_size(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using Pack = unsigned __int128;
    constexpr auto kVec = static_cast<int64_t>(sizeof(Pack) / sizeof(zero));
    auto plain = make(zero, cols);
    if (cols % kVec != 0) return memory_bound(spec, std::move(plain));
    return memory_bound(spec, where_aligned(spec, make(Pack{}, cols / kVec), std::move(plain)));
  });
}

}  // namespace

// x [B, T, C], length [B] -> y [B, C]. `length` is untrusted: a row that does not exist gives 0.
Result<PreparedKernel> prepare_select_row(const KernelSpec& spec) {
  const auto dims = spec.input_dims(0);
  const int64_t B = dims[0], rows = dims[1];
  TSR_ASSIGN_OR_RETURN(PreparedKernel prepared, by_moved_rows(spec, dims[2], [=](auto zero, int64_t cols) {
                         using T = decltype(zero);
                         return make_kernel([=](const LaunchArgs& args) {
                           launch_rows(
                               args.stream, B, cols,
                               SelectRow<T>{args.in<T>(0), args.in<int32_t>(1), args.out<T>(0), rows, cols});
                         });
                       }));
  prepared.bytes = 2 * operand_bytes(spec, 0);
  return std::move(prepared);
}

}  // namespace tessera::cuda
