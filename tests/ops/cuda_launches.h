// Launches of CUDA kernels on settled addresses, one by one and as the backend fuses them.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "graph/base/dtype.h"
#include "graph/base/half.h"
#include "tests/ops/cuda_device.h"

namespace tessera::conformance {

// A launch whose operands are offsets into one piece of memory. All have one workspace, as in an arena.
struct Placed {
  tsr_abi_kernel* kernel;
  std::vector<size_t> inputs, outputs;
};

// Launches over `bytes` of memory that begin with `start`: run one by one, then as fused; the memory after
// it, and how many launches it took.
struct Outcome {
  std::vector<std::byte> separate, fused;
  size_t launches = 0;
};
inline Outcome compare(CudaDevice& device, const std::vector<Placed>& placed,
                       const std::vector<std::byte>& start, bool runs = true, size_t workspace_bytes = 4096) {
  const tsr_backend_api& api = device.api();
  Outcome out;
  std::byte *base = device.allocate(start.size()), *workspace = device.allocate(workspace_bytes);
  std::vector<std::vector<const void*>> in(placed.size());
  std::vector<std::vector<void*>> results(placed.size());
  std::vector<tsr_abi_launch> launches;
  for (size_t i = 0; i < placed.size(); ++i) {
    for (const size_t offset : placed[i].inputs) in[i].push_back(base + offset);
    for (const size_t offset : placed[i].outputs) results[i].push_back(base + offset);
    launches.push_back({placed[i].kernel, in[i].data(), results[i].data(), workspace});
  }
  const auto run = [&](const tsr_abi_launch& launch) {
    if (!runs) return;
    REQUIRE(take_error(api.kernel_launch(launch.kernel, device.stream(), launch.inputs, launch.outputs,
                                         launch.workspace))
                .ok());
  };
  const auto result = [&] {
    std::vector<std::byte> bytes(start.size());
    device.copy(base, bytes.data(), bytes.size());
    return bytes;
  };
  device.copy(start.data(), base, start.size());
  for (const tsr_abi_launch& launch : launches) run(launch);
  out.separate = result();

  std::vector<tsr_abi_launch> fewer;
  std::vector<tsr_abi_kernel*> made;
  for (size_t at = 0; at < launches.size(); ++out.launches) {
    int32_t taken = 0;
    tsr_abi_kernel* kernel = nullptr;
    REQUIRE(take_error(api.kernel_fuse(device.device(), launches.data() + at,
                                       static_cast<int32_t>(launches.size() - at), &taken, &kernel))
                .ok());
    REQUIRE((kernel == nullptr) == (taken == 0));
    if (kernel == nullptr) {
      fewer.push_back(launches[at++]);
    } else {
      REQUIRE(static_cast<size_t>(taken) <= launches.size() - at);
      fewer.push_back({kernel, nullptr, nullptr, nullptr});
      made.push_back(kernel);
      at += static_cast<size_t>(taken);
    }
  }
  device.copy(start.data(), base, start.size());
  for (const tsr_abi_launch& launch : fewer) run(launch);
  out.fused = result();
  for (tsr_abi_kernel* kernel : made) api.kernel_destroy(kernel);
  return out;
}

// Memory in which tensors lie side by side, at multiples of 16 unless `off` says otherwise.
class Layout {
 public:
  size_t place(DType dtype, int64_t count, size_t off = 0) {
    bytes_.resize((bytes_.size() + 63) / 64 * 64 + off);
    const size_t at = bytes_.size();
    bytes_.resize(at + static_cast<size_t>(dtype_bytes(dtype, count)));
    for (int64_t i = 0; i < count; ++i)
      put(dtype, at, i, 0.25 + 0.5 * ((7 * i + static_cast<int64_t>(at)) % 64) / 64);
    return at;
  }
  size_t scalar(DType dtype, double value) {
    const size_t at = place(dtype, 1);
    put(dtype, at, 0, value);
    return at;
  }
  size_t values(DType dtype, const std::vector<double>& values) {
    const size_t at = place(dtype, static_cast<int64_t>(values.size()));
    for (size_t i = 0; i < values.size(); ++i) put(dtype, at, static_cast<int64_t>(i), values[i]);
    return at;
  }
  // `each(i)` is exact in the type, or rounded to it.
  template <class Each>
  size_t fill(DType dtype, int64_t count, Each each, size_t off = 0) {
    const size_t at = place(dtype, count, off);
    for (int64_t i = 0; i < count; ++i) put(dtype, at, i, each(i));
    return at;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  // Values of few bits, exact in every type.
  void put(DType dtype, size_t at, int64_t i, double value) {
    const auto store = [&](const auto& stored) {
      std::memcpy(bytes_.data() + at + static_cast<size_t>(i) * sizeof(stored), &stored, sizeof(stored));
    };
    const auto as_f32 = static_cast<float>(value);
    uint32_t bits = 0;
    std::memcpy(&bits, &as_f32, 4);
    if (dtype == DType::kF64) store(value);
    if (dtype == DType::kF32) store(as_f32);
    if (dtype == DType::kBF16) store(static_cast<uint16_t>(bits >> 16));
    if (dtype == DType::kF16) store(f16_from_f32(as_f32));
    if (dtype == DType::kI32) store(static_cast<int32_t>(value));
  }
  std::vector<std::byte> bytes_;
};

}  // namespace tessera::conformance
