#include "parallel/propagation.h"

#include <algorithm>
#include <optional>

#include "graph/base/text.h"
#include "parallel/node_sharding.h"
#include "parallel/refine_plan.h"
#include "parallel/reshard.h"
#include "parallel/schedule.h"
#include "parallel/units.h"
#include "parallel/zero.h"

namespace tessera {

namespace {

struct Axes {
  std::vector<AxisId> batch;  // dp, or the groups and the ranks of a group; then ep
  std::vector<AxisId> zero;   // the part of it over which state is spread
  std::optional<AxisId> tp, ep;
};

DeviceMesh make_mesh(const StrategySpec& spec, Axes& axes) {
  DeviceMesh mesh;
  const auto add = [&](std::string name, int32_t size) {
    mesh.axes.push_back({std::move(name), size});
    return static_cast<AxisId>(mesh.axes.size() - 1);
  };
  const bool grouped = spec.zero > 0 && spec.zero_group > 0 && spec.zero_group < spec.dp;
  if (grouped) axes.batch.push_back(add("dp_groups", spec.dp / spec.zero_group));
  if (spec.dp > 1) axes.batch.push_back(add("dp", grouped ? spec.zero_group : spec.dp));
  if (spec.zero > 0 && spec.dp > 1) axes.zero = {axes.batch.back()};
  if (spec.ep > 1) {
    // Last, so that the batch can leave it for the experts by one exchange.
    axes.ep = add("ep", spec.ep);
    axes.batch.push_back(*axes.ep);
    if (spec.zero > 0) axes.zero.push_back(*axes.ep);
  }
  if (spec.tp > 1) axes.tp = add("tp", spec.tp);
  for (int32_t rank = 0; rank < spec.devices(); ++rank) mesh.devices.push_back(rank);
  return mesh;
}

class Propagator {
 public:
  Propagator(const Graph& symbolic, Graph graph, const PropagationOptions& options, int32_t micro_batches)
      : symbolic_(symbolic), graph_(std::move(graph)), options_(options) {
    plan_.stages.resize(1);
    plan_.stages[0].mesh = make_mesh(options.spec, axes_);
    plan_.global_batch = options.global_batch;
    plan_.micro_batches = micro_batches;
    plan_.strategy = to_text(options.spec);
    plan_.graph_fingerprint = symbolic.fingerprint();
  }

  Result<Plan> run() {
    TSR_ASSIGN_OR_RETURN(units_, find_units(graph_));
    TSR_RETURN_IF_ERROR(place_batch());
    start_tensors();
    mark_gradients();
    for (size_t n = 0; n < graph_.nodes().size(); ++n)
      TSR_RETURN_IF_ERROR(visit(NodeId{static_cast<uint32_t>(n)}));
    store();
    return std::move(plan_);
  }

 private:
  const DeviceMesh& mesh() const { return plan_.stages[0].mesh; }
  const Node& node(NodeId id) const { return graph_.node(id); }
  const ShardingRule& rule(NodeId id) const { return units_.rules[index(id)]; }
  int64_t unit(NodeId id, const Factor& factor) const {
    return units_.factors[index(id)][static_cast<size_t>(&factor - rule(id).factors.data())];
  }
  int64_t parts(const std::vector<AxisId>& axes) const {
    int64_t n = 1;
    for (const AxisId axis : axes) n *= mesh().axis_size(axis);
    return n;
  }
  bool admits(NodeId id, const Factor& factor, const std::vector<AxisId>& axes) const {
    return factor.kind != FactorKind::kReplicate && factor.extent / unit(id, factor) >= parts(axes);
  }

  // --- the batch ---

