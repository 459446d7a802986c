// Algorithms of the CUDA backend's products: what kernel_tune names is what later queries and kernels take,
// and nothing else is.
#include <doctest/doctest.h>

#include <cmath>
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
std::vector<float> product(CudaDevice& device, const Question& question, const std::string& variant) {
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

TEST_CASE("the_algorithm_that_was_the_fastest_is_named_and_taken") {
  CudaDevice device;
  if (!device.is_there()) return;
  const Question question = Question::of("matmul", {}, {kX, kW});
  const std::string named = ask(device, question, "", true).value();
  REQUIRE(named.starts_with("cublaslt:"));
  CHECK(named.size() == std::string("cublaslt:0000").size());
  CHECK(ask(device, question, named).value() == named);
  CHECK(ask(device, question, "").value() == "cublaslt");  // unless somebody names it, the heuristic's first
  const std::vector<float> plain = product(device, question, "cublaslt"),
                           chosen = product(device, question, named);
  CHECK(product(device, question, named) == chosen);
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
  CHECK(product(device, batch, of_batch) == product(device, batch, of_batch));
  // A row that is no product of cuBLASLt has nothing to choose from.
  const TensorType one{DType::kF32, Shape{1, 200}}, narrow{DType::kF32, Shape{64, 200}};
  const Question row = Question::of("matmul", {{"trans_w", int64_t{1}}}, {one, narrow});
  CHECK(ask(device, row, "", true).value() == "matvec");
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

}  // namespace
}  // namespace tessera::conformance
