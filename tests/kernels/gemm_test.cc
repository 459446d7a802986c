// The packed product against sums in double, over edges of every block size and on every instruction set of
// this CPU.
#include "runtime/backends/cpu/kernels/gemm.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "graph/base/half.h"
#include "tests/kernels/kernel_host.h"

namespace tessera::cpu {
namespace {

constexpr float kUnwritten = -12345.0f;

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

std::vector<float> random_values(int64_t count, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(seed >> 8) / 16777216.0f - 0.5f;
  }
  return values;
}

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone: return x;
    case Activation::kRelu: return x > 0 ? x : 0;
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
    case Activation::kGeluErf: return 0.5 * x * (1 + std::erf(x * 0.70710678118654752));
    case Activation::kSilu: return x / (1 + std::exp(-x));
  }
  return 0;
}

struct Run {
  std::vector<float> c, pre;
};

Run run(const Gemm& gemm, const std::vector<float>& a, const std::vector<float>& b, const float* bias,
        int threads) {
  const size_t size = static_cast<size_t>(gemm.m * gemm.n);
  Run result{std::vector<float>(size + 1, kUnwritten), std::vector<float>(size + 1, kUnwritten)};
  const std::unique_ptr<void, FreeMemory> workspace(
      std::aligned_alloc(64, static_cast<size_t>(gemm_workspace_bytes(gemm) / 64 * 64 + 64)));
  const tsr_host_api host = host_with_threads(threads);
  run_gemm(gemm,
           {.a = a.data(),
            .b = b.data(),
            .bias = bias,
            .c = result.c.data(),
            .pre = result.pre.data(),
            .workspace = workspace.get()},
           Pool(host));
  return result;
}

// The largest difference from sums in double, in units of the rounding error that k products may carry.
double worst_error(const Gemm& gemm, int threads) {
  const std::vector<float> a = random_values(gemm.m * gemm.k, 1), b = random_values(gemm.k * gemm.n, 2);
  const std::vector<float> bias = random_values(gemm.n, 3);
  const bool use_bias = (gemm.m + gemm.k) % 2 == 1;
  const Run result = run(gemm, a, b, use_bias ? bias.data() : nullptr, threads);
  if (result.c.back() != kUnwritten || result.pre.back() != kUnwritten) return HUGE_VAL;
  double worst = 0;
  for (int64_t i = 0; i < gemm.m; ++i) {
    for (int64_t j = 0; j < gemm.n; ++j) {
      double sum = use_bias ? bias[static_cast<size_t>(j)] : 0;
      for (int64_t k = 0; k < gemm.k; ++k)
        sum += static_cast<double>(a[static_cast<size_t>(i * gemm.a_row + k * gemm.a_col)]) *
               b[static_cast<size_t>(k * gemm.b_row + j * gemm.b_col)];
      const size_t at = static_cast<size_t>(i * gemm.n + j);
      const double error = std::fmax(std::fabs(result.pre[at] - sum),
                                     std::fabs(result.c[at] - activate(gemm.activation, sum)));
      worst = std::fmax(worst, std::isnan(error) ? HUGE_VAL : error);
    }
  }
  return worst / (6e-8 * (4 + std::sqrt(static_cast<double>(gemm.k))));
}

enum class Layout { kPlain, kTransposedB, kTransposedA };

Gemm make_gemm(int64_t m, int64_t n, int64_t k, Layout layout, Activation activation) {
  Gemm gemm{.m = m, .n = n, .k = k, .a_row = k, .a_col = 1, .b_row = n, .b_col = 1, .activation = activation};
  if (layout == Layout::kTransposedB) gemm.b_row = 1, gemm.b_col = k;
  if (layout == Layout::kTransposedA) gemm.a_row = 1, gemm.a_col = m;
  return gemm;
}

