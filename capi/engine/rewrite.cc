#include "capi/engine/rewrite.h"

#include <algorithm>
#include <string>
#include <vector>

#include "graph/base/text.h"

namespace tessera {
namespace {

// Adds the tensors that no node produces when a node first needs them, so ids keep their order of use.
class Copier {
 public:
  explicit Copier(const Graph& from) : from_(from), copied_(from.tensors().size(), kNoTensor) {
    for (const Symbol& symbol : from.symbols()) to_.symbol(symbol.name, symbol.capacity);
  }

  Status copy_leaf(TensorId id) {
    if (copied_[index(id)] != kNoTensor) return {};
    const Tensor& tensor = from_.tensor(id);
    TSR_ASSIGN_OR_RETURN(copied_[index(id)], to_.add_tensor(tensor.name, tensor.type, tensor.kind));
    if (tensor.kind == TensorKind::kParameter) to_.set_trainable(copied_[index(id)], tensor.trainable);
    return {};
  }

  Status copy_node(const Node& node, std::vector<Attr> attrs) {
    std::vector<TensorId> inputs;
    for (const TensorId input : node.inputs) {
      TSR_RETURN_IF_ERROR(copy_leaf(input));
      inputs.push_back(copied_[index(input)]);
    }
    to_.set_scope(node.scope);
    to_.set_phase(node.phase, node.forward);
    TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> outputs,
                         to_.add_node(node.op->name, inputs, std::move(attrs)));
    for (size_t i = 0; i < outputs.size(); ++i) {
      copied_[index(node.outputs[i])] = outputs[i];
      const std::string& name = from_.tensor(node.outputs[i]).name;
      if (to_.tensor(outputs[i]).name != name && !name.starts_with('%'))
        TSR_RETURN_IF_ERROR(to_.rename(outputs[i], name));
    }
    return {};
  }

  Result<Graph> finish() {
    for (size_t i = 0; i < copied_.size(); ++i)
      if (from_.tensors()[i].producer == kNoNode) TSR_RETURN_IF_ERROR(copy_leaf(static_cast<TensorId>(i)));
    for (const NamedTensor& output : from_.outputs())
      TSR_RETURN_IF_ERROR(to_.add_output(output.name, copied_[index(output.tensor)]));
    for (const Update& update : from_.updates())
      to_.add_update(copied_[index(update.target)], copied_[index(update.value)]);
    return std::move(to_);
  }

 private:
  const Graph& from_;
  Graph to_;
  std::vector<TensorId> copied_;
};

bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    for (size_t skip = 0; skip <= name.size(); ++skip)
      if (matches(pattern.substr(1), name.substr(skip))) return true;
    return false;
  }
  return !name.empty() && pattern[0] == name[0] && matches(pattern.substr(1), name.substr(1));
}

}  // namespace

bool has_op(const Graph& graph, std::string_view op) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [op](const Node& node) { return node.op->name == op; });
}

Result<Graph> with_dropout(const Graph& graph, double p) {
  Copier copier(graph);
  for (const Node& node : graph.nodes()) {
    std::vector<Attr> attrs = node.attrs;
    if (node.op->name == "dropout")
      for (Attr& attr : attrs)
        if (attr.name == "p") attr.value = p;
    TSR_RETURN_IF_ERROR(copier.copy_node(node, std::move(attrs)));
  }
  return copier.finish();
}

Status freeze(Graph& graph, std::string_view patterns) {
  if (trim(patterns).empty()) return {};
  const std::vector<TensorId> parameters = graph.tensors_of_kind(TensorKind::kParameter);
  for (const std::string& part : split(patterns, ',')) {
    const std::string_view pattern = trim(part);
    bool found = false;
    for (const TensorId id : parameters) {
      if (!matches(pattern, graph.tensor(id).name)) continue;
      graph.set_trainable(id, false);
      found = true;
    }
    if (!found) {
      std::vector<std::string> names;
      for (const TensorId id : parameters) names.push_back(graph.tensor(id).name);
      return Status(StatusCode::kNotFound, format("frozen: no parameter matches '{}'; nearest: {}", pattern,
                                                  join(nearest_names(pattern, names), ", ")));
    }
  }
  return {};
}

}  // namespace tessera