  Status place_batch() {
    for (size_t s = 0; s < symbolic_.symbols().size(); ++s)
      if (symbolic_.symbols()[s].name == "B") batch_extent_ = symbol_extent(static_cast<int32_t>(s));
    for (const Tensor& tensor : symbolic_.tensors()) {
      const auto dims = tensor.type.shape.dims();
      const auto at = batch_extent_ ? std::ranges::find(dims, *batch_extent_) : dims.end();
      batch_dim_.push_back(at == dims.end() ? -1 : static_cast<int>(at - dims.begin()));
    }
    const int64_t each = options_.global_batch / plan_.micro_batches;
    if (each >= parts(axes_.batch)) return {};
    if (!options_.may_replicate_batch)
      return Status(
          StatusCode::kInvalidArgument,
          format(
              "{} sequences in a micro-batch ({} in all) are fewer than dp={}{}; use dp={} or a larger batch",
              each, options_.global_batch, options_.spec.dp,
              axes_.ep ? format(" times ep={}", options_.spec.ep) : "",
              std::max<int64_t>(1, each / options_.spec.ep)));
    batch_whole_ = true;
    return {};
  }

  std::vector<AxisId> batch_axes() const { return batch_whole_ ? std::vector<AxisId>{} : axes_.batch; }

  // --- tensors ---

  void start_tensors() {
    for (size_t t = 0; t < graph_.tensors().size(); ++t) {
      const Tensor& tensor = graph_.tensors()[t];
      ShardingSpec spec = ShardingSpec::replicated(tensor.type.shape.rank());
      const int batch = batch_dim_[t];
      if (batch >= 0 && tensor.kind == TensorKind::kInput)
        spec.dims[static_cast<size_t>(batch)] = {batch_axes(), 1};
      now_.push_back(std::move(spec));
      placed_.push_back(tensor.kind == TensorKind::kInput || tensor.kind == TensorKind::kActivation);
    }
    gradient_of_.assign(graph_.tensors().size(), kNoTensor);
  }

  // Gradients, and the addends that a chain of sums makes them from.
  void mark_gradients() {
    for (const Gradient& gradient : graph_.gradients())
      gradient_of_[index(gradient.gradient)] = gradient.parameter;
    for (size_t n = graph_.nodes().size(); n-- > 0;) {
      const Node& it = graph_.nodes()[n];
      if (it.phase == Phase::kUpdate || it.outputs.size() != 1 ||
          gradient_of_[index(it.outputs[0])] == kNoTensor)
        continue;
      if (!is_sum(units_.rules[n], it)) continue;
      for (const TensorId input : it.inputs)
        if (gradient_of_[index(input)] == kNoTensor)
          gradient_of_[index(input)] = gradient_of_[index(it.outputs[0])];
    }
  }
  static bool is_sum(const ShardingRule& rule, const Node& node) {
    return node.inputs.size() > 1 && std::ranges::any_of(rule.linear, [&](const auto& set) {
             return set.size() == node.inputs.size();
           });
  }

  // --- nodes ---

  Status visit(NodeId id) {
    NodePlan plan;
    if (node(id).phase == Phase::kUpdate) {
      assign_update(id, plan);
    } else {
      TSR_RETURN_IF_ERROR(assign_expert(id, plan));
      assign_batch(id, plan);
      if (axes_.tp) TSR_RETURN_IF_ERROR(assign_tp(id, plan));
    }
    carry_sums(id, plan);
    std::ranges::sort(plan.factor_axes);
    std::ranges::sort(plan.factor_units);
    TSR_ASSIGN_OR_RETURN(const NodeSharding sharding, shard_node(graph_, id, plan, mesh()));
    take_inputs(id, sharding);
    for (size_t o = 0; o < node(id).outputs.size(); ++o)
      now_[index(node(id).outputs[o])] = sharding.outputs[o];
    plan_.nodes.push_back(std::move(plan));
    return {};
  }

  void set(NodeId id, NodePlan& plan, const Factor& factor, const std::vector<AxisId>& axes,
           int64_t unit_of = 0) const {
    if (axes.empty()) return;
    plan.factor_axes.emplace_back(factor.name, axes);
    if (unit_of == 0) unit_of = unit(id, factor);
    if (unit_of != factor.unit) plan.factor_units.emplace_back(factor.name, unit_of);
  }

