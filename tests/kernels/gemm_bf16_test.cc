// Products of numbers in 16 bits against those of the same numbers in f32, bit by bit, on every instruction set of
// this CPU.
#include "runtime/backends/cpu/kernels/gemm_bf16.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "graph/base/half.h"
#include "hwy/targets.h"
#include "tests/kernels/kernel_host.h"

namespace tessera::cpu {
namespace {

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

std::vector<uint16_t> random_numbers(int64_t count, uint32_t seed) {
  std::vector<uint16_t> numbers(static_cast<size_t>(count));
  for (uint16_t& number : numbers) {
    seed = seed * 1664525u + 1013904223u;
    number = bf16_from_f32(static_cast<float>(seed >> 8) / 16777216.0f - 0.5f);
  }
  return numbers;
}

std::vector<float> widened(const std::vector<uint16_t>& numbers) {
  std::vector<float> wide;
  for (const uint16_t number : numbers) wide.push_back(f32_from_bf16(number));
  return wide;
}

std::vector<uint16_t> rounded(const std::vector<float>& wide) {
  std::vector<uint16_t> numbers;
  for (const float number : wide) numbers.push_back(bf16_from_f32(number));
  return numbers;
}

std::unique_ptr<void, FreeMemory> workspace_of(int64_t bytes) {
  return std::unique_ptr<void, FreeMemory>(std::aligned_alloc(64, static_cast<size_t>(bytes / 64 * 64 + 64)));
}

enum class Layout { kPlain, kTransposedB, kTransposedA };

Bf16Gemm make_gemm(int64_t m, int64_t n, int64_t k, Layout layout, Activation activation, DType result) {
  Bf16Gemm gemm{.m = m, .n = n, .k = k, .a_row = k, .b_row = n, .activation = activation, .result = result};
  if (layout == Layout::kTransposedB) gemm.b_row = 1, gemm.b_col = k;
  if (layout == Layout::kTransposedA) gemm.a_row = 1, gemm.a_col = m;
  return gemm;
}

struct Operands {
  std::vector<uint16_t> a, b, bias;
  explicit Operands(const Bf16Gemm& g)
      : a(random_numbers(g.m * g.k, 1)), b(random_numbers(g.k * g.n, 2)), bias(random_numbers(g.n, 3)) {}
};

// C, then what it was before the activation.
template <class T>
std::vector<T> multiply(const Bf16Gemm& g, const Operands& x, int threads) {
  constexpr auto kUnwritten = static_cast<T>(12345);
  std::vector<T> results(static_cast<size_t>(2 * g.m * g.n + 1), kUnwritten);
  const auto workspace = workspace_of(gemm_workspace_bytes(g));
  const std::vector<float> bias = widened(x.bias);
  const bool is_wide = g.result == DType::kF32;
  const tsr_host_api host = host_with_threads(threads);
  run_gemm(g,
           {.a = x.a.data(),
            .b = x.b.data(),
            .bias = is_wide ? static_cast<const void*>(bias.data()) : x.bias.data(),
            .c = results.data(),
            .pre = results.data() + g.m * g.n,
            .workspace = workspace.get()},
           Pool(host));
  CHECK(results.back() == kUnwritten);
  results.pop_back();
  return results;
}

// The product in f32, with B rounded to 16 bits where its type is.
std::vector<float> multiply_in_f32(const Bf16Gemm& g, const Operands& x, DType b_type = DType::kF32) {
  const Gemm gemm{.m = g.m,
                  .n = g.n,
                  .k = g.k,
                  .a_row = g.a_row,
                  .a_col = g.a_col,
                  .b_row = g.b_row,
                  .b_col = g.b_col,
                  .activation = g.activation,
                  .b_type = b_type};
  std::vector<float> results(static_cast<size_t>(2 * g.m * g.n));
  const auto workspace = workspace_of(gemm_workspace_bytes(gemm));
  const std::vector<float> a = widened(x.a), b = widened(x.b), bias = widened(x.bias);
  std::vector<uint16_t> b_16 = x.b;
  if (b_type == DType::kF16)  // numbers of bf16 near 1 are numbers of f16 too
    std::ranges::transform(b, b_16.begin(), f16_from_f32);
  const tsr_host_api host = host_with_threads(1);
  run_gemm(gemm,
           {.a = a.data(),
            .b = b.data(),
            .b_16 = b_type == DType::kF32 ? nullptr : b_16.data(),
            .bias = bias.data(),
            .c = results.data(),
            .pre = results.data() + g.m * g.n,
            .workspace = workspace.get()},
           Pool(host));
  return results;
}

void for_each_target(const auto& body) {
  const int64_t targets = hwy::SupportedTargets();
  const int64_t avx3 = int64_t{HWY_AVX3 | HWY_AVX3_DL}, avx2 = avx3 | int64_t{HWY_AVX2};
  for (const int64_t without : {int64_t{0}, avx3, avx2}) {
    hwy::SetSupportedTargetsForTest(targets & ~without);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST_CASE("products_of_bf16_have_the_bits_of_the_packed_f32_product_on_every_instruction_set") {
  for_each_target([] {
    for (const int64_t m : {1, 3, 9, 130})
      for (const int64_t n : {1, 17, 48, 100})
        for (const int64_t k : {1, 2, 31, 256, 257, 700})
          for (const Layout layout : {Layout::kPlain, Layout::kTransposedB, Layout::kTransposedA}) {
            CAPTURE(m);
            CAPTURE(n);
            CAPTURE(k);
            CAPTURE(static_cast<int>(layout));
            // Products of activations differ between instruction sets: see vector_math-inl.h.
            const auto activation = static_cast<Activation>((m + n + k) % 5);
            const Bf16Gemm narrow = make_gemm(m, n, k, layout, activation, DType::kBF16),
                           wide = make_gemm(m, n, k, layout, activation, DType::kF32);
            const Operands operands(narrow);
            const std::vector<float> want = multiply_in_f32(narrow, operands);
            CHECK(multiply<float>(wide, operands, 1) == want);
            CHECK(multiply<uint16_t>(narrow, operands, 1) == rounded(want));
            CHECK(multiply_in_f32(narrow, operands, DType::kBF16) == want);
            CHECK(multiply_in_f32(narrow, operands, DType::kF16) == want);
          }
  });
}

TEST_CASE("sums_of_bf16_products_have_the_same_bits_on_every_instruction_set_and_for_any_thread_count") {
  const Bf16Gemm gemm = make_gemm(200, 500, 600, Layout::kPlain, Activation::kNone, DType::kF32);
  const Operands operands(gemm);
  const std::vector<float> want = multiply<float>(gemm, operands, 1);
  for_each_target([&] {
    CHECK(multiply<float>(gemm, operands, 1) == want);
    CHECK(multiply<float>(gemm, operands, 3) == want);
  });
}

TEST_CASE("products_of_bf16_without_rows_columns_or_depth_and_of_few_rows") {
  for (const int64_t m : {0, 1, 5})
    for (const int64_t n : {0, 1, 50})
      for (const int64_t k : {0, 3, 300}) {
        const Bf16Gemm gemm = make_gemm(m, n, k, Layout::kPlain, Activation::kNone, DType::kF32);
        const Operands x(gemm);
        const std::vector<float> got = multiply<float>(gemm, x, 2);
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            double sum = f32_from_bf16(x.bias[static_cast<size_t>(j)]);
            for (int64_t l = 0; l < k; ++l)
              sum += static_cast<double>(f32_from_bf16(x.a[static_cast<size_t>(i * k + l)])) *
                     f32_from_bf16(x.b[static_cast<size_t>(l * n + j)]);
            CHECK(got[static_cast<size_t>(i * n + j)] == doctest::Approx(sum).epsilon(1e-5));
          }
      }
}

TEST_CASE("products_of_bf16_over_several_chunks_of_rows") {
  const Bf16Gemm gemm = make_gemm(2100, 50, 1800, Layout::kTransposedA, Activation::kNone, DType::kF32);
  const Operands operands(gemm);
  CHECK(multiply<float>(gemm, operands, 2) == multiply_in_f32(gemm, operands));
}

}  // namespace
}  // namespace tessera::cpu
