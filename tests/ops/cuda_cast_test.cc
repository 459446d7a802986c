// Casts of many tensors on the CUDA backend: one launch, with the bits of a launch each.
#include <doctest/doctest.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "tests/ops/cuda_device.h"

namespace tessera::conformance {
namespace {

constexpr int64_t kCounts[] = {1, 7, 768, 8193, 3};

float value_of(int64_t i) { return static_cast<float>(i % 251 - 125) * 1.0009765625f; }  // rounds in 16 bits
uint16_t bf16_bits(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

TEST_SUITE_BEGIN("gpu");

TEST_CASE("casts_of_many_tensors_are_one_launch_and_round_to_nearest") {
  CudaDevice device;
  if (!device.is_there()) return;
  const tsr_backend_api& api = device.api();
  for (const bool narrows : {true, false})
    for (const size_t off : {size_t{0}, size_t{2}}) {  // of the operands of 16 bits: also at odd addresses
      CAPTURE(narrows);
      CAPTURE(off);
      struct Tensor {
        size_t f32_offset, half_offset;  // where they lie
        tsr_abi_kernel* kernel;
        const void* in[1];
        void* out[1];
      };
      std::vector<Tensor> tensors;
      size_t bytes = 0;
      const auto place = [&](int64_t size) {
        const size_t at = bytes;
        bytes += (static_cast<size_t>(size) + 127) / 64 * 64;
        return at;
      };
      for (const int64_t count : kCounts) {
        const size_t f32_offset = place(4 * count), half_offset = place(2 * count) + off;
        const DType from = narrows ? DType::kF32 : DType::kBF16, to = narrows ? DType::kBF16 : DType::kF32;
        tensors.push_back(
            {f32_offset,
             half_offset,
             device.prepare("cast", {{"dtype", std::string(to_text(to))}}, {{from, Shape{count}}}),
             {},
             {}});
      }
      std::vector<std::byte> start(bytes), expected;
      for (size_t t = 0; t < tensors.size(); ++t)
        for (int64_t i = 0; i < kCounts[t]; ++i) {
          const float value = value_of(i);
          const uint16_t half = bf16_bits(value);
          const auto at = static_cast<size_t>(i);
          if (narrows)
            std::memcpy(start.data() + tensors[t].f32_offset + 4 * at, &value, 4);
          else
            std::memcpy(start.data() + tensors[t].half_offset + 2 * at, &half, 2);
        }
      expected = start;
      for (size_t t = 0; t < tensors.size(); ++t)
        for (int64_t i = 0; i < kCounts[t]; ++i) {
          const uint16_t half = bf16_bits(value_of(i));
          const auto widened = std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
          const auto at = static_cast<size_t>(i);
          if (narrows)
            std::memcpy(expected.data() + tensors[t].half_offset + 2 * at, &half, 2);
          else
            std::memcpy(expected.data() + tensors[t].f32_offset + 4 * at, &widened, 4);
        }

      std::byte* base = device.allocate(bytes);
      std::vector<tsr_abi_launch> launches;
      for (Tensor& tensor : tensors) {
        tensor.in[0] = base + (narrows ? tensor.f32_offset : tensor.half_offset);
        tensor.out[0] = base + (narrows ? tensor.half_offset : tensor.f32_offset);
        launches.push_back({tensor.kernel, tensor.in, tensor.out, nullptr});
      }
      const auto run = [&](const std::vector<tsr_abi_launch>& all) {
        device.copy(start.data(), base, bytes);
        for (const tsr_abi_launch& launch : all)
          REQUIRE(take_error(api.kernel_launch(launch.kernel, device.stream(), launch.inputs, launch.outputs,
                                               launch.workspace))
                      .ok());
        std::vector<std::byte> result(bytes);
        device.copy(base, result.data(), bytes);
        return result;
      };
      CHECK(run(launches) == expected);
      int32_t taken = 0;
      tsr_abi_kernel* fused = nullptr;
      REQUIRE(take_error(api.kernel_fuse(device.device(), launches.data(),
                                         static_cast<int32_t>(launches.size()), &taken, &fused))
                  .ok());
      REQUIRE(fused != nullptr);
      CHECK(taken == static_cast<int32_t>(launches.size()));
      CHECK(run({{fused, nullptr, nullptr, nullptr}}) == expected);
      api.kernel_destroy(fused);
      for (const Tensor& tensor : tensors) api.kernel_destroy(tensor.kernel);
    }
}

TEST_SUITE_END();

}  // namespace
}  // namespace tessera::conformance