void check_shapes(int threads) {
  for (const int64_t m : {0, 1, 2, 3, 5, 7, 8, 9, 17, 130}) {
    for (const int64_t n : {0, 1, 3, 16, 17, 48, 49, 100, 200}) {
      for (const int64_t k : {0, 1, 3, 31, 256, 257, 700}) {
        for (const Layout layout : {Layout::kPlain, Layout::kTransposedB, Layout::kTransposedA}) {
          const Gemm gemm = make_gemm(m, n, k, layout, static_cast<Activation>((m + n + k) % 5));
          CAPTURE(m);
          CAPTURE(n);
          CAPTURE(k);
          CAPTURE(gemm.b_col);
          CAPTURE(gemm.a_col);
          CHECK(worst_error(gemm, threads) < 8);
        }
      }
    }
  }
}

TEST_CASE("packed_product_equals_sums_in_double_on_every_instruction_set") {
  on_each_target([] { check_shapes(1); });
}

TEST_CASE("packed_product_over_several_chunks_of_rows_and_depth") {
  CHECK(worst_error(make_gemm(2100, 50, 900, Layout::kTransposedA, Activation::kNone), 2) < 8);
  CHECK(worst_error(make_gemm(24, 50, 70000, Layout::kPlain, Activation::kGeluTanh), 2) < 8);
}

TEST_CASE("packed_product_has_the_same_bits_for_any_thread_count") {
  const Gemm gemm = make_gemm(200, 500, 600, Layout::kTransposedB, Activation::kSilu);
  const std::vector<float> a = random_values(gemm.m * gemm.k, 1), b = random_values(gemm.k * gemm.n, 2);
  const Run one = run(gemm, a, b, nullptr, 1), five = run(gemm, a, b, nullptr, 5);
  CHECK(one.c == five.c);
  CHECK(one.pre == five.pre);
}

// Matrices of one product; B in the bytes of its type.
struct Matrices {
  std::vector<float> a, bias;
  std::vector<std::byte> b;

  explicit Matrices(const Gemm& gemm) : a(random_values(gemm.m * gemm.k, 1)), bias(random_values(gemm.n, 3)) {
    const std::vector<float> values = random_values(gemm.k * gemm.n, 2);
    b.resize(static_cast<size_t>(gemm.b_bytes()) * values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t half = gemm.b_type == DType::kF16 ? f16_from_f32(values[i]) : bf16_from_f32(values[i]);
      if (gemm.b_type == DType::kF32) std::memcpy(&b[4 * i], &values[i], 4);
      if (gemm.b_type != DType::kF32) std::memcpy(&b[2 * i], &half, 2);
    }
  }
};

// Rows [first, first + count) of A alone.
std::vector<float> run_rows(Gemm gemm, const Matrices& matrices, int64_t first, int64_t count) {
  gemm.m = count;
  std::vector<float> c(static_cast<size_t>(count * gemm.n), kUnwritten);
  const std::unique_ptr<void, FreeMemory> workspace(
      std::aligned_alloc(64, static_cast<size_t>(gemm_workspace_bytes(gemm) / 64 * 64 + 64)));
  const tsr_host_api host = host_with_threads(1);
  const bool is_f32 = gemm.b_type == DType::kF32;
  run_gemm(gemm,
           {.a = matrices.a.data() + first * gemm.k,
            .b = is_f32 ? reinterpret_cast<const float*>(matrices.b.data()) : nullptr,
            .b_16 = is_f32 ? nullptr : reinterpret_cast<const uint16_t*>(matrices.b.data()),
            .bias = matrices.bias.data(),
            .c = c.data(),
            .workspace = workspace.get()},
           Pool(host));
  return c;
}

TEST_CASE("a_row_has_the_same_bits_in_any_batch_on_every_instruction_set") {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Layout layout : {Layout::kPlain, Layout::kTransposedB}) {
      for (const int64_t k : {5, 300, 801}) {
        Gemm gemm = make_gemm(130, 101, k, layout, Activation::kSilu);
        gemm.b_type = type;
        CAPTURE(static_cast<int>(type));
        CAPTURE(gemm.b_col);
        CAPTURE(k);
        const Matrices matrices(gemm);
        on_each_target([&] {
          const std::vector<float> all = run_rows(gemm, matrices, 0, gemm.m);
          for (const int64_t count : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 64}) {
            const int64_t first = 3 * count % (gemm.m - count);
            const std::vector<float> alone = run_rows(gemm, matrices, first, count);
            CAPTURE(count);
            CHECK(std::memcmp(alone.data(), all.data() + first * gemm.n, 4 * alone.size()) == 0);
          }
        });
      }
    }
  }
}

