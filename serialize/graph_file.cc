// Tensor ids are positions in the file. Reading adds leaves and nodes in that order, so that each op's inference checks
// them, and verifies the whole graph.
#include "serialize/graph_file.h"

#include <set>
#include <tuple>

#include "serialize/file_limits.h"

#include "graph/graph_text.h"

namespace tessera {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

uint32_t raw(TensorId id) { return static_cast<uint32_t>(id); }

// `type`: index of the union alternative.
Offset<file::Attr> write_attr(FlatBufferBuilder& builder, const Attr& attr) {
  auto name = builder.CreateString(attr.name);
  const auto type = static_cast<uint8_t>(attr.value.index());
  if (auto* value = std::get_if<int64_t>(&attr.value)) return file::CreateAttr(builder, name, type, *value);
  if (auto* value = std::get_if<double>(&attr.value)) return file::CreateAttr(builder, name, type, 0, *value);
  if (auto* value = std::get_if<std::string>(&attr.value)) {
    return file::CreateAttr(builder, name, type, 0, 0, builder.CreateString(*value));
  }
  const auto& list = std::get<std::vector<int64_t>>(attr.value);
  return file::CreateAttr(builder, name, type, 0, 0, 0, builder.CreateVector(list));
}

Result<Attr> read_attr(const file::Attr& stored, FlatBufferReader& reader) {
  TSR_RETURN_IF_ERROR(reader.take_table());
  Attr attr;
  TSR_ASSIGN_OR_RETURN(attr.name, reader.text(stored.name()));
  switch (static_cast<AttrType>(stored.type())) {
    case AttrType::kI64: attr.value = stored.i64(); return attr;
    case AttrType::kF64: attr.value = stored.f64(); return attr;
    case AttrType::kString: {
      TSR_ASSIGN_OR_RETURN(attr.value, reader.text(stored.text()));
      return attr;
    }
    case AttrType::kI64List: {
      TSR_ASSIGN_OR_RETURN(attr.value, reader.numbers<int64_t>(stored.list()));
      return attr;
    }
  }
  return Status(StatusCode::kCorrupt, format("attribute '{}' has unknown type {}", attr.name, stored.type()));
}

template <class Table>
Offset<flatbuffers::Vector<const file::TensorPair*>> write_pairs(FlatBufferBuilder& builder,
                                                                 const Table& pairs) {
  std::vector<file::TensorPair> stored;
  for (const auto& [target, value] : pairs) stored.emplace_back(raw(target), raw(value));
  return builder.CreateVectorOfStructs(stored);
}

Status wrong(const std::string& why) { return Status(StatusCode::kCorrupt, "graph: " + why); }

class GraphReader {
 public:
  GraphReader(const file::Graph& stored, FlatBufferReader& reader) : stored_(stored), reader_(reader) {}

  Result<Graph> read() {
    const std::tuple<std::string_view, size_t, size_t> counts[] = {
        {"symbols", size_of(stored_.symbols()), kMaxFileSymbols},
        {"outputs", size_of(stored_.outputs()), kMaxFileOutputs},
        {"tensors", size_of(stored_.tensors()), kMaxFileTensors}};
    for (const auto& [what, count, most] : counts)
      if (count > most)
        return Status(StatusCode::kUnsupported,
                      format("the graph has {} {}, at most {} are read", count, what, most));
    TSR_RETURN_IF_ERROR(symbols());
    // Ids are positions: tensors are created in order, and
    // an activation is the next result of the next node.
    for (size_t id = 0; id < size_of(stored_.tensors()); id = graph_.tensors().size()) {
      const file::Tensor& tensor = *stored_.tensors()->Get(static_cast<uint32_t>(id));
      TSR_RETURN_IF_ERROR(static_cast<TensorKind>(tensor.kind()) == TensorKind::kActivation ? next_node(id)
                                                                                            : leaf(tensor));
    }
    if (next_node_ != size_of(stored_.nodes())) return wrong("it has nodes without results");
    TSR_RETURN_IF_ERROR(references());
    TSR_RETURN_IF_ERROR(graph_.verify().with_context("graph"));
    return std::move(graph_);
  }

 private:
  Status symbols() {
    for (size_t i = 0; i < size_of(stored_.symbols()); ++i) {
      const file::Symbol& symbol = *stored_.symbols()->Get(static_cast<uint32_t>(i));
      TSR_ASSIGN_OR_RETURN(std::string name, reader_.text(symbol.name()));
      if (name.empty() || symbol.capacity() < 0)
        return wrong(format("symbol '{}' of {}", name, symbol.capacity()));
      if (!symbol_names_.insert(name).second) return wrong(format("symbol '{}' appears twice", name));
      graph_.symbol(name, symbol.capacity());
    }
    return {};
  }

