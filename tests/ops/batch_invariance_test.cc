// A row of a result has the same bits whatever is computed with it: any number of other rows, before it and after it,
// whatever they hold. What a batch of sequences of several users rests on.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "graph/base/text.h"
#include "tests/ops/case_file.h"
#include "tests/ops/foreign_backend.h"
#include "tests/ops/kernel_run.h"
#include "tests/skip.h"

namespace tessera::conformance {
namespace {

constexpr int64_t kAllRows = 257;

struct RowCase {
  std::string op, text;  // of a case file; ROWS stands for the rows, in dimensions and values
};

Case parse_rows(const RowCase& row_case, int64_t rows) {
  std::string text = row_case.text;
  for (size_t at = text.find("ROWS"); at != std::string::npos; at = text.find("ROWS"))
    text.replace(at, 4, std::to_string(rows));
  const auto file = parse_case_file("tolerance 1 \"none\"\ncase " + text, row_case.op);
  REQUIRE_MESSAGE(file.ok(), file.status().to_string());
  return file->cases[0];
}

// Where rows are in a tensor whose shape is `all` for all rows and `one` for one: blocks of `inner` elements, `outer` times
// kAllRows; inner 0: nowhere.
struct RowAxis {
  int64_t outer = 1, inner = 0;

  RowAxis(const Shape& all, const Shape& one) {
    for (int i = 0; i < all.rank(); ++i) {
      if (all[i] == one[i]) {
        (inner > 0 ? inner : outer) *= all[i];
      } else {
        inner = 1;
      }
    }
  }
  // Rows [first, first + count) of `all`.
  Array slice(const Array& all, const TensorType& type, int64_t first, int64_t count) const {
    std::vector<int64_t> elements;
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = first * inner; i < (first + count) * inner; ++i) elements.push_back(o * kAllRows * inner + i);
    return all.part(type, elements);
  }
};

class RowsOfCase {
 public:
  // False where the op, or the backend, does not take the dtype.
  bool prepare(const RowCase& row_case, DType dtype) {
    case_ = row_case;
    op_ = find_op(row_case.op);
    REQUIRE(op_ != nullptr);
    dtype_ = dtype;
    if (!instance_of(kAllRows).ok() || !kernel_of(kAllRows).ok()) return false;
    const Case all = parse_rows(case_, kAllRows);
    uint64_t seed = 1;
    for (const Operand& operand : all.operands)
      operands_.push_back(Array::of(operand.type_in(dtype_), make_values(operand.type, operand.range, seed++)));
    auto results = kernel_of(kAllRows)->run(operands_);
    REQUIRE_MESSAGE(results.ok(), results.status().to_string());
    results_ = *results;
    return true;
  }

  // Whether rows [first, first + count) by themselves have the bits that they have among all, and, with `lonely`, row
  // `first` where the others of these are not numbers.
  bool has_same_bits(int64_t first, int64_t count, bool lonely) const {
    const auto instance = instance_of(count), one = instance_of(1);
    REQUIRE(instance.ok());
    REQUIRE(one.ok());
    std::vector<Array> operands;
    const Case few = parse_rows(case_, count);
    for (size_t i = 0; i < operands_.size(); ++i) {
      const RowAxis axis(operands_[i].type.shape, one->inputs[i].shape);
      const TensorType& type = instance->inputs[i];
      if (axis.inner == 0) {  // values may name the rows
        const ValueRange& range = few.operands[i].range;
        operands.push_back(range.given.empty() ? operands_[i] : Array::of(type, make_values(type, range, 1)));
        continue;
      }
      operands.push_back(axis.slice(operands_[i], type, first, count));
      if (lonely && few.operands[i].is_float_under_test)
        for (int64_t e = 0; e < operands.back().count(); ++e)
          if (e / axis.inner % count != 0) operands.back().set(e, std::numeric_limits<double>::quiet_NaN());
    }
    const auto kernel = kernel_of(count);
    REQUIRE_MESSAGE(kernel.ok(), kernel.status().to_string());
    const auto results = kernel->run(operands);
    REQUIRE_MESSAGE(results.ok(), results.status().to_string());
    const int64_t compared = lonely ? 1 : count;
    for (size_t o = 0; o < results->size(); ++o) {
      const RowAxis axis(results_[o].type.shape, one->outputs[o].shape);
      if (axis.inner == 0) return false;
      const TensorType type = lonely ? one->outputs[o] : instance->outputs[o];
      Array got = (*results)[o];
      if (lonely) {
        std::vector<int64_t> elements;
        for (int64_t outer = 0; outer < axis.outer; ++outer)
          for (int64_t e = 0; e < axis.inner; ++e) elements.push_back(outer * count * axis.inner + e);
        got = got.part(type, elements);
      }
      if (got.bytes != axis.slice(results_[o], type, first, compared).bytes) return false;
    }
    return true;
  }