  void assign_batch(NodeId id, NodePlan& plan) const {
    const auto dims_of = [&](TensorId tensor) { return batch_dim_[index(tensor)]; };
    const auto try_operand = [&](TensorId tensor, const ShardingRule::OperandDims& dims) {
      const int batch = dims_of(tensor);
      if (batch < 0) return false;
      const MajorFactor major = major_factor(rule(id), dims[static_cast<size_t>(batch)]);
      const Factor* factor = major.name == 0 ? nullptr : rule(id).find(major.name);
      if (factor == nullptr || factor->kind == FactorKind::kReplicate) return false;
      set(id, plan, *factor, batch_axes_beside(plan));
      return true;
    };
    for (size_t o = 0; o < node(id).outputs.size(); ++o)
      if (try_operand(node(id).outputs[o], rule(id).outputs[o])) return;
    for (size_t i = 0; i < node(id).inputs.size(); ++i)
      if (try_operand(node(id).inputs[i], rule(id).inputs[i])) return;
  }

  // The batch's axes but for those that the node has on another factor.
  std::vector<AxisId> batch_axes_beside(const NodePlan& plan) const {
    std::vector<AxisId> axes = batch_axes();
    for (const auto& [name, taken] : plan.factor_axes)
      std::erase_if(axes, [&](AxisId axis) { return std::ranges::find(taken, axis) != taken.end(); });
    return axes;
  }

  // Experts. A factor that a weight shares with what it is applied to, and that the result has, counts
  // weights that work side by side: it lies on ep there, and on every node that takes over what arrives so.
  // The batch, which has ep everywhere else, leaves it to that factor.
  Status assign_expert(NodeId id, NodePlan& plan) {
    if (!axes_.ep) return {};
    const Node& it = node(id);
    for (size_t o = 0; o < it.outputs.size(); ++o) {
      const TensorId parameter = gradient_of_[index(it.outputs[o])];
      if (parameter == kNoTensor) continue;
      const Factor* factor = factor_along(id, compute_spec(parameter), rule(id).outputs[o], *axes_.ep);
      if (factor == nullptr) continue;
      set(id, plan, *factor, {*axes_.ep});
      return {};
    }
    for (size_t i = 0; i < it.inputs.size(); ++i) {
      const Tensor& tensor = graph_.tensor(it.inputs[i]);
      if (tensor.kind != TensorKind::kParameter || tensor.type.shape.rank() < 3 || !reads_input(it, i))
        continue;
      const Factor* factor = shared_factor(id, i);
      if (factor == nullptr) continue;
      if (!admits(id, *factor, {*axes_.ep}))
        return Status(
            StatusCode::kInvalidArgument,
            format("ep={} does not fit '{}' of {}: it has {} experts; the nearest that fits is ep={}",
                   options_.spec.ep, tensor.name, describe(graph_, id), factor->extent, factor->extent));
      set(id, plan, *factor, {*axes_.ep});
      return {};
    }
    for (size_t i = 0; i < it.inputs.size(); ++i) {
      if (!reads_input(it, i) || !placed_[index(it.inputs[i])]) continue;
      const Factor* factor = factor_along(id, now_[index(it.inputs[i])], rule(id).inputs[i], *axes_.ep);
      if (factor == nullptr || factor->kind != FactorKind::kPass || factor == batch_factor(id, i) ||
          !admits(id, *factor, {*axes_.ep}))
        continue;
      set(id, plan, *factor, {*axes_.ep});
      return {};
    }
    return {};
  }

  const Factor* shared_factor(NodeId id, size_t weight) const {
    for (const std::string& dim : rule(id).inputs[weight]) {
      const Factor* factor = dim.size() == 1 ? rule(id).find(dim[0]) : nullptr;
      if (factor == nullptr || factor->kind != FactorKind::kPass) continue;
      for (size_t j = 0; j < rule(id).inputs.size(); ++j)
        if (j != weight && batch_dim_[index(node(id).inputs[j])] >= 0 &&
            std::ranges::find(rule(id).inputs[j], dim) != rule(id).inputs[j].end())
          return factor;
    }
    return nullptr;
  }

