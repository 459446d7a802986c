// The text form of a Graph. Tensors appear in id order and nodes at their first result, so that parsing gives
// the same ids back.
#include <algorithm>

#include "graph/base/text.h"
#include "graph/graph.h"
#include "graph/graph_text.h"

namespace tessera {

namespace {

constexpr std::string_view kKeywords[] = {"graph", "symbol", "input",  "parameter", "constant",
                                          "state", "output", "update", "gradient",  "op"};

bool is_bare(std::string_view name) {
  const auto first = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '%';
  };
  const auto later = [&](char c) { return first(c) || (c >= '0' && c <= '9') || c == '.'; };
  return !name.empty() && first(name[0]) && std::ranges::all_of(name, later) &&
         std::ranges::find(kKeywords, name) == std::end(kKeywords);
}

std::string_view kind_word(TensorKind kind) {
  switch (kind) {
    case TensorKind::kInput: return "input";
    case TensorKind::kParameter: return "parameter";
    case TensorKind::kConstant: return "constant";
    case TensorKind::kState: return "state";
    case TensorKind::kActivation: return "activation";
  }
  return "?";
}

class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph) {}

  std::string print() {
    text_ = "graph {\n";
    for (const Symbol& symbol : graph_.symbols())
      line("symbol " + quoted_name(symbol.name) +
           (symbol.capacity > 0 ? format(" <= {}", symbol.capacity) : ""));
    for (const Tensor& tensor : graph_.tensors()) {
      if (tensor.producer == kNoNode)
        declare(tensor);
      else if (tensor.output_index == 0)
        define(graph_.node(tensor.producer));
    }
    for (const NamedTensor& output : graph_.outputs())
      line("output " + quoted_name(output.name) + " = " + name(output.tensor));
    for (const Update& update : graph_.updates())
      line("update " + name(update.target) + " <- " + name(update.value));
    for (const Gradient& gradient : graph_.gradients())
      line("gradient " + name(gradient.parameter) + " = " + name(gradient.gradient));
    return text_ + "}\n";
  }

 private:
  void line(const std::string& content) { text_ += "  " + content + "\n"; }
  std::string name(TensorId tensor) const { return quoted_name(graph_.tensor(tensor).name); }
  std::string names(std::span<const TensorId> tensors) const {
    std::vector<std::string> parts;
    for (TensorId tensor : tensors) parts.push_back(name(tensor));
    return join(parts, ", ");
  }

  void declare(const Tensor& tensor) {
    line(format("{} {}: {}", kind_word(tensor.kind), quoted_name(tensor.name),
                type_text(tensor.type, graph_)) +
         (tensor.trainable ? "" : " frozen"));
  }

  void define(const Node& node) {
    std::vector<std::string> types, attrs;
    for (TensorId output : node.outputs) types.push_back(type_text(graph_.type(output), graph_));
    for (size_t i = 0; i < node.attrs.size(); ++i) {
      const std::string value = to_text(node.attrs[i].value);
      const auto& by_default = node.op->attrs[i].default_value;
      if (!by_default || to_text(*by_default) != value) attrs.push_back(node.attrs[i].name + " = " + value);
    }
    std::string content = format("{} = {}({})", names(node.outputs), node.op->name, names(node.inputs));
    if (!attrs.empty()) content += " {" + join(attrs, ", ") + "}";
    content += " : " + join(types, ", ");
    if (!node.scope.empty()) content += " @scope " + to_text(AttrValue(node.scope));
    if (node.phase != Phase::kForward) content += format(" @phase {}", phase_name(node.phase));
    if (node.forward != kNoNode) content += " @forward " + name(graph_.node(node.forward).outputs[0]);
    line(content);
  }

  const Graph& graph_;
  std::string text_;
};

}  // namespace

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::kForward: return "forward";
    case Phase::kBackwardInput: return "backward_input";
    case Phase::kBackwardWeight: return "backward_weight";
    case Phase::kUpdate: return "update";
  }
  return "?";
}

std::string quoted_name(std::string_view name) {
  return is_bare(name) ? std::string(name) : to_text(AttrValue(std::string(name)));
}

std::string type_text(const TensorType& type, std::span<const Symbol> symbols) {
  std::vector<std::string> extents;
  for (int64_t extent : type.shape.dims()) {
    const auto symbol = static_cast<size_t>(symbol_index(extent));
    extents.push_back(is_symbol(extent) && symbol < symbols.size() ? quoted_name(symbols[symbol].name)
                                                                   : to_text(Shape{extent}));
  }
  return to_text(type.dtype) + "[" + join(extents, ", ") + "]";
}

std::string type_text(const TensorType& type, const Graph& graph) {
  return type_text(type, graph.symbols());
}

std::string print(const Graph& graph) { return Printer(graph).print(); }

}  // namespace tessera
