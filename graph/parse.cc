// The reader of the text form of a Graph (grammar in graph.h).
#include <map>
#include <optional>

#include "graph/base/text.h"
#include "graph/graph.h"
#include "graph/graph_text.h"

namespace tessera {

namespace {

class GraphReader {
 public:
  explicit GraphReader(std::string_view text) : in_(text) {}

  Result<Graph> read() {
    in_.skip_lines();
    TSR_RETURN_IF_ERROR(in_.expect("graph"));
    TSR_RETURN_IF_ERROR(in_.expect("{"));
    for (in_.skip_lines(); !in_.accept("}"); in_.skip_lines()) {
      if (in_.peek().kind == TextReader::Kind::kEnd) return in_.wrong("a closing '}'");
      TSR_RETURN_IF_ERROR(statement());
      TSR_RETURN_IF_ERROR(in_.end_of_line());
    }
    in_.skip_lines();
    if (in_.peek().kind != TextReader::Kind::kEnd) return in_.wrong("the end of the text");
    TSR_RETURN_IF_ERROR(graph_.verify());
    return std::move(graph_);
  }

 private:
  Status statement() {
    if (in_.accept("symbol")) return symbol();
    if (in_.accept("input")) return tensor(TensorKind::kInput);
    if (in_.accept("parameter")) return tensor(TensorKind::kParameter);
    if (in_.accept("constant")) return tensor(TensorKind::kConstant);
    if (in_.accept("state")) return tensor(TensorKind::kState);
    if (in_.accept("output")) return output();
    if (in_.accept("update")) return update();
    if (in_.accept("gradient")) return gradient();
    return node();
  }

  Status symbol() {
    TSR_ASSIGN_OR_RETURN(const std::string name, in_.name());
    if (name.empty() || symbols_.contains(name))
      return in_.error(format("symbol '{}' is empty or repeated", name));
    int64_t capacity = 0;
    if (in_.accept("<=")) {
      TSR_ASSIGN_OR_RETURN(capacity, in_.integer());
      if (capacity < 1)
        return in_.error(format("symbol '{}' has capacity {}, wanted at least 1", name, capacity));
    }
    symbols_[name] = graph_.symbol(name, capacity);
    return {};
  }

  Result<TensorType> type() {
    TSR_ASSIGN_OR_RETURN(const std::string word, in_.name());
    const auto dtype = dtype_from_name(word);
    if (!dtype) return in_.error(format("'{}' is not a dtype", word));
    TensorType type{*dtype, {}};
    TSR_RETURN_IF_ERROR(in_.expect("["));
    while (!in_.accept("]")) {
      if (type.shape.rank() > 0) TSR_RETURN_IF_ERROR(in_.expect(","));
      if (type.shape.rank() == kMaxRank) return in_.error(format("a shape has at most {} dims", kMaxRank));
      if (in_.peek().kind == TextReader::Kind::kNumber) {
        TSR_ASSIGN_OR_RETURN(const int64_t extent, in_.integer());
        if (extent < 0) return in_.error(format("extent {} where a count or a symbol is wanted", extent));
        type.shape.push_back(extent);
      } else {
        TSR_ASSIGN_OR_RETURN(const std::string name, in_.name());
        const auto symbol = symbols_.find(name);
        if (symbol == symbols_.end()) return in_.error(format("symbol '{}' is not declared", name));
        type.shape.push_back(symbol->second);
      }
    }
    return type;
  }

  Status tensor(TensorKind kind) {
    TSR_ASSIGN_OR_RETURN(const std::string name, in_.name());
    TSR_RETURN_IF_ERROR(in_.expect(":"));
    TSR_ASSIGN_OR_RETURN(const TensorType of, type());
    const bool frozen = in_.accept("frozen");
    if (frozen && kind != TensorKind::kParameter) return in_.error("only parameters are frozen");
    if (tensors_.contains(name)) return in_.error(format("'{}' exists already", name));
    Result<TensorId> id = graph_.add_tensor(name, of, kind);
    if (!id.ok()) return in_.error(id.status().message());
    if (frozen) graph_.set_trainable(*id, false);
    tensors_[name] = *id;
    return {};
  }

  Result<TensorId> use() {
    TSR_ASSIGN_OR_RETURN(const std::string name, in_.name());
    const auto tensor = tensors_.find(name);
    if (tensor == tensors_.end()) return in_.error(format("there is no tensor '{}' yet", name));
    return tensor->second;
  }

  Result<AttrValue> attr_value() {
    if (in_.accept("[")) {
      std::vector<int64_t> items;
      while (!in_.accept("]")) {
        if (!items.empty()) TSR_RETURN_IF_ERROR(in_.expect(","));
        TSR_ASSIGN_OR_RETURN(const int64_t item, in_.integer());
        items.push_back(item);
      }
      return AttrValue(std::move(items));
    }
    if (in_.peek().kind == TextReader::Kind::kString) return AttrValue(in_.take().text);
    if (in_.peek().kind == TextReader::Kind::kNumber && parse_i64(in_.peek().text)) {
      TSR_ASSIGN_OR_RETURN(const int64_t value, in_.integer());
      return AttrValue(value);
    }
    TSR_ASSIGN_OR_RETURN(const double value, in_.real());
    return AttrValue(value);
  }

