// Products with blocks of every type against sums in double over decoded blocks, on every instruction set of
// this CPU; and that the bits of a row depend on nothing else.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "hwy/targets.h"
#include "runtime/backends/cpu/kernels/quantized_layout.h"
#include "tests/kernels/block_products.h"
#include "tests/kernels/kernel_host.h"
#include "tests/kernels/panel_permutation.h"

namespace tessera::cpu {
namespace {

TEST_CASE("products with blocks of every type equal sums over decoded blocks") {
  for (const DType type : kBlockTypes) {
    CAPTURE(info(type).name);
    for (const int fill : {-1, 0xff, 0x80, 0x00}) {
      CAPTURE(fill);
      const Problem p(type, fill < 0 ? 7 : 1, fill < 0 ? 21 : 3, fill < 0 ? 768 : 256, fill);
      const std::vector<double> exact(p.x.begin(), p.x.end());
      on_each_target([&] {
        if (has_integer_codes(type))
          CHECK(largest_error(p, QuantizedRows(type, p.x), multiply_q8(p, p.matrix(), 0, p.M)) < kQ8Error);
        // If all products are equal, so are the errors of a chain of 256.
        CHECK(largest_error(p, exact, multiply_f32(p, p.matrix(), 0, p.M)) < (fill < 0 ? kF32Error : 64));
      });
    }
  }
}

TEST_CASE("a row's bits do not depend on its batch, on ranges, or on interleaving") {
  for (const DType type : kBlockTypes) {
    CAPTURE(info(type).name);
    Problem p(type, 37, 37, 512);
    on_each_target([&] {
      const std::vector<float> f32 = multiply_f32(p, p.matrix(), 0, p.M);
      CHECK(multiply_f32(p, p.matrix(), 0, p.M, {3, 4, 20}) == f32);
      const auto each_batch = [&](const auto& check) {
        for (const int64_t rows : {1, 2, 3, 5, 8, 9, 17}) check(rows % 2 == 0 ? 3 : p.M - rows, rows);
      };
      each_batch([&](int64_t m, int64_t rows) {
        CHECK(multiply_f32(p, p.matrix(), m, rows) == rows_of(f32, p.N, m, rows));
      });
      if (!has_integer_codes(type)) return;
      const std::vector<float> q8 = multiply_q8(p, p.matrix(), 0, p.M);
      CHECK(multiply_q8(p, p.matrix(), 0, p.M, {3, 4, 20}) == q8);
      each_batch([&](int64_t m, int64_t rows) {
        CHECK(multiply_q8(p, p.matrix(), m, rows) == rows_of(q8, p.N, m, rows));
      });
      if (!can_interleave_rows(type)) return;
      const BlockMatrix w = p.interleave();
      for (const int64_t rows : {1, 2, 8, 17}) {
        CHECK(multiply_q8(p, w, 4, rows) == rows_of(q8, p.N, 4, rows));
        CHECK(multiply_f32(p, w, 4, rows) == rows_of(f32, p.N, 4, rows));
      }
      CHECK(multiply_q8(p, w, 0, p.M, {3, 4, 20}) == q8);
      CHECK(multiply_q8(p, w, 0, p.M) == q8);
      CHECK(multiply_f32(p, w, 0, p.M, {3, 4, 20}) == f32);
    });
  }
}

// Signed codes are multiplied as words, or 128 above their values as bytes, by what the CPU has: the sums of
// integers are exact either way.
TEST_CASE("integer products have the same bits on every instruction set with fused multiply-adds") {
  for (const DType type : kBlockTypes) {
    if (!has_integer_codes(type)) continue;
    CAPTURE(info(type).name);
    Problem p(type, 7, 37, 512);
    std::vector<float> first;
    on_each_target([&] {
      const std::string target = hwy::TargetName(hwy::SupportedTargets());
      if (!target.starts_with("AVX") && !target.starts_with("NEON")) return;
      const std::vector<float> y = multiply_q8(p, p.matrix(), 0, p.M);
      if (first.empty()) first = y;
      CHECK(y == first);
    });
  }
}

TEST_CASE("interleaving is a permutation of bytes with an inverse") {
  for (const DType type : kBlockTypes) {
    if (!can_interleave_rows(type)) continue;
    CAPTURE(info(type).name);
    const QuantizedLayout& layout = quantized_layout(type);
    int64_t bytes = 0;
    for (const BlockField& field : layout.fields) bytes += field.bytes * field.units;
    CHECK(bytes == info(type).block_bytes);
    Problem p(type, 1, 37, 512);
    on_each_target([&] {
      const BlockMatrix w = p.interleave();
      const int64_t lanes = interleaved_rows(), blocks = p.K / info(type).block_elements;
      std::vector<std::byte> back(p.blocks.size()),
          panel(static_cast<size_t>(lanes * dtype_bytes(type, p.K)));
      deinterleave_rows(type, p.N, p.K, w.data, back.data(), 0, p.N / lanes + 1);
      CHECK(back == p.blocks);
      std::ranges::fill(back, std::byte{});
      interleave_panel(layout, lanes, blocks, p.blocks.data(), panel.data());
      CHECK(std::memcmp(panel.data(), w.data, panel.size()) == 0);
      for (int64_t row = 0; row < p.N; ++row)
        copy_row(w, row, back.data() + row * dtype_bytes(type, p.K));
      CHECK(back == p.blocks);
    });
  }
}

TEST_CASE("the gradient for x is the product with the decoded blocks") {
  for (const DType type : kBlockTypes) {
    CAPTURE(info(type).name);
    Problem p(type, 5, 70, 512);
    const std::vector<float> dy = p.make_gradient();
    on_each_target([&] {
      const std::vector<float> dx = multiply_transposed(p, p.matrix(), dy, 0, p.M);
      CHECK(largest_gradient_error(p, dy, dx) < kGradientError);
      CHECK(multiply_transposed(p, p.matrix(), dy, 2, 1) == rows_of(dx, p.K, 2, 1));
      if (can_interleave_rows(type)) CHECK(multiply_transposed(p, p.interleave(), dy, 0, p.M) == dx);
    });
  }
}

TEST_CASE("numbers that are not finite are not hidden by quantisation, and zeros are zeros") {
  for (const DType type : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kIQ4_XS}) {
    CAPTURE(info(type).name);
    Problem p(type, 3, 5, 512);
    std::fill(p.bias.begin(), p.bias.end(), 0.0f);
    std::fill(p.x.begin(), p.x.begin() + p.K, 0.0f);
    p.x[static_cast<size_t>(p.K + 300)] = std::numeric_limits<float>::infinity();
    p.x[static_cast<size_t>(2 * p.K + 5)] = std::numeric_limits<float>::quiet_NaN();
    on_each_target([&] {
      const std::vector<float> y = multiply_q8(p, p.matrix(), 0, p.M);
      for (int64_t n = 0; n < p.N; ++n) {
        CHECK(y[static_cast<size_t>(n)] == 0.0f);
        CHECK(!std::isfinite(y[static_cast<size_t>(p.N + n)]));
        CHECK(!std::isfinite(y[static_cast<size_t>(2 * p.N + n)]));
      }
    });
  }
}

}  // namespace
}  // namespace tessera::cpu
