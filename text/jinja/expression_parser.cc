#include <algorithm>

#include "graph/base/text.h"
#include "text/jinja/filters.h"
#include "text/jinja/parser.h"
#include "text/jinja/tests.h"

namespace tessera::jinja {
namespace {

constexpr int kMostNesting = 128;

// Binary operators except comparisons, by level: higher binds tighter. All associate to the left, also powers.
struct BinaryOperator {
  std::string_view name;
  int level;
  Operation operation;
};
constexpr int kOr = 0, kAnd = 1, kNot = 2, kCompare = 3, kSum = 4, kConcat = 5, kUnary = 8;
constexpr BinaryOperator kBinary[] = {
    {"+", kSum, Operation::kAdd}, {"-", kSum, Operation::kSubtract},  {"*", 6, Operation::kMultiply},
    {"/", 6, Operation::kDivide}, {"//", 6, Operation::kFloorDivide}, {"%", 6, Operation::kModulo},
    {"**", 7, Operation::kPower},
};
struct CompareOperator {
  std::string_view name;
  Operation operation;
};
constexpr CompareOperator kComparisons[] = {{"==", Operation::kEqual},  {"!=", Operation::kNotEqual},
                                            {"<", Operation::kLess},    {"<=", Operation::kLessEqual},
                                            {">", Operation::kGreater}, {">=", Operation::kGreaterEqual}};

}  // namespace

Parser::NodeResult Parser::parse_expression(bool allows_condition) {
  if (++nesting_ > kMostNesting || stack_.is_exhausted())
    return syntax_error(current().at, format("expressions nest deeper than {}", kMostNesting));
  TSR_ASSIGN_OR_RETURN(const Node* value, parse_binary(kOr));
  while (allows_condition && current().is_name("if")) {
    Node& node = new_node(NodeKind::kConditional, take().at);
    TSR_ASSIGN_OR_RETURN(const Node* condition, parse_binary(kOr));
    const Node* otherwise = nullptr;
    if (skip_name("else")) {
      TSR_ASSIGN_OR_RETURN(otherwise, parse_expression());
    }
    node.children = {condition, value, otherwise};
    TSR_ASSIGN_OR_RETURN(value, finish(node));
  }
  --nesting_;
  return value;
}

// Expressions separated by commas form a tuple. `ends`: names that end it.
Parser::NodeResult Parser::parse_tuple(bool allows_condition, std::initializer_list<std::string_view> ends,
                                       bool may_be_empty) {
  const Position at = current().at;
  std::vector<const Node*> items;
  bool is_tuple = false;
  for (;;) {
    const Token& token = current();
    const bool is_end =
        token.kind == TokenKind::kVariableEnd || token.kind == TokenKind::kBlockEnd ||
        token.is_operator(")") ||
        std::ranges::any_of(ends, [&token](std::string_view end) { return token.is_name(end); });
    if (is_end) break;
    TSR_ASSIGN_OR_RETURN(const Node* item, parse_expression(allows_condition));
    items.push_back(item);
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return items[0];
  if (!is_tuple && !may_be_empty) return unexpected("an expression");
  Node& node = new_node(NodeKind::kTuple, at);
  node.children = std::move(items);
  return finish(node);
}

Parser::NodeResult Parser::parse_binary(int level) {
  if (level == kNot && current().is_name("not")) {
    Node& node = new_node(NodeKind::kNot, take().at);
    if (++nesting_ > kMostNesting)
      return syntax_error(node.at, format("'not' nests deeper than {}", kMostNesting));
    TSR_ASSIGN_OR_RETURN(const Node* value, parse_binary(kNot));
    --nesting_;
    node.children = {value};
    return finish(node);
  }
  if (level == kNot || level == kCompare) return parse_compare();
  if (level == kUnary) return parse_unary(true);
  const auto parse_operand = [&] { return parse_binary(level + 1); };
  TSR_ASSIGN_OR_RETURN(const Node* left, parse_operand());
  for (;;) {
    const Token& token = current();
    const auto* found = std::ranges::find_if(kBinary, [&](const BinaryOperator& entry) {
      return entry.level == level && token.is_operator(entry.name);
    });
    NodeKind kind = NodeKind::kBinary;
    if (level == kOr && token.is_name("or"))
      kind = NodeKind::kOr;
    else if (level == kAnd && token.is_name("and"))
      kind = NodeKind::kAnd;
    else if (level == kConcat && token.is_operator("~"))
      kind = NodeKind::kConcat;
    else if (found == std::end(kBinary))
      return left;
    Node& node = new_node(kind, token.at);
    if (kind == NodeKind::kBinary) node.operation = found->operation;
    ++at_;
    TSR_ASSIGN_OR_RETURN(const Node* right, parse_operand());
    node.children = {left, right};
    while (kind == NodeKind::kConcat && skip_operator("~")) {
      TSR_ASSIGN_OR_RETURN(const Node* more, parse_operand());
      node.children.push_back(more);
    }
    TSR_ASSIGN_OR_RETURN(left, finish(node));
  }
}

Parser::NodeResult Parser::parse_compare() {
  const Position at = current().at;
  TSR_ASSIGN_OR_RETURN(const Node* first, parse_binary(kSum));
  std::vector<const Node*> operands = {first};
  std::vector<Operation> operations;
  for (;;) {
    const Token& token = current();
    const auto* found = std::ranges::find_if(
        kComparisons, [&token](const CompareOperator& entry) { return token.is_operator(entry.name); });
    if (found != std::end(kComparisons)) {
      ++at_;
      operations.push_back(found->operation);
    } else if (skip_name("in")) {
      operations.push_back(Operation::kIn);
    } else if (token.is_name("not") && next().is_name("in")) {
      at_ += 2;
      operations.push_back(Operation::kNotIn);
    } else {
      break;
    }
    TSR_ASSIGN_OR_RETURN(const Node* operand, parse_binary(kSum));
    operands.push_back(operand);
  }
  if (operations.empty()) return first;
  Node& node = new_node(NodeKind::kCompare, at);
  node.children = std::move(operands);
  node.operations = std::move(operations);
  return finish(node);
}

Parser::NodeResult Parser::parse_unary(bool with_filters) {
  const Token& token = current();
  const Node* value = nullptr;
  if (token.is_operator("-") || token.is_operator("+")) {
    Node& node = new_node(token.is_operator("-") ? NodeKind::kNegate : NodeKind::kPlus, token.at);
    ++at_;
    if (++nesting_ > kMostNesting)
      return syntax_error(node.at, format("signs nest deeper than {}", kMostNesting));
    TSR_ASSIGN_OR_RETURN(const Node* operand, parse_unary(false));
    --nesting_;
    node.children = {operand};
    TSR_ASSIGN_OR_RETURN(value, finish(node));
  } else {
    TSR_ASSIGN_OR_RETURN(value, parse_primary());
  }
  TSR_ASSIGN_OR_RETURN(value, parse_postfix(value));
  return with_filters ? parse_filters(value) : NodeResult(value);
}

void Parser::note_name(std::string_view name) {
  for (Node* function : functions_) {
    if (std::ranges::any_of(function->parameters, [name](const auto& each) { return each.first == name; }))
      continue;
    function->takes_caller |= name == "caller";
    function->takes_keywords |= name == "kwargs";
    function->takes_more |= name == "varargs";
  }
}

Parser::NodeResult Parser::parse_name() {
  const Token token = take();
  Node& node = new_node(NodeKind::kConstant, token.at);
  if (token.text == "true" || token.text == "True") {
    node.constant = true;
  } else if (token.text == "false" || token.text == "False") {
    node.constant = false;
  } else if (token.text == "none" || token.text == "None") {
    node.constant = None{};
  } else {
    node.kind = NodeKind::kName;
    node.name = token.text;
    note_name(node.name);
  }
  return finish(node);
}

Parser::NodeResult Parser::parse_primary() {
  const Token& token = current();
  switch (token.kind) {
    case TokenKind::kName: return parse_name();
    case TokenKind::kString: {
      Node& node = new_node(NodeKind::kConstant, token.at);
      std::string all;
      while (current().kind == TokenKind::kString) all += take().text;
      node.constant = Text::of(all);
      return finish(node);
    }
    case TokenKind::kInteger:
    case TokenKind::kReal: {
      Node& node = new_node(NodeKind::kConstant, token.at);
      if (token.kind == TokenKind::kInteger)
        node.constant = token.integer;
      else
        node.constant = token.real;
      ++at_;
      return finish(node);
    }
    default: break;
  }
  if (skip_operator("(")) {
    TSR_ASSIGN_OR_RETURN(const Node* inner, parse_tuple(true, {}, true));
    TSR_RETURN_IF_ERROR(expect_operator(")"));
    return inner;
  }
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  return unexpected("an expression");
}

Parser::NodeResult Parser::parse_list() {
  Node& node = new_node(NodeKind::kList, take().at);
  while (!current().is_operator("]")) {
    if (!node.children.empty()) TSR_RETURN_IF_ERROR(expect_operator(","));
    if (current().is_operator("]")) break;
    TSR_ASSIGN_OR_RETURN(const Node* item, parse_expression());
    node.children.push_back(item);
  }
  ++at_;
  return finish(node);
}

Parser::NodeResult Parser::parse_dict() {
  Node& node = new_node(NodeKind::kDict, take().at);
  while (!current().is_operator("}")) {
    if (!node.children.empty()) TSR_RETURN_IF_ERROR(expect_operator(","));
    if (current().is_operator("}")) break;
    TSR_ASSIGN_OR_RETURN(const Node* key, parse_expression());
    TSR_RETURN_IF_ERROR(expect_operator(":"));
    TSR_ASSIGN_OR_RETURN(const Node* value, parse_expression());
    node.children.insert(node.children.end(), {key, value});
  }
  ++at_;
  return finish(node);
}

Parser::NodeResult Parser::parse_postfix(const Node* node) {
  for (;;) {
    if (current().is_operator(".") || current().is_operator("[")) {
      TSR_ASSIGN_OR_RETURN(node, parse_subscript(node));
    } else if (current().is_operator("(")) {
      Node& call = new_node(NodeKind::kCall, current().at);
      call.children = {node};
      TSR_RETURN_IF_ERROR(parse_arguments(call));
      TSR_ASSIGN_OR_RETURN(node, finish(call));
    } else {
      return node;
    }
  }
}

Parser::NodeResult Parser::parse_filters(const Node* node) {
  for (;;) {
    if (current().is_operator("|")) {
      TSR_ASSIGN_OR_RETURN(node, parse_filter(node));
    } else if (current().is_name("is")) {
      TSR_ASSIGN_OR_RETURN(node, parse_test(node));
    } else if (current().is_operator("(")) {
      Node& call = new_node(NodeKind::kCall, current().at);
      call.children = {node};
      TSR_RETURN_IF_ERROR(parse_arguments(call));
      TSR_ASSIGN_OR_RETURN(node, finish(call));
    } else {
      return node;
    }
  }
}

Parser::NodeResult Parser::parse_subscript(const Node* object) {
  const Token mark = take();
  if (mark.text == ".") {
    const Token member = take();
    if (member.kind == TokenKind::kName) {
      Node& node = new_node(NodeKind::kAttribute, mark.at);
      node.name = member.text;
      node.children = {object};
      return finish(node);
    }
    if (member.kind != TokenKind::kInteger)
      return syntax_error(member.at, format("found {}, wanted the name of an attribute", describe(member)));
    Node& index = new_node(NodeKind::kConstant, member.at);
    index.constant = member.integer;
    Node& node = new_node(NodeKind::kItem, mark.at);
    node.children = {object, &index};
    return finish(node);
  }
  Node& node = new_node(NodeKind::kItem, mark.at);
  node.children = {object};
  const Node* parts[3] = {};
  int colons = 0;
  while (!current().is_operator("]")) {
    if (skip_operator(":")) {
      if (++colons > 2) return syntax_error(mark.at, "a slice has at most two ':'");
      continue;
    }
    if (parts[colons] != nullptr) return unexpected("']'");
    TSR_ASSIGN_OR_RETURN(parts[colons], parse_expression());
  }
  ++at_;
  if (colons == 0 && parts[0] == nullptr) return syntax_error(mark.at, "found '[]', wanted an index");
  if (colons > 0) {
    node.kind = NodeKind::kSlice;
    node.children.insert(node.children.end(), std::begin(parts), std::end(parts));
  } else {
    node.children.push_back(parts[0]);
  }
  return finish(node);
}

Status Parser::parse_arguments(Node& node) {
  TSR_RETURN_IF_ERROR(expect_operator("("));
  for (bool first = true; !current().is_operator(")"); first = false) {
    if (!first) TSR_RETURN_IF_ERROR(expect_operator(","));
    if (current().is_operator(")")) break;
    const Position at = current().at;
    if (skip_operator("*")) {
      if (node.more_arguments != nullptr || node.more_keywords != nullptr)
        return syntax_error(at, "'*' may be given once, and before '**'");
      TSR_ASSIGN_OR_RETURN(node.more_arguments, parse_expression());
    } else if (skip_operator("**")) {
      if (node.more_keywords != nullptr) return syntax_error(at, "'**' may be given once");
      TSR_ASSIGN_OR_RETURN(node.more_keywords, parse_expression());
    } else if (current().kind == TokenKind::kName && next().is_operator("=")) {
      if (node.more_keywords != nullptr) return syntax_error(at, "named arguments come before '**'");
      std::string name = take().text;
      ++at_;
      TSR_ASSIGN_OR_RETURN(const Node* value, parse_expression());
      node.keywords.emplace_back(std::move(name), value);
    } else {
      if (node.more_arguments != nullptr || node.more_keywords != nullptr || !node.keywords.empty())
        return syntax_error(at, "arguments without a name come first");
      TSR_ASSIGN_OR_RETURN(const Node* value, parse_expression());
      node.arguments.push_back(value);
    }
  }
  ++at_;
  return {};
}

Parser::NodeResult Parser::parse_filter(const Node* value) {
  Node& node = new_node(NodeKind::kFilter, take().at);
  node.children = {value};
  TSR_ASSIGN_OR_RETURN(node.name, take_name("the name of a filter"));
  node.filter = find_filter(node.name);
  // As in Jinja2, an unreached filter may be unknown.
  if (node.filter == nullptr && conditions_ == 0)
    return unknown_filter(node.name).with_context(syntax_error(node.at, "a filter").message());
  if (current().is_operator("(")) TSR_RETURN_IF_ERROR(parse_arguments(node));
  return finish(node);
}

Parser::NodeResult Parser::parse_test(const Node* value) {
  Node& node = new_node(NodeKind::kTest, take().at);
  node.children = {value};
  const bool negated = skip_name("not");
  TSR_ASSIGN_OR_RETURN(node.name, take_name("the name of a test"));
  node.test = find_test(node.name);
  if (node.test == nullptr && conditions_ == 0)
    return unknown_test(node.name).with_context(syntax_error(node.at, "a test").message());
  const Token& token = current();
  const bool has_argument = (token.kind == TokenKind::kName && !token.is_name("else") &&
                             !token.is_name("or") && !token.is_name("and") && !token.is_name("is")) ||
                            token.kind == TokenKind::kString || token.kind == TokenKind::kInteger ||
                            token.kind == TokenKind::kReal || token.is_operator("[") ||
                            token.is_operator("{");
  if (token.is_operator("(")) {
    TSR_RETURN_IF_ERROR(parse_arguments(node));
  } else if (token.is_name("is")) {
    return syntax_error(token.at, "tests with 'is' cannot be chained");
  } else if (has_argument) {
    TSR_ASSIGN_OR_RETURN(const Node* argument, parse_primary());
    TSR_ASSIGN_OR_RETURN(argument, parse_postfix(argument));
    node.arguments = {argument};
  }
  TSR_ASSIGN_OR_RETURN(const Node* finished, finish(node));
  if (!negated) return finished;
  Node& negation = new_node(NodeKind::kNot, node.at);
  negation.children = {finished};
  return finish(negation);
}

}  // namespace tessera::jinja
