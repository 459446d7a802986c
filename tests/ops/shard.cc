#include "tests/ops/shard.h"

#include "graph/base/text.h"
#include "graph/sharding_spec.h"

namespace tessera::conformance {

namespace {

bool holds(const FactorView& view, int64_t index) {
  for (int r = 0; r < view.range_count; ++r)
    if (index >= view.begin[r] && index < view.end[r]) return true;
  return false;
}

int64_t local_extent(const FactorView& view) {
  int64_t extent = 0;
  for (int r = 0; r < view.range_count; ++r) extent += view.end[r] - view.begin[r];
  return extent;
}

// The indices of one dim (a product of factors, major to minor) that the part holds.
std::vector<int64_t> picks(const std::string& product, int64_t extent, const ShardingRule& rule,
                           const FactorView& part) {
  const size_t at = product.find(part.name);
  int64_t stride = 1;
  if (at != std::string::npos)
    for (size_t i = at + 1; i < product.size(); ++i) stride *= rule.find(product[i])->extent;
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < extent; ++i)
    if (at == std::string::npos || holds(part, i / stride % part.global_extent)) indices.push_back(i);
  return indices;
}

Shape local_shape(const ShardingRule::OperandDims& dims, const Shape& shape, const ShardingRule& rule,
                  const FactorView& part) {
  Shape local;
  for (int dim = 0; dim < shape.rank(); ++dim)
    local.push_back(
        static_cast<int64_t>(picks(dims[static_cast<size_t>(dim)], shape[dim], rule, part).size()));
  return local;
}

}  // namespace

bool has_factor(const ShardingRule::OperandDims& dims, char factor) {
  for (const std::string& product : dims)
    if (product.find(factor) != std::string::npos) return true;
  return false;
}

std::vector<FactorCut> single_factor_cuts(const ShardingRule& rule) {
  std::vector<FactorCut> cuts;
  for (const Factor& factor : rule.factors) {
    // Phased factors are cut in the ops of the phases (check_phases).
    if (factor.kind == FactorKind::kReplicate || factor.kind == FactorKind::kPhased || factor.extent == 0)
      continue;
    const Range whole{0, factor.extent};
    for (int32_t count : {2, 3}) {
      FactorCut cut{factor, format("{} on {} parts", factor.name, count), {}};
      for (int32_t part = 0; part < count; ++part) {
        const Range range = split_range(whole, factor.unit, count, part);
        cut.parts.push_back({factor.name, factor.extent, factor.unit, 1, {range.begin, 0}, {range.end, 0}});
      }
      cuts.push_back(std::move(cut));
    }
    if (factor.extent / factor.unit < 4) continue;
    FactorCut cut{factor, format("{} on 2 parts of two ranges", factor.name), {}};
    for (int32_t part = 0; part < 2; ++part) {
      const Range first = split_range(whole, factor.unit, 4, part),
                  second = split_range(whole, factor.unit, 4, 3 - part);
      cut.parts.push_back(
          {factor.name, factor.extent, factor.unit, 2, {first.begin, second.begin}, {first.end, second.end}});
    }
    cuts.push_back(std::move(cut));
  }
  return cuts;
}

Result<OpInstance> local_instance(const OpInstance& whole, const ShardingRule& rule, const FactorCut& cut,
                                  size_t part) {
  OpInstance local = whole;
  const FactorView& view = cut.parts[part];
  for (size_t i = 0; i < local.inputs.size(); ++i)
    local.inputs[i].shape = local_shape(rule.inputs[i], whole.inputs[i].shape, rule, view);
  for (size_t o = 0; o < local.outputs.size(); ++o)
    local.outputs[o].shape = local_shape(rule.outputs[o], whole.outputs[o].shape, rule, view);
  for (FactorView& factor : local.factors)
    if (factor.name == view.name) factor = view;
  TSR_ASSIGN_OR_RETURN(const std::vector<TensorType> inferred, whole.op->infer(local.inputs, local.attrs));
  if (inferred.size() != local.outputs.size())
    return Status(StatusCode::kInternal, "infer gives another number of results on local shapes");
  for (size_t o = 0; o < inferred.size(); ++o)
    if (!(inferred[o] == local.outputs[o]))
      return Status(StatusCode::kInternal,
                    format("part {} ({} of {}): infer gives {} for result {}, the rule {}", part,
                           local_extent(view), view.global_extent, inferred[o], o, local.outputs[o]));
  return local;
}

std::vector<int64_t> elements_of(const ShardingRule::OperandDims& dims, const Shape& shape,
                                 const ShardingRule& rule, const FactorView& part) {
  std::vector<int64_t> elements = {0};
  for (int dim = 0; dim < shape.rank(); ++dim) {
    const std::vector<int64_t> indices = picks(dims[static_cast<size_t>(dim)], shape[dim], rule, part);
    std::vector<int64_t> next;
    for (int64_t element : elements)
      for (int64_t i : indices) next.push_back(element * shape[dim] + i);
    elements = std::move(next);
  }
  return elements;
}

}  // namespace tessera::conformance
