#include <algorithm>
#include <cstddef>
#include <string_view>

#include "graph/base/blocks/block_codec.h"
#include "runtime/backends/cpu/factor_index.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/quantized_rows.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"
#include "runtime/backends/cpu/kernels/strided.h"
#include "runtime/backends/cpu/kernels/table_rows.h"

namespace tessera::cpu {

namespace {

// Calls read(row, y) for each id of this shard's rows, and fills the rows of others with 0.
template <class T, class Read>
void look_up(const LaunchArgs& args, const FactorIndex& v, int64_t table_rows, int64_t C, int64_t count, Read read) {
  const int32_t* ids = args.in<int32_t>(1);
  T* y = args.out<T>(0);
  args.pool.parallel_ranges(count, row_grain(C), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t row = v.to_local(ids[r]);
      if (row >= 0 && row < table_rows) {
        read(row, y + r * C);
      } else {
        std::fill_n(y + r * C, C, T(0));
      }
    }
  });
}

}  // namespace

// Rows of a block type, as f32; "blocks:interleaved" with the table arranged by weight_arrange.
Result<PreparedKernel> prepare_embedding_blocks(const KernelSpec& spec) {
  const DType stored = spec.input_dtype(0);
  const size_t colon = spec.variant().find(':');
  const bool interleaved = colon != std::string_view::npos;
  if (!is_block_type(stored)) return Status(StatusCode::kUnsupported, format("table {}: wanted a block type", to_text(stored)));
  if (interleaved && (spec.variant().substr(colon + 1) != "interleaved" || !can_interleave_rows(stored)))
    return Status(StatusCode::kUnsupported, format("no '{}' for tables of {}", spec.variant(), to_text(stored)));
  const int64_t table_rows = spec.input_dims(0)[0], C = spec.input_dims(0)[1], count = spec.input_elements(1);
  const int64_t row_bytes = dtype_bytes(stored, C);
  const FactorIndex v(spec.factor('v'));
  return reference_kernel(spec, make_kernel([=](const LaunchArgs& args) {
                            const auto* table = args.in<std::byte>(0);
                            const BlockMatrix matrix{stored, table_rows, C, table, interleaved};
                            look_up<float>(args, v, table_rows, C, count, [&](int64_t row, float* y) {
                              if (!interleaved) return decode_blocks(stored, table + row * row_bytes, y, C);
                              Scratch scratch(args.pool, (row_bytes + 3) / 4);
                              auto* const blocks = reinterpret_cast<std::byte*>(scratch.floats((row_bytes + 3) / 4));
                              copy_row(matrix, row, blocks);
                              decode_blocks(stored, blocks, y, C);
                            });
                          }),
                          0);
}

// table [V, C], ids [R] -> y [R, C]. Ids are untrusted: any value but one of this shard's rows gives 0.
Result<PreparedKernel> prepare_embedding(const KernelSpec& spec) {
  if (is_block_type(spec.input_dtype(0))) return prepare_embedding_blocks(spec);
  return dispatch_element_size(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t table_rows = spec.input_dims(0)[0], C = spec.input_dims(0)[1], count = spec.input_elements(1);
    const FactorIndex v(spec.factor('v'));
    auto launch = [=](const LaunchArgs& args) {
      const T* table = args.in<T>(0);
      look_up<T>(args, v, table_rows, C, count, [&](int64_t row, T* y) { std::copy_n(table + row * C, C, y); });
    };
    return reference_kernel(spec, make_kernel(launch), 0);
  });
}

// ids [R], dy [R, C] -> dtable [V, C]. Row by row: the same bits for any number of threads, and each table
// row is written once.
Result<PreparedKernel> prepare_embedding_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const int64_t V = spec.output_dims(0)[0], C = spec.output_dims(0)[1], count = spec.input_elements(0);
    const FactorIndex v(spec.factor('v'));
    auto launch = [=](const LaunchArgs& args) {
      const T* dy = args.in<T>(1);
      T* dtable = args.out<T>(0);
      const TableRows rows(v, V, args.in<int32_t>(0), count, args.workspace);
      args.pool.parallel_ranges(V, row_grain(C), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row)
          for (int64_t c0 = 0; c0 < C; c0 += kColumnBlock) {
            const int64_t width = std::min(kColumnBlock, C - c0);
            double sums[kColumnBlock] = {};
            for (const int64_t* at = rows.begin(row); at != rows.end(row); ++at)
              for (int64_t c = 0; c < width; ++c) sums[c] += double(dy[*at * C + c0 + c]);
            for (int64_t c = 0; c < width; ++c) dtable[row * C + c0 + c] = T(sums[c]);
          }
      });
    };
    return reference_kernel(spec, make_kernel(launch), double(count * C), TableRows::bytes(V, count));
  });
}

}  // namespace tessera::cpu
