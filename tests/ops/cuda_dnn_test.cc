// Attention through cuDNN on the CUDA backend: which kernel is chosen, that a batch by parts is the whole
// batch, and in the emulator what becomes of a library that is missing or does not do what it should
// (TESSERA_EMULATED_CUDNN=missing|refuses|fails|wrong|unordered|large, one process each).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/half.h"
#include "tests/ops/cuda_device.h"

namespace tessera::conformance {
namespace {

struct Attention {
  DType dtype = DType::kBF16;
  int64_t B = 2, T = 20, H = 4, S = 20, KV = 2, D = 16;
  int64_t causal = 1;
  int64_t t_begin = 0;

  std::vector<TensorType> inputs(bool is_gradient) const {
    const TensorType q{dtype, {B, T, H, D}}, k{dtype, {B, S, KV, D}}, lse{DType::kF32, {B, T, H}};
    return is_gradient ? std::vector<TensorType>{q, q, k, k, q, lse} : std::vector<TensorType>{q, k, k};
  }
};

// The question of an attention whose queries begin at `t_begin` of a longer sequence.
Question question_of(const Attention& n, bool is_gradient) {
  Question made = Question::of(is_gradient ? "attention_grad" : "attention", {{"causal", n.causal}},
                               n.inputs(is_gradient));
  for (FactorView& factor : made.factors)
    if (factor.name == 't') factor = {'t', n.T + n.t_begin, 1, 1, {n.t_begin, 0}, {n.t_begin + n.T, 0}};
  return made;
}

Result<tsr_abi_kernel_info> ask(CudaDevice& device, const Question& question, const char* variant = "") {
  const KernelDescription description(*question.op, question.view(), variant);
  tsr_abi_kernel_info info{};
  info.struct_size = sizeof(info);
  TSR_RETURN_IF_ERROR(take_error(device.api().kernel_query(0, &description.abi(), &info)));
  return info;
}
std::string variant_of(CudaDevice& device, const Attention& n, bool is_gradient) {
  const auto info = ask(device, question_of(n, is_gradient));
  REQUIRE_MESSAGE(info.ok(), info.status().to_string());
  return info->variant;
}

std::string emulated_mode() {
  const char* mode = std::getenv("TESSERA_EMULATED_CUDNN");
  return mode != nullptr ? mode : "";
}

// Whether the device is an emulated one in one of these modes; else the case counts as skipped.
bool runs_here(CudaDevice& device, std::vector<std::string> modes = {}) {
  if (!device.is_there()) return false;
  if (!device.is_emulated()) {
    test::skip("what a real cuDNN offers is its own affair");
    return false;
  }
  if (modes.empty() || std::ranges::find(modes, emulated_mode()) != modes.end()) return true;
  test::skip("the emulated cuDNN is told to be another one");
  return false;
}

// Outputs' bytes, one after the other.
std::vector<std::byte> run(CudaDevice& device, const Question& question, const char* variant) {
  const auto info = ask(device, question, variant);
  REQUIRE_MESSAGE(info.ok(), info.status().to_string());
  const KernelDescription description(*question.op, question.view(), info->variant);
  tsr_abi_kernel* kernel = nullptr;
  const Status prepared =
      take_error(device.api().kernel_prepare(device.device(), &description.abi(), &kernel));
  REQUIRE_MESSAGE(prepared.ok(), prepared.to_string());
  std::vector<const void*> in;
  std::vector<void*> out;
  uint32_t seed = 1;
  for (const TensorType& type : question.inputs) {
    const auto count = static_cast<size_t>(type.shape.elements());
    std::vector<std::byte> bytes(static_cast<size_t>(dtype_bytes(type.dtype, type.shape.elements())));
    for (size_t i = 0; i < count; ++i) {
      seed = seed * 1664525u + 1013904223u;
      const float value = static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-31f;
      const float lse = 3 + value;  // above any score's log of a sum: probabilities stay below 1
      const uint16_t half = bf16_from_f32(value);
      if (type.dtype == DType::kF32)
        std::memcpy(bytes.data() + i * 4, &lse, 4);
      else
        std::memcpy(bytes.data() + i * 2, &half, 2);
    }
    std::byte* at = device.allocate(bytes.size());
    device.copy(bytes.data(), at, bytes.size());
    in.push_back(at);
  }
  size_t total = 0;
  for (const TensorType& type : question.outputs) {
    const auto bytes = static_cast<size_t>(dtype_bytes(type.dtype, type.shape.elements()));
    out.push_back(device.allocate(bytes));
    total += bytes;
  }
  void* workspace =
      info->workspace_bytes > 0 ? device.allocate(static_cast<size_t>(info->workspace_bytes)) : nullptr;
  REQUIRE(
      take_error(device.api().kernel_launch(kernel, device.stream(), in.data(), out.data(), workspace)).ok());
  std::vector<std::byte> results(total);
  size_t at = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto bytes =
        static_cast<size_t>(dtype_bytes(question.outputs[i].dtype, question.outputs[i].shape.elements()));
    device.copy(static_cast<const std::byte*>(out[i]), results.data() + at, bytes);
    at += bytes;
  }
  device.api().kernel_destroy(kernel);
  return results;
}

}  // namespace

