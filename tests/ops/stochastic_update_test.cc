// Updates that round to bf16 by random bits: the expectation is the value, every shard rounds as the whole
// does, and small steps arrive where rounding to nearest stands still.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "graph/base/half.h"
#include "graph/base/text.h"
#include "tests/ops/cuda_device.h"
#include "tests/ops/kernel_runner.h"

namespace tessera::conformance {
namespace {

// sgd_update_stochastic without momentum: p - g, in one step of lr 1.
struct Step {
  std::vector<int64_t> dims;
  std::vector<float> p, g;
  int64_t seed = 1, salt = 0;
  std::vector<FactorView> factors = {};

  TensorType type(DType dtype) const { return {dtype, Shape(std::span<const int64_t>(dims))}; }
  std::vector<HostTensor> operands() const {
    std::vector<uint16_t> bf16;
    for (const float value : p) bf16.push_back(bf16_from_f32(value));
    const std::vector<float> zeros(p.size()), one = {1};
    const TensorType scalar{DType::kF32, {}};
    return {HostTensor::copy_of<uint16_t>(type(DType::kBF16), bf16),
            HostTensor::copy_of<float>(type(DType::kF32), g),
            HostTensor::copy_of<float>(type(DType::kF32), zeros),
            HostTensor::copy_of<float>(scalar, one),
            HostTensor::copy_of<float>(scalar, one),
            HostTensor::copy_of<int64_t>({DType::kI64, {}}, std::span(&seed, 1))};
  }
  std::vector<Attr> attrs() const { return {{"momentum", 0.0}, {"salt", salt}}; }

  std::vector<uint16_t> bits() const {
    const auto out = test::run_kernel({"sgd_update_stochastic", operands(), attrs(), factors});
    REQUIRE_MESSAGE(out.ok(), out.status().to_string());
    const auto made = (*out)[0].as<uint16_t>();
    return {made.begin(), made.end()};
  }
  std::vector<float> values() const {
    std::vector<float> wide;
    for (const uint16_t each : bits()) wide.push_back(f32_from_bf16(each));
    return wide;
  }
  std::vector<uint16_t> bits_on(CudaDevice& device) const {
    const std::vector<HostTensor> in = operands();
    std::vector<TensorType> types;
    std::vector<std::span<const std::byte>> bytes;
    for (const HostTensor& each : in) {
      types.push_back(each.type);
      bytes.push_back(each.data);
    }
    Question question = Question::of("sgd_update_stochastic", attrs(), types);
    if (!factors.empty()) question.factors = factors;
    std::vector<uint16_t> made(p.size());
    device.run(question, "", bytes, std::as_writable_bytes(std::span(made)));
    return made;
  }

  // Numbers of bf16 and steps of f32 that no two of them share.
  static Step scattered(std::vector<int64_t> dims) {
    Step made{std::move(dims), {}, {}};
    for (int64_t i = 0; i < made.type(DType::kF32).shape.elements(); ++i) {
      made.p.push_back(f32_from_bf16(static_cast<uint16_t>(0x3f00 + i % 200)));
      made.g.push_back(static_cast<float>((i * 37 % 1001 - 500)) * 0x1p-17f);
    }
    return made;
  }
  // The ranges of each dim in the whole; empty: all of it.
  Step shard(const std::vector<std::vector<std::pair<int64_t, int64_t>>>& ranges) const {
    Step part{{}, {}, {}, seed, salt};
    std::vector<std::vector<int64_t>> kept(dims.size());
    for (size_t d = 0; d < dims.size(); ++d) {
      FactorView view{static_cast<char>('a' + d), dims[d], 1, static_cast<int32_t>(ranges[d].size()), {}, {}};
      for (size_t r = 0; r < ranges[d].size(); ++r) {
        view.begin[r] = ranges[d][r].first;
        view.end[r] = ranges[d][r].second;
        for (int64_t i = view.begin[r]; i < view.end[r]; ++i) kept[d].push_back(i);
      }
      part.factors.push_back(view);
      part.dims.push_back(static_cast<int64_t>(kept[d].size()));
    }
    for (const int64_t i : indices(kept)) {
      part.p.push_back(p[static_cast<size_t>(i)]);
      part.g.push_back(g[static_cast<size_t>(i)]);
    }
    part.from = indices(kept);
    return part;
  }
  std::vector<int64_t> from = {};  // in the whole, of each element of a shard

