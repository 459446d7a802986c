// Launches that the CUDA backend makes one of, against the same launches one by one: the same bits.
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/ops/cuda_device.h"
#include "tests/ops/cuda_launches.h"

namespace tessera::conformance {
namespace {

struct Update {
  std::vector<TensorType> types;
  std::vector<size_t> inputs, outputs;
};
// Operands of an update of `count` elements in place, with the scalars given.
Update place_update(Layout& layout, DType dtype, int64_t count, int states,
                    const std::vector<size_t>& scalars, size_t off = 0) {
  const DType wide = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  Update update;
  for (int i = 0; i < 2 + states; ++i) {
    update.types.push_back({i < 2 ? dtype : wide, Shape{count}});
    update.inputs.push_back(layout.place(update.types.back().dtype, count, off));
    if (i != 1) update.outputs.push_back(update.inputs.back());
  }
  for (const size_t scalar : scalars) {
    update.types.push_back({wide, {}});
    update.inputs.push_back(scalar);
  }
  return update;
}

TEST_SUITE_BEGIN("gpu");

TEST_CASE("updates_of_many_tensors_are_one_launch_with_the_bits_of_many") {
  CudaDevice device;
  if (!device.is_there()) return;
  for (const DType dtype : device.those_of({DType::kF32, DType::kF64, DType::kBF16}))
    for (const bool adamw : {true, false})
      for (const double scale : {0.5, 0.0}) {
        CAPTURE(to_text(dtype));
        CAPTURE(adamw);
        const DType wide = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
        Layout layout;
        std::vector<size_t> scalars = {layout.scalar(wide, 0.25)};
        if (adamw) scalars.push_back(layout.scalar(wide, 3));
        scalars.push_back(layout.scalar(wide, scale));
        std::vector<Placed> placed;
        const auto add = [&](int64_t count, size_t off, double mean) {
          const Update update = place_update(layout, dtype, count, adamw ? 2 : 1, scalars, off);
          const double own = static_cast<double>(placed.size() % 3);  // a parameter's decay and rate
          placed.push_back({device.prepare(adamw ? "adamw_update" : "sgd_update",
                                           {{adamw ? "beta1" : "momentum", mean},
                                            {"weight_decay", 0.125 * own},
                                            {"lr_scale", 1 + own}},
                                           update.types),
                            update.inputs, update.outputs});
        };
        // Less than a pack, nothing, a chunk, a little more, several chunks, an address at no multiple of 16.
        for (const int64_t count : {3, 0, 8192, 8193, 20001}) add(count, 0, 0.125);
        add(37, dtype == DType::kF64 ? 8 : 4, 0.125);
        for (int i = 0; i < 60; ++i) add(1 + i, 0, 0.125);
        add(5, 0, 0.5);  // another mean: another launch
        const Outcome out = compare(device, placed, layout.bytes());
        CHECK(out.launches == 2);
        CHECK(out.separate == out.fused);
        CHECK((out.separate == layout.bytes()) == (scale == 0));
        for (const Placed& each : placed) device.api().kernel_destroy(each.kernel);
      }
}

TEST_CASE("updates_that_round_by_random_bits_are_one_launch_with_the_bits_of_many") {
  CudaDevice device;
  if (!device.is_there()) return;
  for (const bool adamw : {true, false})
    for (const double scale : {0.5, 0.0}) {
      CAPTURE(adamw);
      Layout layout;
      std::vector<size_t> scalars = {layout.scalar(DType::kF32, 0.25)};
      if (adamw) scalars.push_back(layout.scalar(DType::kF32, 3));
      scalars.push_back(layout.scalar(DType::kF32, scale));
      const size_t seed = layout.scalar(DType::kF64, 2.5);  // eight bytes are as good as any
      std::vector<Placed> placed;
      const auto add = [&](int64_t count, size_t off) {
        Update update = place_update(layout, DType::kBF16, count, adamw ? 2 : 1, scalars, off);
        // The gradient is wide.
        update.types[1].dtype = DType::kF32;
        update.inputs[1] = layout.place(DType::kF32, count, off);
        update.types.push_back({DType::kI64, {}});
        update.inputs.push_back(seed);
        const auto salt = static_cast<int64_t>(placed.size() % 7);
        placed.push_back({device.prepare(adamw ? "adamw_update_stochastic" : "sgd_update_stochastic",
                                         {{"salt", salt}}, update.types),
                          update.inputs, update.outputs});
      };
      for (const int64_t count : {3, 0, 8192, 8193, 20001}) add(count, 0);
      add(37, 4);
      for (int i = 0; i < 400; ++i) add(1 + i % 60, 0);
      const Outcome out = compare(device, placed, layout.bytes());
      CHECK(out.launches == 2);  // more than one launch has room for
      CHECK(out.separate == out.fused);
      CHECK((out.separate == layout.bytes()) == (scale == 0));
      for (const Placed& each : placed) device.api().kernel_destroy(each.kernel);
    }
}

TEST_CASE("an_update_that_needs_another_one_before_it_begins_a_new_launch") {
  CudaDevice device;
  if (!device.is_there()) return;
  Layout layout;
  const std::vector<size_t> scalars = {layout.scalar(DType::kF32, 0.25), layout.scalar(DType::kF32, 1)};
  const Update first = place_update(layout, DType::kF32, 100, 2, scalars);
  const Update second = place_update(layout, DType::kF32, 100, 2, scalars);
  tsr_abi_kernel* kernel = device.prepare("adamw_update", {}, first.types);
  std::vector<Placed> placed = {{kernel, first.inputs, first.outputs},
                                {kernel, second.inputs, second.outputs}};
  CHECK(compare(device, placed, layout.bytes()).launches == 1);
  placed[1].inputs[1] = first.outputs[2];  // its gradient is the first one's new state
  const Outcome out = compare(device, placed, layout.bytes());
  CHECK(out.launches == 2);
  CHECK(out.separate == out.fused);
  device.api().kernel_destroy(kernel);
}

TEST_CASE("a_chain_of_scalar_additions_is_one_launch_in_their_order") {
  CudaDevice device;
  if (!device.is_there()) return;
  for (const DType dtype : device.those_of({DType::kF32, DType::kF64, DType::kBF16})) {
    CAPTURE(to_text(dtype));
    tsr_abi_kernel* kernel = device.prepare("add", {}, {{dtype, {}}, {dtype, {}}});
    Layout layout;
    const size_t sum = layout.scalar(dtype, 1000.0 / 1024);
    std::vector<Placed> placed;
    for (int i = 0; i < 700; ++i) {
      const size_t addend = layout.scalar(dtype, 1.0 / (1 + i % 16 * 16));
      placed.push_back({kernel, i % 3 == 0 ? std::vector{addend, sum} : std::vector{sum, addend}, {sum}});
    }
    Outcome out = compare(device, placed, layout.bytes());
    CHECK(out.launches == 1);
    CHECK(out.separate == out.fused);
    CHECK(out.separate != layout.bytes());
    // The sum added to itself, and a sum elsewhere, are no part of a chain.
    placed.resize(5);
    placed[2].inputs = {sum, sum};
    placed[4].outputs = {layout.scalar(dtype, 0)};
    out = compare(device, placed, layout.bytes());
    CHECK(out.launches == 3);
    CHECK(out.separate == out.fused);
    device.api().kernel_destroy(kernel);
  }
}

TEST_CASE("sums_of_squares_of_many_tensors_are_one_launch_with_the_bits_of_many") {
  CudaDevice device;
  if (!device.is_there()) return;
  for (const DType dtype : device.those_of({DType::kF32, DType::kF64, DType::kF16, DType::kBF16}))
    for (const int more : {2, 70}) {
      CAPTURE(to_text(dtype));
      CAPTURE(more);
      const DType wide = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
      Layout layout;
      std::vector<Placed> placed;
      const auto add = [&](int64_t count, size_t off = 0) {
        const size_t x = layout.place(dtype, count, off);
        placed.push_back(
            {device.prepare("sum_squares", {}, {{dtype, Shape{count}}}), {x}, {layout.scalar(wide, -1)}});
      };
      // Less than a pack, nothing, a chunk, a little more, several chunks, addresses at no multiple of 16.
      for (const int64_t count : {3, 0, 16384, 16385, 40001}) add(count);
      add(37, dtype == DType::kF64 ? 8 : 4);
      add(20000, dtype == DType::kF64 ? 8 : 4);
      for (int i = 0; i < more; ++i) add(1 + i);
      Outcome out = compare(device, placed, layout.bytes());
      CHECK(out.launches == 1);
      CHECK(out.separate == out.fused);
      CHECK(out.separate != layout.bytes());
      // One that reads another one's sum begins a new launch.
      if (dtype == wide) {
        placed.push_back({device.prepare("sum_squares", {}, {{dtype, Shape{1}}}),
                          {placed[0].outputs[0]},
                          {layout.scalar(wide, -1)}});
        add(5);
        out = compare(device, placed, layout.bytes());
        CHECK(out.launches == 2);
        CHECK(out.separate == out.fused);
      }
      for (const Placed& each : placed) device.api().kernel_destroy(each.kernel);
    }
}

TEST_SUITE_END();

}  // namespace
}  // namespace tessera::conformance
