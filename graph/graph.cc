#include "graph/graph.h"

#include <algorithm>
#include <string_view>

#include "graph/base/cancellation.h"
#include "graph/base/hash.h"
#include "graph/base/nearest_hint.h"
#include "graph/base/text.h"
#include "graph/graph_text.h"
#include "graph/limits.h"

namespace tessera {

namespace {

Status invalid(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

std::string label(std::string_view op, std::string_view scope) {
  return scope.empty() ? std::string(op) : format("{} '{}'", op, scope);
}

std::string default_name(size_t id) { return format("%{}", id); }

// "%<n>" belongs to activation n, so that the name of a new one is always free. Other
// tensors keep their names in a graph of another order, unless that would be another's.
constexpr size_t kNamed = SIZE_MAX;

Status check_name(std::string_view name, size_t id) {
  if (name.empty()) return invalid("a tensor wants a name");
  if (name.size() > kMaxTensorNameBytes)
    return invalid(
        format("a tensor name has {} bytes, at most {} are allowed", name.size(), kMaxTensorNameBytes));
  if (std::ranges::any_of(name, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
    return invalid("a tensor name holds a control character");
  if (name[0] == '%' && parse_i64(name.substr(1)) && name != default_name(id))
    return invalid(
        format("tensor name '{}': names of the form %<number> are kept for unnamed activations", name));
  return {};
}

// Checks that symbols exist and sizes cannot overflow.
Status check_type(const TensorType& type, std::span<const Symbol> symbols) {
  if (static_cast<size_t>(type.dtype) >= kDTypeCount)
    return invalid(format("dtype {} does not exist", static_cast<int>(type.dtype)));
  int64_t elements = 1;
  for (int64_t extent : type.shape.dims()) {
    if (is_symbol(extent)) {
      const int64_t symbol = -1 - extent;
      if (symbol >= static_cast<int64_t>(symbols.size()))
        return invalid(
            format("shape [{}] uses symbol {}, the graph declares {}", type.shape, symbol, symbols.size()));
      extent = std::max<int64_t>(1, symbols[static_cast<size_t>(symbol)].capacity);
    }
    if (__builtin_mul_overflow(elements, std::max<int64_t>(1, extent), &elements) ||
        elements > kMaxTensorElements)
      return invalid(format("{} is larger than any memory", type_text(type, symbols)));
  }
  const int32_t block = info(type.dtype).block_elements;
  if (block > 1) {
    const int64_t last = type.shape.rank() == 0 ? 1 : type.shape[type.shape.rank() - 1];
    if (is_symbol(last) || last % block != 0)
      return invalid(format("{}: the last extent is not a multiple of the block of {} elements",
                            type_text(type, symbols), block));
  }
  return {};
}

std::string_view type_name(AttrType type) {
  switch (type) {
    case AttrType::kI64: return "an integer";
    case AttrType::kF64: return "a real";
    case AttrType::kString: return "a string";
    case AttrType::kI64List: return "a list of integers";
  }
  return "?";
}

std::string unknown_name(std::string_view what, std::string_view name, std::span<const std::string> known) {
  return format("unknown {} '{}'{}", what, name, known.empty() ? "; there are none" : nearest_hint(name, known));
}

Result<const OpDef*> known_op(std::string_view name) {
  if (const OpDef* op = find_op(name)) return op;
  std::vector<std::string> names;
  for (const OpDef* op : all_ops()) names.emplace_back(op->name);
  return Status(StatusCode::kNotFound, unknown_name("op", name, names));
}

// Completes the given attributes by defaults, in the op's order. An integer is accepted in place of a real.
Result<std::vector<Attr>> complete_attrs(const OpDef& op, std::vector<Attr> given) {
  std::vector<Attr> complete;
  std::vector<bool> used(given.size());
  for (const AttrSpec& spec : op.attrs) {
    std::optional<AttrValue> value = spec.default_value;
    for (size_t i = 0; i < given.size(); ++i) {
      if (given[i].name != spec.name) continue;
      if (used[i] ||
          std::count_if(given.begin(), given.end(), [&](const Attr& a) { return a.name == spec.name; }) > 1)
        return invalid(format("attribute '{}' is given twice", spec.name));
      used[i] = true;
      value = std::move(given[i].value);
      if (spec.type == AttrType::kF64 && std::holds_alternative<int64_t>(*value))
        value = static_cast<double>(std::get<int64_t>(*value));
    }
    if (!value)
      return invalid(format("attribute '{}' is missing; it wants {}: {}", spec.name, type_name(spec.type),
                            spec.meaning));
    if (value->index() != static_cast<size_t>(spec.type))
      return invalid(format("attribute '{}' is {} ({}), wanted {}", spec.name,
                            type_name(static_cast<AttrType>(value->index())), to_text(*value),
                            type_name(spec.type)));
    complete.push_back({std::string(spec.name), std::move(*value)});
  }
  for (size_t i = 0; i < given.size(); ++i)
    if (!used[i]) {
      std::vector<std::string> names;
      for (const AttrSpec& spec : op.attrs) names.emplace_back(spec.name);
      return invalid(unknown_name("attribute", given[i].name, names));
    }
  return complete;
}

// Returns the same error with symbols by name: to_text of a shape, which has no graph, writes the first as "$0".
Status name_symbols(const Status& error, std::span<const Symbol> symbols) {
  if (error.ok() || error.message().find('$') == std::string_view::npos) return error;
  std::string message;
  const std::string_view text = error.message();
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    while (text[i] == '$' && end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
    const std::optional<int64_t> symbol = parse_i64(text.substr(i + 1, end - i - 1));
    if (end > i + 1 && symbol && static_cast<size_t>(*symbol) < symbols.size())
      message += symbols[static_cast<size_t>(*symbol)].name;
    else
      message += text.substr(i, end - i);
    i = end;
  }
  return Status(error.code(), std::move(message));
}

// infer may receive anything of an untrusted file: exceptions become a Status.
Result<std::vector<TensorType>> run_infer(const OpDef& op, std::span<const TensorType> inputs,
                                          std::span<const Attr> attrs, std::span<const Symbol> symbols) {
  cancellation_point();
  std::vector<TensorType> types;
  const Status inferred = catch_status([&]() -> Status {
    TSR_ASSIGN_OR_RETURN(types, op.infer(inputs, attrs));
    return {};
  });
  if (!inferred.ok()) return name_symbols(inferred, symbols);
  if (types.empty()) return Status(StatusCode::kInternal, "infer found no results");
  for (const TensorType& type : types) TSR_RETURN_IF_ERROR(check_type(type, symbols));
  return types;
}

}  // namespace

int64_t Graph::symbol(std::string_view name, int64_t capacity) {
  TSR_CHECK(!name.empty() && capacity >= 0, "a symbol wants a name and a capacity >= 0");
  for (size_t i = 0; i < symbols_.size(); ++i)
    if (symbols_[i].name == name) {
      if (symbols_[i].capacity == 0) symbols_[i].capacity = capacity;
      return symbol_extent(static_cast<int32_t>(i));
    }
  symbols_.push_back({std::string(name), capacity});
  return symbol_extent(static_cast<int32_t>(symbols_.size() - 1));
}

Result<TensorId> Graph::add_tensor(std::string name, TensorType type, TensorKind kind) {
  if (kind > TensorKind::kState)
    return invalid(format(
        "tensor '{}': activations come from nodes alone; wanted input, parameter, constant or state", name));
  TSR_RETURN_IF_ERROR(check_name(name, kNamed));
  if (find_tensor(name)) return invalid(format("a tensor named '{}' exists already", name));
  TSR_RETURN_IF_ERROR(check_type(type, symbols_).with_context(format("tensor '{}'", name)));
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.type = type;
  tensor.kind = kind;
  const auto id = TensorId(static_cast<uint32_t>(tensors_.size()));
  named_.emplace(tensor.name, id);
  tensors_.push_back(std::move(tensor));
  return id;
}

Result<std::vector<TensorId>> Graph::add_node(std::string_view op_name, std::span<const TensorId> inputs,
                                              std::vector<Attr> attrs) {
  TSR_ASSIGN_OR_RETURN(const OpDef* op, known_op(op_name));
  std::vector<TensorType> input_types;
  for (TensorId input : inputs) {
    if (tessera::index(input) >= tensors_.size())
      return invalid(format("{}: operand {} does not exist, the graph has {} tensors", label(op_name, scope_),
                            tessera::index(input), tensors_.size()));
    input_types.push_back(type(input));
  }
  Result<std::vector<Attr>> complete = complete_attrs(*op, std::move(attrs));
  if (!complete.ok()) return complete.status().with_context(label(op_name, scope_));
  Result<std::vector<TensorType>> types = run_infer(*op, input_types, *complete, symbols_);
  if (!types.ok()) return types.status().with_context(label(op_name, scope_));

  const NodeId id{static_cast<uint32_t>(nodes_.size())};
  Node node;
  node.op = op;
  node.attrs = std::move(*complete);
  node.inputs.assign(inputs.begin(), inputs.end());
  node.scope = scope_;
  node.phase = phase_;
  node.forward = forward_;
  for (size_t i = 0; i < types->size(); ++i) {
    Tensor tensor;
    tensor.name = default_name(tensors_.size());
    tensor.type = (*types)[i];
    tensor.producer = id;
    tensor.output_index = static_cast<uint32_t>(i);
    node.outputs.push_back(TensorId(static_cast<uint32_t>(tensors_.size())));
    tensors_.push_back(std::move(tensor));
  }
  std::vector<TensorId> outputs = node.outputs;
  nodes_.push_back(std::move(node));
  return outputs;
}

Result<TensorId> Graph::add(std::string_view op, std::initializer_list<TensorId> inputs,
                            std::vector<Attr> attrs) {
  TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> outputs,
                       add_node(op, std::span(inputs.begin(), inputs.size()), std::move(attrs)));
  if (outputs.size() != 1)
    return invalid(
        format("{}: makes {} results; add_node returns them all", label(op, scope_), outputs.size()));
  return outputs[0];
}

Status Graph::rename(TensorId tensor, std::string name) {
  const bool is_activation = this->tensor(tensor).kind == TensorKind::kActivation;
  TSR_RETURN_IF_ERROR(check_name(name, is_activation ? tessera::index(tensor) : kNamed));
  const auto existing = find_tensor(name);
  if (existing && *existing != tensor) return invalid(format("a tensor named '{}' exists already", name));
  std::string& held = tensors_[tessera::index(tensor)].name;
  named_.erase(held);
  held = std::move(name);
  if (held != default_name(tessera::index(tensor))) named_.emplace(held, tensor);
  return {};
}

void Graph::set_trainable(TensorId parameter, bool trainable) {
  TSR_CHECK(tensor(parameter).kind == TensorKind::kParameter, "only parameters are trainable or frozen");
  tensors_[tessera::index(parameter)].trainable = trainable;
}

void Graph::set_phase_of(NodeId node, Phase phase) { nodes_[tessera::index(node)].phase = phase; }

Status Graph::add_output(std::string name, TensorId tensor) {
  if (name.empty() || name.size() > kMaxTensorNameBytes)
    return invalid(format("an output wants a name of 1 to {} bytes", kMaxTensorNameBytes));
  if (tessera::index(tensor) >= tensors_.size())
    return invalid(format("output '{}': tensor {} does not exist", name, tessera::index(tensor)));
  for (NamedTensor& output : outputs_)
    if (output.name == name) {
      output.tensor = tensor;
      return {};
    }
  outputs_.push_back({std::move(name), tensor});
  return {};
}

std::optional<TensorId> Graph::find_tensor(std::string_view name) const {
  if (const auto found = named_.find(name); found != named_.end()) return found->second;
  const auto id = name.starts_with('%') ? parse_i64(name.substr(1)) : std::nullopt;
  if (id && *id >= 0 && *id < static_cast<int64_t>(tensors_.size()) &&
      tensors_[static_cast<size_t>(*id)].name == name)
    return TensorId(static_cast<uint32_t>(*id));
  return std::nullopt;
}

std::optional<TensorId> Graph::find_output(std::string_view name) const {
  for (const NamedTensor& output : outputs_)
    if (output.name == name) return output.tensor;
  return std::nullopt;
}

std::vector<TensorId> Graph::tensors_of_kind(TensorKind kind) const {
  std::vector<TensorId> found;
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (tensors_[i].kind == kind) found.push_back(TensorId(static_cast<uint32_t>(i)));
  return found;
}

Result<Graph> Graph::bind(std::span<const std::pair<std::string, int64_t>> values) const {
  TSR_ASSIGN_OR_RETURN(Graph bound, bind_partly(values));
  std::vector<bool> used(bound.symbols_.size());
  for (const Tensor& tensor : bound.tensors_)
    for (int64_t extent : tensor.type.shape.dims())
      if (is_symbol(extent)) used[static_cast<size_t>(symbol_index(extent))] = true;
  for (size_t i = 0; i < used.size(); ++i)
    if (used[i])
      return invalid(format("symbol '{}' has no value; shapes of the graph use it", bound.symbols_[i].name));
  bound.symbols_.clear();
  return bound;
}

Result<Graph> Graph::bind_partly(std::span<const std::pair<std::string, int64_t>> values) const {
  std::vector<int64_t> extents(symbols_.size());
  std::vector<Symbol> left;
  for (const auto& [name, value] : values)
    if (std::ranges::find(symbols_, name, &Symbol::name) == symbols_.end()) {
      std::vector<std::string> names;
      for (const Symbol& symbol : symbols_) names.push_back(symbol.name);
      return invalid(unknown_name("symbol", name, names));
    }
  for (size_t i = 0; i < symbols_.size(); ++i) {
    const Symbol& symbol = symbols_[i];
    const auto given = std::ranges::find(values, symbol.name, [](const auto& pair) { return pair.first; });
    if (given == values.end()) {
      extents[i] = symbol_extent(static_cast<int32_t>(left.size()));
      left.push_back(symbol);
      continue;
    }
    if (given->second < 0 || (symbol.capacity > 0 && given->second > symbol.capacity))
      return invalid(format("symbol '{}' is given as {}, wanted 0 to {}", symbol.name, given->second,
                            symbol.capacity > 0 ? to_text(symbol.capacity) : std::string("any count")));
    extents[i] = given->second;
  }

  Graph bound = *this;
  bound.symbols_ = left;
  for (Tensor& tensor : bound.tensors_) {
    if (tensor.producer != kNoNode) continue;
    for (int dim = 0; dim < tensor.type.shape.rank(); ++dim)
      if (const int64_t extent = tensor.type.shape[dim]; is_symbol(extent))
        tensor.type.shape.set(dim, extents[static_cast<size_t>(symbol_index(extent))]);
    TSR_RETURN_IF_ERROR(check_type(tensor.type, left).with_context(format("tensor '{}'", tensor.name)));
  }
  // Types of activations come from infer, never from substitution: concrete extents may change them.
  for (const Node& node : bound.nodes_) {
    std::vector<TensorType> inputs;
    for (TensorId input : node.inputs) inputs.push_back(bound.type(input));
    Result<std::vector<TensorType>> types = run_infer(*node.op, inputs, node.attrs, left);
    if (!types.ok()) return types.status().with_context(label(node.op->name, node.scope));
    if (types->size() != node.outputs.size())
      return Status(StatusCode::kInternal,
                    format("{}: {} results once bound, {} before", label(node.op->name, node.scope),
                           types->size(), node.outputs.size()));
    for (size_t i = 0; i < types->size(); ++i)
      bound.tensors_[tessera::index(node.outputs[i])].type = (*types)[i];
  }
  return bound;
}

uint64_t Graph::fingerprint() const {
  Hash hash;
  hash.add(static_cast<uint64_t>(symbols_.size()));
  for (const Symbol& symbol : symbols_) hash.add(symbol.capacity);
  hash.add(static_cast<uint64_t>(tensors_.size()));
  for (const Tensor& tensor : tensors_) {
    hash.add(static_cast<uint8_t>(tensor.kind));
    hash.add(tensor.trainable);
    hash.add(static_cast<uint8_t>(tensor.type.dtype));
    hash.add(static_cast<uint64_t>(tensor.type.shape.rank()));
    for (int64_t extent : tensor.type.shape.dims()) hash.add(extent);
  }
  hash.add(static_cast<uint64_t>(nodes_.size()));
  for (const Node& node : nodes_) {
    hash.add(node.op->former_name.empty() ? node.op->name : node.op->former_name);
    hash.add(node.op->version);
    hash.add(static_cast<uint8_t>(node.phase));
    hash.add(static_cast<uint32_t>(node.forward));
    const auto implied = [&](const Attr& attr) { return is_implied(*node.op, attr); };
    const auto left_out = static_cast<size_t>(std::ranges::count_if(node.attrs, implied));
    hash.add(static_cast<uint64_t>(node.attrs.size() - left_out));
    for (const Attr& attr : node.attrs) {
      if (implied(attr)) continue;
      hash.add(attr.name);
      hash.add(to_text(attr.value));
    }
    hash.add(static_cast<uint64_t>(node.inputs.size()));
    for (TensorId input : node.inputs) hash.add(static_cast<uint32_t>(input));
    hash.add(static_cast<uint64_t>(node.outputs.size()));
    for (TensorId output : node.outputs) hash.add(static_cast<uint32_t>(output));
  }
  hash.add(static_cast<uint64_t>(outputs_.size()));
  for (const NamedTensor& output : outputs_) hash.add(static_cast<uint32_t>(output.tensor));
  hash.add(static_cast<uint64_t>(updates_.size()));
  for (const Update& update : updates_) {
    hash.add(static_cast<uint32_t>(update.target));
    hash.add(static_cast<uint32_t>(update.value));
  }
  hash.add(static_cast<uint64_t>(gradients_.size()));
  for (const Gradient& gradient : gradients_) {
    hash.add(static_cast<uint32_t>(gradient.parameter));
    hash.add(static_cast<uint32_t>(gradient.gradient));
  }
  return hash.value();
}

namespace {

Status corrupt(std::string message) { return Status(StatusCode::kCorrupt, std::move(message)); }

Status verify_attrs(const Node& node) {
  if (node.attrs.size() != node.op->attrs.size())
    return corrupt(format("{} attributes, the op has {}", node.attrs.size(), node.op->attrs.size()));
  for (size_t i = 0; i < node.attrs.size(); ++i) {
    const AttrSpec& spec = node.op->attrs[i];
    if (node.attrs[i].name != spec.name || node.attrs[i].value.index() != static_cast<size_t>(spec.type))
      return corrupt(format("attribute {} is '{}' = {}, wanted '{}', {}", i, node.attrs[i].name,
                            to_text(node.attrs[i].value), spec.name, type_name(spec.type)));
  }
  return {};
}

Status verify_node(const Graph& graph, size_t id) {
  const Node& node = graph.nodes()[id];
  if (node.outputs.empty()) return corrupt("no results");
  const size_t first = index(node.outputs[0]);
  std::vector<TensorType> inputs;
  for (TensorId input : node.inputs) {
    if (index(input) >= graph.tensors().size() || index(input) >= first)
      return corrupt(format("operand {} does not exist before the node", index(input)));
    inputs.push_back(graph.type(input));
  }
  TSR_RETURN_IF_ERROR(verify_attrs(node));
  if (node.phase > Phase::kUpdate)
    return corrupt(format("phase {} does not exist", static_cast<int>(node.phase)));
  if (node.forward != kNoNode && index(node.forward) >= id)
    return corrupt(format("its forward node {} does not come before it", index(node.forward)));
  Result<std::vector<TensorType>> types = run_infer(*node.op, inputs, node.attrs, graph.symbols());
  if (!types.ok()) return corrupt(std::string(types.status().message()));
  if (types->size() != node.outputs.size())
    return corrupt(format("{} results, infer finds {}", node.outputs.size(), types->size()));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (index(node.outputs[i]) != first + i || first + i >= graph.tensors().size())
      return corrupt("results are not consecutive tensors");
    const Tensor& output = graph.tensors()[first + i];
    if (index(output.producer) != id || output.output_index != i || output.kind != TensorKind::kActivation)
      return corrupt(format("result '{}' does not name the node as its producer", output.name));
    if (output.type != (*types)[i])
      return corrupt(format("result '{}' is {}, infer finds {}", output.name, type_text(output.type, graph),
                            type_text((*types)[i], graph)));
  }
  return {};
}

}  // namespace

Status Graph::verify() const {
  for (size_t i = 0; i < symbols_.size(); ++i) {
    if (symbols_[i].name.empty() || symbols_[i].capacity < 0)
      return corrupt(format("symbol {} is malformed", i));
    for (size_t j = 0; j < i; ++j)
      if (symbols_[i].name == symbols_[j].name)
        return corrupt(format("symbol '{}' appears twice", symbols_[i].name));
  }

  std::vector<std::string_view> names;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    TSR_RETURN_IF_ERROR(check_name(tensor.name, i));
    TSR_RETURN_IF_ERROR(check_type(tensor.type, symbols_).with_context(format("tensor '{}'", tensor.name)));
    if (tensor.kind > TensorKind::kActivation)
      return corrupt(
          format("tensor '{}': kind {} does not exist", tensor.name, static_cast<int>(tensor.kind)));
    if ((tensor.kind == TensorKind::kActivation) != (tensor.producer != kNoNode))
      return corrupt(format("tensor '{}': activations have a producer, other tensors none", tensor.name));
    if (tensor.producer != kNoNode) {
      if (tessera::index(tensor.producer) >= nodes_.size())
        return corrupt(format("tensor '{}': its producer does not exist", tensor.name));
      const Node& producer = node(tensor.producer);
      if (tensor.output_index >= producer.outputs.size() ||
          tessera::index(producer.outputs[tensor.output_index]) != i)
        return corrupt(format("tensor '{}': its producer does not make it", tensor.name));
    }
    names.push_back(tensor.name);
  }
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end())
    return corrupt(format("two tensors are named '{}'", *twice));

