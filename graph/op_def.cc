#include "graph/op_def.h"

#include <algorithm>
#include <numeric>

#include "graph/base/text.h"

namespace tessera {

namespace {

// Solves the extents of a rule's factors from operand dims, each of which is a product of factors.
class ExtentSolver {
 public:
  explicit ExtentSolver(ShardingRule& rule) : rule_(rule), known_(rule.factors.size()) {}

  Status add(std::string_view which, const std::vector<ShardingRule::OperandDims>& dims,
             std::span<const TensorType> types) {
    if (dims.size() != types.size())
      return Status(StatusCode::kInvalidArgument, format("rule {}: {} operands in the rule, {} {} given",
                                                         to_text(rule_), dims.size(), types.size(), which));
    for (size_t operand = 0; operand < dims.size(); ++operand) {
      const Shape& shape = types[operand].shape;
      if (static_cast<int>(dims[operand].size()) != shape.rank())
        return Status(StatusCode::kInvalidArgument,
                      format("rule {}: {} {} is [{}], the rule gives it {} dims", to_text(rule_), which,
                             operand, shape, dims[operand].size()));
      for (int dim = 0; dim < shape.rank(); ++dim) {
        const std::string& product = dims[operand][static_cast<size_t>(dim)];
        if (!product.empty()) equations_.push_back({product, shape[dim], which, operand, dim});
      }
    }
    return {};
  }

  Status solve() {
    for (bool progress = true; progress;) {
      progress = false;
      for (const Equation& equation : equations_) {
        Result<bool> solved = solve_one(equation);
        if (!solved.ok()) return solved.status();
        progress |= *solved;
      }
    }
    for (size_t i = 0; i < known_.size(); ++i)
      if (!known_[i] && rule_.factors[i].extent == 0)
        return Status(StatusCode::kInvalidArgument,
                      format("rule {}: the operand shapes do not determine factor '{}'", to_text(rule_),
                             rule_.factors[i].name));
    return {};
  }

 private:
  struct Equation {
    std::string_view product;
    int64_t extent;
    std::string_view which;
    size_t operand;
    int dim;
  };

  // Solves one equation; true when it made a factor known.
  Result<bool> solve_one(const Equation& equation) {
    int64_t known_product = 1;  // a symbol only ever multiplies ones
    size_t unknown = known_.size(), unknown_count = 0;
    for (char name : equation.product) {
      const size_t factor = static_cast<size_t>(rule_.find(name) - rule_.factors.data());
      if (!known_[factor]) {
        unknown = factor;
        ++unknown_count;
        continue;
      }
      const int64_t extent = rule_.factors[factor].extent;
      if ((is_symbol(known_product) && extent != 1) || (is_symbol(extent) && known_product != 1))
        return Status(StatusCode::kUnsupported,
                      format("rule {}: dim {} of {} {} is a product that contains a symbol; bind it first",
                             to_text(rule_), equation.dim, equation.which, equation.operand));
      known_product *= extent;
    }
    if (unknown_count > 1) return false;
    if (unknown_count == 0) {
      if (known_product != equation.extent) return mismatch(equation, known_product);
      return false;
    }
    int64_t extent = equation.extent;
    if (known_product != 1) {
      if (known_product == 0 && equation.extent == 0)
        return false;  // any extent fits: another operand decides
      if (is_symbol(known_product) || is_symbol(extent) || known_product == 0 || extent % known_product != 0)
        return mismatch(equation, known_product);
      extent /= known_product;
    }
    rule_.factors[unknown].extent = extent;
    known_[unknown] = true;
    return true;
  }

  Status mismatch(const Equation& equation, int64_t product) const {
    return Status(StatusCode::kInvalidArgument,
                  format("rule {}: extents differ: dim {} of {} {} is {}, the other operands make ({}) {}",
                         to_text(rule_), equation.dim, equation.which, equation.operand,
                         to_text(Shape{equation.extent}), equation.product, to_text(Shape{product})));
  }

  ShardingRule& rule_;
  std::vector<bool> known_;
  std::vector<Equation> equations_;
};

// The last dim of a block type is cut in whole blocks: the unit of its major factor in steps of that factor.
void bind_units(ShardingRule& rule, const ShardingRule::OperandDims& dims, const TensorType& type) {
  const int64_t block = info(type.dtype).block_elements;
  if (block == 1 || dims.empty()) return;
  int64_t span = 1;  // elements of the dim that one step of the factor covers
  Factor* major = nullptr;
  for (const char name : dims.back()) {
    Factor* factor = rule.find(name);
    if (major == nullptr && (factor->extent != 1 || name == dims.back().back())) {
      major = factor;
    } else if (major != nullptr) {
      span *= std::max<int64_t>(1, factor->extent);
    }
  }
  if (major != nullptr) major->unit = std::lcm(major->unit, block / std::gcd(block, span));
}

}  // namespace

bool has_default_attrs(const OpDef& op, std::span<const Attr> attrs) {
  return std::ranges::all_of(attrs, [&](const Attr& attr) {
    const auto spec = std::ranges::find(op.attrs, attr.name, &AttrSpec::name);
    return spec != op.attrs.end() && spec->default_value == attr.value;
  });
}

int first_segment(const OpDef& op, std::span<const Attr> attrs) {
  if (op.context.segments < 0) return -1;
  if (op.context.added_operands != nullptr) return op.context.segments + op.context.added_operands(attrs);
  return op.context.segments + static_cast<int>(attr_i64_or(attrs, "bias", 0));
}

bool is_implied(const OpDef& op, const Attr& attr) {
  const auto spec = std::ranges::find(op.attrs, attr.name, &AttrSpec::name);
  return spec != op.attrs.end() && spec->is_late && spec->default_value == attr.value;
}

Status bind_extents(ShardingRule& rule, std::span<const TensorType> inputs,
                    std::span<const TensorType> outputs) {
  ExtentSolver solver(rule);
  TSR_RETURN_IF_ERROR(solver.add("input", rule.inputs, inputs));
  TSR_RETURN_IF_ERROR(solver.add("output", rule.outputs, outputs));
  TSR_RETURN_IF_ERROR(solver.solve());
  for (size_t i = 0; i < inputs.size(); ++i) bind_units(rule, rule.inputs[i], inputs[i]);
  for (size_t i = 0; i < outputs.size(); ++i) bind_units(rule, rule.outputs[i], outputs[i]);
  return {};
}

}  // namespace tessera