TEST_SUITE_BEGIN("gpu");

TEST_CASE("attention_goes_to_cudnn_where_it_is_there_and_does_what_it_should") {
  CudaDevice device;
  if (!runs_here(device)) return;
  const std::string mode = emulated_mode();
  const bool is_good = mode.empty() || mode == "large";
  // A question runs nothing: what the library does shows when a kernel is prepared.
  const bool is_answered = mode != "missing" && mode != "refuses";
  for (const bool is_gradient : {false, true})
    for (const DType dtype : device.those_of({DType::kBF16, DType::kF16})) {
      INFO(mode);
      const Attention n{.dtype = dtype};
      const Question question = question_of(n, is_gradient);
      CHECK(variant_of(device, n, is_gradient) == (is_answered ? "cudnn" : "mma"));
      // A program that names it gets it, or an error that says why not.
      const auto named = ask(device, question, "cudnn");
      CHECK(named.ok() == is_answered);
      if (!is_answered) {
        CHECK(named.status().code() == StatusCode::kUnsupported);
        const std::string_view reason = mode == "missing" ? "told to be missing" : "no engine";
        CHECK_MESSAGE(named.status().message().find(reason) != std::string::npos, named.status().to_string());
      } else {
        // A library that does not do what it should is not used: the bits are the own kernel's.
        CHECK((run(device, question, "cudnn") == run(device, question, "mma")) == !is_good);
      }
    }
}

TEST_CASE("what_cudnn_does_not_do_in_one_order_or_at_all_goes_to_the_own_kernels") {
  CudaDevice device;
  if (!runs_here(device, {""})) return;
  const auto is_own = [&](const Attention& n) {
    return variant_of(device, n, false) != "cudnn" && variant_of(device, n, true) != "cudnn";
  };
  CHECK(is_own({.dtype = DType::kF32}));
  CHECK(is_own({.D = 12}));
  CHECK(is_own({.T = 1}));
  CHECK(is_own({.S = 1}));
  CHECK(is_own({.t_begin = 5}));  // a shard of the queries under a causal mask
  CHECK(!is_own({.causal = 0, .t_begin = 5}));
  CHECK(!is_own({.S = 7}));
}

TEST_CASE("a_gradient_by_parts_of_the_batch_is_that_of_the_whole_batch") {
  CudaDevice device;
  if (!runs_here(device, {"", "large"})) return;
  const Attention whole{.B = 4}, one{.B = 1};
  const auto info = ask(device, question_of(whole, true), "cudnn"),
             part = ask(device, question_of(one, true), "cudnn");
  REQUIRE(info.ok());
  REQUIRE(part.ok());
  if (emulated_mode() == "large") CHECK(info->workspace_bytes == part->workspace_bytes);
  // It equals the own kernel's, to some ulps of bf16.
  const Question question = question_of(whole, true);
  const auto got = run(device, question, "cudnn"), wanted = run(device, question, "mma");
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); i += 2) {
    uint16_t a = 0, b = 0;
    std::memcpy(&a, got.data() + i, 2);
    std::memcpy(&b, wanted.data() + i, 2);
    CHECK(std::abs(f32_from_bf16(a) - f32_from_bf16(b)) <= 0x1p-6f);
  }
}

TEST_SUITE_END();

}  // namespace tessera::conformance
