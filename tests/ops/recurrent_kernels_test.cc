// Each variant of a recurrent op gives tokens the bits that they have in a whole sequence, in whatever steps they come.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/text.h"
#include "tests/ops/case_file.h"
#include "tests/ops/foreign_backend.h"
#include "tests/ops/kernel_run.h"

namespace tessera::conformance {
namespace {

constexpr int64_t kSequences = 2, kTokens = 70, kRows = 3;
constexpr int32_t kRowOf[kSequences] = {2, 0};  // row 1 is idle

struct RecurrentCase {
  std::string op, text;  // of a case file
  Shape row;             // of the state
  std::vector<size_t> weights = {}, wide = {};  // operands that have no tokens, and those that stay f32
};

// The tokens of a step, in order: a sequence, or -1 for padding, and a position.
using Step = std::vector<std::pair<int32_t, int32_t>>;

class Recurrence {
 public:
  // False where the variant, or its form for steps, does not take the dtype.
  bool prepare(const RecurrentCase& recurrent, const cpu::KernelEntry& entry, DType dtype) {
    case_ = recurrent;
    dtype_ = dtype;
    rows_op_ = recurrent.op + "_rows";
    rows_entry_ = {rows_op_, entry.variant, entry.prepare == nullptr ? nullptr : find_prepare(entry.variant)};
    const auto file = parse_case_file("tolerance 1 \"none\"\nvalues -0.5 to 0.5\ncase " + recurrent.text, recurrent.op);
    REQUIRE_MESSAGE(file.ok(), file.status().to_string());
    const Case& c = file->cases[0];
    attrs_ = c.attrs;
    uint64_t seed = 1;
    for (size_t i = 0; i < c.operands.size(); ++i) {
      const bool is_wide = std::ranges::count(recurrent.wide, i) > 0;
      operands_.push_back(Array::of(c.operands[i].type_in(is_wide ? DType::kF32 : dtype),
                                    make_values(c.operands[i].type, c.operands[i].range, seed++)));
    }
    const auto kernel = kernel_of(recurrent.op, entry, operands_);
    if (!kernel.ok()) return false;
    whole_ = run(*kernel, operands_, {})[0];
    return true;
  }

  // Whether the steps give each token the bits of the whole, and leave the idle row as it was.
  bool has_same_bits(const std::vector<Step>& steps, bool in_place) const {
    TensorType state_type = {DType::kF32, {kRows}};
    for (const int64_t extent : case_.row.dims()) state_type.shape.push_back(extent);
    const auto count = static_cast<size_t>(state_type.shape.elements());
    Array state = Array::of(state_type, std::vector<double>(count, std::numeric_limits<double>::quiet_NaN()));
    const Array untouched = state;
    for (const Step& step : steps) {
      std::vector<Array> operands = {state};
      for (size_t i = 0; i < operands_.size(); ++i) operands.push_back(is_weight(i) ? operands_[i] : gather(operands_[i], step));
      std::vector<double> rows, positions;
      for (const auto& [sequence, position] : step) {
        rows.push_back(sequence < 0 ? -1 : kRowOf[sequence]);
        positions.push_back(position);
      }
      const TensorType indices = {DType::kI32, {1, static_cast<int64_t>(step.size())}};
      operands.push_back(Array::of(indices, rows));
      operands.push_back(Array::of(indices, positions));
      const auto kernel = kernel_of(rows_op_, rows_entry_, operands);
      REQUIRE_MESSAGE(kernel.ok(), kernel.status().to_string());
      const std::vector<Array> results = run(*kernel, operands, {.in_place = in_place});
      if (results[0].bytes != gather(whole_, step).bytes) return false;
      state = results[1];
    }
    const auto idle = state.bytes.size() / kRows;
    return std::equal(state.bytes.begin() + idle, state.bytes.begin() + 2 * idle, untouched.bytes.begin());
  }

 private:
  bool is_weight(size_t i) const { return std::ranges::count(case_.weights, i) > 0; }

  cpu::PrepareFn find_prepare(std::string_view variant) const {
    for (const cpu::KernelEntry& entry : kernels_of(rows_op_))
      if (entry.variant == variant) return entry.prepare;
    FAIL("no such variant of the form for steps");
    return nullptr;
  }

  Result<PreparedKernel> kernel_of(std::string_view op, const cpu::KernelEntry& entry,
                                   const std::vector<Array>& operands) const {
    TSR_ASSIGN_OR_RETURN(const std::vector<Attr> attrs, complete_attrs(*find_op(op), attrs_));
    std::vector<TensorType> types;
    for (const Array& operand : operands) types.push_back(operand.type);
    TSR_ASSIGN_OR_RETURN(const OpInstance instance, make_instance(*find_op(op), attrs, types));
    return PreparedKernel::prepare(entry, instance);
  }

  static std::vector<Array> run(const PreparedKernel& kernel, const std::vector<Array>& operands,
                                const RunOptions& options) {
    const auto results = kernel.run(operands, options);
    REQUIRE_MESSAGE(results.ok(), results.status().to_string());
    return *results;
  }