 private:
  Result<OpInstance> instance_of(int64_t rows) const {
    const Case c = parse_rows(case_, rows);
    TSR_ASSIGN_OR_RETURN(const std::vector<Attr> attrs, complete_attrs(*op_, c.attrs));
    std::vector<TensorType> inputs;
    for (const Operand& operand : c.operands) inputs.push_back(operand.type_in(dtype_));
    return make_instance(*op_, attrs, inputs);
  }
  // The kernel that the backend picks, which may be another for each number of rows.
  Result<PreparedKernel> kernel_of(int64_t rows) const {
    TSR_ASSIGN_OR_RETURN(const OpInstance instance, instance_of(rows));
    return PreparedKernel::prepare({case_.op, "cpu", nullptr}, instance);
  }

  RowCase case_;
  const OpDef* op_ = nullptr;
  DType dtype_ = DType::kF32;
  std::vector<Array> operands_, results_;  // of all rows
};

std::vector<RowCase> row_cases() {
  std::vector<RowCase> cases = {
      {"adapter_shrink", "f[ROWS, 300], f[5, 13, 300], i32[ROWS] in -1 to 4"},
      {"adapter_shrink", "f[ROWS, 37], bf16[2, 16, 37], i32[ROWS] in -1 to 1"},
      {"adapter_expand", "f[ROWS, 13], f[5, 13, 301], i32[ROWS] in -1 to 4, f[ROWS, 301]"},
      {"adapter_expand", "f[ROWS, 16], f16[2, 16, 600], i32[ROWS] in -1 to 1, f[ROWS, 600]"},
      {"row_dropout", "f[ROWS, 3, 37], i64[ROWS] in 0 to 1000, i64[ROWS] in 0 to 9, f64[ROWS] in 0 to 0.9 {salt = 3}"},
      {"matmul", "f[ROWS, 300], f[300, 101]"},
      {"matmul", "f[ROWS, 801], f[37, 801], f[37] {trans_w = 1}"},
      {"matmul", "f[ROWS, 5], f[5, 3], f[3] {activation = \"gelu\"}"},
      {"matmul", "f[ROWS, 300], f[101, 300] {trans_w = 1, activation = \"silu\"}"},
      {"matmul", "f[ROWS, 300], f[101, 300] {trans_w = 1, allow_tf32 = 1}"},
      {"matmul_add", "f[ROWS, 300], f[300, 37], f[ROWS, 37]"},
      {"scaled_matmul",
       "e4m3[ROWS, 300] in -8 to 8, e4m3[37, 300] in -8 to 8, f[] = 0.125, f[] = 0.5 {trans_w = 1}"},
      {"scaled_matmul", "e4m3[ROWS, 300] in -8 to 8, e4m3[300, 37] in -8 to 8, f[] = 0.125, f[] = 0.5"},
      {"quantized_matmul", "f[ROWS, 801], bf16[37, 801], f[37]"},
      {"quantized_matmul", "f[ROWS, 300], f16[101, 300]"},
      {"quantized_matmul", "f[ROWS, 801], bf16[101, 801] {activations = \"bf16\"}"},
      {"expert_matmul", "f[2, 1, ROWS, 300], f[2, 300, 37]"},
      {"expert_matmul", "f[2, 1, ROWS, 300], f[2, 37, 300], i32[2, 1] = ROWS {trans_w = 1}"},
      {"expert_matmul", "f[2, 1, ROWS, 300], bf16[2, 37, 300] {trans_w = 1}"},
      {"expert_matmul", "f[2, 1, ROWS, 300], f16[2, 300, 37]"},
      {"expert_matmul", "f[2, 1, ROWS, 96], q4_0[2, 37, 96] {trans_w = 1}"},
      {"expert_matmul", "f[2, 1, ROWS, 96], q8_0[2, 37, 96] {trans_w = 1, activations = \"q8\"}"},
      {"expert_matmul", "f[2, 1, ROWS, 37], q8_0[2, 37, 96]"},
      {"head_matmul", "f[1, ROWS, 2, 300], f[80, 300] {begin = 3, end = 40}"},
      {"head_matmul", "f[1, ROWS, 2, 37], f[80, 300] {trans_w = 0, begin = 3, end = 40}"},
      {"head_matmul", "f[1, ROWS, 2, 300], bf16[80, 300] {end = 37}"},
      {"head_matmul", "f[1, ROWS, 2, 37], f16[80, 300] {trans_w = 0, end = 37}"},
      {"head_matmul", "f[1, ROWS, 2, 96], q4_0[100, 96] {begin = 1, end = 50}"},
      {"head_matmul", "f[1, ROWS, 2, 37], q8_0[80, 288] {trans_w = 0, end = 37}"},
      {"embedding", "f[50, 37], i32[ROWS] in 0 to 49"},
      {"rms_norm", "f[ROWS, 301], f[301]"},
      {"add_rms_norm", "f[ROWS, 301], f[ROWS, 301], f[301]"},
      {"layer_norm", "f[ROWS, 301], f[301], f[301]"},
      {"add_layer_norm", "f[ROWS, 301], f[ROWS, 301], f[301], f[301]"},
      {"position_scale", "f[1, ROWS, 3, 34], i32[1, ROWS] in 0 to 2000 {context = 100}"},
      {"rope", "f[1, ROWS, 3, 34], i32[1, ROWS] in 0 to 2000"},
      {"rope_angles", "i32[1, ROWS] in 0 to 2000 {head_size = 34}"},
      {"rope_rotate", "f[1, ROWS, 3, 34], f64[1, ROWS, 34]"},
      {"softmax", "f[ROWS, 301]"},
      {"l2_norm", "f[ROWS, 301]"},
      {"scale_channels", "f[ROWS, 60], f[20]"},
      {"step_decay", "f[ROWS, 37], f[37], f[37]"},
      {"swiglu", "f[ROWS, 37], f[ROWS, 37]"},
      {"add_bias", "f[ROWS, 37], f[37]"},
      {"add", "f[ROWS, 37], f[ROWS, 37]"},
      {"mul", "f[ROWS, 37], f[ROWS, 37]"},
  };
  for (const char* op : {"gelu", "quick_gelu", "relu", "silu", "sigmoid", "tanh", "square"})
    cases.push_back({op, "f[ROWS, 37]"});
  for (const std::string type : {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "mxfp4", "nvfp4", "q2_k", "q3_k", "q4_k",
                                 "q5_k", "q6_k", "iq4_xs", "tq1_0", "tq2_0"}) {
    const int64_t K = info(*dtype_from_name(type)).block_elements == 256 ? 512 : 320;
    for (const char* activations : {"f32", "q8"})
      cases.push_back({"quantized_matmul",
                       format("f[ROWS, {}], {}[37, {}], f[37] ", K, type, K) + "{activations = \"" + activations + "\"}"});
  }
  return cases;
}

TEST_CASE("a_row_has_the_same_bits_alone_and_in_any_batch") {
  if (!foreign_backend_name().empty()) {
    test::skip("another backend is tested");
    return;
  }
  for (const RowCase& row_case : row_cases())
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      CAPTURE(row_case.op);
      CAPTURE(row_case.text);
      CAPTURE(info(dtype).name);
      RowsOfCase rows;
      const bool taken = rows.prepare(row_case, dtype);
      CHECK_MESSAGE((taken || dtype != DType::kF32), "no kernel in f32");
      if (!taken) continue;
      for (const int64_t count : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17, 64}) {
        CAPTURE(count);
        CHECK(rows.has_same_bits(5 * count % (kAllRows - count), count, false));
      }
      for (const int64_t count : {3, 20}) CHECK_MESSAGE(rows.has_same_bits(40, count, true), "other rows matter");
    }
}

}  // namespace
}  // namespace tessera::conformance
