#include "runtime/backends/cuda/kernels/factor_index.cuh"
#include "runtime/backends/cuda/kernels/grouping.cuh"
#include "runtime/backends/cuda/kernels/kernels.h"

namespace tessera::cuda {

namespace {

// Ids are untrusted: any value but one of this shard's rows is none.
struct TableRow {
  const int32_t* ids;
  FactorIndex v;
  int64_t rows;
  __device__ int64_t operator()(int64_t i) const {
    const int64_t row = v.to_local(ids[i]);
    return row < rows ? row : -1;
  }
};

template <class T, int kVec>
struct Embedding {
  const T* table;
  TableRow row_of;
  T* y;
  int64_t cols;
  template <class Team>
  __device__ void operator()(const Team& team, int64_t i) const {
    const int64_t row = row_of(i);
    team.template packs<kVec>(cols, [&](int64_t c) {
      Pack<T, kVec> pack;
      if (row >= 0) {
        pack = *reinterpret_cast<const Pack<T, kVec>*>(table + row * cols + c);
      } else {
#pragma unroll
        for (int v = 0; v < kVec; ++v) pack.value[v] = T(0.0f);
      }
      store_whole(reinterpret_cast<Pack<T, kVec>*>(y + i * cols + c), pack);
    });
  }
};

}  // namespace

// table [V, C], ids [R] -> y [R, C]
Result<PreparedKernel> prepare_embedding(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t V = spec.input_dims(0)[0], C = spec.input_dims(0)[1], count = spec.input_elements(1);
    const FactorIndex v(spec.factor('v'));
    PreparedKernel prepared = by_packed_rows<T>(spec, count, C, [=](const LaunchArgs& args, auto packed) {
      return Embedding<T, packed.value>{args.in<T>(0), {args.in<int32_t>(1), v, V}, args.out<T>(0), C};
    });
    prepared.bytes = 2 * operand_bytes(spec, 0);  // only the rows of the table that are looked up
    return std::move(prepared);
  });
}

// ids [R], dy [R, C] -> dtable [V, C]. Positions grouped by id make the rows independent; each is written
// once.
Result<PreparedKernel> prepare_embedding_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t V = spec.output_dims(0)[0], C = spec.output_dims(0)[1], count = spec.input_elements(0);
    if (V > INT32_MAX || count > INT32_MAX)
      return Status(StatusCode::kUnsupported, format("{} rows and {} ids, at most 2^31 - 1 each", V, count));
    const FactorIndex v(spec.factor('v'));
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          const Groups groups = launch_grouping(
                              args.stream, TableRow{args.in<int32_t>(0), v, V}, V, count, args.workspace);
                          launch_group_sums(args.stream, args.in<T>(1), args.out<T>(0), V, C, groups);
                        }),
                        Groups::workspace_bytes(V, count));
  });
}

}  // namespace tessera::cuda
