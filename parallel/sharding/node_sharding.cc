// Factors get their axes from the plan. An operand's spec follows from the factors of its dims; a sharded reduction leaves
// outputs partial over its axes.
#include "parallel/sharding/node_sharding.h"

#include <algorithm>
#include <optional>

#include "graph/base/cancellation.h"
#include "graph/base/text.h"

namespace tessera {

namespace {

std::vector<TensorType> types_of(const Graph& graph, std::span<const TensorId> ids) {
  std::vector<TensorType> types;
  for (const TensorId id : ids) types.push_back(graph.type(id));
  return types;
}

bool has_factor(const ShardingRule::OperandDims& dims, char name) {
  return std::ranges::any_of(dims,
                             [&](const std::string& dim) { return dim.find(name) != std::string::npos; });
}

// OperandSpecs: the specs of a node's operands from its factor splits.
class OperandSpecs {
 public:
  OperandSpecs(NodeSharding& sharding, const NodePlan& plan, const DeviceMesh& mesh)
      : s_(sharding), plan_(plan), mesh_(mesh) {}

  Status make() {
    for (const auto& dims : s_.rule.inputs) {
      TSR_ASSIGN_OR_RETURN(ShardingSpec spec, split_dims(dims));
      s_.inputs.push_back(std::move(spec));
    }
    for (const auto& dims : s_.rule.outputs) {
      TSR_ASSIGN_OR_RETURN(ShardingSpec spec, split_dims(dims));
      TSR_RETURN_IF_ERROR(add_reductions(spec, dims));
      s_.outputs.push_back(std::move(spec));
    }
    want_addends();
    TSR_RETURN_IF_ERROR(carry());
    for (auto* specs : {&s_.inputs, &s_.outputs})
      for (ShardingSpec& spec : *specs) {
        std::ranges::sort(spec.partial);
        spec.partial.erase(std::ranges::unique(spec.partial).begin(), spec.partial.end());
      }
    return {};
  }

 private:
  // A dim is a product of factors, major to minor. Axes may be on the first
  // factor of an extent other than 1; later factors multiply the unit. They
  // may be on the next one too if every part of the first is a single step (a
  // KV head each, its queries spread further): the parts are still one range.
  Result<ShardingSpec> split_dims(const ShardingRule::OperandDims& dims) const {
    ShardingSpec spec = ShardingSpec::replicated(static_cast<int>(dims.size()));
    for (size_t d = 0; d < dims.size(); ++d) {
      bool major = true;
      for (const char name : dims[d]) {
        const DimSharding& split = split_of(name);
        DimSharding& dim = spec.dims[d];
        const int64_t extent = s_.rule.find(name)->extent;
        if (!split.axes.empty() && !major)
          return Status(
              StatusCode::kUnsupported,
              format("factor '{}' of {} is the minor part of dim ({}); axes must sit on its first factor",
                     name, to_text(s_.rule), dims[d]));
        if (!split.axes.empty()) {
          append(dim.axes, split.axes);
          dim.unit = split.unit;
          dim.first = split.first;
        } else if (!dim.axes.empty()) {
          dim.unit *= extent;
        }
        if (extent != 1) major = !split.axes.empty() && parts_of(split) == extent;
      }
    }
    return spec;
  }

  int64_t parts_of(const DimSharding& split) const {
    int64_t parts = 1;
    for (const AxisId axis : split.axes) parts *= mesh_.axis_size(axis);
    return parts;
  }

  Status add_reductions(ShardingSpec& spec, const ShardingRule::OperandDims& dims) const {
    bool first = true;
    for (size_t f = 0; f < s_.rule.factors.size(); ++f) {
      const Factor& factor = s_.rule.factors[f];
      if (factor.kind != FactorKind::kReduce || s_.factors[f].axes.empty() || has_factor(dims, factor.name))
        continue;
      if (!first && spec.reduce != factor.reduce)
        return Status(StatusCode::kUnsupported,
                      format("{}: one output would be a sum over some axes and a maximum over others",
                             to_text(s_.rule)));
      first = false;
      spec.reduce = factor.reduce;
      spec.partial.insert(spec.partial.end(), s_.factors[f].axes.begin(), s_.factors[f].axes.end());
    }
    return {};
  }