  const Factor* batch_factor(NodeId id, size_t input) const {
    const int batch = batch_dim_[index(node(id).inputs[input])];
    if (batch < 0) return nullptr;
    const MajorFactor major = major_factor(rule(id), rule(id).inputs[input][static_cast<size_t>(batch)]);
    return major.name == 0 ? nullptr : rule(id).find(major.name);
  }

  // The factor that axis `axis` of a tensor's layout sits on, as this node indexes the tensor.
  const Factor* factor_along(NodeId id, const ShardingSpec& spec, const ShardingRule::OperandDims& dims,
                             AxisId axis) const {
    for (size_t d = 0; d < dims.size(); ++d) {
      if (std::ranges::find(spec.dims[d].axes, axis) == spec.dims[d].axes.end()) continue;
      const MajorFactor major = major_factor(rule(id), dims[d]);
      return major.name == 0 ? nullptr : rule(id).find(major.name);
    }
    return nullptr;
  }

  Status assign_tp(NodeId id, NodePlan& plan) {
    const auto taken = [&](const Factor& factor) {
      return std::ranges::any_of(plan.factor_axes,
                                 [&](const auto& entry) { return entry.first == factor.name; });
    };
    const auto take = [&](const Factor* factor) {
      if (factor == nullptr || taken(*factor) || !admits(id, *factor, {*axes_.tp})) return false;
      set(id, plan, *factor, {*axes_.tp});
      return true;
    };
    const Node& it = node(id);
    for (size_t o = 0; o < it.outputs.size(); ++o) {
      const TensorId parameter = gradient_of_[index(it.outputs[o])];
      if (parameter != kNoTensor &&
          take(factor_along(id, compute_spec(parameter), rule(id).outputs[o], *axes_.tp)))
        return {};
    }
    TSR_ASSIGN_OR_RETURN(const Factor* weight_factor, factor_of_weight(id));
    if (take(weight_factor)) return {};
    // Of operands that arrive split along different factors, the largest keeps its layout.
    const Factor* along = nullptr;
    int64_t largest = -1;
    for (size_t i = 0; i < it.inputs.size(); ++i) {
      if (!reads_input(it, i) || !placed_[index(it.inputs[i])]) continue;
      const Factor* factor = factor_along(id, now_[index(it.inputs[i])], rule(id).inputs[i], *axes_.tp);
      const int64_t elements = graph_.type(it.inputs[i]).shape.elements();
      if (factor == nullptr || taken(*factor) || !admits(id, *factor, {*axes_.tp}) || elements <= largest)
        continue;
      along = factor;
      largest = elements;
    }
    if (take(along) || carries_tp(id)) return {};
    if (options_.spec.sp && weight_factor == nullptr) take(sequence_factor(id));
    return {};
  }

  // All operands are addends over tp and the sum may wait (ALGEBRA rule 3).
  bool carries_tp(NodeId id) const {
    NodePlan plan;
    carry_sums(id, plan);
    return std::ranges::find(plan.carried, *axes_.tp) != plan.carried.end();
  }

  // [B, T, and more]: the dim after the batch.
  const Factor* sequence_factor(NodeId id) const {
    const TensorId output = node(id).outputs[0];
    const int batch = batch_dim_[index(output)];
    if (batch < 0 || graph_.type(output).shape.rank() < batch + 3) return nullptr;
    const MajorFactor major = major_factor(rule(id), rule(id).outputs[0][static_cast<size_t>(batch) + 1]);
    return major.name == 0 ? nullptr : rule(id).find(major.name);
  }

