// Two products of one left operand as one launch: the bits of two, and apart where they cannot be a batch.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/ops/cuda_device.h"
#include "tests/ops/cuda_launches.h"

namespace tessera::conformance {
namespace {

constexpr int64_t kM = 40, kN = 24, kK = 32;
// Sums of 32 products of multiples of 1/128 are exact in f32, in any order.
constexpr size_t kWorkspace = size_t{1} << 17;

struct Two {
  DType dtype;
  bool trans_w = true;
  std::string activation = "none";

  tsr_abi_kernel* kernel(CudaDevice& device, int64_t N = kN) const {
    const Shape w = trans_w ? Shape{N, kK} : Shape{kK, N};
    return device.prepare("matmul", {{"trans_w", int64_t{trans_w}}, {"activation", activation}},
                          {{dtype, Shape{kM, kK}}, {dtype, w}});
  }
};

TEST_SUITE_BEGIN("gpu");

TEST_CASE("products_of_one_left_operand_are_one_launch_with_the_bits_of_two") {
  CudaDevice device;
  if (!device.is_there()) return;
  for (const DType dtype : device.those_of({DType::kBF16, DType::kF16, DType::kF32}))
    for (const bool trans : {true, false})
      for (const bool swapped : {false, true}) {
        CAPTURE(to_text(dtype));
        CAPTURE(trans);
        CAPTURE(swapped);
        const Two two{dtype, trans};
        Layout layout;
        const size_t x = layout.place(dtype, kM * kK);
        std::vector<size_t> w, y;
        // Other things lie between, and one more beyond the pair follows.
        for (int i = 0; i < 3; ++i) w.push_back((layout.place(dtype, 8 * i), layout.place(dtype, kK * kN)));
        for (int i = 0; i < 3; ++i) y.push_back((layout.place(dtype, 40), layout.place(dtype, kM * kN)));
        if (swapped) std::swap(w[0], w[1]), std::swap(y[0], y[1]);
        tsr_abi_kernel* kernel = two.kernel(device);
        const std::vector<Placed> placed = {
            {kernel, {x, w[0]}, {y[0]}}, {kernel, {x, w[1]}, {y[1]}}, {kernel, {x, w[2]}, {y[2]}}};
        const Outcome out = compare(device, placed, layout.bytes(), true, kWorkspace);
        CHECK(out.launches == 2);
        CHECK(out.separate == out.fused);
        CHECK(out.separate != layout.bytes());
        device.api().kernel_destroy(kernel);
      }
}

TEST_CASE("products_that_are_no_batch_stay_apart") {
  CudaDevice device;
  if (!device.is_there()) return;
  constexpr DType kType = DType::kBF16;
  const Two two{kType};
  Layout layout;
  const size_t x = layout.place(kType, kM * kK), other_x = layout.place(kType, kM * kK);
  const size_t low = layout.place(kType, kM * kN);
  const size_t w0 = layout.place(kType, kM * kN), w1 = layout.place(kType, kK * kN);
  const size_t y0 = layout.place(kType, kM * kN), y1 = layout.place(kType, kM * kN);
  const size_t wide = layout.place(kType, kM * 2 * kN);
  tsr_abi_kernel *kernel = two.kernel(device), *wider = two.kernel(device, 2 * kN / 3);
  tsr_abi_kernel* activated = Two{kType, true, "relu"}.kernel(device);
  const auto launches = [&](const Placed& first, const Placed& second) {
    const Outcome out = compare(device, {first, second}, layout.bytes(), true, kWorkspace);
    CHECK(out.separate == out.fused);
    return out.launches;
  };
  const Placed one{kernel, {x, w0}, {y0}};
  CHECK(launches(one, {kernel, {x, w1}, {y1}}) == 1);
  CHECK(launches(one, {kernel, {other_x, w1}, {y1}}) == 2);
  CHECK(launches(one, {wider, {x, w1}, {wide}}) == 2);                     // another shape
  CHECK(launches(one, {activated, {x, w1}, {y1, wide}}) == 2);             // more than a product
  CHECK(launches(one, {kernel, {x, w0}, {y1}}) == 2);                      // the same operand: no distance
  CHECK(launches({kernel, {x, w0}, {y1}}, {kernel, {x, w1}, {y0}}) == 2);  // one distance up, one down
  CHECK(launches(one, {kernel, {x, y0}, {y1}}) == 2);                      // what the first makes is read
  CHECK(launches({kernel, {x, w0}, {low}}, {kernel, {x, w1}, {w0}}) ==
        2);  // what the first reads is written over
  for (tsr_abi_kernel* each : {kernel, wider, activated}) device.api().kernel_destroy(each);
}

TEST_SUITE_END();

}  // namespace
}  // namespace tessera::conformance
