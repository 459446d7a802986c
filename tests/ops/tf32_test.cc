// Products that may multiply in TF32, on the CPU's kernels and on those of TESSERA_TEST_BACKEND.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "runtime/kernel_description.h"
#include "tests/ops/cuda_device.h"
#include "tests/ops/kernel_run.h"

namespace tessera::conformance {
namespace {

constexpr int64_t kLabel = 1;

struct Operands {
  std::string op;
  std::vector<Attr> attrs;
  std::vector<TensorType> types;
};

TensorType f32(Shape shape) { return {DType::kF32, std::move(shape)}; }
TensorType i32(Shape shape) { return {DType::kI32, std::move(shape)}; }

// Extents at which a library has tensor cores, and others; never so few rows that a vector is multiplied.
std::vector<Operands> all_operands() {
  std::vector<Operands> all;
  for (const auto& [M, N, K] :
       {std::tuple<int64_t, int64_t, int64_t>{32, 48, 64}, {16, 16, 16}, {13, 35, 70}, {131, 70, 300}}) {
    for (const int64_t trans : {0, 1}) {
      const std::vector<Attr> attrs = {{"trans_w", trans}};
      const TensorType w = f32(trans == 1 ? Shape{N, K} : Shape{K, N}),
                       experts = f32(trans == 1 ? Shape{3, N, K} : Shape{3, K, N});
      all.push_back({"matmul", attrs, {f32({M, K}), w}});
      all.push_back({"matmul", attrs, {f32({M, K}), w, f32({N})}});
      all.push_back({"matmul_add", attrs, {f32({M, K}), w, f32({M, N})}});
      all.push_back({"matmul_weight_grad", attrs, {f32({K, M}), f32({K, N})}});
      all.push_back({"expert_matmul", attrs, {f32({3, 2, M, K}), experts}});
      all.push_back({"expert_matmul_weight_grad", attrs, {f32({3, 2, K, M}), f32({3, 2, K, N})}});
    }
    all.push_back({"linear_row_max", {}, {f32({M, K}), f32({N, K})}});
  }
  return all;
}

Array values_of(const TensorType& type, uint32_t seed) {
  std::vector<double> values(static_cast<size_t>(type.shape.elements()));
  for (double& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<double>(seed >> 4) / (1 << 27) - 1);
  }
  return Array::of(type, values);
}

Array filled(const TensorType& type, double value) {
  return Array::of(type, std::vector<double>(static_cast<size_t>(type.shape.elements()), value));
}

std::vector<Array> run(const cpu::KernelEntry& entry, const Operands& given, int64_t allow_tf32, DType dtype,
                       const std::vector<Array>& values, bool& declined) {
  std::vector<TensorType> types = given.types;
  for (TensorType& type : types)
    if (type.dtype == DType::kF32) type.dtype = dtype;
  std::vector<Attr> attrs = given.attrs;
  attrs.push_back({"allow_tf32", allow_tf32});
  const OpDef* op = find_op(given.op);
  const auto complete = complete_attrs(*op, attrs);
  REQUIRE_MESSAGE(complete.ok(), complete.status().to_string());
  const auto instance = make_instance(*op, *complete, types);
  REQUIRE_MESSAGE(instance.ok(), instance.status().to_string());
  const auto kernel = PreparedKernel::prepare(entry, *instance);
  declined = !kernel.ok() && kernel.status().code() == StatusCode::kUnsupported;
  if (declined) return {};
  REQUIRE_MESSAGE(kernel.ok(), given.op << ": " << kernel.status().to_string());
  std::vector<Array> operands;
  for (size_t i = 0; i < values.size(); ++i) operands.push_back(Array::of(types[i], values[i].values()));
  auto results = kernel->run(operands, {.poison = std::byte{0xa5}});
  REQUIRE_MESSAGE(results.ok(), given.op << ": " << results.status().to_string());
  return std::move(*results);
}

// Rounding x and w by u of themselves each puts a sum of products off by 2 u of the sum of their absolute
// values, and a little. u is 2^-11 to the nearest, as the CPU and the emulator round; a library may round
// towards zero, 2^-10. Sums in f32 of up to 600 products, in some order, are off by some 2^-20 of that.
constexpr double kToNearest = 0x1p-11, kTowardsZero = 0x1p-10, kF32 = 0x1p-18;

TEST_CASE("products_in_tf32_are_off_by_the_rounding_of_operands_and_those_in_f32_are_not") {
  int compared = 0;
  for (const Operands& given : all_operands()) {
    std::vector<Array> values, magnitudes;
    for (size_t i = 0; i < given.types.size(); ++i) {
      values.push_back(values_of(given.types[i], static_cast<uint32_t>(7 + i)));
      std::vector<double> sizes = values.back().values();
      for (double& size : sizes) size = std::fabs(size);
      magnitudes.push_back(Array::of(given.types[i], sizes));
    }
    const std::vector<cpu::KernelEntry> kernels = kernels_of(given.op);
    const cpu::KernelEntry* reference = reference_of(kernels);
    REQUIRE(reference != nullptr);
    bool declined = false;
    const std::vector<Array> want = run(*reference, given, 0, DType::kF64, values, declined),
                             size = run(*reference, given, 0, DType::kF64, magnitudes, declined);
    for (size_t k = 0; k < kernels.size(); ++k) {
      const bool is_foreign = kernels[k].prepare == nullptr;
      for (const int64_t allow : {0, 1}) {
        const std::vector<Array> got = run(kernels[k], given, allow, DType::kF32, values, declined);
        if (declined) continue;
        double worst = 0;
        for (int64_t i = 0; i < want[0].count(); ++i)
          worst = std::max(worst, std::fabs(got[0].get(i) - want[0].get(i)) / size[0].get(i));
        CAPTURE(given.op);
        CAPTURE(to_text(given.types[0]));
        CAPTURE(std::string(kernels[k].variant));
        CAPTURE(allow);
        const double u = allow == 0 ? 0 : is_foreign ? kTowardsZero : kToNearest;
        CHECK(worst <= 2 * u + u * u + kF32);
        if (allow == 1 && !is_foreign) CHECK(worst > kF32);
        ++compared;
      }
    }
  }
  std::printf("%d products with and without TF32 compared\n", compared);
}

// 1 + 2^-12 is 1 in TF32, whichever way it is rounded, and is not in f32. Sums of up to 600 of them are
// exact.
TEST_CASE("what_tf32_does_not_hold_is_lost_where_it_is_allowed_and_kept_where_it_is_not") {
  constexpr double kMore = 1 + 0x1p-12;
  int distinct = 0;
  for (const Operands& given : all_operands()) {
    // Tensor cores want rows of a multiple of 16 bytes; other products a library may leave to plain ones.
    const bool is_aligned = std::ranges::all_of(
        given.types, [](const TensorType& type) { return type.shape[type.shape.rank() - 1] % 4 == 0; });
    // The addend keeps its bits either way.
    std::vector<Array> values = {filled(given.types[0], kMore), filled(given.types[1], 1)};
    if (given.types.size() > 2) values.push_back(filled(given.types[2], 0x1p-6));
    const double added = given.types.size() > 2 ? 0x1p-6 : 0;
    for (const cpu::KernelEntry& entry : kernels_of(given.op)) {
      bool declined = false;
      const std::vector<Array> in_f32 = run(entry, given, 0, DType::kF32, values, declined);
      if (declined) continue;
      const double sum = (in_f32[0].get(0) - added) / kMore;
      CAPTURE(given.op);
      CAPTURE(to_text(given.types[0]));
      CAPTURE(std::string(entry.variant));
      CHECK(sum == std::round(sum));
      for (const double y : in_f32[0].values()) REQUIRE(y == sum * kMore + added);
      const std::vector<Array> in_tf32 = run(entry, given, 1, DType::kF32, values, declined);
      if (entry.prepare == nullptr && !is_aligned) continue;
      for (const double y : in_tf32[0].values()) REQUIRE(y == sum + added);
      ++distinct;
    }
  }
  std::printf("%d products distinct apart\n", distinct);
  CHECK(distinct > 0);
}

// One logit of 64 above all others, which the label is not: loss and gradients are as exact as its operands.
TEST_CASE("every_product_of_a_fused_loss_multiplies_in_tf32_where_that_is_allowed") {
  constexpr int64_t kRows = 32, kV = 48, kC = 64;
  constexpr double kMore = 1 + 0x1p-12;
  const Operands given{
      "linear_cross_entropy_grad", {}, {f32({kRows, kC}), f32({kV, kC}), i32({kRows}), f32({}), f32({})}};
  std::vector<double> w(kV * kC, 0.0);
  std::fill_n(w.begin(), kC, kMore);
  const std::vector<Array> values = {filled(given.types[0], kMore), Array::of(given.types[1], w),
                                     filled(given.types[2], kLabel), filled(given.types[3], 1),
                                     filled(given.types[4], 1)};
  for (const cpu::KernelEntry& entry : kernels_of(given.op)) {
    CAPTURE(std::string(entry.variant));
    for (const int64_t allow : {0, 1}) {
      CAPTURE(allow);
      bool declined = false;
      const std::vector<Array> got = run(entry, given, allow, DType::kF32, values, declined);
      if (declined) continue;
      const double one = allow == 1 ? 1 : kMore;
      // exp(-64) is negligible against 1; what is left is the rounding of sums of f32.
      CHECK(std::fabs(got[1].get(0) / (kRows * 64 * one * one) - 1) < 0x1p-20);
      for (int64_t c = 0; c < kC; ++c) {
        CHECK(std::fabs(got[0].get(c) / one - 1) < 0x1p-20);
        CHECK(std::fabs(got[2].get(c) / (kRows * one) - 1) < 0x1p-20);
        CHECK(std::fabs(got[2].get(kLabel * kC + c) / (-kRows * one) - 1) < 0x1p-20);
      }
    }
  }
}

TEST_CASE("algorithms_of_products_in_tf32_are_their_own") {
  const std::vector<TensorType> operands = {f32({4096, 4096}), f32({4096, 4096})};
  const Question exact = Question::of("matmul", {}, operands),
                 rounding = Question::of("matmul", {{"allow_tf32", int64_t{1}}}, operands);
  // What --tune files its choices under. As it was before there was the attribute, where that has its
  // default.
  CHECK(question_text(*exact.op, exact.view()) != question_text(*rounding.op, rounding.view()));
  Question older = exact;
  std::erase_if(older.attrs, [](const Attr& attr) { return attr.name == "allow_tf32"; });
  CHECK(question_text(*exact.op, exact.view()) == question_text(*older.op, older.view()));
  CHECK(question_key(*exact.op, exact.view()) != question_key(*rounding.op, rounding.view()));
}

TEST_CASE("prices_of_products_in_tf32_are_their_own" * doctest::test_suite("gpu")) {
  const std::vector<TensorType> operands = {f32({4096, 4096}), f32({4096, 4096})};
  CudaDevice device;
  if (!device.is_there()) return;
  const auto seconds = [&](std::string_view op, const std::vector<TensorType>& types, int64_t allow) {
    const Question question = Question::of(op, {{"allow_tf32", allow}}, types);
    const KernelDescription description(*question.op, question.view(), "");
    tsr_abi_kernel_info info{};
    info.struct_size = sizeof(info);
    REQUIRE(take_error(device.api().kernel_query(0, &description.abi(), &info)).ok());
    CHECK(std::string(info.variant) == "cublaslt");
    return info.seconds;
  };
  // 0.35 of the rate of bf16 instead of 0.05; of the head and its loss 0.3.
  CHECK(seconds("matmul", operands, 0) / seconds("matmul", operands, 1) == doctest::Approx(7).epsilon(0.05));
  const std::vector<TensorType> head = {f32({1024, 1024}), f32({32000, 1024}), i32({1024}), f32({}), f32({})};
  CHECK(seconds("linear_cross_entropy_grad", head, 0) / seconds("linear_cross_entropy_grad", head, 1) ==
        doctest::Approx(6).epsilon(0.05));
}

}  // namespace
}  // namespace tessera::conformance