  Result<const Factor*> factor_of_weight(NodeId id) const {
    const Node& it = node(id);
    for (size_t i = 0; i < it.inputs.size(); ++i) {
      const Tensor& tensor = graph_.tensor(it.inputs[i]);
      if (tensor.kind != TensorKind::kParameter || tensor.type.shape.rank() < 2 || !reads_input(it, i))
        continue;
      if (placed_[index(it.inputs[i])])
        return factor_along(id, now_[index(it.inputs[i])], rule(id).inputs[i], *axes_.tp);
      const Factor *contracted = nullptr, *brought = nullptr;
      for (const std::string& dim : rule(id).inputs[i]) {
        const MajorFactor major = major_factor(rule(id), dim);
        const Factor* factor = major.name == 0 ? nullptr : rule(id).find(major.name);
        if (factor != nullptr && factor->kind == FactorKind::kReduce) contracted = factor;
        if (factor != nullptr && factor->kind == FactorKind::kPass) brought = factor;
      }
      if (contracted == nullptr) continue;
      bool shared = false, arrives_split = false;
      for (size_t j = 0; j < it.inputs.size(); ++j) {
        if (j == i) continue;
        for (const std::string& dim : rule(id).inputs[j])
          shared = shared || dim.find(contracted->name) != std::string::npos;
        arrives_split = arrives_split || factor_along(id, now_[index(it.inputs[j])], rule(id).inputs[j],
                                                      *axes_.tp) == contracted;
      }
      if (!shared) return admits(id, *contracted, {*axes_.tp}) ? contracted : nullptr;
      if (arrives_split) return contracted;
      if (brought == nullptr || admits(id, *brought, {*axes_.tp})) return brought;
      const int64_t most = brought->extent / unit(id, *brought);
      return Status(StatusCode::kInvalidArgument, format("tp={} does not fit '{}' of {}: its {} columns come "
                                                         "in {} whole units of {} (heads, KV groups); the "
                                                         "nearest that fits is tp={}",
                                                         options_.spec.tp, tensor.name, describe(graph_, id),
                                                         brought->extent, most, unit(id, *brought), most));
    }
    return static_cast<const Factor*>(nullptr);
  }

  // Update nodes run where the state of their parameter lies.
  void assign_update(NodeId id, NodePlan& plan) {
    const Node& it = node(id);
    for (size_t i = 0; i < it.inputs.size(); ++i) {
      const TensorId parameter = graph_.tensor(it.inputs[i]).kind == TensorKind::kParameter
                                     ? it.inputs[i]
                                     : gradient_of_[index(it.inputs[i])];
      if (parameter == kNoTensor || !reads_input(it, i)) continue;
      const ShardingSpec& spec = state_spec(parameter);
      for (size_t d = 0; d < spec.dims.size(); ++d) {
        const std::string& dim = rule(id).inputs[i][d];
        const Factor* factor = dim.size() == 1 ? rule(id).find(dim[0]) : nullptr;
        if (factor != nullptr && factor->kind != FactorKind::kReplicate)
          set(id, plan, *factor, spec.dims[d].axes, spec.dims[d].unit);
      }
      return;
    }
  }

  void carry_sums(NodeId id, NodePlan& plan) const {
    const Node& it = node(id);
    for (size_t s = 0; s < rule(id).linear.size(); ++s) {
      const std::vector<int>& set = rule(id).linear[s];
      if (set.empty() || !others_are_scalars(id, set)) continue;
      std::vector<AxisId> carried;
      int64_t in_elements = 0;
      for (const int i : set)
        in_elements = std::max(in_elements, graph_.type(it.inputs[static_cast<size_t>(i)]).shape.elements());
      if (graph_.type(it.outputs[0]).shape.elements() > in_elements) continue;
      for (size_t a = 0; a < mesh().axes.size(); ++a) {
        const auto axis = static_cast<AxisId>(a);
        const auto partial = [&](int i) {
          const ShardingSpec& spec = now_[index(it.inputs[static_cast<size_t>(i)])];
          return spec.reduce == ReduceKind::kSum &&
                 std::ranges::find(spec.partial, axis) != spec.partial.end();
        };
        const bool scalar =
            graph_.type(it.outputs[0]).shape.rank() == 0;  // an addend more or less costs nothing
        const bool all = scalar ? std::ranges::any_of(set, partial) : std::ranges::all_of(set, partial);
        const bool used = std::ranges::any_of(plan.factor_axes, [&](const auto& entry) {
          return std::ranges::find(entry.second, axis) != entry.second.end();
        });
        if (all && !used) carried.push_back(axis);
      }
      if (carried.empty()) continue;
      plan.carried = carried;
      plan.carry_set = static_cast<int32_t>(s);
      return;
    }
  }
  bool others_are_scalars(NodeId id, const std::vector<int>& set) const {
    for (size_t i = 0; i < node(id).inputs.size(); ++i)
      if (std::ranges::find(set, static_cast<int>(i)) == set.end() && reads_input(node(id), i) &&
          graph_.type(node(id).inputs[i]).shape.rank() > 0)
        return false;
    return true;
  }

