// Parser: builds nodes from a template's tokens, by Jinja2's grammar.
// Statements are in statement_parser.cc, expressions in expression_parser.cc.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/stack_guard.h"
#include "text/jinja/syntax_tree.h"

namespace tessera::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Result<SyntaxTree> run();

 private:
  using Body = std::vector<const Node*>;
  using NodeResult = Result<const Node*>;

  // ---- tokens
  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token take();
  bool skip_operator(std::string_view name);
  bool skip_name(std::string_view name);
  Status expect_operator(std::string_view name);
  Status expect_name(std::string_view name);
  Status expect_block_end();
  Result<std::string> take_name(std::string_view what);
  Status unexpected(std::string_view wanted) const;

  // ---- nodes
  Node& new_node(NodeKind kind, Position at);
  // Checks the depth of the subtree.
  NodeResult finish(Node& node);

  // ---- statements
  Result<Body> parse_body(std::initializer_list<std::string_view> ends, const Token& opening);
  NodeResult parse_statement();
  NodeResult parse_if();
  NodeResult parse_for();
  NodeResult parse_set();
  NodeResult parse_macro();
  NodeResult parse_call_block();
  NodeResult parse_filter_block();
  NodeResult parse_with();
  NodeResult parse_generation();
  NodeResult parse_loop_control();
  Status parse_parameters(Node& node);
  Status parse_function_body(Node& node, std::string_view end);
  // "a", "a, b", "(a, b)", and "space.name" if members are allowed.
  NodeResult parse_target(bool allows_member, std::string_view end);
  NodeResult parse_one_target(bool allows_member);

  // ---- expressions
  NodeResult parse_expression(bool allows_condition = true);
  NodeResult parse_tuple(bool allows_condition, std::initializer_list<std::string_view> ends,
                         bool may_be_empty);
  NodeResult parse_binary(int level);
  NodeResult parse_compare();
  NodeResult parse_unary(bool with_filters);
  NodeResult parse_primary();
  NodeResult parse_name();
  NodeResult parse_list();
  NodeResult parse_dict();
  NodeResult parse_postfix(const Node* node);
  NodeResult parse_filters(const Node* node);
  NodeResult parse_subscript(const Node* node);
  NodeResult parse_filter(const Node* node);
  NodeResult parse_test(const Node* node);
  Status parse_arguments(Node& node);
  void note_name(std::string_view name);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  SyntaxTree tree_;
  StackGuard stack_;
  int nesting_ = 0, loops_ = 0, conditions_ = 0;
  std::vector<Node*> functions_;  // enclosing macros and call blocks
};

}  // namespace tessera::jinja
