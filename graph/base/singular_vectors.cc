#include "graph/base/singular_vectors.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "graph/base/philox.h"
#include "graph/base/text.h"

namespace tessera {
namespace {

using Vector = std::vector<double>;

double dot(std::span<const double> x, std::span<const double> y) {
  // Four independent sums run in parallel.
  double sums[4] = {};
  size_t i = 0;
  for (; i + 4 <= x.size(); i += 4)
    for (size_t k = 0; k < 4; ++k) sums[k] += x[i + k] * y[i + k];
  for (; i < x.size(); ++i) sums[0] += x[i] * y[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

void add_scaled(std::span<double> y, double factor, std::span<const double> x) {
  for (size_t i = 0; i < y.size(); ++i) y[i] += factor * x[i];
}

// Removes the components of `x` along `basis`; twice is enough (Parlett, The Symmetric Eigenvalue Problem).
void orthogonalize(std::span<double> x, const std::vector<Vector>& basis) {
  for (int round = 0; round < 2; ++round)
    for (const Vector& each : basis) add_scaled(x, -dot(x, each), each);
}

// Eigenvalues of a symmetric tridiagonal matrix, and the rows of its eigenvectors: implicit QL with Wilkinson's shift
// (Golub and Van Loan, 8.3).
struct Tridiagonal {
  Vector diagonal, off_diagonal;  // [n], [n - 1]
  std::vector<Vector> vectors;    // [n, n]: row i has component i of each eigenvector

  // Computes both; returns false if the iteration does not converge.
  bool solve() {
    const size_t n = diagonal.size();
    vectors.assign(n, Vector(n));
    for (size_t i = 0; i < n; ++i) vectors[i][i] = 1;
    Vector& d = diagonal;
    Vector e = off_diagonal;
    e.resize(n);
    for (size_t l = 0; l < n; ++l) {
      for (int round = 0;; ++round) {
        size_t m = l;
        while (m + 1 < n && std::abs(e[m]) > 1e-16 * (std::abs(d[m]) + std::abs(d[m + 1]))) ++m;
        if (m == l) break;
        if (round == 200) return false;
        double g = (d[l + 1] - d[l]) / (2 * e[l]);
        double r = std::hypot(g, 1.0);
        g = d[m] - d[l] + e[l] / (g + std::copysign(r, g));
        double s = 1, c = 1, p = 0;
        size_t i = m;
        while (i-- > l) {
          const double f = s * e[i], b = c * e[i];
          r = std::hypot(f, g);
          e[i + 1] = r;
          if (r == 0) {
            d[i + 1] -= p;
            e[m] = 0;
            break;
          }
          s = f / r;
          c = g / r;
          g = d[i + 1] - p;
          r = (d[i] - g) * s + 2 * c * b;
          p = s * r;
          d[i + 1] = g + p;
          g = c * r - b;
          for (Vector& row : vectors) {
            const double next = row[i + 1];
            row[i + 1] = s * row[i] + c * next;
            row[i] = c * row[i] - s * next;
          }
        }
        if (r == 0 && i + 1 > l) continue;
        d[l] -= p;
        e[l] = g;
        e[m] = 0;
      }
    }
    return true;
  }
};

// Lanczos on W^T W, or W W^T where W has fewer rows: the smaller of the two.
class Lanczos {
 public:
  Lanczos(std::span<const double> w, size_t rows, size_t columns, size_t count)
      : w_(w), rows_(rows), columns_(columns), n_(std::min(rows, columns)), count_(count) {}

  Result<SingularVectors> run() {
    Vector next = random_vector();
    size_t checked_at = std::min(n_, 2 * count_ + 16);
    for (;;) {
      basis_.push_back(std::move(next));
      next = gram(basis_.back());
      alpha_.push_back(dot(next, basis_.back()));
      orthogonalize(next, basis_);
      double beta = std::sqrt(dot(next, next));
      largest_ = std::max({largest_, std::abs(alpha_.back()), beta});
      if (basis_.size() == n_) beta = 0;
      const bool is_closed = beta <= 1e-14 * largest_;
      if (basis_.size() == n_ || basis_.size() >= checked_at) {
        Tridiagonal t{alpha_, beta_, {}};
        if (!t.solve())
          return Status(StatusCode::kInternal, "singular values: the iteration does not converge");
        if (basis_.size() == n_ || has_converged(t, is_closed ? 0 : beta)) return vectors(t);
        checked_at = std::min(n_, basis_.size() + basis_.size() / 4 + 8);
      }
      if (is_closed) {  // an invariant subspace: continue with another
        next = random_vector();
        beta_.push_back(0);
      } else {
        for (double& x : next) x /= beta;
        beta_.push_back(beta);
      }
    }
  }

 private:
  Vector random_vector() {
    for (;;) {
      Vector x(n_);
      for (size_t i = 0; i < n_; ++i) {
        const auto bits = philox_bits(seed_, 0, i);
        x[i] = uniform_from_bits(bits[0], bits[1]) - 0.5;
      }
      ++seed_;
      orthogonalize(x, basis_);
      const double length = std::sqrt(dot(x, x));
      if (length < 1e-8) continue;
      for (double& value : x) value /= length;
      return x;
    }
  }

  std::span<const double> row(size_t i) const { return w_.subspan(i * columns_, columns_); }

  Vector times(const Vector& x) const {  // W x
    Vector y(rows_);
    for (size_t i = 0; i < rows_; ++i) y[i] = dot(row(i), x);
    return y;
  }
  Vector transposed_times(const Vector& y) const {  // W^T y
    Vector x(columns_);
    for (size_t i = 0; i < rows_; ++i) add_scaled(x, y[i], row(i));
    return x;
  }
  bool is_wide() const { return rows_ < columns_; }
  Vector gram(const Vector& x) const {
    return is_wide() ? times(transposed_times(x)) : transposed_times(times(x));
  }

  // Order of the eigenvalues, largest first.
  static std::vector<size_t> order_of(const Vector& values) {
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return values[a] > values[b]; });
    return order;
  }

  bool has_converged(const Tridiagonal& t, double beta) const {
    const std::vector<size_t> order = order_of(t.diagonal);
    if (order.size() < count_) return false;
    if (beta == 0) return false;  // one of several invariant subspaces: the others may hold larger values
    const Vector& last = t.vectors.back();
    return std::ranges::all_of(order.begin(), order.begin() + static_cast<ptrdiff_t>(count_), [&](size_t at) {
      return beta * std::abs(last[at]) <= 1e-10 * std::abs(t.diagonal[order[0]]);
    });
  }

  SingularVectors vectors(const Tridiagonal& t) const {
    SingularVectors made;
    const std::vector<size_t> order = order_of(t.diagonal);
    for (size_t k = 0; k < count_; ++k) {
      Vector own(n_);
      for (size_t i = 0; i < basis_.size(); ++i) add_scaled(own, t.vectors[i][order[k]], basis_[i]);
      Vector other = is_wide() ? transposed_times(own) : times(own);
      const double value = std::sqrt(dot(other, other));
      const bool is_zero = value <= 1e-14 * std::sqrt(std::max(0.0, t.diagonal[order[0]]));
      for (double& x : other) x = is_zero ? 0 : x / value;
      made.values.push_back(is_zero ? 0 : value);
      Vector &u = is_wide() ? own : other, &v = is_wide() ? other : own;
      made.u.insert(made.u.end(), u.begin(), u.end());
      made.v.insert(made.v.end(), v.begin(), v.end());
    }
    return made;
  }

  const std::span<const double> w_;
  const size_t rows_, columns_, n_, count_;
  uint64_t seed_ = 1;
  std::vector<Vector> basis_;
  Vector alpha_, beta_;
  double largest_ = 0;
};

}  // namespace

Result<SingularVectors> largest_singular_vectors(std::span<const double> w, int64_t rows, int64_t columns,
                                                 int64_t count) {
  if (count < 1 || count > std::min(rows, columns) || w.size() != static_cast<size_t>(rows * columns))
    return Status(StatusCode::kInvalidArgument,
                  format("singular values: {} of a matrix [{}, {}] were asked for, wanted 1 to {}", count,
                         rows, columns, std::min(rows, columns)));
  if (!std::ranges::all_of(w, [](double x) { return std::isfinite(x); }))
    return Status(StatusCode::kInvalidArgument, "singular values: the matrix has a value that is not finite");
  return Lanczos(w, static_cast<size_t>(rows), static_cast<size_t>(columns), static_cast<size_t>(count))
      .run();
}

}  // namespace tessera
