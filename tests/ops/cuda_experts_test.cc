// The experts' products through cuBLASLt: slots without a token, copies that are made in several strips, and
// the kernel for what the library declines.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "tests/ops/cuda_device.h"

namespace tessera::conformance {
namespace {

// Slots [E, B, S] with C and N columns, of which the first load[e, b] hold a token.
struct Experts {
  int64_t E, B, S, C, N;
  std::vector<int32_t> load;
  std::vector<float> x, dy, w;

  Experts(int64_t e, int64_t b, int64_t s, int64_t c, int64_t n) : E(e), B(b), S(s), C(c), N(n) {
    for (int64_t i = 0; i < E * B; ++i) load.push_back(static_cast<int32_t>(i * 7 % (S + 2)));
    x = values(E * B * S * C, 3);
    dy = values(E * B * S * N, 5);
    w = values(E * C * N, 9);
    for (int64_t slot = 0; slot < E * B * S; ++slot) {
      if (taken(slot)) continue;
      // The contents of unwritten memory.
      x[static_cast<size_t>(slot * C)] = std::numeric_limits<float>::quiet_NaN();
      dy[static_cast<size_t>(slot * N + N - 1)] = std::numeric_limits<float>::infinity();
    }
  }
  bool taken(int64_t slot) const { return slot % S < load[static_cast<size_t>(slot / S)]; }

  // Whole numbers of few bits: their products and sums are exact in f32, in any order.
  static std::vector<float> values(int64_t count, int64_t step) {
    std::vector<float> made(static_cast<size_t>(count));
    for (size_t i = 0; i < made.size(); ++i)
      made[i] = static_cast<float>(static_cast<int64_t>(i) * step % 7 - 3);
    return made;
  }
  TensorType type(std::vector<int64_t> dims, DType dtype = DType::kF32) const {
    return {dtype, Shape(std::span<const int64_t>(dims))};
  }

  // y [E, B, S, N], with w [E, N, C]
  std::vector<float> run_matmul(CudaDevice& device, const std::string& variant) const {
    const Question question = Question::of("expert_matmul", {{"trans_w", int64_t{1}}},
                                           {type({E, B, S, C}), type({E, N, C}), type({E, B}, DType::kI32)});
    return run(device, question, variant, {std::as_bytes(std::span(x)), std::as_bytes(std::span(w))});
  }
  // dw [E, N, C]
  std::vector<float> weight_grad(CudaDevice& device, const std::string& variant) const {
    const Question question =
        Question::of("expert_matmul_weight_grad", {{"trans_w", int64_t{1}}},
                     {type({E, B, S, C}), type({E, B, S, N}), type({E, B}, DType::kI32)});
    return run(device, question, variant, {std::as_bytes(std::span(x)), std::as_bytes(std::span(dy))});
  }
  std::vector<float> expected_matmul() const {
    std::vector<float> y(static_cast<size_t>(E * B * S * N));
    for (int64_t slot = 0; slot < E * B * S; ++slot) {
      if (!taken(slot)) continue;
      for (int64_t n = 0; n < N; ++n)
        for (int64_t c = 0; c < C; ++c)
          y[static_cast<size_t>(slot * N + n)] +=
              x[static_cast<size_t>(slot * C + c)] * w[static_cast<size_t>((slot / (B * S) * N + n) * C + c)];
    }
    return y;
  }
  std::vector<float> expected_weight_grad() const {
    std::vector<float> dw(static_cast<size_t>(E * N * C));
    for (int64_t slot = 0; slot < E * B * S; ++slot) {
      if (!taken(slot)) continue;
      for (int64_t n = 0; n < N; ++n)
        for (int64_t c = 0; c < C; ++c)
          dw[static_cast<size_t>((slot / (B * S) * N + n) * C + c)] +=
              dy[static_cast<size_t>(slot * N + n)] * x[static_cast<size_t>(slot * C + c)];
    }
    return dw;
  }

 private:
  std::vector<float> run(CudaDevice& device, const Question& question, const std::string& variant,
                         std::vector<std::span<const std::byte>> inputs) const {
    inputs.push_back(std::as_bytes(std::span(load)));
    std::vector<float> result(static_cast<size_t>(question.outputs[0].shape.elements()));
    device.run(question, variant, inputs, std::as_writable_bytes(std::span(result)));
    return result;
  }
};

TEST_SUITE_BEGIN("gpu");

TEST_CASE("experts_leave_out_slots_without_a_token_whatever_these_hold") {
  CudaDevice device;
  if (!device.is_there()) return;
  // Rows of 16 bytes and others; products that begin at multiples of 16 bytes and others.
  for (const Experts& experts :
       {Experts(3, 2, 9, 16, 24), Experts(4, 3, 5, 7, 9), Experts(1, 1, 70, 66, 4)}) {
    CAPTURE(experts.C);
    for (const char* variant : {"cublaslt", "reference"}) {
      CAPTURE(variant);
      CHECK(experts.run_matmul(device, variant) == experts.expected_matmul());
      CHECK(experts.weight_grad(device, variant) == experts.expected_weight_grad());
    }
  }
}

TEST_CASE("copies_of_slots_beyond_32_mib_are_made_and_summed_some_experts_at_a_time") {
  CudaDevice device;
  if (!device.is_there()) return;
  const Experts experts(3, 44, 1000, 32, 32);  // 11.3 MB an expert: two, then one
  CHECK(experts.weight_grad(device, "cublaslt") == experts.expected_weight_grad());
}

TEST_SUITE_END();

}  // namespace
}  // namespace tessera::conformance
