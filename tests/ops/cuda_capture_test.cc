// The stream of a device after a failed capture: steps are issued as before.
#include <doctest/doctest.h>

#include <vector>

#include "tests/ops/cuda_device.h"

namespace tessera::conformance {
namespace {

TEST_SUITE_BEGIN("gpu");

TEST_CASE("after_a_capture_that_failed_kernels_are_launched_as_before") {
  CudaDevice device;
  if (!device.is_there()) return;
  const tsr_backend_api& api = device.api();
  const TensorType four{DType::kF32, {4}};
  tsr_abi_kernel* const add = device.prepare("add", {}, {four, four});
  const std::vector<float> ones(4, 1.0f);
  std::byte *const x = device.allocate(16), *const y = device.allocate(16);
  device.copy(reinterpret_cast<const std::byte*>(ones.data()), x, 16);
  const auto launch = [&](const void* left, const void* right) {
    const void* in[] = {left, right};
    void* out[] = {y};
    return take_error(api.kernel_launch(add, device.stream(), in, out, nullptr));
  };
  REQUIRE(launch(x, x).ok());

  REQUIRE(take_error(api.capture_begin(device.stream())).ok());
  CHECK(launch(x, y).ok());
  void* memory = nullptr;  // nothing may be allocated meanwhile
  CHECK_FALSE(take_error(api.memory_alloc(device.device(), 0, 64, 0, &memory)).ok());
  void* graph = nullptr;
  CHECK_FALSE(take_error(api.capture_end(device.stream(), &graph)).ok());
  CHECK(graph == nullptr);

  const Status launched = launch(x, y);
  CHECK_MESSAGE(launched.ok(), launched.to_string());
  std::vector<float> sums(4);
  device.copy(y, reinterpret_cast<std::byte*>(sums.data()), 16);
  CHECK(sums == std::vector<float>(4, 3.0f));  // 1 + 1, and 1 once more: of the capture nothing ran
  api.kernel_destroy(add);
}

TEST_SUITE_END();

}  // namespace
}  // namespace tessera::conformance
