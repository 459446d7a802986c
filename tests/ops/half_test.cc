// Every op in bf16, and in f16 where a backend computes in it (TESSERA_TEST_BACKEND names one; the CPU does not),
// against the reference in f64 on the same rounded operands.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "graph/base/text.h"
#include "tests/ops/checks.h"
#include "tests/ops/foreign_backend.h"
#include "tests/skip.h"

namespace tessera::conformance {
namespace {

const std::string kCases = TSR_SOURCE_DIR "/tests/ops/cases/";
// Shapes that kernels of these types treat apart; larger, since nothing is differentiated here.
const std::string kMoreCases = TSR_SOURCE_DIR "/tests/ops/half_cases/";

bool wanted(std::string_view op) {
  const char* only = std::getenv("TESSERA_TEST_OP");
  return only == nullptr || op == only;
}

// The case with its float operands of `dtype`, except those that the op wants in f32 (statistics, state):
// the fewest that it accepts.
Result<OpInstance> instance_of(const OpDef& op, const Case& c, DType dtype) {
  TSR_ASSIGN_OR_RETURN(const std::vector<Attr> attrs, complete_attrs(op, c.attrs));
  const auto operands = static_cast<uint32_t>(c.operands.size());
  Status refused;
  for (int wide = 0; wide <= static_cast<int>(operands); ++wide) {
    for (uint32_t set = 0; set < 1u << operands; ++set) {
      if (std::popcount(set) != wide) continue;
      std::vector<TensorType> inputs;
      bool idle = false;
      for (uint32_t i = 0; i < operands; ++i) {
        const bool is_wide = (set >> i & 1) != 0;
        idle |= is_wide && !c.operands[i].is_float_under_test;
        inputs.push_back(c.operands[i].type_in(is_wide ? DType::kF32 : dtype));
      }
      if (idle) continue;
      auto made = make_instance(op, attrs, std::move(inputs));
      if (made.ok()) return made;
      refused = made.status();
    }
  }
  return refused;
}

std::string difference(const std::vector<Array>& got, const std::vector<Array>& want, double tolerance) {
  for (size_t o = 0; o < want.size(); ++o)
    for (int64_t i = 0; i < want[o].count(); ++i) {
      const bool rounds = got[o].type.dtype == DType::kF16 || got[o].type.dtype == DType::kBF16;
      // f16 ends at 65504.
      if (rounds && got[o].type.dtype == DType::kF16 && std::abs(want[o].get(i)) > 65000) continue;
      if (!near(got[o].get(i), want[o].get(i), tolerance))
        return format("result {}: element {} is {}, wanted {} (tolerance {})", o, i, got[o].get(i),
                      want[o].get(i), tolerance);
    }
  return {};
}

bool same_bits(const std::vector<Array>& a, const std::vector<Array>& b) {
  return std::ranges::equal(a, b, [](const Array& x, const Array& y) { return x.bytes == y.bytes; });
}

// The kernel that a backend picks.
cpu::KernelEntry tested_kernel(std::string_view op) {
  return {op, foreign_backend_name().empty() ? "cpu" : foreign_backend_name(), nullptr};
}

int compare_ops(std::span<const DType> types, std::span<const DType> absent) {
  int compared = 0;
  const auto is_absent = [&](const TensorType& type) {
    return std::ranges::find(absent, type.dtype) != absent.end();
  };
  for (const OpDef* op : all_ops()) {
    if (!wanted(op->name)) continue;
    auto file = read_case_file(kCases + std::string(op->name) + ".txt");
    if (!file.ok()) continue;  // conformance_test.cc reports it
    const std::string more = kMoreCases + std::string(op->name) + ".txt";
    if (std::filesystem::exists(more)) {
      const auto added = read_case_file(more);
      REQUIRE_MESSAGE(added.ok(), added.status().to_string());
      std::ranges::copy(added->cases, std::back_inserter(file->cases));
    }
    const std::vector<cpu::KernelEntry> kernels = kernels_of(op->name);
    const cpu::KernelEntry* reference = reference_of(kernels);
    if (reference == nullptr) continue;
    for (const Case& c : file->cases) {
      for (const DType dtype : types) {
        const std::string where = format("{}:{} {}", file->path, c.line, dtype);
        const auto instance = instance_of(*op, c, dtype);
        if (!instance.ok()) continue;  // the op has no such type
        if (std::ranges::any_of(instance->inputs, is_absent) || std::ranges::any_of(instance->outputs, is_absent))
          continue;
        const auto kernel = PreparedKernel::prepare(tested_kernel(op->name), *instance);
        // Products of rounded activations are a backend's choice: "auto" takes them where they are.
        const bool may_decline = (op->name == "quantized_matmul" || op->name == "expert_matmul") &&
                                 attr_string(instance->attrs, "activations") != "f32";
        if (may_decline && kernel.status().code() == StatusCode::kUnsupported) continue;
        CHECK_MESSAGE(kernel.ok(), where << ": " << kernel.status().to_string());
        if (!kernel.ok()) continue;
        // The judge sees what rounding left of the values.
        std::vector<Array> operands, wide;
        std::vector<TensorType> wide_types;
        uint64_t seed = static_cast<uint64_t>(c.line) * 100;
        for (size_t i = 0; i < c.operands.size(); ++i) {
          operands.push_back(
              Array::of(instance->inputs[i], make_values(c.operands[i].type, c.operands[i].range, seed++)));
          wide_types.push_back(c.operands[i].type_in(DType::kF64));
          // Blocks stay as they are: encoded again they may change.
          wide.push_back(wide_types.back() == operands.back().type
                             ? operands.back()
                             : Array::of(wide_types.back(), operands.back().values()));
        }
        const auto judge_instance = make_instance(*op, instance->attrs, wide_types);
        REQUIRE_MESSAGE(judge_instance.ok(), where);
        const auto judge = PreparedKernel::prepare(*reference, *judge_instance);
        REQUIRE_MESSAGE(judge.ok(), where);
        const auto want = judge->run(wide);
        const auto got = kernel->run(operands, {.poison = std::byte{0xa5}});
        REQUIRE_MESSAGE(want.ok(), where);
        CHECK_MESSAGE(got.ok(), where << ": " << got.status().to_string());
        if (!got.ok()) continue;
        // Results are rounded once to half an ulp, and inner products of attention once before: some ulps of
        // either.
        const double ulp = dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
        const std::string text = difference(*got, *want, std::max(file->tolerance, 4 * ulp));
        CHECK_MESSAGE(text.empty(), where << ": " << text);
        const auto again = kernel->run(operands, {.poison = std::byte{0x5a}});
        CHECK_MESSAGE((again.ok() && same_bits(*got, *again)),
                      where << ": not every byte of the results is written");
        if (!op->in_place.empty()) {
          const auto in_place = kernel->run(operands, {.in_place = true});
          CHECK_MESSAGE((in_place.ok() && same_bits(*got, *in_place)),
                        where << ": in place the results differ");
        }
        ++compared;
      }
    }
  }
  return compared;
}

TEST_CASE("every_op_in_bf16_on_the_cpu_equals_the_reference_in_f64_on_the_same_operands") {
  if (!foreign_backend_name().empty()) {
    test::skip("another backend is tested");
    return;
  }
  constexpr DType kTypes[] = {DType::kBF16};
  CHECK(compare_ops(kTypes, {}) > 500);
}

TEST_SUITE_BEGIN("gpu");

TEST_CASE("every_op_in_f16_and_bf16_equals_the_reference_in_f64_on_the_same_operands") {
  if (foreign_backend_name().empty()) {
    test::skip("the CPU has a test of its own");
    return;
  }
  std::vector<DType> types = {DType::kBF16, DType::kF16};
  std::erase_if(types, [](DType dtype) { return !foreign_backend_has(dtype); });
  // A build of few types has no kernels that read or write the others.
  std::vector<DType> absent = {DType::kF16, DType::kF64};
  std::erase_if(absent, [](DType dtype) { return foreign_backend_has(dtype); });
  const int compared = compare_ops(types, absent);
  std::printf("%d cases in %s compared\n", compared, types.size() == 2 ? "f16 and bf16" : "bf16");
  CHECK(compared > 0);
}

TEST_SUITE_END();

}  // namespace
}  // namespace tessera::conformance
