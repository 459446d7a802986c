// Evaluator: runs a syntax tree once. Expressions are in expression_evaluator.cc,
// statements in statement_evaluator.cc, attributes and indices in members.cc,
// functions in calls.cc. One thread, a Thread of this library.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/arguments.h"
#include "text/jinja/budget.h"
#include "text/jinja/scope.h"
#include "text/jinja/stack_guard.h"
#include "text/jinja/syntax_tree.h"
#include "text/jinja/value.h"

namespace tessera::jinja {

class Evaluator {
 public:
  // `variables`: the template's input. `now_s`: seconds since 1970, for strftime_now.
  Evaluator(const SyntaxTree& tree, Budget& budget, std::vector<std::pair<std::string, Value>> variables,
            int64_t now_s);
  // Breaks reference cycles.
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  // Errors name line and column.
  Result<Text> run();

  // ---- for filters and tests
  Budget& budget() { return budget_; }
  Result<Value> apply_filter(std::string_view name, const Value& value, const Arguments& arguments);
  Result<bool> apply_test(std::string_view name, const Value& value, const Arguments& arguments);
  // value.name: methods before items; Undefined if absent.
  Result<Value> get_attribute(const Value& value, std::string_view name);
  // value[key]: items before methods.
  Result<Value> get_item(const Value& value, const Value& key);
  // The result of `str.format`.
  Result<Value> format_text(const Text& pattern, const Arguments& arguments);

 private:
  using ScopePtr = std::shared_ptr<Scope>;
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };

  Status enter(const Node& node);  // counts a step and depth; `leave` after success
  void leave() { --depth_; }
  // Records the place of the first error.
  Status at(const Node& node, Status status);

  // ---- variables; lookups among many names take steps
  Status spend_lookup(size_t compared, std::string_view name);
  Result<const Value*> find_variable(const Scope& scope, std::string_view name);  // null: absent
  Status set_variable(Scope& scope, std::string_view name, Value value);
  Result<Value*> find_variable(Namespace& space, std::string_view name);
  // Charges for the operands of a filter, test or method.
  Status spend_operands(const Value& value, const Arguments& arguments);

  // ---- expressions
  Result<Value> evaluate(const Node& node, const ScopePtr& scope);
  Result<Value> evaluate_kind(const Node& node, const ScopePtr& scope);
  Result<Value> evaluate_name(const Node& node, const Scope& scope);
  Result<Value> evaluate_display(const Node& node, const ScopePtr& scope);  // a list, tuple or dict
  Result<Value> evaluate_binary(const Node& node, const ScopePtr& scope);
  Result<Value> evaluate_compare(const Node& node, const ScopePtr& scope);
  Result<Value> evaluate_concat(const Node& node, const ScopePtr& scope);
  Result<Value> evaluate_slice(const Node& node, const ScopePtr& scope);
  Result<Value> evaluate_call(const Node& node, const ScopePtr& scope);
  Result<Value> evaluate_filter(const Node& node, const ScopePtr& scope, const Value* input);
  Result<Value> evaluate_test(const Node& node, const ScopePtr& scope);
  Result<Arguments> evaluate_arguments(const Node& node, const ScopePtr& scope);

  // ---- calls
  Result<Value> call(const Value& function, const Arguments& arguments);
  Result<Value> call_macro(const Macro& macro, const Arguments& arguments);
  Result<Value> call_builtin(Builtin builtin, const Arguments& arguments);
  Result<Value> call_method(const Method& method, const Arguments& arguments);
  Result<Value> call_loop_method(Loop& loop, std::string_view name, const Arguments& arguments);
  Result<Value> call_loop(Loop& loop, const Arguments& arguments);
  Result<Value> make_namespace(const Arguments& arguments);
  Result<Value> make_macro(const Node& node, const ScopePtr& scope);

  // ---- statements
  Result<Flow> execute(std::span<const Node* const> body, const ScopePtr& scope, TextBuilder& out);
  Result<Flow> execute_one(const Node& node, const ScopePtr& scope, TextBuilder& out);
  Status write(const Node& node, const ScopePtr& scope, TextBuilder& out);
  Result<Flow> execute_if(const Node& node, const ScopePtr& scope, TextBuilder& out);
  Result<Flow> execute_for(const Node& node, const ScopePtr& scope, TextBuilder& out);
  Result<Flow> run_loop(const Node& node, const ScopePtr& scope, const Value& iterable, int64_t depth0,
                        TextBuilder& out);
  Result<Flow> execute_with(const Node& node, const ScopePtr& scope, TextBuilder& out);
  Status execute_call_block(const Node& node, const ScopePtr& scope, TextBuilder& out);
  Status execute_buffered(const Node& node, const ScopePtr& scope,
                          TextBuilder& out);  // set, filter, generation
  Status assign(const Node& target, const ScopePtr& scope, const Value& value);
  // The text of a body in its own scope.
  Result<Text> render_inner(std::span<const Node* const> body, const ScopePtr& scope);
  ScopePtr inner(const ScopePtr& scope) const;

  const SyntaxTree& tree_;
  Budget& budget_;
  const int64_t now_s_;
  StackGuard stack_;
  int depth_ = 0;
  std::optional<Position> failed_at_;
  ScopePtr context_;
  // Owners of possible reference cycles.
  std::vector<ScopePtr> captured_scopes_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

// ---- expression_evaluator.cc: functions visible to every template
std::vector<std::string_view> builtin_names();

// ---- operators.cc: Python's operators
Result<Value> apply_binary(Budget& budget, Operation operation, const Value& a, const Value& b);
Result<Value> negate(const Value& value);
// Items begin, begin + step, ... of a sequence, as Python's slices; bounds may be None.
Result<Value> take_slice(Budget& budget, const Value& value, const Value& begin, const Value& end,
                         const Value& step);
// Escapes &, <, >, ' and " for HTML.
Result<Text> escape_html(Budget& budget, const Text& text);

// ---- percent_format.cc: text % value
Result<Value> format_percent(Budget& budget, const Text& pattern, const Value& value,
                             const Arguments* arguments);

// ---- number_format.cc: format(value, "05.2f"), for numbers and texts
Result<Text> format_value(Budget& budget, const Value& value, std::string_view specification);

// ---- text_methods.cc, container_methods.cc
bool has_text_method(std::string_view name);
std::vector<std::string_view> text_method_names();
Result<Value> call_text_method(Evaluator& evaluator, const Text& text, std::string_view name,
                               const Arguments& arguments);
bool has_container_method(const Value& value, std::string_view name);
std::vector<std::string> container_method_names();  // "dict.get"
// Methods that modify a list or dict; the sandbox hides them.
bool is_mutating_method(const Value& value, std::string_view name);
Result<Value> call_container_method(Budget& budget, const Value& value, std::string_view name,
                                    const Arguments& arguments);

}  // namespace tessera::jinja
