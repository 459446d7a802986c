// CaseFile: what the conformance harness knows of one op, read from tests/ops/cases/<op>.txt. One statement a
// line, '#' starts a comment:
//
//   tolerance 1e-5 "why f32 kernels may differ from the reference in f64 by this much"
//   values -2 to 2
//   case f[2, 3, 5], f[5, 7] in 0.5 to 1, i32[2] in 0 to 6 {trans_w = 1, activation = "relu"}
//   case f[2] = 1 2, f[2] = 3 4 gives 4 6
//
// Tolerances are relative to max(1, |value|). `values` is the range of float operands in later lines that
// name none. In a case, `f` is the float type under test, f32 and f64 in turn; other types are meant as
// written. `in a to b` is a range (of integers: both ends included); `away d` keeps floats at least d from 0,
// where the op has a kink; `= ...` gives the values themselves, repeated as needed. `gives` lists what all
// results must hold, one after the other: worked out by hand, so that the reference kernel has a judge of its
// own.
//
// Gradients are checked on every case. These lines change how:
//   gradient_tolerance 1e-5 "why"  default 1e-6
//   project 0                      results that the gradient is taken of (default: every float one)
//   differentiate 0 2              operands it is taken by (default: every float one that is not shape-only)
// Dependent operands (x and its statistics) are checked in a graph instead:
// each `gradient ... end` block holds a graph's text in f64, whose parameters are differentiated and whose
// outputs are weighed, and `feed NAME in a to b` or `feed NAME = ...` for tensors that want other values.
//
//   without_gradient "why"         the op refuses to differentiate the cases below
//
// Linear sets of operands are checked in f64; an op that rounds in between says
//   linear_tolerance 1e-3 "why"    default 1e-9
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/attr.h"
#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera::conformance {

struct ValueRange {
  double low = -2, high = 2, away = 0;
  std::vector<double> given;  // used instead when not empty
};

struct Operand {
  TensorType type;  // f32 where `is_float_under_test`
  bool is_float_under_test = false;
  ValueRange range;

  TensorType type_in(DType dtype) const { return is_float_under_test ? TensorType{dtype, type.shape} : type; }
};

struct Case {
  int line = 0;
  std::vector<Operand> operands;
  std::vector<Attr> attrs;
  std::vector<double> expected;  // empty: not given
  bool refuses_gradient = false;
};

struct GradientGraph {
  int line = 0;
  std::string text;
  std::vector<std::pair<std::string, ValueRange>> feeds;
};

struct CaseFile {
  std::string path;
  double tolerance = 0;
  std::string reason;
  double gradient_tolerance = 1e-6;
  double linear_tolerance = 1e-9;
  ValueRange values;
  bool refuses_gradient = false;  // of cases still to come
  std::vector<int> project, differentiate;
  std::vector<Case> cases;
  std::vector<GradientGraph> gradients;
};

Result<CaseFile> parse_case_file(std::string_view text, std::string path);
Result<CaseFile> read_case_file(const std::string& path);

// Values of one operand: the same on every run, different by `seed`; floats are exact in f32.
std::vector<double> make_values(const TensorType& type, const ValueRange& range, uint64_t seed);

}  // namespace tessera::conformance
