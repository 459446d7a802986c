#include <algorithm>

#include "graph/base/text.h"
#include "text/jinja/parser.h"

namespace tessera::jinja {
namespace {

constexpr int kMostNesting = 128;
constexpr int kMostDepth = 400;
constexpr size_t kMostTemplateBytes = size_t{1} << 20;
// Statements of Jinja2 that need a loader, or that transformers disables.
constexpr std::string_view kUnsupported[] = {"block", "extends", "include", "import", "from",
                                             "print", "do",      "trans",   "debug",  "autoescape"};

}  // namespace

Result<SyntaxTree> parse(std::string_view source) {
  if (source.size() > kMostTemplateBytes)
    return Status(StatusCode::kInvalidArgument,
                  format("the template has {} bytes, wanted at most {}", source.size(), kMostTemplateBytes));
  TSR_ASSIGN_OR_RETURN(std::vector<Token> tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

Result<SyntaxTree> Parser::run() {
  const Token opening;
  TSR_ASSIGN_OR_RETURN(tree_.body, parse_body({}, opening));
  return std::move(tree_);
}

Token Parser::take() {
  Token token = current();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::skip_operator(std::string_view name) {
  if (!current().is_operator(name)) return false;
  ++at_;
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  ++at_;
  return true;
}

Status Parser::unexpected(std::string_view wanted) const {
  return syntax_error(current().at, format("found {}, wanted {}", describe(current()), wanted));
}

Status Parser::expect_operator(std::string_view name) {
  return skip_operator(name) ? Status() : unexpected(format("'{}'", name));
}

Status Parser::expect_name(std::string_view name) {
  return skip_name(name) ? Status() : unexpected(format("'{}'", name));
}

Status Parser::expect_block_end() {
  if (current().kind != TokenKind::kBlockEnd) return unexpected("'%}'");
  ++at_;
  return {};
}

Result<std::string> Parser::take_name(std::string_view what) {
  if (current().kind != TokenKind::kName) return unexpected(what);
  return take().text;
}

Node& Parser::new_node(NodeKind kind, Position at) {
  Node& node = tree_.nodes.emplace_back();
  node.kind = kind;
  node.at = at;
  return node;
}

Parser::NodeResult Parser::finish(Node& node) {
  int depth = 0;
  const auto look = [&depth](const Node* child) {
    if (child != nullptr) depth = std::max(depth, child->depth);
  };
  for (const auto* nodes : {&node.children, &node.body, &node.otherwise, &node.arguments})
    for (const Node* child : *nodes) look(child);
  for (const auto* named : {&node.keywords, &node.parameters})
    for (const auto& [name, child] : *named) look(child);
  look(node.more_arguments);
  look(node.more_keywords);
  node.depth = depth + 1;
  if (node.depth > kMostDepth)
    return syntax_error(node.at, format("the template nests deeper than {} parts", kMostDepth));
  return static_cast<const Node*>(&node);
}

// Parses to a tag that begins with one of `ends`, the current token afterwards; without ends, to the end.
Result<Parser::Body> Parser::parse_body(std::initializer_list<std::string_view> ends, const Token& opening) {
  Body body;
  for (;;) {
    const Token& token = current();
    if (token.kind == TokenKind::kEnd) {
      if (ends.size() == 0) return body;
      return syntax_error(opening.at,
                          format("'{}' is not closed; wanted '{}'", opening.text, *(ends.end() - 1)));
    }
    if (token.kind == TokenKind::kData) {
      Node& node = new_node(NodeKind::kConstant, token.at);
      node.constant = Text::of(token.text);
      ++at_;
      Node& output = new_node(NodeKind::kOutput, node.at);
      output.children = {&node};
      TSR_ASSIGN_OR_RETURN(const Node* finished, finish(output));
      body.push_back(finished);
    } else if (token.kind == TokenKind::kVariableBegin) {
      Node& output = new_node(NodeKind::kOutput, token.at);
      ++at_;
      TSR_ASSIGN_OR_RETURN(const Node* value, parse_tuple(true, {}, false));
      output.children = {value};
      if (current().kind != TokenKind::kVariableEnd) return unexpected("'}}'");
      ++at_;
      TSR_ASSIGN_OR_RETURN(const Node* finished, finish(output));
      body.push_back(finished);
    } else {
      ++at_;
      if (std::ranges::any_of(ends, [this](std::string_view end) { return current().is_name(end); }))
        return body;
      TSR_ASSIGN_OR_RETURN(const Node* statement, parse_statement());
      body.push_back(statement);
      TSR_RETURN_IF_ERROR(expect_block_end());
    }
  }
}

Parser::NodeResult Parser::parse_statement() {
  struct Keyword {
    std::string_view name;
    NodeResult (Parser::*parse)();
  };
  constexpr Keyword kKeywords[] = {{"if", &Parser::parse_if},
                                   {"for", &Parser::parse_for},
                                   {"set", &Parser::parse_set},
                                   {"macro", &Parser::parse_macro},
                                   {"call", &Parser::parse_call_block},
                                   {"filter", &Parser::parse_filter_block},
                                   {"with", &Parser::parse_with},
                                   {"generation", &Parser::parse_generation},
                                   {"break", &Parser::parse_loop_control},
                                   {"continue", &Parser::parse_loop_control}};
  const Token& token = current();
  if (token.kind != TokenKind::kName) return unexpected("a statement such as 'if'");
  const auto* keyword = std::ranges::find(kKeywords, token.text, &Keyword::name);
  if (keyword == std::end(kKeywords)) {
    if (std::ranges::find(kUnsupported, token.text) != std::end(kUnsupported))
      return Status(
          StatusCode::kUnsupported,
          std::string(syntax_error(token.at, format("the statement '{}' is not supported in chat templates",
                                                    token.text))
                          .message()));
    return syntax_error(token.at, format("unknown statement '{}'", token.text));
  }
  if (++nesting_ > kMostNesting || stack_.is_exhausted())
    return syntax_error(token.at, format("statements nest deeper than {}", kMostNesting));
  NodeResult node = (this->*keyword->parse)();
  --nesting_;
  return node;
}

// {% if a %} .. {% elif b %} .. {% else %} .. {% endif %}; `elif` is an `if` in `otherwise`, parsed without recursion.
Parser::NodeResult Parser::parse_if() {
  struct Branch {
    Position at;
    const Node* condition;
    Body body;
  };
  const Token opening = take();
  std::vector<Branch> branches;
  Body otherwise;
  ++conditions_;
  for (Position at = opening.at;;) {
    TSR_ASSIGN_OR_RETURN(const Node* condition, parse_tuple(false, {}, false));
    (void)skip_operator(":");
    TSR_RETURN_IF_ERROR(expect_block_end());
    TSR_ASSIGN_OR_RETURN(Body body, parse_body({"elif", "else", "endif"}, opening));
    branches.push_back({at, condition, std::move(body)});
    const Token end = take();
    at = end.at;
    if (end.text == "elif") continue;
    if (end.text == "else") {
      (void)skip_operator(":");
      TSR_RETURN_IF_ERROR(expect_block_end());
      TSR_ASSIGN_OR_RETURN(otherwise, parse_body({"endif"}, opening));
      ++at_;
    }
    break;
  }
  --conditions_;
  Node& node = new_node(NodeKind::kIf, opening.at);
  // Each condition with its branch becomes a node.
  for (Branch& branch : branches) {
    Node& part = new_node(NodeKind::kIf, branch.at);
    part.children = {branch.condition};
    part.body = std::move(branch.body);
    TSR_ASSIGN_OR_RETURN(const Node* finished, finish(part));
    node.children.push_back(finished);
  }
  node.otherwise = std::move(otherwise);
  return finish(node);
}

Parser::NodeResult Parser::parse_for() {
  const Token opening = take();
  Node& node = new_node(NodeKind::kFor, opening.at);
  TSR_ASSIGN_OR_RETURN(const Node* target, parse_target(false, "in"));
  TSR_RETURN_IF_ERROR(expect_name("in"));
  TSR_ASSIGN_OR_RETURN(const Node* iterable, parse_tuple(false, {"if", "recursive"}, false));
  const Node* condition = nullptr;
  if (skip_name("if")) {
    TSR_ASSIGN_OR_RETURN(condition, parse_expression());
  }
  node.is_recursive = skip_name("recursive");
  node.children = {target, iterable, condition};
  (void)skip_operator(":");
  TSR_RETURN_IF_ERROR(expect_block_end());
  ++loops_;
  TSR_ASSIGN_OR_RETURN(node.body, parse_body({"else", "endfor"}, opening));
  --loops_;
  if (take().text == "else") {
    (void)skip_operator(":");
    TSR_RETURN_IF_ERROR(expect_block_end());
    TSR_ASSIGN_OR_RETURN(node.otherwise, parse_body({"endfor"}, opening));
    ++at_;
  }
  return finish(node);
}

Parser::NodeResult Parser::parse_one_target(bool allows_member) {
  const Token& token = current();
  if (skip_operator("(")) {
    TSR_ASSIGN_OR_RETURN(const Node* inner, parse_target(allows_member, ")"));
    TSR_RETURN_IF_ERROR(expect_operator(")"));
    return inner;
  }
  Node& node = new_node(NodeKind::kName, token.at);
  TSR_ASSIGN_OR_RETURN(node.name, take_name("the name of a variable"));
  constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
  if (std::ranges::find(kReserved, node.name) != std::end(kReserved))
    return syntax_error(node.at, format("'{}' cannot be assigned to", node.name));
  if (allows_member && skip_operator(".")) {
    node.kind = NodeKind::kMember;
    TSR_ASSIGN_OR_RETURN(node.member, take_name("the name of a member"));
  }
  return finish(node);
}

Parser::NodeResult Parser::parse_target(bool allows_member, std::string_view end) {
  const Position at = current().at;
  if (++nesting_ > kMostNesting) return syntax_error(at, format("targets nest deeper than {}", kMostNesting));
  TSR_ASSIGN_OR_RETURN(const Node* first, parse_one_target(allows_member));
  --nesting_;
  if (!current().is_operator(",")) return first;
  Node& tuple = new_node(NodeKind::kTuple, at);
  tuple.children = {first};
  while (skip_operator(",")) {
    if (current().is_name(end) || current().is_operator(end)) break;
    TSR_ASSIGN_OR_RETURN(const Node* target, parse_one_target(allows_member));
    tuple.children.push_back(target);
  }
  return finish(tuple);
}

Parser::NodeResult Parser::parse_set() {
  const Token opening = take();
  TSR_ASSIGN_OR_RETURN(const Node* target, parse_target(true, "="));
  if (skip_operator("=")) {
    Node& node = new_node(NodeKind::kSet, opening.at);
    TSR_ASSIGN_OR_RETURN(const Node* value, parse_tuple(true, {}, false));
    node.children = {target, value};
    return finish(node);
  }
  Node& node = new_node(NodeKind::kSetBlock, opening.at);
  const Node* filter = nullptr;
  while (current().is_operator("|")) {
    TSR_ASSIGN_OR_RETURN(filter, parse_filter(filter));
  }
  node.children = {target, filter};
  TSR_RETURN_IF_ERROR(expect_block_end());
  const int loops = std::exchange(loops_, 0);
  TSR_ASSIGN_OR_RETURN(node.body, parse_body({"endset"}, opening));
  loops_ = loops;
  ++at_;
  return finish(node);
}

Status Parser::parse_parameters(Node& node) {
  TSR_RETURN_IF_ERROR(expect_operator("("));
  bool has_default = false;
  while (!current().is_operator(")")) {
    if (!node.parameters.empty()) TSR_RETURN_IF_ERROR(expect_operator(","));
    TSR_ASSIGN_OR_RETURN(std::string name, take_name("the name of a parameter"));
    const Node* initial = nullptr;
    if (skip_operator("=")) {
      has_default = true;
      TSR_ASSIGN_OR_RETURN(initial, parse_expression());
    } else if (has_default) {
      return syntax_error(current().at, format("parameter '{}' has no default, one before it has", name));
    }
    node.parameters.emplace_back(std::move(name), initial);
  }
  ++at_;
  return {};
}

Status Parser::parse_function_body(Node& node, std::string_view end) {
  const Token opening{TokenKind::kName, node.kind == NodeKind::kMacro ? "macro" : "call", node.at, 0, 0};
  TSR_RETURN_IF_ERROR(expect_block_end());
  functions_.push_back(&node);
  const int loops = std::exchange(loops_, 0);
  TSR_ASSIGN_OR_RETURN(node.body, parse_body({end}, opening));
  loops_ = loops;
  functions_.pop_back();
  ++at_;
  return {};
}

Parser::NodeResult Parser::parse_macro() {
  Node& node = new_node(NodeKind::kMacro, take().at);
  TSR_ASSIGN_OR_RETURN(node.name, take_name("the name of a macro"));
  TSR_RETURN_IF_ERROR(parse_parameters(node));
  TSR_RETURN_IF_ERROR(parse_function_body(node, "endmacro"));
  return finish(node);
}

Parser::NodeResult Parser::parse_call_block() {
  Node& node = new_node(NodeKind::kCallBlock, take().at);
  node.name = "caller";
  if (current().is_operator("(")) TSR_RETURN_IF_ERROR(parse_parameters(node));
  TSR_ASSIGN_OR_RETURN(const Node* call, parse_expression());
  if (call->kind != NodeKind::kCall) return syntax_error(node.at, "'call' wants the call of a macro");
  node.children = {call};
  TSR_RETURN_IF_ERROR(parse_function_body(node, "endcall"));
  return finish(node);
}

Parser::NodeResult Parser::parse_filter_block() {
  const Token opening = take();
  Node& node = new_node(NodeKind::kFilterBlock, opening.at);
  tokens_[--at_] = Token{TokenKind::kOperator, "|", opening.at, 0, 0};  // as after a value
  const Node* filter = nullptr;
  while (current().is_operator("|")) {
    TSR_ASSIGN_OR_RETURN(filter, parse_filter(filter));
  }
  node.children = {filter};
  TSR_RETURN_IF_ERROR(expect_block_end());
  const int loops = std::exchange(loops_, 0);
  TSR_ASSIGN_OR_RETURN(node.body, parse_body({"endfilter"}, opening));
  loops_ = loops;
  ++at_;
  return finish(node);
}

Parser::NodeResult Parser::parse_with() {
  const Token opening = take();
  Node& node = new_node(NodeKind::kWith, opening.at);
  while (current().kind != TokenKind::kBlockEnd) {
    if (!node.children.empty()) TSR_RETURN_IF_ERROR(expect_operator(","));
    TSR_ASSIGN_OR_RETURN(const Node* target, parse_one_target(false));
    TSR_RETURN_IF_ERROR(expect_operator("="));
    TSR_ASSIGN_OR_RETURN(const Node* value, parse_expression());
    node.children.insert(node.children.end(), {target, value});
  }
  TSR_RETURN_IF_ERROR(expect_block_end());
  TSR_ASSIGN_OR_RETURN(node.body, parse_body({"endwith"}, opening));
  ++at_;
  return finish(node);
}

Parser::NodeResult Parser::parse_generation() {
  const Token opening = take();
  Node& node = new_node(NodeKind::kGeneration, opening.at);
  tree_.has_generation = true;
  TSR_RETURN_IF_ERROR(expect_block_end());
  const int loops = std::exchange(loops_, 0);
  TSR_ASSIGN_OR_RETURN(node.body, parse_body({"endgeneration"}, opening));
  loops_ = loops;
  ++at_;
  return finish(node);
}

Parser::NodeResult Parser::parse_loop_control() {
  const Token word = take();
  if (loops_ == 0) return syntax_error(word.at, format("'{}' is outside of a loop", word.text));
  return finish(new_node(word.text == "break" ? NodeKind::kBreak : NodeKind::kContinue, word.at));
}

}  // namespace tessera::jinja