  // What reading does to the layouts: the first use places a parameter or state, and a sum that was resolved
  // for one reader stays so for the next.
  void take_inputs(NodeId id, const NodeSharding& sharding) {
    for (size_t i = 0; i < node(id).inputs.size(); ++i) {
      const TensorId input = node(id).inputs[i];
      if (!reads_input(node(id), i)) continue;
      ShardingSpec wanted = sharding.inputs[i];
      if (!placed_[index(input)]) {
        wanted.partial.clear();
        if (node(id).phase != Phase::kUpdate) now_[index(input)] = wanted, placed_[index(input)] = true;
      } else if (!now_[index(input)].partial.empty() && wanted.partial.empty()) {
        now_[index(input)] = wanted;
      }
    }
  }

  const ShardingSpec& compute_spec(TensorId parameter) const { return now_[index(parameter)]; }

  const ShardingSpec& state_spec(TensorId parameter) {
    const auto at = state_specs_.find(parameter);
    if (at != state_specs_.end()) return at->second;
    const Shape& shape = graph_.type(parameter).shape;
    std::vector<AxisId> axes = axes_.zero;  // but for those that the experts lie on already
    std::erase_if(axes, [&](AxisId axis) { return compute_spec(parameter).uses(axis); });
    ShardingSpec spec = spread(compute_spec(parameter), axes, shape, mesh());
    return state_specs_.emplace(parameter, std::move(spec)).first->second;
  }

  // --- what is stored where ---

  void store() {
    const int32_t zero = options_.spec.zero;
    std::map<TensorId, ShardingSpec> stored;
    for (size_t t = 0; t < graph_.tensors().size(); ++t) {
      const TensorId id{static_cast<uint32_t>(t)};
      const Tensor& tensor = graph_.tensor(id);
      if (tensor.kind == TensorKind::kActivation) continue;
      stored[id] = now_[t];
      if (tensor.kind == TensorKind::kParameter && zero == 3) stored[id] = state_spec(id);
    }
    for (const Gradient& gradient : graph_.gradients()) {
      ShardingSpec spec = produced(gradient.gradient);
      if (zero >= 2) {
        // Spread over the zero axes at once; what else is partial waits until all micro-batches are in.
        const ShardingSpec& state = state_spec(gradient.parameter);
        std::erase_if(spec.partial, [&](AxisId axis) { return state.uses(axis); });
        spec.dims = state.dims;
      }
      stored[gradient.gradient] = spec;
    }
    for (size_t n = 0; n < graph_.nodes().size(); ++n) store_state(NodeId{static_cast<uint32_t>(n)}, stored);
    for (auto& [id, spec] : stored) {
      const Tensor& tensor = graph_.tensor(id);
      const auto kept = options_.stored.find(tensor.name);
      if (kept != options_.stored.end() && tensor.kind != TensorKind::kInput &&
          tensor.kind != TensorKind::kActivation)
        spec = kept->second;
      plan_.stored.push_back({id, {{0, spec, Tier::kDevice}}});
    }
  }