  size_t last = 0;  // results of nodes are in node order: the text form and schedules rely on it
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (node.op == nullptr || find_op(node.op->name) != node.op)
      return corrupt(format("node {} has no known op", i));
    TSR_RETURN_IF_ERROR(verify_node(*this, i).with_context(label(node.op->name, node.scope)));
    if (tessera::index(node.outputs[0]) < last)
      return corrupt(format("results of node {} are out of order", i));
    last = tessera::index(node.outputs.back());
  }

  const auto exists = [&](TensorId tensor) { return tessera::index(tensor) < tensors_.size(); };
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (outputs_[i].name.empty() || !exists(outputs_[i].tensor))
      return corrupt(format("output {} is malformed", i));
  }
  std::vector<std::string_view> output_names;
  for (const NamedTensor& output : outputs_) output_names.push_back(output.name);
  std::ranges::sort(output_names);
  if (const auto twice = std::ranges::adjacent_find(output_names); twice != output_names.end())
    return corrupt(format("two outputs are named '{}'", *twice));
  std::vector<bool> updated(tensors_.size());
  for (const Update& update : updates_) {
    if (!exists(update.target) || !exists(update.value))
      return corrupt("an update names a tensor that does not exist");
    const Tensor& target = tensor(update.target);
    if (target.kind != TensorKind::kParameter && target.kind != TensorKind::kState)
      return corrupt(format("update of '{}', which is neither parameter nor state", target.name));
    if (target.type != type(update.value))
      return corrupt(format("update of '{}' ({}) by a {}", target.name, type_text(target.type, *this),
                            type_text(type(update.value), *this)));
    if (updated[tessera::index(update.target)]) return corrupt(format("'{}' is updated twice", target.name));
    updated[tessera::index(update.target)] = true;
  }
  std::vector<bool> differentiated(tensors_.size());
  for (const Gradient& gradient : gradients_) {
    if (!exists(gradient.parameter) || !exists(gradient.gradient))
      return corrupt("a gradient names a tensor that does not exist");
    const Tensor& parameter = tensor(gradient.parameter);
    if (parameter.kind != TensorKind::kParameter)
      return corrupt(format("gradient of '{}', which is not a parameter", parameter.name));
    // The gradient of a bf16 parameter may be f32.
    const TensorType wide{parameter.type.dtype == DType::kBF16 ? DType::kF32 : parameter.type.dtype,
                          parameter.type.shape};
    if (parameter.type != type(gradient.gradient) && wide != type(gradient.gradient))
      return corrupt(format("gradient of '{}' ({}) is a {}", parameter.name, type_text(parameter.type, *this),
                            type_text(type(gradient.gradient), *this)));
    if (differentiated[tessera::index(gradient.parameter)])
      return corrupt(format("'{}' has two gradients", parameter.name));
    differentiated[tessera::index(gradient.parameter)] = true;
  }
  return {};
}

}  // namespace tessera
