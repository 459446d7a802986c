// Matrices: how a tensor [..., M, N] divides into matrices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

// Matrices of a shape: a vector is one row, a scalar one element.
struct Matrices {
  int64_t count = 1, rows = 1, cols = 1;

  explicit Matrices(std::span<const int64_t> dims) {
    if (!dims.empty()) cols = dims.back();
    if (dims.size() > 1) rows = dims[dims.size() - 2];
    for (size_t dim = 0; dim + 2 < dims.size(); ++dim) count *= dims[dim];
  }
  int64_t elements() const { return count * rows * cols; }
};

}  // namespace tessera