  // Optimizer state lies where its update node wants it.
  void store_state(NodeId id, std::map<TensorId, ShardingSpec>& stored) const {
    if (node(id).phase != Phase::kUpdate) return;
    const auto sharding = shard_node(graph_, id, plan_.nodes[index(id)], mesh());
    if (!sharding.ok()) return;
    for (size_t i = 0; i < node(id).inputs.size(); ++i)
      if (graph_.tensor(node(id).inputs[i]).kind == TensorKind::kState && !placed_[index(node(id).inputs[i])])
        stored[node(id).inputs[i]] = sharding->inputs[i];
  }

  ShardingSpec produced(TensorId id) const {
    const Tensor& tensor = graph_.tensor(id);
    if (tensor.producer == kNoNode) return now_[index(id)];
    const auto sharding = shard_node(graph_, tensor.producer, plan_.nodes[index(tensor.producer)], mesh());
    return sharding.ok() ? sharding->outputs[tensor.output_index] : now_[index(id)];
  }

  const Graph& symbolic_;
  const Graph graph_;
  const PropagationOptions& options_;
  Plan plan_;
  Axes axes_;
  Units units_;
  std::optional<int64_t> batch_extent_;
  bool batch_whole_ = false;
  std::vector<int> batch_dim_;         // by tensor
  std::vector<ShardingSpec> now_;      // by tensor: as the next reader finds it
  std::vector<bool> placed_;           // parameters and state: a node has used it and settled its layout
  std::vector<TensorId> gradient_of_;  // by tensor
  std::map<TensorId, ShardingSpec> state_specs_;
};

Result<int32_t> micro_batches(const StrategySpec& spec, int64_t global_batch) {
  if (spec.micro_batch == 0) return 1;
  const int64_t at_once = spec.micro_batch * spec.data();
  if (global_batch % at_once == 0) return static_cast<int32_t>(global_batch / at_once);
  return Status(
      StatusCode::kInvalidArgument,
      format("a batch of {} sequences is not a multiple of dp={} times mb={}; use mb= a divisor of {}",
             global_batch, spec.dp, spec.micro_batch,
             global_batch % spec.dp == 0 ? global_batch / spec.dp : global_batch));
}

// What the words may say and plans do not carry out yet.
Status check_known(const StrategySpec& spec) {
  const auto refuse = [&](std::string_view what) {
    return Status(StatusCode::kUnsupported,
                  format("parallel: {} is not carried out yet (in '{}')", what, to_text(spec)));
  };
  if (spec.form != TensorForm::k1d && spec.tp > 1) return refuse("tp in two or three dimensions");
  if (spec.cp > 1) return refuse("cp");
  if (spec.pp > 1) return refuse("pp");
  return {};
}

}  // namespace

Result<Plan> propagate(const Graph& graph, const PropagationOptions& options) {
  TSR_RETURN_IF_ERROR(check_known(options.spec));
  if (options.global_batch < 1)
    return Status(StatusCode::kInvalidArgument,
                  format("a batch of {} sequences; at least 1 is wanted", options.global_batch));
  if (options.spec.zero_group > 0 && options.spec.dp % options.spec.zero_group != 0)
    return Status(StatusCode::kInvalidArgument,
                  format("zero groups of {} do not divide dp={}", options.spec.zero_group, options.spec.dp));
  TSR_ASSIGN_OR_RETURN(const int32_t count, micro_batches(options.spec, options.global_batch));
  const std::pair<std::string, int64_t> batch("B", options.global_batch / count);
  const bool has_batch = std::ranges::any_of(graph.symbols(), [](const Symbol& s) { return s.name == "B"; });
  TSR_ASSIGN_OR_RETURN(Graph bound, graph.bind(std::span(&batch, has_batch ? 1 : 0)));
  TSR_ASSIGN_OR_RETURN(Plan plan, Propagator(graph, bound, options, count).run());
  TSR_RETURN_IF_ERROR(refine_plan(bound, options.spec, plan));
  return plan;
}

Result<Plan> apply_strategy(const Graph& graph, const StrategySpec& spec, int64_t global_batch) {
  PropagationOptions options;
  options.spec = spec;
  options.global_batch = global_batch;
  return propagate(graph, options);
}

}  // namespace tessera