  void want_addends() {
    for (size_t f = 0; f < s_.rule.factors.size(); ++f) {
      const Factor& factor = s_.rule.factors[f];
      if (factor.kind != FactorKind::kReduce || factor.reduce != ReduceKind::kSum ||
          s_.factors[f].axes.empty())
        continue;
      const auto has = [&](int input) {
        return has_factor(s_.rule.inputs[static_cast<size_t>(input)], factor.name);
      };
      for (const std::vector<int>& set : s_.rule.linear) {
        if (std::ranges::none_of(set, has)) continue;
        for (const int input : set)
          if (!has(input)) append(s_.inputs[static_cast<size_t>(input)].partial, s_.factors[f].axes);
      }
    }
  }

  Status carry() {
    if (plan_.carried.empty()) return {};
    if (plan_.carry_set < 0 || static_cast<size_t>(plan_.carry_set) >= s_.rule.linear.size())
      return Status(StatusCode::kInvalidArgument,
                    format("carries a sum through linear set {}, {} has {}", plan_.carry_set,
                           to_text(s_.rule), s_.rule.linear.size()));
    for (const AxisId axis : plan_.carried)
      if (axis >= mesh_.axes.size())
        return Status(StatusCode::kInvalidArgument,
                      format("carries a sum over axis {}, the mesh has {}", axis, mesh_.axes.size()));
    for (const AxisId axis : plan_.carried)
      for (const DimSharding& split : s_.factors)
        if (std::ranges::find(split.axes, axis) != split.axes.end())
          return Status(
              StatusCode::kInvalidArgument,
              format("carries a sum over axis '{}', which also splits a factor", mesh_.axes[axis].name));
    for (const int input : s_.rule.linear[static_cast<size_t>(plan_.carry_set)])
      append(s_.inputs[static_cast<size_t>(input)].partial, plan_.carried);
    for (ShardingSpec& output : s_.outputs) {
      if (!output.partial.empty() && output.reduce != ReduceKind::kSum)
        return Status(StatusCode::kUnsupported, "a maximum cannot carry a sum");
      append(output.partial, plan_.carried);
    }
    return {};
  }

  static void append(std::vector<AxisId>& to, const std::vector<AxisId>& axes) {
    to.insert(to.end(), axes.begin(), axes.end());
  }
  const DimSharding& split_of(char name) const {
    return s_.factors[static_cast<size_t>(s_.rule.find(name) - s_.rule.factors.data())];
  }

