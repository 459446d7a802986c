// One walk in graph order: a node's factors get axes for experts, sequence, features and batch, as far as its inputs'
// layouts and sizes admit; its results carry the layouts on.
#include "parallel/strategy/propagator.h"

#include <algorithm>
#include <span>

#include "graph/base/cancellation.h"
#include "graph/base/text.h"
#include "parallel/sharding/rule_factors.h"
#include "parallel/sharding/schedule.h"

namespace tessera {

namespace {

bool is_real(DType dtype) { return dtype != DType::kI32 && dtype != DType::kI64; }

bool is_sum(const ShardingRule& rule, const Node& node) {
  return node.inputs.size() > 1 &&
         std::ranges::any_of(rule.linear, [&](const auto& set) { return set.size() == node.inputs.size(); });
}

// The largest grid of this form with at most `rows` parts of the batch.
StrategySpec smaller_grid(StrategySpec spec, int64_t rows) {
  auto& [x, y, z] = spec.grid;
  if (spec.form == TensorForm::k2d) {
    x = static_cast<int32_t>(rows);
  } else if (spec.form == TensorForm::k25d) {
    z = static_cast<int32_t>(std::max<int64_t>(1, rows / x));
    while (x * z > rows) x = y = x - 1;
  } else {
    while (x * x > rows) x = y = z = x - 1;
  }
  return spec;
}

}  // namespace

Propagator::Propagator(const Graph& symbolic, Graph graph, const PropagationOptions& options,
                       int32_t micro_batches)
    : symbolic_(symbolic), graph_(std::move(graph)), options_(options) {
  plan_.stages.resize(1);
  plan_.global_batch = options.global_batch;
  plan_.micro_batches = micro_batches;
  plan_.strategy = to_text(options.spec);
  plan_.graph_fingerprint = symbolic.fingerprint();
}

Result<Plan> Propagator::run() {
  TSR_ASSIGN_OR_RETURN(units_, find_units(graph_));
  plan_.stages[0].mesh = make_mesh(options_.spec, axes_, shared_heads(units_));
  const bool has_blocks = std::ranges::any_of(graph_.tensors(), [](const Tensor& tensor) {
    return tensor.kind == TensorKind::kParameter && is_block_type(tensor.type.dtype);
  });
  if (const int64_t parts = parts_of_features(); axes_.group || (has_blocks && parts > 1)) {
    TSR_ASSIGN_OR_RETURN(units_, find_units(graph_, axes_.group.has_value(), parts));
  }
  dims_ = find_dims(symbolic_, graph_, units_);
  TSR_RETURN_IF_ERROR(check_sizes());
  start_tensors();
  mark_copies();
  mark_gradients();
  mark_tables();
  mark_owners();
  plan_.nodes.resize(graph_.nodes().size());
  for (size_t n = 0; n < graph_.nodes().size(); ++n) {
    cancellation_point();
    TSR_RETURN_IF_ERROR(visit(NodeId{static_cast<uint32_t>(n)}));
  }
  if (gathers_sequence_) plan_.zigzag.clear();
  store();
  return std::move(plan_);
}

// The largest number of parts of a feature dim.
int64_t Propagator::parts_of_features() const {
  int64_t parts = 1;
  for (const AxisId axis : axes_.features) parts = std::max<int64_t>(parts, mesh().axis_size(axis));
  if (axes_.group) parts *= mesh().axis_size(*axes_.group);
  if (options_.spec.context == ContextForm::kUlysses) parts *= options_.spec.cp;
  return parts;
}

// An error names the largest possible size.
Status Propagator::check_sizes() {
  const int64_t each = options_.global_batch / plan_.micro_batches;
  std::vector<AxisId> rows = axes_.batch;
  if (axes_.swaps()) rows.push_back(axes_.features.back());
  if (each < parts(rows)) {
    if (!options_.may_replicate_batch) {
      const int64_t grid = parts(rows) / std::max(1, options_.spec.data());
      const std::string nearest =
          each < grid
              ? tensor_words(smaller_grid(options_.spec, std::max<int64_t>(1, each / options_.spec.data())))
              : format("dp={}", std::max<int64_t>(1, each / grid / options_.spec.ep));
      return Status(StatusCode::kInvalidArgument,
                    format("{} sequences in a micro-batch ({} in all) are fewer than the {} parts of '{}'; "
                           "use {} or a larger batch",
                           each, options_.global_batch, parts(rows), to_text(options_.spec), nearest));
    }
    batch_whole_ = true;
  }
  if (!axes_.context) return {};
  const int32_t parts_of_sequence = options_.spec.cp;
  bool any = false;
  for (size_t t = 0; t < graph_.tensors().size(); ++t) {
    const int dim = dims_.sequence[t];
    if (dim < 0 || graph_.tensors()[t].kind != TensorKind::kInput) continue;
    any = true;
    const int64_t extent = graph_.tensors()[t].type.shape[dim];
    if (extent >= parts_of_sequence) continue;
    if (options_.may_replicate_batch) {
      sequence_whole_ = true;
      continue;
    }
    return Status(StatusCode::kInvalidArgument,
                  format("a sequence of {} ('{}') cannot be split {} ways; use cp= up to {}", extent,
                         graph_.tensors()[t].name, parts_of_sequence, extent));
  }
  if (any || options_.may_replicate_batch) return {};
  return Status(StatusCode::kInvalidArgument,
                "cp splits sequences, and no input of this graph is [B, T]; leave cp out");
}

// --- tensors
// ---------------------------------------------------------------------------------------------------

void Propagator::start_tensors() {
  for (size_t t = 0; t < graph_.tensors().size(); ++t) {
    const Tensor& tensor = graph_.tensors()[t];
    const int rank = tensor.type.shape.rank(), batch = dims_.batch[t], sequence = dims_.sequence[t];
    ShardingSpec spec = ShardingSpec::replicated(rank);
    if (batch >= 0 && tensor.kind == TensorKind::kInput) {
      spec.dims[static_cast<size_t>(batch)] = {batch_axes(), 1};
      if (sequence >= 0 && axes_.context && !sequence_whole_)
        spec.dims[static_cast<size_t>(sequence)] = {{*axes_.context}, 1};
      // On a grid, real inputs have the layout of activations: split along features.
      const int last = rank - 1;
      const int64_t unit = rank > 0 ? units_.dims[t][static_cast<size_t>(last)] : 1;
      if (axes_.grid && last > batch && last != sequence && is_real(tensor.type.dtype) && !batch_whole_ &&
          tensor.type.shape[last] / unit >= mesh().axis_size(axes_.features[0])) {
        spec.dims[static_cast<size_t>(last)] = {{axes_.features[0]}, unit};
        if (axes_.swaps()) spec.dims[static_cast<size_t>(batch)].axes.push_back(axes_.features[1]);
      }
    }
    now_.push_back(std::move(spec));
    placed_.push_back(tensor.kind == TensorKind::kInput || tensor.kind == TensorKind::kActivation);
  }
  gradient_of_.assign(graph_.tensors().size(), kNoTensor);
  also_projects_.assign(graph_.tensors().size(), false);
  contracted_dim_.assign(graph_.tensors().size(), -1);
}

void Propagator::mark_copies() {
  measures_.assign(graph_.nodes().size(), false);
  for (size_t t = 0; t < graph_.tensors().size(); ++t) copied_.push_back(TensorId{static_cast<uint32_t>(t)});
  copies_ = parameter_copies(graph_);
  for (const ParameterCopy& it : copies_) {
    copied_[index(it.copy)] = it.parameter;
    placed_[index(it.copy)] = false;
    for (const NodeId measure : it.measures) measures_[index(measure)] = true;
  }
}

// Marks gradients, and the addends of their sums.
void Propagator::mark_gradients() {
  for (const Gradient& gradient : graph_.gradients())
    gradient_of_[index(gradient.gradient)] = gradient.parameter;
  for (size_t n = graph_.nodes().size(); n-- > 0;) {
    const Node& it = graph_.nodes()[n];
    if (it.phase == Phase::kUpdate || it.outputs.size() != 1 ||
        gradient_of_[index(it.outputs[0])] == kNoTensor)
      continue;
    if (!is_sum(units_.rules[n], it) && (it.inputs.size() != 1 || !is_elementwise(units_.rules[n], it)))
      continue;
    for (const TensorId input : it.inputs)
      if (gradient_of_[index(input)] == kNoTensor)
        gradient_of_[index(input)] = gradient_of_[index(it.outputs[0])];
  }
}

// Marks tables that are also weights of a matmul (tied
// embeddings): split there along the lookup's contracted dim.
void Propagator::mark_tables() {
  for (size_t n = 0; n < graph_.nodes().size(); ++n) {
    if (graph_.nodes()[n].phase != Phase::kForward) continue;
    const NodeId id{static_cast<uint32_t>(n)};
    const auto weight = weight_of(id);
    if (weight && !weight->looked_up)
      also_projects_[index(copied_[index(node(id).inputs[weight->input])])] = true;
  }
}

// --- nodes
// -----------------------------------------------------------------------------------------------------

Status Propagator::visit(NodeId id) {
  const TensorId made = node(id).outputs[0], parameter = copied_[index(made)];
  if (parameter != made && !placed_[index(parameter)]) return {};  // see place_copies
  if (measures_[index(id)] && !placed_[index(node(id).inputs[0])]) return {};
  if (parameter != made) placed_[index(made)] = true;
  NodePlan plan;
  gathered_.clear();
  if (node(id).phase == Phase::kUpdate) {
    assign_update(id, plan);
  } else {
    TSR_RETURN_IF_ERROR(assign_experts(id, plan));
    assign_wide(id, plan);
    assign_sequence(id, plan);
    if (axes_.swaps())
      TSR_RETURN_IF_ERROR(assign_swapping_features(id, plan));
    else if (!axes_.features.empty())
      TSR_RETURN_IF_ERROR(assign_features(id, plan, axes_.features[0]));
    if (axes_.group) TSR_RETURN_IF_ERROR(assign_features(id, plan, *axes_.group));
    TSR_RETURN_IF_ERROR(assign_meeting(id, plan));
    assign_batch(id, plan);
  }
  carry_sums(id, plan);
  std::ranges::sort(plan.factor_axes);
  std::ranges::sort(plan.factor_units);
  std::ranges::sort(plan.factor_firsts);
  TSR_ASSIGN_OR_RETURN(const NodeSharding sharding, shard_node(graph_, id, plan, mesh()));
  take_inputs(id, plan, sharding);
  for (size_t o = 0; o < node(id).outputs.size(); ++o) {
    ShardingSpec& spec = now_[index(node(id).outputs[o])] = sharding.outputs[o];
    for (DimSharding& dim : spec.dims)
      if (std::erase_if(dim.axes, [&](AxisId axis) { return contains(gathered_, axis); }) > 0 &&
          dim.axes.empty())
        dim.unit = 1;
  }
  plan_.nodes[index(id)] = std::move(plan);
  place_copies(id);
  return {};
}

// Gives a copy, and its parameter, the layout of its first reader.
void Propagator::place_copies(NodeId reader) {
  for (const TensorId input : node(reader).inputs) {
    const TensorId parameter = copied_[index(input)];
    if (parameter == input || placed_[index(parameter)] || !placed_[index(input)]) continue;
    const ShardingSpec& spec = now_[index(input)];
    now_[index(parameter)] = spec;
    placed_[index(parameter)] = true;
    const auto place = [&](NodeId id) {
      NodePlan plan;
      for (size_t d = 0; d < spec.dims.size(); ++d)
        if (const Factor* factor = rule(id).find(rule(id).inputs[0][d][0]))
          set(id, plan, *factor, spec.dims[d].axes, spec.dims[d].unit);
      std::ranges::sort(plan.factor_axes);
      std::ranges::sort(plan.factor_units);
      plan_.nodes[index(id)] = std::move(plan);
    };
    const NodeId copy = graph_.tensor(input).producer;
    place(copy);
    for (const TensorId measured : std::span(node(copy).inputs).subspan(1))
      place(graph_.tensor(measured).producer);
  }
}

void Propagator::carry_sums(NodeId id, NodePlan& plan) const {
  const Node& it = node(id);
  for (size_t s = 0; s < rule(id).linear.size(); ++s) {
    const std::vector<int>& set = rule(id).linear[s];
    if (set.empty()) continue;
    std::vector<AxisId> carried;
    int64_t in_elements = 0;  // without carrying, each of them is reduced
    for (const int i : set) in_elements += graph_.type(it.inputs[static_cast<size_t>(i)]).shape.elements();
    // Next to other operands only if the later sum is smaller.
    const int64_t out_elements = graph_.type(it.outputs[0]).shape.elements();
    const bool less =
        out_elements < in_elements || (out_elements == in_elements && others_are_scalars(id, set));
    for (size_t a = 0; a < mesh().axes.size(); ++a) {
      const auto axis = static_cast<AxisId>(a);
      const auto partial = [&](int i) {
        const ShardingSpec& spec = now_[index(it.inputs[static_cast<size_t>(i)])];
        return spec.reduce == ReduceKind::kSum && contains(spec.partial, axis);
      };
      const bool scalar = graph_.type(it.outputs[0]).shape.rank() == 0;  // another addend costs nothing
      const bool all = scalar ? std::ranges::any_of(set, partial) : std::ranges::all_of(set, partial);
      // Addends of gradients of shared keys and values also pass through
      // matmuls; the results are summed over the axis with the rest.
      const bool of_shared =
          axes_.group == axis && it.phase != Phase::kForward && std::ranges::none_of(set, [&](int i) {
            return contains(now_[index(it.inputs[static_cast<size_t>(i)])].partial, axes_.features[0]);
          });
      const bool waits = less || of_shared;
      if (all && waits && !uses(plan, axis)) carried.push_back(axis);
    }
    if (carried.empty()) continue;
    plan.carried = carried;
    plan.carry_set = static_cast<int32_t>(s);
    return;
  }
}

bool Propagator::others_are_scalars(NodeId id, const std::vector<int>& set) const {
  for (size_t i = 0; i < node(id).inputs.size(); ++i)
    if (std::ranges::find(set, static_cast<int>(i)) == set.end() && reads_input(node(id), i) &&
        graph_.type(node(id).inputs[i]).shape.rank() > 0)
      return false;
  return true;
}

// Effects of reading on layouts: the first use places a parameter
// or state, and a sum resolved for one reader stays so.
void Propagator::take_inputs(NodeId id, const NodePlan& plan, const NodeSharding& sharding) {
  for (size_t i = 0; i < node(id).inputs.size(); ++i) {
    const TensorId input = node(id).inputs[i];
    if (!reads_input(node(id), i)) continue;
    ShardingSpec wanted = sharding.inputs[i];
    ShardingSpec& now = now_[index(input)];
    const int sequence = dims_.sequence[index(input)];
    if (axes_.context && sequence >= 0 && plan.chunk_order != ChunkOrder::kRotating)
      gathers_sequence_ |= contains(now.dims[static_cast<size_t>(sequence)].axes, *axes_.context) &&
                           !contains(wanted.dims[static_cast<size_t>(sequence)].axes, *axes_.context);
    if (!placed_[index(input)]) {
      wanted.partial.clear();
      if (node(id).phase != Phase::kUpdate) now = wanted, placed_[index(input)] = true;
    } else if (!now.partial.empty() && wanted.partial.empty()) {
      now = wanted;
    }
  }
}

int64_t Propagator::parts(const std::vector<AxisId>& axes) const {
  int64_t n = 1;
  for (const AxisId axis : axes) n *= mesh().axis_size(axis);
  return n;
}

const std::vector<AxisId>* Propagator::axes_of(const NodePlan& plan, char factor) {
  for (const auto& [name, axes] : plan.factor_axes)
    if (name == factor) return &axes;
  return nullptr;
}

bool Propagator::uses(const NodePlan& plan, AxisId axis) {
  return std::ranges::any_of(plan.factor_axes,
                             [&](const auto& entry) { return contains(entry.second, axis); });
}

bool Propagator::admits(NodeId id, const NodePlan& plan, const Factor& factor, AxisId axis) const {
  if (factor.kind == FactorKind::kReplicate || uses(plan, axis)) return false;
  const std::vector<AxisId>* axes = axes_of(plan, factor.name);
  const int64_t already = axes == nullptr ? 1 : parts(*axes);
  return factor.extent / unit(id, factor) >= already * mesh().axis_size(axis);
}

void Propagator::set(NodeId id, NodePlan& plan, const Factor& factor, const std::vector<AxisId>& axes,
                     int64_t unit_of) const {
  if (axes.empty()) return;
  for (auto& [name, of_factor] : plan.factor_axes) {
    if (name != factor.name) continue;
    of_factor.insert(of_factor.end(), axes.begin(), axes.end());
    return;
  }
  plan.factor_axes.emplace_back(factor.name, axes);
  if (unit_of == 0) unit_of = unit(id, factor);
  if (unit_of != factor.unit) plan.factor_units.emplace_back(factor.name, unit_of);
}

// Follows the layout of a dim that consists of the factor.
void Propagator::set_split(NodeId id, NodePlan& plan, const Factor& factor, const DimSharding& dim) const {
  set(id, plan, factor, dim.axes, dim.unit);
  if (has_owner(dim, factor.extent)) plan.factor_firsts.emplace_back(factor.name, dim.first);
}

}  // namespace tessera
