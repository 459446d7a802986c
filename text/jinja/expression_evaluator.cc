#include <algorithm>
#include <array>

#include "graph/base/text.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/filters.h"
#include "text/jinja/printing.h"
#include "text/jinja/tests.h"

namespace tessera::jinja {
namespace {

Status fail(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

// Deeper than any terminating template; the stack has room for more.
constexpr int kMostEvaluationDepth = 1200;

struct BuiltinEntry {
  std::string_view name;
  Builtin builtin;
};
constexpr BuiltinEntry kBuiltins[] = {{"range", Builtin::kRange},
                                      {"dict", Builtin::kDict},
                                      {"namespace", Builtin::kNamespace},
                                      {"raise_exception", Builtin::kRaiseException},
                                      {"strftime_now", Builtin::kStrftimeNow},
                                      {"cycler", Builtin::kCycler},
                                      {"joiner", Builtin::kJoiner},
                                      {"lipsum", Builtin::kLipsum}};

}  // namespace

std::vector<std::string_view> builtin_names() {
  std::vector<std::string_view> names;
  for (const BuiltinEntry& entry : kBuiltins) names.push_back(entry.name);
  return names;
}

Status Evaluator::enter(const Node& node) {
  TSR_RETURN_IF_ERROR(at(node, budget_.spend()));
  if (depth_ >= kMostEvaluationDepth || stack_.is_exhausted())
    return at(node, fail("the template calls deeper than it may: a macro may call itself without end"));
  ++depth_;
  return {};
}

Status Evaluator::at(const Node& node, Status status) {
  if (!status.ok() && !failed_at_) failed_at_ = node.at;
  return status;
}

Result<Value> Evaluator::evaluate(const Node& node, const ScopePtr& scope) {
  if (node.kind == NodeKind::kConstant) return node.constant;
  TSR_RETURN_IF_ERROR(enter(node));
  Result<Value> value = evaluate_kind(node, scope);
  leave();
  if (!value.ok()) (void)at(node, value.status());
  return value;
}

Result<Value> Evaluator::evaluate_kind(const Node& node, const ScopePtr& scope) {
  switch (node.kind) {
    case NodeKind::kName: return evaluate_name(node, *scope);
    case NodeKind::kList:
    case NodeKind::kTuple:
    case NodeKind::kDict: return evaluate_display(node, scope);
    case NodeKind::kBinary: return evaluate_binary(node, scope);
    case NodeKind::kCompare: return evaluate_compare(node, scope);
    case NodeKind::kConcat: return evaluate_concat(node, scope);
    case NodeKind::kSlice: return evaluate_slice(node, scope);
    case NodeKind::kCall: return evaluate_call(node, scope);
    case NodeKind::kFilter: return evaluate_filter(node, scope, nullptr);
    case NodeKind::kTest: return evaluate_test(node, scope);
    default: break;
  }
  TSR_ASSIGN_OR_RETURN(Value first, evaluate(*node.children[0], scope));
  switch (node.kind) {
    case NodeKind::kNegate: return negate(first);
    case NodeKind::kPlus:
      if (is_number(first) && !is<bool>(first)) return first;
      return apply_binary(budget_, Operation::kAdd, int64_t{0}, first);
    case NodeKind::kNot: return Value(!is_truthy(first));
    case NodeKind::kAnd:
      if (!is_truthy(first)) return first;
      return evaluate(*node.children[1], scope);
    case NodeKind::kOr:
      if (is_truthy(first)) return first;
      return evaluate(*node.children[1], scope);
    case NodeKind::kConditional: {
      const Node* chosen = node.children[is_truthy(first) ? 1 : 2];
      if (chosen != nullptr) return evaluate(*chosen, scope);
      return undefined("the condition of an 'if' without 'else' is false");
    }
    case NodeKind::kAttribute: return get_attribute(first, node.name);
    case NodeKind::kItem: {
      TSR_ASSIGN_OR_RETURN(const Value key, evaluate(*node.children[1], scope));
      return get_item(first, key);
    }
    default: TSR_CHECK(false, "a statement was evaluated as an expression");
  }
  return first;
}

Result<Value> Evaluator::evaluate_name(const Node& node, const Scope& scope) {
  TSR_ASSIGN_OR_RETURN(const Value* found, find_variable(scope, node.name));
  if (found != nullptr) return *found;
  const auto* builtin = std::ranges::find(kBuiltins, node.name, &BuiltinEntry::name);
  if (builtin != std::end(kBuiltins)) return Value(builtin->builtin);
  return undefined(format("'{}' is undefined", node.name));
}

Status Evaluator::spend_lookup(size_t compared, std::string_view name) {
  constexpr size_t kComparedAtOnce = 6;
  const size_t pieces = name.size() / 32;
  return budget_.spend(static_cast<int64_t>(compared / kComparedAtOnce * (pieces + 1) + pieces));
}

Result<const Value*> Evaluator::find_variable(const Scope& scope, std::string_view name) {
  size_t compared = 0;
  const Value* found = scope.find(name, compared);
  TSR_RETURN_IF_ERROR(spend_lookup(compared, name));
  return found;
}

Status Evaluator::set_variable(Scope& scope, std::string_view name, Value value) {
  size_t compared = 0;
  scope.set(name, std::move(value), compared);
  return spend_lookup(compared, name);
}

Result<Value*> Evaluator::find_variable(Namespace& space, std::string_view name) {
  size_t compared = 0;
  Value* found = space.find(name, compared);
  TSR_RETURN_IF_ERROR(spend_lookup(compared, name));
  return found;
}

// Charges at least the cost of examining each operand, so that no function is free.
Status Evaluator::spend_operands(const Value& value, const Arguments& arguments) {
  const auto spend = [this](const Value& operand) -> Status {
    if (const auto* text = std::get_if<Text>(&operand)) return budget_.spend(static_cast<int64_t>(text->size() / 128));
    if (const auto* list = std::get_if<ListPtr>(&operand)) return budget_.spend_items((*list)->items.size());
    if (const auto* dict = std::get_if<DictPtr>(&operand)) return budget_.spend_items((*dict)->items.size());
    return {};
  };
  TSR_RETURN_IF_ERROR(spend(value));
  TSR_RETURN_IF_ERROR(budget_.spend_items(arguments.positional.size() + arguments.named.size()));
  for (const Value& each : arguments.positional) TSR_RETURN_IF_ERROR(spend(each));
  for (const auto& [name, each] : arguments.named) TSR_RETURN_IF_ERROR(spend(each));
  return {};
}

Result<Value> Evaluator::evaluate_display(const Node& node, const ScopePtr& scope) {
  std::vector<Value> values;
  values.reserve(node.children.size());
  for (const Node* child : node.children) {
    TSR_ASSIGN_OR_RETURN(Value value, evaluate(*child, scope));
    values.push_back(std::move(value));
  }
  if (node.kind == NodeKind::kList) return make_list(budget_, std::move(values));
  if (node.kind == NodeKind::kTuple) return make_list(budget_, std::move(values), ListForm::kTuple);
  std::vector<std::pair<Value, Value>> items;
  for (size_t i = 0; i < values.size(); i += 2)
    items.emplace_back(std::move(values[i]), std::move(values[i + 1]));
  return make_dict(budget_, std::move(items));
}

Result<Value> Evaluator::evaluate_binary(const Node& node, const ScopePtr& scope) {
  TSR_ASSIGN_OR_RETURN(const Value left, evaluate(*node.children[0], scope));
  TSR_ASSIGN_OR_RETURN(const Value right, evaluate(*node.children[1], scope));
  return apply_binary(budget_, node.operation, left, right);
}

Result<Value> Evaluator::evaluate_compare(const Node& node, const ScopePtr& scope) {
  TSR_ASSIGN_OR_RETURN(Value left, evaluate(*node.children[0], scope));
  for (size_t i = 0; i < node.operations.size(); ++i) {
    TSR_ASSIGN_OR_RETURN(Value right, evaluate(*node.children[i + 1], scope));
    bool holds = false;
    switch (node.operations[i]) {
      case Operation::kEqual:
      case Operation::kNotEqual: {
        TSR_ASSIGN_OR_RETURN(const bool same, are_equal(budget_, left, right));
        holds = same == (node.operations[i] == Operation::kEqual);
        break;
      }
      case Operation::kIn:
      case Operation::kNotIn: {
        TSR_ASSIGN_OR_RETURN(const bool found, contains(budget_, right, left));
        holds = found == (node.operations[i] == Operation::kIn);
        break;
      }
      default: {
        TSR_ASSIGN_OR_RETURN(const int sign, order(budget_, left, right));
        const Operation operation = node.operations[i];
        holds = operation == Operation::kLess        ? sign < 0
                : operation == Operation::kLessEqual ? sign <= 0
                : operation == Operation::kGreater   ? sign > 0
                                                     : sign >= 0;
      }
    }
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Value> Evaluator::evaluate_concat(const Node& node, const ScopePtr& scope) {
  std::vector<Text> parts;
  parts.reserve(node.children.size());
  size_t bytes = 0;
  for (const Node* child : node.children) {
    TSR_ASSIGN_OR_RETURN(const Value value, evaluate(*child, scope));
    TSR_ASSIGN_OR_RETURN(Text part, print(budget_, value));
    bytes += part.size();
    parts.push_back(std::move(part));
  }
  // Texts that grow in a loop are copied once each time.
  TSR_ASSIGN_OR_RETURN(const Lease room, budget_.lease(bytes));
  TextBuilder out(budget_);
  out.expect(bytes);
  for (const Text& part : parts) TSR_RETURN_IF_ERROR(out.add(part));
  TSR_ASSIGN_OR_RETURN(Text text, out.finish());
  return Value(std::move(text));
}

Result<Value> Evaluator::evaluate_slice(const Node& node, const ScopePtr& scope) {
  std::array<Value, 4> parts;
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i] = None{};
    if (node.children[i] == nullptr) continue;
    TSR_ASSIGN_OR_RETURN(parts[i], evaluate(*node.children[i], scope));
  }
  return take_slice(budget_, parts[0], parts[1], parts[2], parts[3]);
}

Result<Arguments> Evaluator::evaluate_arguments(const Node& node, const ScopePtr& scope) {
  Arguments arguments;
  for (const Node* each : node.arguments) {
    TSR_ASSIGN_OR_RETURN(Value value, evaluate(*each, scope));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, each] : node.keywords) {
    TSR_ASSIGN_OR_RETURN(Value value, evaluate(*each, scope));
    arguments.named.emplace_back(name, std::move(value));
  }
  if (node.more_arguments != nullptr) {
    TSR_ASSIGN_OR_RETURN(const Value more, evaluate(*node.more_arguments, scope));
    TSR_ASSIGN_OR_RETURN(const ListPtr list, iterate(budget_, more));
    arguments.positional.insert(arguments.positional.end(), list->items.begin(), list->items.end());
  }
  if (node.more_keywords != nullptr) {
    TSR_ASSIGN_OR_RETURN(const Value more, evaluate(*node.more_keywords, scope));
    const auto* dict = std::get_if<DictPtr>(&more);
    if (dict == nullptr) return fail(format("'**' wants a dict, found a {}", type_name(more)));
    TSR_RETURN_IF_ERROR(budget_.spend(static_cast<int64_t>((*dict)->items.size())));
    for (const auto& [key, value] : (*dict)->items) {
      const auto* name = std::get_if<Text>(&key);
      if (name == nullptr) return fail("'**' wants a dict with names as keys");
      TSR_RETURN_IF_ERROR(budget_.spend_bytes(name->size()));
      arguments.named.emplace_back(name->bytes(), value);
    }
  }
  return arguments;
}

Result<Value> Evaluator::evaluate_call(const Node& node, const ScopePtr& scope) {
  TSR_ASSIGN_OR_RETURN(const Value function, evaluate(*node.children[0], scope));
  TSR_ASSIGN_OR_RETURN(const Arguments arguments, evaluate_arguments(node, scope));
  return call(function, arguments);
}

// `input`: for the first filter of a block's chain.
Result<Value> Evaluator::evaluate_filter(const Node& node, const ScopePtr& scope, const Value* input) {
  Value value;
  if (node.children[0] == nullptr) {
    TSR_CHECK(input != nullptr, "a filter without a value");
    value = *input;
  } else if (input != nullptr && node.children[0]->kind == NodeKind::kFilter) {
    TSR_ASSIGN_OR_RETURN(value, evaluate_filter(*node.children[0], scope, input));
  } else {
    TSR_ASSIGN_OR_RETURN(value, evaluate(*node.children[0], scope));
  }
  TSR_ASSIGN_OR_RETURN(const Arguments arguments, evaluate_arguments(node, scope));
  if (node.filter == nullptr) return at(node, unknown_filter(node.name));
  TSR_RETURN_IF_ERROR(spend_operands(value, arguments));
  Result<Value> filtered = node.filter->apply(*this, value, arguments);
  if (!filtered.ok()) (void)at(node, filtered.status());
  return filtered;
}

Result<Value> Evaluator::evaluate_test(const Node& node, const ScopePtr& scope) {
  TSR_ASSIGN_OR_RETURN(const Value value, evaluate(*node.children[0], scope));
  TSR_ASSIGN_OR_RETURN(const Arguments arguments, evaluate_arguments(node, scope));
  if (node.test == nullptr) return unknown_test(node.name);
  TSR_RETURN_IF_ERROR(spend_operands(value, arguments));
  TSR_ASSIGN_OR_RETURN(const bool holds, node.test->apply(*this, value, arguments));
  return Value(holds);
}

Result<Value> Evaluator::apply_filter(std::string_view name, const Value& value, const Arguments& arguments) {
  const FilterEntry* filter = find_filter(name);
  if (filter == nullptr) return unknown_filter(name);
  TSR_RETURN_IF_ERROR(spend_operands(value, arguments));
  return filter->apply(*this, value, arguments);
}

Result<bool> Evaluator::apply_test(std::string_view name, const Value& value, const Arguments& arguments) {
  const TestEntry* test = find_test(name);
  if (test == nullptr) return unknown_test(name);
  TSR_RETURN_IF_ERROR(spend_operands(value, arguments));
  return test->apply(*this, value, arguments);
}

}  // namespace tessera::jinja
