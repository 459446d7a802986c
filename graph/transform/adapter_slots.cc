#include "graph/transform/adapter_slots.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/text.h"
#include "graph/transform/adapters.h"
#include "graph/transform/graph_copy.h"
#include "graph/transform/language_model.h"
#include "graph/transform/prune.h"
#include "graph/transform/row_adapters.h"

namespace tessera {

namespace {

Status refuse(std::string message) {
  return Status(StatusCode::kInvalidArgument, "adapters of slots: " + std::move(message));
}

Status check_weights(const Graph& forward, std::span<const TensorId> weights, const AdapterSlotOptions& options) {
  if (weights.empty()) return refuse("no weight was chosen, wanted at least one");
  if (options.slots < 1) return refuse(format("{} slots, wanted 1 or more", options.slots));
  if (!find_adapters(forward).empty()) return refuse("the model has adapters of its own: merge them, or train those alone");
  for (const TensorId weight : weights)
    TSR_RETURN_IF_ERROR(check_new_adapter(forward, {.weight = weight, .rank = options.rank}));
  return {};
}

// Checks that the product of an adapted weight is of the batch's tokens.
Status check_product(const Graph& forward, const Node& node, const Shape& tokens) {
  const Tensor& weight = forward.tensor(node.inputs[static_cast<size_t>(node.op->weight.operand)]);
  const Shape& x = forward.type(node.inputs[0]).shape;
  if (x.rank() == tokens.rank() + 1 && Shape(x.dims().first(static_cast<size_t>(tokens.rank()))) == tokens) return {};
  return Status(StatusCode::kUnsupported,
                format("adapters of slots: '{}' multiplies {}, wanted [B, T, K], the tokens of rows: leave it out of adapter_weights",
                       weight.name, to_text(forward.type(node.inputs[0]))));
}

// Copies a dropout of the model as one of rows, which have seeds of their own.
Status copy_dropout(GraphCopy& copy, const Node& node, const Shape& tokens, const RowInputs& rows) {
  const TensorId x = copy.mapped(node.inputs[0]);
  const double p = attr_f64(node.attrs, "p");
  if (p == 0) {
    copy.replace(node.outputs[0], x);
    return {};
  }
  const Shape& shape = copy.graph().type(x).shape;
  if (shape.rank() != tokens.rank() + 1 || Shape(shape.dims().first(static_cast<size_t>(tokens.rank()))) != tokens)
    return Status(StatusCode::kUnsupported,
                  format("adapters of slots: the model drops out of {}, wanted [B, T, K], the tokens of rows: choose option dropout 0",
                         to_text(copy.graph().type(x))));
  copy.graph().set_scope(node.scope);
  TSR_ASSIGN_OR_RETURN(const TensorId dropped, copy.graph().add("row_dropout", {x, rows.seed, rows.row},
                                                                {{"p", p}, {"salt", attr_i64(node.attrs, "salt")}}));
  copy.graph().set_scope("");
  copy.replace(node.outputs[0], dropped);
  return {};
}

bool has_noise(const Graph& forward) {
  return std::ranges::any_of(forward.nodes(), [](const Node& node) { return node.op->is_noise; });
}

bool is_kept(const Tensor& tensor) {
  return tensor.kind == TensorKind::kParameter || tensor.kind == TensorKind::kState;
}

}  // namespace

Result<Graph> with_adapter_slots(const Graph& forward, std::span<const TensorId> weights,
                                 const AdapterSlotOptions& options) {
  TSR_RETURN_IF_ERROR(check_weights(forward, weights, options));
  const std::optional<TensorId> tokens = forward.find_tensor("tokens");
  if (!tokens || forward.tensor(*tokens).kind != TensorKind::kInput)
    return refuse("the graph has no input 'tokens', wanted a language model");
  const Shape shape = forward.type(*tokens).shape;
  const DType dtype = forward.type(weights[0]).dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  GraphCopy copy(forward);
  const auto add_input = [&](std::string_view name, DType type, const Shape& of) {
    return copy.graph().add_tensor(std::string(name), {type, of}, TensorKind::kInput);
  };
  RowInputs rows;
  TSR_ASSIGN_OR_RETURN(rows.adapter, add_input(kAdapterInput, DType::kI32, shape));
  TSR_ASSIGN_OR_RETURN(rows.factor, add_input(kAdapterFactor, dtype, shape));
  if (options.dropout || has_noise(forward)) {
    TSR_ASSIGN_OR_RETURN(rows.seed, add_input(kDropoutSeed, DType::kI64, {shape[0]}));
    TSR_ASSIGN_OR_RETURN(rows.row, add_input(kDropoutRow, DType::kI64, {shape[0]}));
  }
  if (options.dropout) {
    TSR_ASSIGN_OR_RETURN(rows.rate, add_input(kDropoutRate, DType::kF64, {shape[0]}));
  }
  const std::vector<bool> of_noise = read_by_noise_alone(forward);
  RowAdapters adapters(forward, {.slots = options.slots,
                                 .rank = options.rank,
                                 .dtype = dtype,
                                 .kind = TensorKind::kParameter,
                                 .weights = {weights.begin(), weights.end()}});
  for (size_t i = 0; i < forward.tensors().size(); ++i) {
    const TensorId id{static_cast<uint32_t>(i)};
    const Tensor& tensor = forward.tensor(id);
    if (tensor.producer == kNoNode) {
      if (of_noise[i] && tensor.kind == TensorKind::kInput) continue;
      TSR_RETURN_IF_ERROR(copy.copy_tensor(id));
      if (tensor.kind == TensorKind::kParameter) copy.graph().set_trainable(copy.mapped(id), false);
    } else if (tensor.output_index == 0) {
      const Node& node = forward.node(tensor.producer);
      if (node.op->is_noise) {
        TSR_RETURN_IF_ERROR(copy_dropout(copy, node, shape, rows));
      } else if (adapters.applies_to(node)) {
        TSR_RETURN_IF_ERROR(check_product(forward, node, shape));
        TSR_RETURN_IF_ERROR(adapters.add_product(copy, tensor.producer, rows));
      } else {
        TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer));
      }
    }
  }
  for (const NamedTensor& output : forward.outputs())
    if (output.name != "aux_loss") TSR_RETURN_IF_ERROR(copy.graph().add_output(output.name, copy.mapped(output.tensor)));
  return std::move(copy.graph());
}

