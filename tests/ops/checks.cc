#include "tests/ops/checks.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "graph/base/text.h"
#include "tests/ops/shard.h"

namespace tessera::conformance {

namespace {

// The reference computes in double: what is left is the order of sums.
constexpr double kSameInDouble = 1e-11;
// Values worked out by hand are written with some seven digits.
constexpr double kHandTolerance = 2e-6;

std::string at(const CaseFile& file, const Case& c) { return format("{}:{}", file.path, c.line); }

Result<OpInstance> instance_of(const OpDef& op, const Case& c, DType dtype) {
  TSR_ASSIGN_OR_RETURN(std::vector<Attr> attrs, complete_attrs(op, c.attrs));
  std::vector<TensorType> inputs;
  for (const Operand& operand : c.operands) inputs.push_back(operand.type_in(dtype));
  return make_instance(op, std::move(attrs), std::move(inputs));
}

std::vector<Array> operands_of(const Case& c, DType dtype) {
  std::vector<Array> arrays;
  uint64_t seed = static_cast<uint64_t>(c.line) * 100;
  for (const Operand& operand : c.operands)
    arrays.push_back(Array::of(operand.type_in(dtype), make_values(operand.type, operand.range, seed++)));
  return arrays;
}

// The first element that differs, or nothing.
std::string difference(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
  for (size_t i = 0; i < want.size(); ++i)
    if (!near(got[i], want[i], tolerance))
      return format("element {} is {}, wanted {} (tolerance {})", i, got[i], want[i], tolerance);
  return {};
}

std::string difference(const std::vector<Array>& got, const std::vector<Array>& want, double tolerance) {
  for (size_t o = 0; o < want.size(); ++o)
    if (std::string text = difference(got[o].values(), want[o].values(), tolerance); !text.empty())
      return format("result {}: {}", o, text);
  return {};
}

bool same_bits(const std::vector<Array>& a, const std::vector<Array>& b) {
  return std::ranges::equal(a, b, [](const Array& x, const Array& y) { return x.bytes == y.bytes; });
}

// Results of the reference in f64, the judge of everything else.
Result<std::vector<Array>> judge(const OpDef& op, Kernels kernels, const Case& c) {
  const cpu::KernelEntry* reference = reference_of(kernels);
  if (reference == nullptr)
    return Status(StatusCode::kNotFound, format("op {} has no reference kernel", op.name));
  TSR_ASSIGN_OR_RETURN(const OpInstance instance, instance_of(op, c, DType::kF64));
  TSR_ASSIGN_OR_RETURN(const PreparedKernel kernel, PreparedKernel::prepare(*reference, instance));
  return kernel.run(operands_of(c, DType::kF64));
}

// --- 1: shapes
// --------------------------------------------------------------------------------------------------

// Extents of `factor` replaced by a symbol, where it stands alone in a dim.
std::vector<TensorType> with_symbol(const std::vector<ShardingRule::OperandDims>& operands,
                                    std::vector<TensorType> types, char factor) {
  for (size_t i = 0; i < types.size(); ++i)
    for (size_t dim = 0; dim < operands[i].size(); ++dim)
      if (operands[i][dim] == std::string(1, factor))
        types[i].shape.set(static_cast<int>(dim), symbol_extent(0));
  return types;
}

bool in_a_product(const ShardingRule& rule, char factor) {
  for (const auto* operands : {&rule.inputs, &rule.outputs})
    for (const ShardingRule::OperandDims& dims : *operands)
      for (const std::string& product : dims)
        if (product.size() > 1 && product.find(factor) != std::string::npos) return true;
  return false;
}

Findings check_symbols(const OpInstance& instance) {
  Findings findings;
  const ShardingRule rule = instance.rule();
  for (const Factor& factor : rule.factors) {
    if (factor.kind == FactorKind::kReplicate || in_a_product(rule, factor.name)) continue;
    const auto inputs = with_symbol(rule.inputs, instance.inputs, factor.name);
    const auto wanted = with_symbol(rule.outputs, instance.outputs, factor.name);
    const auto inferred = instance.op->infer(inputs, instance.attrs);
    if (!inferred.ok())
      findings.push_back(format("factor {} as a symbol: {}", factor.name, inferred.status().message()));
    else if (*inferred != wanted)
      findings.push_back(format("factor {} as a symbol: infer does not pass it on", factor.name));
  }
  return findings;
}

Findings check_written(Kernels kernels, const OpInstance& instance, const std::vector<Array>& operands) {
  Findings findings;
  for (const cpu::KernelEntry& entry : kernels) {
    const auto kernel = PreparedKernel::prepare(entry, instance);
    if (!kernel.ok()) continue;
    const auto once = kernel->run(operands, {.poison = std::byte{0xa5}});
    const auto again = kernel->run(operands, {.poison = std::byte{0x5a}});
    if (!once.ok() || !again.ok())
      findings.push_back(format("{}: {}", entry.variant, (once.ok() ? again : once).status().message()));
    else if (!same_bits(*once, *again))
      findings.push_back(format(
          "{}: not every byte of the results is written, or uninitialised memory is read", entry.variant));
    else if (instance.op->is_view && (*once)[0].bytes != operands[0].bytes)
      findings.push_back(format("{}: a view that changes the bytes of operand 0", entry.variant));
  }
  return findings;
}

// --- 2: kernels
// -------------------------------------------------------------------------------------------------

Findings check_variant(const PreparedKernel& kernel, const OpInstance& instance,
                       const std::vector<Array>& operands, const std::vector<Array>& want, double tolerance) {
  const auto got = kernel.run(operands);
  if (!got.ok()) return {std::string(got.status().message())};
  Findings findings;
  if (std::string text = difference(*got, want, tolerance); !text.empty()) findings.push_back(text);
  const auto backwards = kernel.run(operands, {.last_task_first = true});
  if (!backwards.ok() || !same_bits(*got, *backwards))
    findings.push_back("the bits depend on the order of the pool's tasks");
  if (!instance.op->in_place.empty()) {
    const auto in_place = kernel.run(operands, {.in_place = true});
    if (!in_place.ok() || !same_bits(*got, *in_place)) findings.push_back("in place the results differ");
  }
  return findings;
}

// --- 4: sharding
// ------------------------------------------------------------------------------------------------

// The parts' results, concatenated.
class Assembly {
 public:
  Assembly(const OpInstance& whole, const ShardingRule& rule, const FactorCut& cut)
      : whole_(whole), rule_(rule), cut_(cut) {
    for (size_t o = 0; o < whole.outputs.size(); ++o) {
      const auto count = static_cast<size_t>(whole.outputs[o].shape.elements());
      const bool maximum = !sharded(o) && cut.factor.reduce == ReduceKind::kMax;
      values_.emplace_back(count, maximum ? -std::numeric_limits<double>::infinity() : 0.0);
    }
  }