  Result<TensorType> type_of(const file::Tensor& tensor) {
    return reader_.type(*tensor.type(), static_cast<int64_t>(graph_.symbols().size()));
  }

  Status leaf(const file::Tensor& tensor) {
    TSR_RETURN_IF_ERROR(reader_.take_table());
    TSR_ASSIGN_OR_RETURN(TensorType type, type_of(tensor));
    TSR_ASSIGN_OR_RETURN(std::string name, reader_.text(tensor.name()));
    if (!leaf_names_.insert(name).second) return wrong(format("tensor '{}' appears twice", name));
    TSR_ASSIGN_OR_RETURN(TensorId id, graph_.add_tensor(name, type, static_cast<TensorKind>(tensor.kind())));
    if (tensor.frozen()) {
      if (static_cast<TensorKind>(tensor.kind()) != TensorKind::kParameter) {
        return wrong(format("'{}' is frozen but no parameter", name));
      }
      graph_.set_trainable(id, false);
    }
    return {};
  }

  Status next_node(size_t first_result) {
    if (next_node_ >= size_of(stored_.nodes()))
      return wrong(format("tensor {} comes from no node", first_result));
    const file::Node& node = *stored_.nodes()->Get(static_cast<uint32_t>(next_node_));
    TSR_RETURN_IF_ERROR(reader_.take_table());
    TSR_ASSIGN_OR_RETURN(std::string op, reader_.text(node.op()));
    const OpDef* def = find_op(op);
    if (def == nullptr) {
      return Status(StatusCode::kUnsupported, format("op '{}' is not known to this version", op));
    }
    if (node.version() != def->version) {
      return Status(StatusCode::kUnsupported, format("op '{}' is of version {}, this version has {}", op,
                                                     node.version(), def->version));
    }
    std::vector<Attr> attrs;
    for (size_t i = 0; i < size_of(node.attrs()); ++i) {
      TSR_ASSIGN_OR_RETURN(Attr attr, read_attr(*node.attrs()->Get(static_cast<uint32_t>(i)), reader_));
      attrs.push_back(std::move(attr));
    }
    std::vector<TensorId> inputs;
    TSR_ASSIGN_OR_RETURN(std::vector<uint32_t> ids, reader_.numbers<uint32_t>(node.inputs()));
    for (uint32_t id : ids) {
      if (id >= graph_.tensors().size())
        return wrong(format("node {} reads tensor {}, made later", next_node_, id));
      inputs.push_back(TensorId{id});
    }
    if (node.phase() > static_cast<uint8_t>(Phase::kUpdate))
      return wrong(format("node {} has phase {}", next_node_, node.phase()));
    const NodeId forward{node.forward()};
    if (forward != kNoNode && index(forward) >= next_node_)
      return wrong(format("node {} has a later forward node", next_node_));
    TSR_ASSIGN_OR_RETURN(std::string scope, reader_.text(node.scope()));
    graph_.set_scope(scope);
    graph_.set_phase(static_cast<Phase>(node.phase()), forward);
    TSR_ASSIGN_OR_RETURN(std::vector<TensorId> results, graph_.add_node(op, inputs, std::move(attrs)));
    graph_.set_scope("");
    graph_.set_phase(Phase::kForward);
    if (results.size() != node.result_count() || results.size() > size_of(stored_.tensors()) - first_result) {
      return wrong(format("node {} ({}) has {} results, the file says {}", next_node_, op, results.size(),
                          node.result_count()));
    }
    for (TensorId id : results) TSR_RETURN_IF_ERROR(check_result(id, op));
    ++next_node_;
    return {};
  }

  Status check_result(TensorId id, std::string_view op) {
    const file::Tensor& tensor = *stored_.tensors()->Get(raw(id));
    TSR_ASSIGN_OR_RETURN(TensorType type, type_of(tensor));
    TSR_ASSIGN_OR_RETURN(std::string name, reader_.text(tensor.name()));
    if (static_cast<TensorKind>(tensor.kind()) != TensorKind::kActivation || tensor.frozen() ||
        type != graph_.type(id)) {
      return wrong(format("'{}' is {} in the file, but {} makes {}", name, type_text(type, graph_), op,
                          type_text(graph_.type(id), graph_)));
    }
    if (name != graph_.tensor(id).name) TSR_RETURN_IF_ERROR(graph_.rename(id, name));
    return {};
  }

