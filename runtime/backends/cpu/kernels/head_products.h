// HeadProducts: extents of head_matmul on local operands. Each of H heads has its own rows of the weight.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/base/blocks/block_codec.h"
#include "runtime/backends/cpu/cpu_kernel.h"

namespace tessera::cpu {

struct HeadProducts {
  DType stored = DType::kF32;  // the weight's type
  bool trans = true;           // rows of the weight make results
  int64_t M = 0, H = 0;        // tokens, heads
  int64_t rows = 0, columns = 0;
  int64_t head_rows = 0, begin = 0;  // of the weight: those of a head, and which is the first that is read

  explicit HeadProducts(const KernelSpec& spec)
      : stored(spec.input_dtype(1)),
        trans(spec.i64("trans_w") == 1),
        M(spec.input_dims(0)[0] * spec.input_dims(0)[1]),
        H(spec.input_dims(0)[2]),
        rows(spec.i64("end") - spec.i64("begin")),
        columns(spec.input_dims(1)[1]),
        head_rows(H == 0 ? 0 : spec.input_dims(1)[0] / H),
        begin(spec.i64("begin")) {}

  // Numbers of a token and head: operands and results.
  int64_t K() const { return trans ? columns : rows; }
  int64_t N() const { return trans ? rows : columns; }
  double flops() const {
    return 2.0 * static_cast<double>(M) * static_cast<double>(H) * static_cast<double>(rows) *
           static_cast<double>(columns);
  }
  // The first row of a head that is read.
  const std::byte* weight_of(const LaunchArgs& args, int64_t head) const {
    return args.in<std::byte>(1) + (head * head_rows + begin) * dtype_bytes(stored, columns);
  }
};

}  // namespace tessera::cpu