bool has_adapter_slots(const Graph& graph) {
  const std::optional<TensorId> adapter = graph.find_tensor(kAdapterInput);
  return adapter && graph.tensor(*adapter).kind == TensorKind::kInput && graph.find_tensor(kAdapterFactor).has_value();
}

Result<TensorId> add_slot_gradient(Graph& graph, TensorId state, TensorId gradient) {
  const NodeId producer = graph.tensor(gradient).producer;
  if (producer == kNoNode || graph.node(producer).op->sums_into < 0) return kNoTensor;
  const Node node = graph.node(producer);  // a copy: the graph grows
  std::vector<TensorId> inputs = node.inputs;
  inputs[static_cast<size_t>(node.op->sums_into)] = state;
  graph.set_phase(node.phase, node.forward);
  TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> sum, graph.add_node(node.op->name, inputs, node.attrs));
  return sum[0];
}

Result<Graph> with_slot_update(const Graph& update) {
  std::optional<int64_t> slots;
  for (const Tensor& tensor : update.tensors())
    if (tensor.kind == TensorKind::kParameter && tensor.trainable && is_adapter_state(tensor.name))
      slots = tensor.type.shape[0];
  if (!slots) return Status(StatusCode::kInternal, "an update of slots has no factors of adapters");
  GraphCopy copy(update);
  TSR_ASSIGN_OR_RETURN(const TensorId slot, copy.graph().add_tensor(std::string(kUpdatedSlot), {DType::kI32, {}},
                                                                     TensorKind::kInput));
  std::map<TensorId, TensorId> whole;  // by tensor of `update`, in the copy
  for (size_t i = 0; i < update.tensors().size(); ++i) {
    const TensorId id{static_cast<uint32_t>(i)};
    const Tensor& tensor = update.tensor(id);
    if (tensor.producer != kNoNode) {
      if (tensor.output_index == 0) TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer));
      continue;
    }
    TSR_RETURN_IF_ERROR(copy.copy_tensor(id));
    if (!is_kept(tensor)) continue;
    if (tensor.type.shape.rank() < 2 || tensor.type.shape[0] != *slots)
      return Status(StatusCode::kUnsupported,
                    format("adapters of slots: '{}' is {}, which has no part for each of {} slots: choose optimizer adamw, lion or "
                           "sgd, and no loss_scaling",
                           tensor.name, to_text(tensor.type), *slots));
    whole[id] = copy.mapped(id);
    copy.graph().set_phase(Phase::kUpdate);
    TSR_ASSIGN_OR_RETURN(const TensorId part, copy.graph().add("take_slot", {copy.mapped(id), slot}));
    copy.graph().set_phase(Phase::kForward);
    copy.replace(id, part);
  }
  copy.graph().set_phase(Phase::kUpdate);
  for (const Update& it : update.updates()) {
    TSR_ASSIGN_OR_RETURN(const TensorId value,
                         copy.graph().add("put_slot", {whole.at(it.target), copy.mapped(it.value), slot}));
    copy.graph().add_update(whole.at(it.target), value);
  }
  copy.graph().set_phase(Phase::kForward);
  for (const NamedTensor& output : update.outputs())
    TSR_RETURN_IF_ERROR(copy.graph().add_output(output.name, copy.mapped(output.tensor)));
  for (const Gradient& gradient : update.gradients())
    copy.graph().add_gradient(whole.at(gradient.parameter), whole.at(gradient.gradient));
  return std::move(copy.graph());
}

}  // namespace tessera