 private:
  std::vector<int64_t> indices(const std::vector<std::vector<int64_t>>& kept) const {
    std::vector<int64_t> all = {0};
    for (size_t d = 0; d < dims.size(); ++d) {
      std::vector<int64_t> next;
      for (const int64_t before : all)
        for (const int64_t i : kept[d]) next.push_back(before * dims[d] + i);
      all = std::move(next);
    }
    return all;
  }
};

using Ranges = std::vector<std::vector<std::pair<int64_t, int64_t>>>;

TEST_CASE("a_value_between_two_numbers_of_bf16_is_kept_in_expectation") {
  constexpr int64_t kCount = int64_t{1} << 16;
  for (const float p : {1.0f, -1.0f, 0.0078125f})
    for (const double share : {0.0, 1.0 / 65536, 0.02, 0.3, 0.5, 0.75, 0.999}) {
      CAPTURE(p);
      CAPTURE(share);
      // Numbers of bf16 lie 2^-7 of it apart above a power of two.
      const float step = p * 0x1p-7f, wanted = p + static_cast<float>(share) * step;
      Step all{{kCount}, std::vector(kCount, p), std::vector(kCount, p - wanted), 5};
      const std::vector<float> got = all.values();
      int64_t up = 0;
      for (const float value : got) {
        const bool is_neighbour = value == p || value == p + step;
        REQUIRE(is_neighbour);
        up += value != p;
      }
      // Six standard deviations of a mean of so many draws, at most 0.5 each: one run in 5e8 would exceed it,
      // and this one draws the same every time.
      const double bound = 6 * std::sqrt(share * (1 - share) / kCount);
      CHECK(std::abs(static_cast<double>(up) / kCount - share) <= bound);
    }
}

TEST_CASE("rounding_leaves_numbers_of_bf16_infinities_and_nans_as_they_are") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Step step{{6}, {1.5f, -3.0f, 0.0f, 1.0f, 1.0f, 1.0f}, {0, 0, 0, -inf, inf, nan}};
  const std::vector<float> wanted = {1.5f, -3.0f, 0.0f, inf, -inf};
  for (int64_t seed = 0; seed < 50; ++seed) {
    Step again = step;
    again.seed = seed;
    const std::vector<float> got = again.values();
    CHECK(std::vector(got.begin(), got.begin() + 5) == wanted);
    CHECK(std::isnan(got[5]));
  }
}

TEST_CASE("seed_salt_and_place_decide_how_an_element_is_rounded") {
  const Step step = Step::scattered({40, 50});
  const std::vector<uint16_t> bits = step.bits();
  CHECK(step.bits() == bits);
  Step other = step;
  other.seed = 2;
  CHECK(other.bits() != bits);
  other = step;
  other.salt = 1;
  CHECK(other.bits() != bits);
}

TEST_CASE("every_shard_rounds_its_elements_as_the_whole_does") {
  CudaDevice device;
  const Step whole = Step::scattered({6, 10, 13});
  const std::vector<uint16_t> bits = whole.bits();
  if (device.is_there()) CHECK(whole.bits_on(device) == bits);  // exact in f32: no rounding but this one
  const std::pair<int64_t, int64_t> a{0, 6}, b{0, 10}, c{0, 13};
  for (const Ranges& ranges : {Ranges{{{2, 5}}, {b}, {c}}, Ranges{{a}, {{3, 10}}, {c}},
                               Ranges{{a}, {b}, {{4, 9}}}, Ranges{{{1, 4}}, {{5, 6}}, {{0, 7}}},
                               Ranges{{{0, 1}}, {{0, 4}}, {{6, 13}}}, Ranges{{{3, 6}}, {{2, 9}}, {{12, 13}}},
                               Ranges{{a}, {b}, {{7, 8}}}, Ranges{{a}, {{0, 2}, {7, 9}}, {c}}}) {
    const Step part = whole.shard(ranges);
    CAPTURE(to_text(part.type(DType::kBF16)));
    std::vector<uint16_t> wanted;
    for (const int64_t i : part.from) wanted.push_back(bits[static_cast<size_t>(i)]);
    CHECK(part.bits() == wanted);
    const bool is_one_range = ranges[1].size() == 1;  // several are declined there
    if (device.is_there() && is_one_range) CHECK(part.bits_on(device) == wanted);
  }
}

TEST_CASE("moments_are_those_of_the_update_that_rounds_to_nearest") {
  const std::vector<float> p = {1.0f, -2.5f, 0.03125f}, g = {0.3f, -0.7f, 0.01f}, m = {0.1f, 0.2f, -0.3f},
                           v = {0.5f, 0.25f, 0.125f};
  std::vector<uint16_t> bf16;
  for (const float value : p) bf16.push_back(bf16_from_f32(value));
  const TensorType type{DType::kF32, Shape{3}}, scalar{DType::kF32, {}};
  const auto f32 = [](const TensorType& t, const std::vector<float>& values) {
    return HostTensor::copy_of<float>(t, values);
  };
  const int64_t seed = 3;
  std::vector<HostTensor> in = {f32(type, p),         f32(type, g),     f32(type, m),       f32(type, v),
                                f32(scalar, {0.01f}), f32(scalar, {4}), f32(scalar, {0.5f})};
  const auto nearest = test::run_kernel({"adamw_update", in}).value();
  in[0] = HostTensor::copy_of<uint16_t>({DType::kBF16, Shape{3}}, bf16);
  in.push_back(HostTensor::copy_of<int64_t>({DType::kI64, {}}, std::span(&seed, 1)));
  const auto random = test::run_kernel({"adamw_update_stochastic", in}).value();
  for (const size_t state : {1, 2})
    for (size_t i = 0; i < 3; ++i) CHECK(random[state].as<float>()[i] == nearest[state].as<float>()[i]);
  for (size_t i = 0; i < 3; ++i) {
    const float exact = nearest[0].as<float>()[i];
    const auto below = static_cast<uint16_t>(std::bit_cast<uint32_t>(exact) >> 16);  // towards 0
    const uint16_t got = random[0].as<uint16_t>()[i];
    const bool is_neighbour = got == below || got == below + 1;
    CHECK(is_neighbour);
  }
}

TEST_CASE("small_steps_arrive_where_rounding_to_nearest_stands_still") {
  // From 1 towards 0.75 by 1 % of the way: the first step is 0.0025, and numbers of bf16 below 1 lie 0.0039
  // apart, so that it is more than half of that and the last ones are far less.
  constexpr size_t kCount = 4096;
  const float target = 0.75f;
  std::vector<float> random(kCount, 1.0f);
  float nearest = 1.0f, exact = 1.0f;
  for (int step = 0; step < 400; ++step) {
    Step next{{static_cast<int64_t>(kCount)}, random, {}, step};
    for (const float p : random) next.g.push_back(0.01f * (p - target));
    random = next.values();
    nearest = f32_from_bf16(bf16_from_f32(nearest - 0.01f * (nearest - target)));
    exact -= 0.01f * (exact - target);
  }
  double mean = 0;
  for (const float p : random) mean += p / static_cast<double>(kCount);
  CHECK(std::abs(exact - target) < 0.005);
  CHECK(nearest > target + 0.15);  // stands where a step is half of what lies between two numbers
  // The mean of 4096 that wander around by less than 0.02 each: 6 standard deviations.
  CHECK(std::abs(mean - exact) < 6 * 0.02 / 64);
}

}  // namespace
}  // namespace tessera::conformance