  // Nothing, or what is wrong with a result that should not depend on the factor at all.
  std::string add(size_t part, const std::vector<Array>& results, const std::vector<Array>& want,
                  double tolerance) {
    for (size_t o = 0; o < results.size(); ++o) {
      const std::vector<double> local = results[o].values();
      if (sharded(o)) {
        const auto elements = elements_of(rule_.outputs[o], whole_.outputs[o].shape, rule_, cut_.parts[part]);
        for (size_t i = 0; i < elements.size(); ++i) values_[o][static_cast<size_t>(elements[i])] = local[i];
      } else if (cut_.factor.kind == FactorKind::kPass) {
        if (std::string text = difference(local, want[o].values(), tolerance); !text.empty())
          return format("result {} does not have the factor, but on part {} {}", o, part, text);
        values_[o] = local;
      } else {
        for (size_t i = 0; i < local.size(); ++i)
          values_[o][i] = cut_.factor.reduce == ReduceKind::kMax ? std::max(values_[o][i], local[i])
                                                                 : values_[o][i] + local[i];
      }
    }
    return {};
  }

  std::string compare(const std::vector<Array>& want, double tolerance) const {
    for (size_t o = 0; o < want.size(); ++o)
      if (std::string text = difference(values_[o], want[o].values(), tolerance); !text.empty())
        return format("result {}: {}", o, text);
    return {};
  }

 private:
  bool sharded(size_t o) const { return has_factor(rule_.outputs[o], cut_.factor.name); }