  Result<std::vector<Attr>> attrs() {
    std::vector<Attr> attrs;
    if (!in_.accept("{")) return attrs;
    while (!in_.accept("}")) {
      if (!attrs.empty()) TSR_RETURN_IF_ERROR(in_.expect(","));
      TSR_ASSIGN_OR_RETURN(std::string name, in_.name());
      TSR_RETURN_IF_ERROR(in_.expect("="));
      TSR_ASSIGN_OR_RETURN(AttrValue value, attr_value());
      attrs.push_back({std::move(name), std::move(value)});
    }
    return attrs;
  }

  Result<Phase> phase() {
    TSR_ASSIGN_OR_RETURN(const std::string word, in_.name());
    for (Phase phase : {Phase::kForward, Phase::kBackwardInput, Phase::kBackwardWeight, Phase::kUpdate})
      if (phase_name(phase) == word) return phase;
    return in_.error(format("'{}' is not a phase", word));
  }

  Status node() {
    std::vector<std::string> names;
    do {
      TSR_ASSIGN_OR_RETURN(std::string name, in_.name());
      if (tensors_.contains(name)) return in_.error(format("'{}' exists already", name));
      names.push_back(std::move(name));
    } while (in_.accept(","));
    TSR_RETURN_IF_ERROR(in_.expect("="));
    TSR_ASSIGN_OR_RETURN(const std::string op, in_.name());
    TSR_RETURN_IF_ERROR(in_.expect("("));
    std::vector<TensorId> inputs;
    while (!in_.accept(")")) {
      if (!inputs.empty()) TSR_RETURN_IF_ERROR(in_.expect(","));
      TSR_ASSIGN_OR_RETURN(const TensorId input, use());
      inputs.push_back(input);
    }
    TSR_ASSIGN_OR_RETURN(std::vector<Attr> given, attrs());
    std::vector<TensorType> types;  // optional: checked against infer's if written
    if (in_.accept(":")) do {
        TSR_ASSIGN_OR_RETURN(const TensorType written, type());
        types.push_back(written);
      } while (in_.accept(","));
    std::string scope;
    Phase in_phase = Phase::kForward;
    NodeId forward = kNoNode;
    while (in_.accept("@")) {
      TSR_ASSIGN_OR_RETURN(const std::string word, in_.name());
      if (word == "scope") {
        TSR_ASSIGN_OR_RETURN(scope, in_.name());
      } else if (word == "phase") {
        TSR_ASSIGN_OR_RETURN(in_phase, phase());
      } else if (word == "forward") {
        TSR_ASSIGN_OR_RETURN(const TensorId result, use());
        forward = graph_.tensor(result).producer;
        if (forward == kNoNode) return in_.error("@forward wants a result of the forward node");
      } else {
        return in_.error(format("'@{}' is not known; wanted @scope, @phase or @forward", word));
      }
    }
    return add_node(op, inputs, std::move(given), names, types, std::move(scope), in_phase, forward);
  }

  Status add_node(const std::string& op, std::span<const TensorId> inputs, std::vector<Attr> given,
                  std::span<const std::string> names, std::span<const TensorType> types, std::string scope,
                  Phase in_phase, NodeId forward) {
    graph_.set_scope(std::move(scope));
    graph_.set_phase(in_phase, forward);
    Result<std::vector<TensorId>> added = graph_.add_node(op, inputs, std::move(given));
    graph_.set_scope("");
    graph_.set_phase(Phase::kForward);
    if (!added.ok()) return in_.error(added.status().message());
    if (added->size() != names.size())
      return in_.error(format("{} makes {} results, {} names are given", op, added->size(), names.size()));
    if (!types.empty() && types.size() != names.size())
      return in_.error(format("{} types are given for {} results", types.size(), names.size()));
    for (size_t i = 0; i < names.size(); ++i) {
      const TensorId output = (*added)[i];
      if (!types.empty() && graph_.type(output) != types[i])
        return in_.error(format("'{}' is {}, not {}", names[i], type_text(graph_.type(output), graph_),
                                type_text(types[i], graph_)));
      if (const Status renamed = graph_.rename(output, names[i]); !renamed.ok())
        return in_.error(renamed.message());
      if (!tensors_.emplace(names[i], output).second)
        return in_.error(format("'{}' exists already", names[i]));
    }
    return {};
  }

  Status output() {
    TSR_ASSIGN_OR_RETURN(std::string name, in_.name());
    TSR_RETURN_IF_ERROR(in_.expect("="));
    TSR_ASSIGN_OR_RETURN(const TensorId tensor, use());
    if (graph_.find_output(name)) return in_.error(format("output '{}' appears twice", name));
    return graph_.add_output(std::move(name), tensor);
  }

  Status update() {
    TSR_ASSIGN_OR_RETURN(const TensorId target, use());
    TSR_RETURN_IF_ERROR(in_.expect("<-"));
    TSR_ASSIGN_OR_RETURN(const TensorId value, use());
    graph_.add_update(target, value);
    return {};
  }

  Status gradient() {
    TSR_ASSIGN_OR_RETURN(const TensorId parameter, use());
    TSR_RETURN_IF_ERROR(in_.expect("="));
    TSR_ASSIGN_OR_RETURN(const TensorId value, use());
    graph_.add_gradient(parameter, value);
    return {};
  }

  TextReader in_;
  Graph graph_;
  std::map<std::string, int64_t, std::less<>> symbols_;
  std::map<std::string, TensorId, std::less<>> tensors_;
};

}  // namespace

Result<Graph> parse_graph(std::string_view text) { return GraphReader(text).read(); }

}  // namespace tessera
