// Launches that the CUDA backend makes one of, against the same launches one by one: the same bits.
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/ops/cuda_device.h"

namespace tessera::conformance {
namespace {

// A launch whose operands are offsets into one piece of memory.
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
Outcome compare(CudaDevice& device, const std::vector<Placed>& placed, const std::vector<std::byte>& start) {
  const tsr_backend_api& api = device.api();
  Outcome out;
  std::byte* base = device.allocate(start.size());
  std::vector<std::vector<const void*>> in(placed.size());
  std::vector<std::vector<void*>> results(placed.size());
  std::vector<tsr_abi_launch> launches;
  for (size_t i = 0; i < placed.size(); ++i) {
    for (const size_t offset : placed[i].inputs) in[i].push_back(base + offset);
    for (const size_t offset : placed[i].outputs) results[i].push_back(base + offset);
    launches.push_back({placed[i].kernel, in[i].data(), results[i].data(), nullptr});
  }
  const auto run = [&](const tsr_abi_launch& launch) {
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
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  // Values of few bits, exact in every type.
  void put(DType dtype, size_t at, int64_t i, double value) {
    const auto store = [&](const auto& stored) {
      std::memcpy(bytes_.data() + at + static_cast<size_t>(i) * sizeof(stored), &stored, sizeof(stored));
    };
    const auto narrow = static_cast<float>(value);
    uint32_t bits = 0;
    std::memcpy(&bits, &narrow, 4);
    if (dtype == DType::kF64) store(value);
    if (dtype == DType::kF32) store(narrow);
    if (dtype == DType::kBF16) store(static_cast<uint16_t>(bits >> 16));
  }
  std::vector<std::byte> bytes_;
};

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

TEST_CASE("updates_of_many_tensors_are_one_launch_with_the_bits_of_many") {
  CudaDevice device;
  if (!device.is_there()) return;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16})
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
        const auto add = [&](int64_t count, size_t off, double decay) {
          const Update update = place_update(layout, dtype, count, adamw ? 2 : 1, scalars, off);
          placed.push_back(
              {device.prepare(adamw ? "adamw_update" : "sgd_update", {{"weight_decay", decay}}, update.types),
               update.inputs, update.outputs});
        };
        // Less than a pack, nothing, a chunk, a little more, several chunks, an address at no multiple of 16.
        for (const int64_t count : {3, 0, 8192, 8193, 20001}) add(count, 0, 0.125);
        add(37, dtype == DType::kF64 ? 8 : 4, 0.125);
        for (int i = 0; i < 60; ++i) add(1 + i, 0, 0.125);
        add(5, 0, 0.5);  // another decay: another launch
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
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
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

}  // namespace
}  // namespace tessera::conformance