  Result<TensorId> existing(uint32_t id) {
    if (id >= graph_.tensors().size()) return wrong(format("tensor {} does not exist", id));
    return TensorId{id};
  }

  Status references() {
    std::set<std::string> names;
    for (size_t i = 0; i < size_of(stored_.outputs()); ++i) {
      const file::NamedTensor& output = *stored_.outputs()->Get(static_cast<uint32_t>(i));
      TSR_ASSIGN_OR_RETURN(std::string name, reader_.text(output.name()));
      TSR_ASSIGN_OR_RETURN(TensorId id, existing(output.tensor()));
      if (!names.insert(name).second) return wrong(format("output '{}' appears twice", name));
      TSR_RETURN_IF_ERROR(graph_.add_output(name, id));
    }
    for (size_t i = 0; i < size_of(stored_.updates()); ++i) {
      const file::TensorPair& update = *stored_.updates()->Get(static_cast<uint32_t>(i));
      TSR_ASSIGN_OR_RETURN(TensorId target, existing(update.target()));
      TSR_ASSIGN_OR_RETURN(TensorId value, existing(update.value()));
      graph_.add_update(target, value);
    }
    for (size_t i = 0; i < size_of(stored_.gradients()); ++i) {
      const file::TensorPair& gradient = *stored_.gradients()->Get(static_cast<uint32_t>(i));
      TSR_ASSIGN_OR_RETURN(TensorId parameter, existing(gradient.target()));
      TSR_ASSIGN_OR_RETURN(TensorId value, existing(gradient.value()));
      graph_.add_gradient(parameter, value);
    }
    return {};
  }

  const file::Graph& stored_;
  FlatBufferReader& reader_;
  Graph graph_;
  size_t next_node_ = 0;
  std::set<std::string> symbol_names_, leaf_names_;
};

}  // namespace

Offset<file::Graph> write_graph(FlatBufferBuilder& builder, const Graph& graph) {
  std::vector<Offset<file::Symbol>> symbols;
  for (const Symbol& symbol : graph.symbols()) {
    symbols.push_back(file::CreateSymbol(builder, builder.CreateString(symbol.name), symbol.capacity));
  }
  std::vector<Offset<file::Tensor>> tensors;
  for (const Tensor& tensor : graph.tensors()) {
    auto name = builder.CreateString(tensor.name);
    auto type = write_type(builder, tensor.type);
    const bool frozen = tensor.kind == TensorKind::kParameter && !tensor.trainable;
    tensors.push_back(file::CreateTensor(builder, name, type, static_cast<uint8_t>(tensor.kind), frozen));
  }
  std::vector<Offset<file::Node>> nodes;
  for (const Node& node : graph.nodes()) {
    std::vector<Offset<file::Attr>> attrs;
    for (const Attr& attr : node.attrs) attrs.push_back(write_attr(builder, attr));
    std::vector<uint32_t> inputs;
    for (TensorId id : node.inputs) inputs.push_back(raw(id));
    auto op = builder.CreateString(std::string(node.op->name));
    auto stored_attrs = builder.CreateVector(attrs);
    auto stored_inputs = builder.CreateVector(inputs);
    auto scope = node.scope.empty() ? 0 : builder.CreateString(node.scope);
    nodes.push_back(file::CreateNode(builder, op, node.op->version, stored_attrs, stored_inputs,
                                     static_cast<uint32_t>(node.outputs.size()), scope,
                                     static_cast<uint8_t>(node.phase), static_cast<uint32_t>(node.forward)));
  }
  std::vector<Offset<file::NamedTensor>> outputs;
  for (const NamedTensor& output : graph.outputs()) {
    outputs.push_back(
        file::CreateNamedTensor(builder, builder.CreateString(output.name), raw(output.tensor)));
  }
  auto stored_symbols = builder.CreateVector(symbols);
  auto stored_tensors = builder.CreateVector(tensors);
  auto stored_nodes = builder.CreateVector(nodes);
  auto stored_outputs = builder.CreateVector(outputs);
  auto updates = write_pairs(builder, graph.updates());
  auto gradients = write_pairs(builder, graph.gradients());
  return file::CreateGraph(builder, stored_symbols, stored_tensors, stored_nodes, stored_outputs, updates,
                           gradients);
}

Result<Graph> read_graph(const file::Graph& stored, FlatBufferReader& reader) {
  Result<Graph> graph = wrong("not read");
  // Ops may throw on unchecked values of the file; exceptions become errors.
  Status status = catch_status([&]() -> Status {
    graph = GraphReader(stored, reader).read();
    return graph.status();
  });
  if (!status.ok()) return status;
  return graph;
}

}  // namespace tessera
