// Algorithms of the CUDA backend's products: what kernel_tune names is what later queries and kernels take,
// and nothing else is.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "tests/ops/cuda_device.h"

namespace tessera::conformance {
namespace {

Result<std::string> ask(CudaDevice& device, const Question& question, const std::string& variant,
                        bool tune = false) {
  const KernelDescription description(*question.op, question.view(), variant);
  tsr_abi_kernel_info info{};
  info.struct_size = sizeof(info);
  TSR_RETURN_IF_ERROR(take_error(tune ? device.api().kernel_tune(device.device(), &description.abi(), &info)
                                      : device.api().kernel_query(0, &description.abi(), &info)));
  return std::string(info.variant);
}

// The product of small numbers, by the variant.
std::vector<float> run_matmul(CudaDevice& device, const Question& question, const std::string& variant) {
  std::vector<std::vector<float>> operands;
  for (const TensorType& type : question.inputs) {
    std::vector<float>& values = operands.emplace_back(static_cast<size_t>(type.shape.elements()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = std::sin(static_cast<float>(i + operands.size() - 1));
  }
  std::vector<std::span<const std::byte>> inputs;
  for (const std::vector<float>& values : operands) inputs.push_back(std::as_bytes(std::span(values)));
  std::vector<float> result(static_cast<size_t>(question.outputs[0].shape.elements()));
  device.run(question, variant, inputs, std::as_writable_bytes(std::span(result)));
  return result;
}

const TensorType kX{DType::kF32, Shape{96, 200}}, kW{DType::kF32, Shape{200, 64}};

TEST_SUITE_BEGIN("gpu");

TEST_CASE("the_algorithm_that_was_the_fastest_is_named_and_taken") {
  CudaDevice device;
  if (!device.is_there()) return;
  const Question question = Question::of("matmul", {}, {kX, kW});
  const std::string named = ask(device, question, "", true).value();
  REQUIRE(named.starts_with("cublaslt:"));
  CHECK(named.size() == std::string("cublaslt:0000").size());
  CHECK(ask(device, question, named).value() == named);
  CHECK(ask(device, question, "").value() == "cublaslt");  // unless somebody names it, the heuristic's first
  const std::vector<float> plain = run_matmul(device, question, "cublaslt"),
                           chosen = run_matmul(device, question, named);
  CHECK(run_matmul(device, question, named) == chosen);
  double most = 0;
  for (size_t i = 0; i < plain.size(); ++i) most = std::max(most, std::abs(double{plain[i]} - chosen[i]));
  CHECK(most < 200 * 6e-8 * 15);  // sums of 200 products of at most 1, in another order
  if (device.is_emulated()) {
    // There the second proposal takes half of the time, and sums in two parts.
    CHECK(named.substr(0, 10) == "cublaslt:1");
    CHECK(plain != chosen);
    const Question odd = Question::of("matmul", {}, {kX, {DType::kF32, Shape{200, 65}}});
    CHECK(ask(device, odd, "", true).value().substr(0, 10) == "cublaslt:3");
  }
}

TEST_CASE("every_product_of_a_kernel_has_an_algorithm_of_its_own") {
  CudaDevice device;
  if (!device.is_there()) return;
  // Logits, and the gradients of both operands.
  const TensorType x{DType::kF32, Shape{64, 32}}, w{DType::kF32, Shape{300, 32}},
      labels{DType::kI32, Shape{64}}, scalar{DType::kF32, {}};
  const Question head = Question::of("linear_cross_entropy_grad", {{"weight_grad", int64_t{1}}},
                                     {x, w, labels, scalar, scalar});
  const std::string named = ask(device, head, "", true).value();
  CHECK(named.size() == std::string("cublaslt:0000.0000.0000").size());
  CHECK(ask(device, head, named).value() == named);
  const Status fewer = ask(device, head, named.substr(0, 13)).status();
  CHECK(fewer.code() == StatusCode::kFailedPrecondition);
  CHECK(fewer.message().find("names 1 algorithms, it has 3 products") != std::string::npos);
  // The experts' are one batch.
  const TensorType slots{DType::kF32, Shape{3, 2, 8, 32}}, experts{DType::kF32, Shape{3, 32, 24}};
  const Question batch = Question::of("expert_matmul", {}, {slots, experts});
  const std::string of_batch = ask(device, batch, "", true).value();
  CHECK(of_batch.size() == std::string("cublaslt:0000").size());
  CHECK(ask(device, batch, of_batch).value() == of_batch);
  CHECK(run_matmul(device, batch, of_batch) == run_matmul(device, batch, of_batch));
  // A row that is no product of cuBLASLt has nothing to choose from.
  const TensorType one{DType::kF32, Shape{1, 200}}, narrow{DType::kF32, Shape{64, 200}};
  const Question row = Question::of("matmul", {{"trans_w", int64_t{1}}}, {one, narrow});
  CHECK(ask(device, row, "", true).value() == "gemv");
}

// Codes of 8-bit floats, none of which is NaN or an infinity in either format, as a kernel gets them.
std::vector<uint8_t> some_codes(const TensorType& type, uint32_t seed) {
  std::vector<uint8_t> codes(static_cast<size_t>(type.shape.elements()));
  for (uint8_t& code : codes) {
    seed = seed * 1664525u + 1013904223u;
    code = static_cast<uint8_t>((seed >> 24) % 0x70 | (seed >> 16 & 0x80));
  }
  return codes;
}

TEST_CASE("products_of_8_bit_floats_have_algorithms_too_in_each_of_their_forms") {
  CudaDevice device;
  if (!device.is_there()) return;
  const TensorType scalar{DType::kF32, {}};
  struct Form {
    const char* op;
    int64_t trans_w;
    TensorType x, w;
    std::string dtype;  // of the result, and of a bias that there then is
  };
  const Form forms[] = {
      {"scaled_matmul", 1, {DType::kE4M3, {32, 64}}, {DType::kE4M3, {48, 64}}, "bf16"},
      {"scaled_matmul", 0, {DType::kE5M2, {32, 64}}, {DType::kE4M3, {64, 48}}, ""},
      {"scaled_matmul", 1, {DType::kE4M3, {13, 64}}, {DType::kE4M3, {48, 64}}, ""},  // padded
      {"scaled_matmul_weight_grad", 0, {DType::kE4M3, {32, 64}}, {DType::kE5M2, {32, 48}}, ""},
      {"scaled_matmul_weight_grad", 1, {DType::kE4M3, {13, 64}}, {DType::kE5M2, {13, 48}}, ""},
  };
  for (const Form& form : forms) {
    CAPTURE(std::string(form.op));
    CAPTURE(form.x.shape[0]);
    CAPTURE(form.trans_w);
    std::vector<Attr> attrs = {{"trans_w", form.trans_w}};
    if (!form.dtype.empty()) attrs.push_back({"dtype", form.dtype});
    std::vector<TensorType> types = {form.x, form.w, scalar, scalar};
    if (!form.dtype.empty()) types.push_back({DType::kBF16, {48}});
    const Question question = Question::of(form.op, attrs, types);
    const auto asked = ask(device, question, "", true);
    REQUIRE_MESSAGE(asked.ok(), asked.status().to_string());
    const std::string named = asked.value();
    CHECK(named.size() == std::string("cublaslt:0000").size());
    const auto again = ask(device, question, named);
    REQUIRE_MESSAGE(again.ok(), again.status().to_string());
    CHECK(again.value() == named);
    CHECK(ask(device, question, "").value() == "cublaslt");
    if (device.is_emulated()) CHECK(named.substr(0, 10) == "cublaslt:1");
    std::string other = named;
    other.back() = other.back() == '0' ? '1' : '0';
    CHECK(ask(device, question, other).status().message().find("does not propose") != std::string::npos);

    const std::vector<uint8_t> x = some_codes(form.x, 1), w = some_codes(form.w, 2);
    const float scales[] = {0x1p-3f, 0x1p-5f};
    const std::vector<uint16_t> bias(48, 0x3f80);  // 1 in bf16
    std::vector<std::span<const std::byte>> inputs = {
        std::as_bytes(std::span(x)), std::as_bytes(std::span(w)), std::as_bytes(std::span(scales, 1)),
        std::as_bytes(std::span(scales + 1, 1))};
    if (!form.dtype.empty()) inputs.push_back(std::as_bytes(std::span(bias)));
    const auto computed = [&](const std::string& variant) {
      std::vector<std::byte> result(static_cast<size_t>(bytes(question.outputs[0])));
      device.run(question, variant, inputs, result);
      std::vector<double> values;
      for (size_t i = 0; i < result.size(); i += form.dtype.empty() ? 4 : 2) {
        uint32_t bits = 0;  // of bf16 the upper half
        std::memcpy(reinterpret_cast<std::byte*>(&bits) + (form.dtype.empty() ? 0 : 2), &result[i],
                    form.dtype.empty() ? 4 : 2);
        values.push_back(std::bit_cast<float>(bits));
      }
      return values;
    };
    const std::vector<double> plain = computed("cublaslt"), chosen = computed(named),
                              reference = computed("reference");
    double most = 0, largest = 0;
    for (size_t i = 0; i < plain.size(); ++i) {
      most = std::max({most, std::abs(plain[i] - chosen[i]), std::abs(reference[i] - chosen[i])});
      largest = std::max(largest, std::abs(reference[i]));
    }
    CHECK(largest > 0);
    // Sums of at most 64 products in another order, in f32; bf16 is rounded after that.
    CHECK(most <= largest * (form.dtype.empty() ? 64 * 6e-8 : 0x1p-8));
  }
}

TEST_CASE("an_algorithm_that_is_not_proposed_is_refused") {
  CudaDevice device;
  if (!device.is_there()) return;
  const Question question = Question::of("matmul", {}, {kX, kW});
  const std::string named = ask(device, question, "", true).value();
  for (const char* word : {"ffff", "1", "", "0000.0000"}) {
    CAPTURE(word);
    const Status status = ask(device, question, std::string("cublaslt:") + word).status();
    CHECK(status.code() == StatusCode::kFailedPrecondition);
    CHECK(status.message().find("plan again") != std::string::npos);
  }
  // The place is right, the configuration is not.
  std::string other = named;
  other.back() = other.back() == '0' ? '1' : '0';
  CHECK(ask(device, question, other).status().message().find("does not propose") != std::string::npos);
  CHECK_FALSE(ask(device, question, "reference:0000").ok());
}

TEST_SUITE_END();

}  // namespace
}  // namespace tessera::conformance