  // The step's tokens [1, N, ...] of an array [kSequences, kTokens, ...]; of padding zeros.
  static Array gather(const Array& all, const Step& step) {
    TensorType type = all.type;
    type.shape.set(0, 1);
    type.shape.set(1, static_cast<int64_t>(step.size()));
    Array found = Array::zeros(type);
    const size_t size = all.bytes.size() / (kSequences * kTokens);
    for (size_t n = 0; n < step.size(); ++n) {
      const auto [sequence, position] = step[n];
      if (sequence < 0) continue;
      const auto from = static_cast<size_t>(sequence * kTokens + position) * size;
      std::copy_n(all.bytes.begin() + static_cast<std::ptrdiff_t>(from), size,
                  found.bytes.begin() + static_cast<std::ptrdiff_t>(n * size));
    }
    return found;
  }

  RecurrentCase case_;
  DType dtype_ = DType::kF32;
  std::string rows_op_;
  cpu::KernelEntry rows_entry_{};
  std::vector<Attr> attrs_;
  std::vector<Array> operands_;
  Array whole_;
};

// Both sequences in steps of `first` and then `rest` tokens of each; `mixed` alternates their tokens, with padding.
std::vector<Step> steps_of(int32_t first, int32_t rest, bool mixed) {
  std::vector<Step> steps;
  for (int32_t begin = 0, count = first; begin < kTokens; begin += std::exchange(count, rest)) {
    const int32_t end = std::min<int32_t>(begin + count, kTokens);
    Step step;
    for (const int32_t sequence : {0, 1}) {
      if (mixed && sequence == 1) break;
      for (int32_t t = begin; t < end; ++t) {
        step.emplace_back(sequence, t);
        if (mixed) step.insert(step.end(), {{-1, 0}, {1, t}});
      }
      if (!mixed) steps.push_back(std::exchange(step, {}));
    }
    if (mixed) steps.push_back(step);
  }
  return steps;
}

std::vector<RecurrentCase> recurrent_cases() {
  return {
      {"causal_conv", "f[2, 70, 69], f[69, 4] {activation = \"silu\"}", {3, 69}, {1}},
      {"causal_conv", "f[2, 70, 130], f[130, 3], f[130] {bias = 1}", {2, 130}, {1, 2}},
      {"causal_conv", "f[2, 70, 5], f[5, 1]", {0, 5}, {1}},
      {"state_scan", "f[2, 70, 1, 9], f[2, 70, 1, 9], f[2, 70, 2, 69], f[2, 70, 2] in -0.3 to 0, f[2, 70, 2] in 0 to 1",
       {2, 9, 69}, {}, {3}},
      {"state_scan",
       "f[2, 70, 2, 16], f[2, 70, 2, 16], f[2, 70, 2, 64], f[2, 70, 2, 16] in -0.3 to 0, f[2, 70, 2] in 0 to 1",
       {2, 16, 64}, {}, {3}},
      {"state_scan",
       "f[2, 70, 1, 6], f[2, 70, 1, 6], f[2, 70, 3, 33], f[2, 70, 3] in -0.3 to 0, f[2, 70, 3] in 0 to 1 {rule = \"add\"}",
       {3, 6, 33}, {}, {3}},
      {"state_scan",
       "f[2, 70, 2, 9], f[2, 70, 2, 9], f[2, 70, 2, 69], f[2, 70, 2, 9] in -0.3 to 0, f[2, 70, 2, 9], f[2, 70, 2, 9]"
       " {rule = \"general\"}",
       {2, 9, 69}, {}, {3}},
      {"selective_scan",
       "f[2, 70, 69], f[2, 70, 69] in 0 to 1, f[69, 16] in -2 to 0, f[2, 70, 16], f[2, 70, 16]",
       {16, 69}, {2}, {1, 2}},
      {"selective_scan", "f[2, 70, 130], f[2, 70, 130] in -1 to 0 {expand = 0}", {1, 130}, {}, {1}},
  };
}

TEST_SUITE_BEGIN("gpu");

TEST_CASE("tokens_of_recurrent_ops_have_the_bits_of_the_whole_sequence_in_any_steps") {
  std::vector<std::pair<int32_t, int32_t>> cuts = {{5, 13}, {64, 2}, {70, 1}, {1, 1}, {1, 69}, {69, 1}, {3, 33}};
  const bool is_foreign = !foreign_backend_name().empty();
  if (is_foreign) cuts.resize(2);  // an emulator takes its time
  for (const RecurrentCase& recurrent : recurrent_cases()) {
    std::vector<cpu::KernelEntry> entries = kernels_of(recurrent.op);
    // What the CPU picks, which in bf16 is no row of the table.
    if (is_foreign)
      entries.resize(1);
    else
      entries.push_back({recurrent.op, "cpu", nullptr});
    for (const cpu::KernelEntry& entry : entries)
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        CAPTURE(recurrent.op);
        CAPTURE(recurrent.text);
        CAPTURE(entry.variant);
        CAPTURE(info(dtype).name);
        Recurrence recurrence;
        if (!recurrence.prepare(recurrent, entry, dtype)) {
          CHECK_MESSAGE(dtype != DType::kF32, "no kernel in f32");
          continue;
        }
        for (const auto& [first, rest] : cuts)
          for (const bool mixed : {false, true}) {
            CAPTURE(first);
            CAPTURE(rest);
            CAPTURE(mixed);
            CHECK(recurrence.has_same_bits(steps_of(first, rest, mixed), mixed));
          }
      }
  }
}

TEST_SUITE_END();

}  // namespace
}  // namespace tessera::conformance