  NodeSharding& s_;
  const NodePlan& plan_;
  const DeviceMesh& mesh_;
};

std::optional<int32_t> first_of(const NodePlan& plan, char factor) {
  const auto at = std::ranges::find(plan.factor_firsts, factor, &std::pair<char, int32_t>::first);
  return at == plan.factor_firsts.end() ? std::nullopt : std::optional(at->second);
}

Status assign_factors(NodeSharding& sharding, const NodePlan& plan, const DeviceMesh& mesh) {
  sharding.factors.assign(sharding.rule.factors.size(), {});
  std::vector<bool> used(mesh.axes.size());
  for (const auto& [name, axes] : plan.factor_axes) {
    Factor* factor = sharding.rule.find(name);
    if (factor == nullptr)
      return Status(StatusCode::kInvalidArgument,
                    format("the plan splits factor '{}', {} has none", name, to_text(sharding.rule)));
    if (axes.empty()) continue;
    if (factor->kind == FactorKind::kReplicate && !first_of(plan, name))
      return Status(StatusCode::kInvalidArgument,
                    format("the plan splits factor '{}' of {}, which the op needs whole", name,
                           to_text(sharding.rule)));
    DimSharding& split = sharding.factors[static_cast<size_t>(factor - sharding.rule.factors.data())];
    split = {axes, factor->unit, 0};
    for (const AxisId axis : axes) {
      if (axis >= mesh.axes.size() || used[axis])
        return Status(StatusCode::kInvalidArgument,
                      format("factor '{}' of {}: axis {} is unknown or used twice", name,
                             to_text(sharding.rule), axis));
      used[axis] = true;
    }
  }
  for (const auto& [name, unit] : plan.factor_units) {
    const Factor* factor = sharding.rule.find(name);
    if (factor == nullptr || unit < 1 || factor->extent % unit != 0 || unit % factor->unit != 0)
      return Status(StatusCode::kInvalidArgument,
                    format("unit {} does not fit factor '{}' of {}", unit, name, to_text(sharding.rule)));
    DimSharding& split = sharding.factors[static_cast<size_t>(factor - sharding.rule.factors.data())];
    if (!split.axes.empty()) split.unit = unit;
  }
  for (size_t f = 0; f < sharding.factors.size(); ++f) {
    DimSharding& split = sharding.factors[f];
    int64_t parts = 1;
    for (const AxisId axis : split.axes) parts *= mesh.axis_size(axis);
    const Factor& factor = sharding.rule.factors[f];
    if (const auto first = first_of(plan, factor.name)) {
      if (*first < 0 || *first >= parts)
        return Status(StatusCode::kInvalidArgument,
                      format("factor '{}' of {}: larger parts begin at part {} of {}", factor.name,
                             to_text(sharding.rule), *first, parts));
      if (factor.kind == FactorKind::kReplicate && split.unit != factor.extent)
        return Status(StatusCode::kInvalidArgument,
                      format("factor '{}' of {}, which the op needs whole, has an owner in units of {} of {}",
                             factor.name, to_text(sharding.rule), split.unit, factor.extent));
      split.first = *first;
      continue;
    }
    if (parts > 1 && factor.extent / split.unit < parts)
      return Status(StatusCode::kInvalidArgument,
                    format("factor '{}' of {} (extent {} in units of {}) cannot be split {} ways; at most {}",
                           factor.name, to_text(sharding.rule), factor.extent, split.unit, parts,
                           factor.extent / split.unit));
  }
  return {};
}

}  // namespace

bool needs_whole(const ShardingRule& rule) {
  return !rule.factors.empty() && std::ranges::all_of(rule.factors, [](const Factor& factor) {
    return factor.kind == FactorKind::kReplicate;
  });
}

std::string describe(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  return format("{} {}{}", node.op->name, static_cast<int64_t>(index(id)),
                node.scope.empty() ? "" : " (" + node.scope + ")");
}

Result<ShardingRule> rule_of(const Graph& graph, const Node& node) {
  cancellation_point();
  const std::vector<TensorType> inputs = types_of(graph, node.inputs),
                                outputs = types_of(graph, node.outputs);
  if (node.op->sharding == nullptr)
    return Status(StatusCode::kUnsupported, format("op '{}' has no sharding rule", node.op->name));
  ShardingRule rule = node.op->sharding({node.attrs, inputs, outputs, {}});
  TSR_RETURN_IF_ERROR(bind_extents(rule, inputs, outputs));
  return rule;
}

Result<NodeSharding> shard_node(const Graph& graph, NodeId id, const NodePlan& plan, const DeviceMesh& mesh) {
  NodeSharding sharding;
  const auto fail = [&](const Status& status) { return status.with_context(describe(graph, id)); };
  auto rule = rule_of(graph, graph.node(id));
  if (!rule.ok()) return fail(rule.status());
  sharding.rule = std::move(*rule);
  if (Status status = assign_factors(sharding, plan, mesh); !status.ok()) return fail(status);
  if (Status status = OperandSpecs(sharding, plan, mesh).make(); !status.ok()) return fail(status);
  return sharding;
}

std::vector<FactorView> factor_views(const NodeSharding& sharding, const DeviceMesh& mesh,
                                     std::span<const int32_t> coordinates) {
  std::vector<FactorView> views;
  for (size_t f = 0; f < sharding.factors.size(); ++f) {
    const Factor& factor = sharding.rule.factors[f];
    const Range range = local_range(factor.extent, sharding.factors[f], mesh, coordinates);
    FactorView view;
    view.name = factor.name;
    view.global_extent = factor.extent;
    view.unit = sharding.factors[f].axes.empty() ? factor.unit : sharding.factors[f].unit;
    // Kernels recognise the shard that begins at 0; an empty shard is placed at the factor's end.
    const bool is_empty = range.begin == range.end;
    view.begin[0] = is_empty ? factor.extent : range.begin;
    view.end[0] = is_empty ? factor.extent : range.end;
    views.push_back(view);
  }
  return views;
}

}  // namespace tessera