// C of a product of the first `n` columns and `m` rows of these matrices.
std::vector<float> run_part(Gemm gemm, const Matrices& matrices, int64_t m, int64_t n) {
  gemm.m = m, gemm.n = n;
  std::vector<float> c(static_cast<size_t>(m * n), kUnwritten);
  const std::unique_ptr<void, FreeMemory> workspace(
      std::aligned_alloc(64, static_cast<size_t>(gemm_workspace_bytes(gemm) / 64 * 64 + 64)));
  const tsr_host_api host = host_with_threads(1);
  run_gemm(gemm,
           {.a = matrices.a.data(),
            .b = reinterpret_cast<const float*>(matrices.b.data()),
            .bias = matrices.bias.data(),
            .c = c.data(),
            .workspace = workspace.get()},
           Pool(host));
  return c;
}

TEST_CASE("narrow_products_have_the_bits_of_wide_ones_on_every_instruction_set") {
  struct Part {
    int64_t m, n;
  };
  for (const Layout layout : {Layout::kPlain, Layout::kTransposedB, Layout::kTransposedA}) {
    for (const int64_t k : {5, 16, 300, 801}) {
      const Gemm gemm = make_gemm(230, 101, k, layout, Activation::kSilu);
      CAPTURE(static_cast<int>(layout));
      CAPTURE(k);
      const Matrices matrices(gemm);
      on_each_target([&] {
        const std::vector<float> all = run_part(gemm, matrices, gemm.m, gemm.n);
        for (const auto [m, n] : {Part{230, 1}, Part{230, 2}, Part{230, 5}, Part{230, 16}, Part{227, 33},
                                  Part{17, 64}, Part{2, 101}, Part{16, 101}, Part{33, 99}, Part{64, 101}}) {
          CAPTURE(m);
          CAPTURE(n);
          const std::vector<float> part = run_part(gemm, matrices, m, n);
          bool is_same = true;
          for (int64_t i = 0; i < m; ++i)
            is_same &= std::memcmp(&part[static_cast<size_t>(i * n)], &all[static_cast<size_t>(i * gemm.n)],
                                   static_cast<size_t>(4 * n)) == 0;
          CHECK(is_same);
        }
      });
    }
  }
}

TEST_CASE("an_added_product_of_one_block_has_the_bits_of_a_product_and_an_addition") {
  for (const Layout layout : {Layout::kPlain, Layout::kTransposedB}) {
    for (const int64_t k : {8, 16, 32, 33, 256}) {
      Gemm gemm = make_gemm(130, 101, k, layout, Activation::kNone);
      CAPTURE(k);
      const std::vector<float> a = random_values(gemm.m * k, 1), b = random_values(k * gemm.n, 2);
      const std::vector<float> addend = random_values(gemm.m * gemm.n, 4);
      on_each_target([&] {
        gemm.adds = false;
        std::vector<float> sum = run(gemm, a, b, nullptr, 1).c;
        for (size_t i = 0; i < addend.size(); ++i) sum[i] += addend[i];
        gemm.adds = true;
        std::vector<float> c = addend;
        const std::unique_ptr<void, FreeMemory> workspace(
            std::aligned_alloc(64, static_cast<size_t>(gemm_workspace_bytes(gemm) / 64 * 64 + 64)));
        const tsr_host_api host = host_with_threads(1);
        run_gemm(gemm, {.a = a.data(), .b = b.data(), .c = c.data(), .workspace = workspace.get()},
                 Pool(host));
        CHECK(std::memcmp(c.data(), sum.data(), 4 * c.size()) == 0);
      });
    }
  }
}

}  // namespace
}  // namespace tessera::cpu