  const OpInstance& whole_;
  const ShardingRule& rule_;
  const FactorCut& cut_;
  std::vector<std::vector<double>> values_;  // by result
};

std::vector<Array> cut_operands(const OpInstance& local, const OpInstance& whole,
                                const std::vector<Array>& operands, const ShardingRule& rule,
                                const FactorView& part) {
  std::vector<Array> result;
  for (size_t i = 0; i < operands.size(); ++i) {
    result.push_back(
        operands[i].part(local.inputs[i], elements_of(rule.inputs[i], whole.inputs[i].shape, rule, part)));
  }
  return result;
}

// One way of sharding with one kernel; nothing when it gives the whole or the kernel declines.
std::string run_cut(const cpu::KernelEntry& entry, const OpInstance& whole, const ShardingRule& rule,
                    const FactorCut& cut, const std::vector<Array>& operands, const std::vector<Array>& want,
                    double tolerance) {
  Assembly assembly(whole, rule, cut);
  for (size_t part = 0; part < cut.parts.size(); ++part) {
    const auto local = local_instance(whole, rule, cut, part);
    if (!local.ok()) return std::string(local.status().message());
    const auto kernel = PreparedKernel::prepare(entry, *local);
    if (!kernel.ok()) {
      // A fast kernel may decline any shape, the reference only orders of two ranges.
      const bool may_decline = entry.variant != "reference" || cut.parts[0].range_count > 1;
      if (kernel.status().code() == StatusCode::kUnsupported && may_decline) return {};
      return std::string(kernel.status().message());
    }
    const auto results = kernel->run(cut_operands(*local, whole, operands, rule, cut.parts[part]));
    if (!results.ok()) return std::string(results.status().message());
    if (std::string text = assembly.add(part, *results, want, tolerance); !text.empty()) return text;
  }
  return assembly.compare(want, tolerance);
}

// f(x1) + f(x2) = f(x1 + x2) for the operands of the set together.
Findings check_linear_sets(const OpInstance& instance, const ShardingRule& rule,
                           const cpu::KernelEntry& reference, const std::vector<Array>& operands,
                           const std::vector<Array>& want, uint64_t seed, double tolerance) {
  Findings findings;
  const auto kernel = PreparedKernel::prepare(reference, instance);
  if (!kernel.ok()) return {std::string(kernel.status().message())};
  for (const std::vector<int>& set : rule.linear) {
    std::vector<Array> first = operands, second = operands;
    std::vector<std::string> names;
    for (int input : set) {
      const auto i = static_cast<size_t>(input);
      names.push_back(to_text(input));
      if (i >= operands.size()) return {format("a linear set has operand {}, of {}", input, operands.size())};
      const std::vector<double> addend = make_values(operands[i].type, {}, seed + i);
      for (int64_t e = 0; e < operands[i].count(); ++e) {
        first[i].set(e, addend[static_cast<size_t>(e)]);
        second[i].set(e, operands[i].get(e) - addend[static_cast<size_t>(e)]);
      }
    }
    const auto a = kernel->run(first), b = kernel->run(second);
    if (!a.ok() || !b.ok()) {
      findings.push_back(std::string((a.ok() ? b : a).status().message()));
      continue;
    }
    for (size_t o = 0; o < want.size(); ++o) {
      std::vector<double> sum = (*a)[o].values();
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += (*b)[o].get(static_cast<int64_t>(i));
      if (std::string text = difference(sum, want[o].values(), tolerance); !text.empty())
        findings.push_back(format("not linear in operands {}: result {}: {}", join(names, ", "), o, text));
    }
  }
  return findings;
}

}  // namespace

Findings check_shapes(const OpDef& op, Kernels kernels, const CaseFile& file) {
  Findings findings;
  for (const Case& c : file.cases)
    for (DType dtype : {DType::kF32, DType::kF64}) {
      const auto instance = instance_of(op, c, dtype);
      if (!instance.ok()) {
        findings.push_back(format("{}: {}", at(file, c), instance.status().message()));
        continue;
      }
      Findings found = check_written(kernels, *instance, operands_of(c, dtype));
      if (dtype == DType::kF64) std::ranges::copy(check_symbols(*instance), std::back_inserter(found));
      for (const std::string& text : found) findings.push_back(format("{}: {} {}", at(file, c), dtype, text));
    }
  return findings;
}

Findings check_kernels(const OpDef& op, Kernels kernels, const CaseFile& file) {
  Findings findings;
  std::set<std::string> used;
  std::map<std::string_view, std::string> declined;  // by variant: why, the last time
  for (const Case& c : file.cases) {
    const auto note = [&](std::string_view what, std::string_view text) {
      findings.push_back(format("{}: {}: {}", at(file, c), what, text));
    };
    const auto want = judge(op, kernels, c);
    if (!want.ok()) {
      note("reference", want.status().message());
      continue;
    }
    if (!c.expected.empty()) {
      std::vector<double> got;
      for (const Array& result : *want) std::ranges::copy(result.values(), std::back_inserter(got));
      if (got.size() != c.expected.size())
        note("reference", format("{} values, the case gives {}", got.size(), c.expected.size()));
      else if (std::string text = difference(got, c.expected, kHandTolerance); !text.empty())
        note("reference", text);
    }
    for (DType dtype : {DType::kF32, DType::kF64}) {
      const auto instance = instance_of(op, c, dtype);
      if (!instance.ok()) continue;  // reported by check_shapes
      for (const cpu::KernelEntry& entry : kernels) {
        const auto kernel = PreparedKernel::prepare(entry, *instance);
        if (!kernel.ok()) {
          declined[entry.variant] = kernel.status().message();
          if (entry.variant == "reference") note("reference", kernel.status().message());
          continue;
        }
        used.insert(std::string(entry.variant));
        const double tolerance = dtype == DType::kF32 ? file.tolerance : kSameInDouble;
        for (const std::string& text :
             check_variant(*kernel, *instance, operands_of(c, dtype), *want, tolerance))
          note(format("{} {}", to_text(dtype), entry.variant), text);
      }
    }
  }
  for (const cpu::KernelEntry& entry : kernels)
    if (!used.contains(std::string(entry.variant)))
      findings.push_back(format("{}: variant {} declines every case, last: {}", file.path, entry.variant,
                                declined[entry.variant]));
  return findings;
}

Findings check_sharding(const OpDef& op, Kernels kernels, const CaseFile& file) {
  Findings findings;
  for (const Case& c : file.cases) {
    const auto want = judge(op, kernels, c);
    if (!want.ok()) continue;  // reported by check_kernels
    for (DType dtype : {DType::kF32, DType::kF64}) {
      const auto instance = instance_of(op, c, dtype);
      if (!instance.ok()) continue;
      ShardingRule rule = instance->rule();
      if (!bind_extents(rule, instance->inputs, instance->outputs).ok()) continue;
      const std::vector<Array> operands = operands_of(c, dtype);
      // Partial results are rounded once each before they are added.
      const double tolerance = dtype == DType::kF32 ? 4 * file.tolerance : kSameInDouble;
      for (const FactorCut& cut : single_factor_cuts(rule))
        for (const cpu::KernelEntry& entry : kernels) {
          const std::string text = run_cut(entry, *instance, rule, cut, operands, *want, tolerance);
          if (!text.empty())
            findings.push_back(format("{}: {} {}: {} [{}]: {}", at(file, c), dtype, entry.variant, cut.name,
                                      to_text(rule), text));
        }
      if (dtype != DType::kF64) continue;
      for (const std::string& text :
           check_linear_sets(*instance, rule, *reference_of(kernels), operands, *want,
                             static_cast<uint64_t>(c.line) * 100 + 50, file.linear_tolerance))
        findings.push_back(format("{}: {}", at(file, c), text));
    }
  }
  return findings;
}

Findings check_cost(const OpDef& op, const CaseFile& file) {
  Findings findings;
  for (const Case& c : file.cases) {
    const auto instance = instance_of(op, c, DType::kF32);
    if (!instance.ok()) continue;
    ShardingRule rule = instance->rule();
    if (!bind_extents(rule, instance->inputs, instance->outputs).ok()) continue;
    const OpCost whole = op.cost(instance->view());
    if (whole.flops < 0 || whole.bytes_read < 0 || whole.bytes_written < 0)
      findings.push_back(format("{}: a cost is negative", at(file, c)));
    double written = 0;
    for (const TensorType& type : instance->outputs) written += static_cast<double>(bytes(type));
    if (whole.bytes_written > written && instance->op->in_place.empty())
      findings.push_back(
          format("{}: {} bytes written, but the results have {}", at(file, c), whole.bytes_written, written));
    for (const FactorCut& cut : single_factor_cuts(rule)) {
      OpCost sum;
      for (size_t part = 0; part < cut.parts.size(); ++part) {
        const auto local = local_instance(*instance, rule, cut, part);
        if (!local.ok()) break;  // reported by check_sharding; the sum then falls short as well
        const OpCost cost = op.cost(local->view());
        sum.flops += cost.flops;
        sum.bytes_read += cost.bytes_read;
        sum.bytes_written += cost.bytes_written;
      }
      const auto compare = [&](std::string_view what, double parts, double total) {
        if (parts < total * (1 - 1e-9))
          findings.push_back(format("{}: {}: the parts' {} sum to {}, the whole has {}", at(file, c),
                                    cut.name, what, parts, total));
      };
      compare("flops", sum.flops, whole.flops);
      compare("bytes read", sum.bytes_read, whole.bytes_read);
      compare("bytes written", sum.bytes_written, whole.bytes_written);
    }
  }
  return findings;
}

Findings check_all(const OpDef& op, Kernels kernels, const CaseFile& file) {
  Findings findings;
  for (const Findings& found :
       {check_shapes(op, kernels, file), check_kernels(op, kernels, file), check_gradient(op, file),
        check_sharding(op, kernels, file), check_cost(op, file)})
    std::ranges::copy(found, std::back_inserter(findings));
  return findings;
}

}  // namespace tessera::conformance
