// Products of 8-bit floats on a GPU (TESSERA_TEST_BACKEND names the backend), with results of 16 bits, which
// the CPU's kernels do not have, and biases of that type; on extents that the library takes and others.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <limits>

#include "graph/base/text.h"
#include "tests/ops/foreign_backend.h"
#include "tests/ops/kernel_run.h"
#include "tests/skip.h"

namespace tessera::conformance {
namespace {

Array filled(const TensorType& type, uint32_t seed, double factor) {
  std::vector<double> values(static_cast<size_t>(type.shape.elements()));
  for (double& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = factor * (static_cast<double>(seed >> 8) / (1 << 23) - 1);
  }
  return Array::of(type, values);
}

Result<std::vector<Array>> run(std::string_view op, std::vector<Attr> attrs,
                               const std::vector<Array>& operands) {
  std::vector<TensorType> types;
  for (const Array& operand : operands) types.push_back(operand.type);
  const OpDef* def = find_op(op);
  TSR_ASSIGN_OR_RETURN(attrs, complete_attrs(*def, attrs));
  TSR_ASSIGN_OR_RETURN(const OpInstance instance, make_instance(*def, std::move(attrs), std::move(types)));
  TSR_ASSIGN_OR_RETURN(const PreparedKernel kernel, PreparedKernel::prepare(kernels_of(op)[0], instance));
  return kernel.run(operands, {.poison = std::byte{0xa5}});
}

struct Shape3 {
  int64_t M, N, K;
};
constexpr Shape3 kShapes[] = {{16, 32, 48}, {80, 16, 64}, {13, 32, 48},  {16, 20, 48},
                              {32, 16, 40}, {5, 7, 9},    {64, 144, 272}};

TEST_SUITE_BEGIN("gpu");

TEST_CASE("products of 8-bit floats with results of 16 bits and a bias are those of their numbers") {
  if (foreign_backend_name().empty()) {
    test::skip("no CUDA device, real or emulated");
    return;
  }
  int compared = 0;
  for (const auto& [M, N, K] : kShapes)
    for (const DType x_dtype : {DType::kE4M3, DType::kE5M2})
      for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32})
        for (const int64_t trans : {int64_t{1}, int64_t{0}})
          for (const bool has_bias : {true, false}) {
            if (!foreign_backend_has(dtype)) continue;
            const auto k = static_cast<size_t>(K);
            std::vector<Array> operands = {
                filled({x_dtype, {M, K}}, 1, 400),
                filled({DType::kE4M3, trans == 1 ? Shape{N, K} : Shape{K, N}}, 2, 400),
                Array::of({DType::kF32, {}}, {0x1p-9}), Array::of({DType::kF32, {}}, {0x1p-10})};
            if (has_bias) operands.push_back(filled({dtype, {N}}, 3, 1));
            const std::string name = dtype == DType::kF32 ? std::string() : to_text(dtype);
            const auto got = run("scaled_matmul", {{"trans_w", trans}, {"dtype", name}}, operands);
            const std::string where = format("{} x {} x {} {} to {}, trans_w = {}, bias {}", M, N, K, x_dtype,
                                             dtype, trans, has_bias);
            REQUIRE_MESSAGE(got.ok(), where << ": " << got.status().to_string());
            const std::vector<double> x = operands[0].values(), w = operands[1].values(),
                                      y = (*got)[0].values();
            double worst = 0;
            for (size_t m = 0; m < static_cast<size_t>(M); ++m)
              for (size_t n = 0; n < static_cast<size_t>(N); ++n) {
                double want = 0;
                for (size_t i = 0; i < k; ++i)
                  want += x[m * k + i] * w[trans == 1 ? n * k + i : i * static_cast<size_t>(N) + n];
                want *= 0x1p-19;
                if (has_bias) want += operands[4].get(static_cast<int64_t>(n));
                worst = std::max(worst, std::fabs(y[m * static_cast<size_t>(N) + n] - want) /
                                            std::max(1.0, std::fabs(want)));
              }
            // Rounded to half an ulp; where the bias is a pass of its own, before it too, when it may be
            // larger.
            const double ulp = dtype == DType::kF32 ? 1e-5 : dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
            CHECK_MESSAGE(worst <= 2 * ulp, where << ": off by " << worst);
            ++compared;
          }
  std::printf("%d products of 8-bit floats compared\n", compared);
}

TEST_CASE("a tensor with a number that is not finite makes all of its products infinite or nan") {
  if (foreign_backend_name().empty()) {
    test::skip("no CUDA device, real or emulated");
    return;
  }
  for (const double bad : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()}) {
    Array x = filled({DType::kF32, {16, 32}}, 1, 1);
    x.set(37, bad);
    const auto scale = run("quantize_scale", {{"dtype", std::string("e4m3")}}, {x});
    REQUIRE(scale.ok());
    CHECK(std::isinf((*scale)[0].get(0)));
    const auto codes = run("quantize", {{"dtype", std::string("e4m3")}}, {x, (*scale)[0]});
    REQUIRE(codes.ok());
    const auto y = run("scaled_matmul", {{"trans_w", int64_t{1}}},
                       {(*codes)[0], filled({DType::kE4M3, {16, 32}}, 2, 8), (*scale)[0],
                        Array::of({DType::kF32, {}}, {1})});
    REQUIRE(y.ok());
    for (const double value : (*y)[0].values()) CHECK(!std::isfinite(value));
  }
}

TEST_SUITE_END();

}  // namespace
}  // namespace tessera::conformance
