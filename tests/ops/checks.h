// The five checks that every op must pass. Each returns what it found wrong, one line a finding; nothing when
// the op is right. They take the OpDef and the kernels as arguments, so that tests of the tests can plant
// faults in either.
//
//   1 shapes    the rule fits the shapes that infer gives, also with symbols; every byte of the results is
//               written, and nothing else
//   2 kernels   each variant = the reference in f64, also in place and for any order of tasks; the reference
//   =
//               the values worked out by hand, where a case has them
//   3 gradient  vjp = central finite differences in f64
//   4 sharding  every single-factor sharding that the rule allows, run on the parts and put together again, =
//               the whole; addends of a declared linear set of operands give addends of the results
//   5 cost      the local costs of the parts of a sharding sum to no less than the cost of the whole
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tests/ops/case_file.h"
#include "tests/ops/kernel_run.h"

namespace tessera::conformance {

using Findings = std::vector<std::string>;
using Kernels = std::span<const cpu::KernelEntry>;

Findings check_shapes(const OpDef& op, Kernels kernels, const CaseFile& file);
Findings check_kernels(const OpDef& op, Kernels kernels, const CaseFile& file);
Findings check_gradient(const OpDef& op, const CaseFile& file);
Findings check_sharding(const OpDef& op, Kernels kernels, const CaseFile& file);
Findings check_cost(const OpDef& op, const CaseFile& file);

Findings check_all(const OpDef& op, Kernels kernels, const CaseFile& file);

}  // namespace tessera::conformance
