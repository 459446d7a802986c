// SingularVectors: the largest singular values of a matrix, and their vectors, in f64.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

// SingularVectors: W [rows, columns] ~ U diag(values) V^T.
struct SingularVectors {
  std::vector<double> values;  // [count], largest first
  std::vector<double>
      u;  // [count, rows]: one vector after another, each of length 1; zeros where the value is 0
  std::vector<double> v;  // [count, columns]
};

// Finds the `count` largest singular values, `count` at most the rows and the columns of W.
// Golub-Kahan-Lanczos with full reorthogonalisation (Golub and Van Loan, Matrix Computations,
// 10.1 and 10.4) runs until residuals are 1e-10 of the largest value. Equal inputs give equal
// bits. kInvalidArgument: a value that is not finite, a count out of range.
Result<SingularVectors> largest_singular_vectors(std::span<const double> w, int64_t rows, int64_t columns,
                                                 int64_t count);

}  // namespace tessera
