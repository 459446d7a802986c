#include <algorithm>

#include "graph/base/text.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/printing.h"

namespace tessera::jinja {
namespace {

Status fail(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

}  // namespace

Evaluator::Evaluator(const SyntaxTree& tree, Budget& budget,
                     std::vector<std::pair<std::string, Value>> variables, int64_t now_s)
    : tree_(tree), budget_(budget), now_s_(now_s), context_(std::make_shared<Scope>()) {
  context_->variables = std::move(variables);
}

Evaluator::~Evaluator() {
  for (const ScopePtr& scope : captured_scopes_) scope->variables.clear();
  for (const auto& space : namespaces_) space->variables.clear();
}

Result<Text> Evaluator::run() {
  TextBuilder out(budget_);
  const Status status = [&]() -> Status {
    TSR_ASSIGN_OR_RETURN(const Flow flow, execute(tree_.body, inner(context_), out));
    TSR_CHECK(flow == Flow::kNormal, "a template was left by a loop's control");
    return budget_.check_output(out.size());
  }();
  if (status.ok()) return out.finish();
  if (!failed_at_) return status;
  return Status(status.code(), std::string(syntax_error(*failed_at_, status.message()).message()));
}

Evaluator::ScopePtr Evaluator::inner(const ScopePtr& scope) const {
  return std::make_shared<Scope>(Scope{scope, {}});
}

Result<Evaluator::Flow> Evaluator::execute(std::span<const Node* const> body, const ScopePtr& scope,
                                           TextBuilder& out) {
  for (const Node* node : body) {
    TSR_RETURN_IF_ERROR(enter(*node));
    Result<Flow> flow = execute_one(*node, scope, out);
    leave();
    if (!flow.ok()) return at(*node, flow.status());
    if (flow.value() != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Result<Evaluator::Flow> Evaluator::execute_one(const Node& node, const ScopePtr& scope, TextBuilder& out) {
  switch (node.kind) {
    case NodeKind::kOutput: TSR_RETURN_IF_ERROR(write(node, scope, out)); break;
    case NodeKind::kIf: return execute_if(node, scope, out);
    case NodeKind::kFor: return execute_for(node, scope, out);
    case NodeKind::kSet: {
      TSR_ASSIGN_OR_RETURN(const Value value, evaluate(*node.children[1], scope));
      TSR_RETURN_IF_ERROR(assign(*node.children[0], scope, value));
      break;
    }
    case NodeKind::kMacro: {
      TSR_ASSIGN_OR_RETURN(Value macro, make_macro(node, scope));
      TSR_RETURN_IF_ERROR(set_variable(*scope, node.name, std::move(macro)));
      break;
    }
    case NodeKind::kSetBlock:
    case NodeKind::kFilterBlock:
    case NodeKind::kGeneration: TSR_RETURN_IF_ERROR(execute_buffered(node, scope, out)); break;
    case NodeKind::kCallBlock: TSR_RETURN_IF_ERROR(execute_call_block(node, scope, out)); break;
    case NodeKind::kWith: return execute_with(node, scope, out);
    case NodeKind::kBreak: return Flow::kBreak;
    case NodeKind::kContinue: return Flow::kContinue;
    default: TSR_CHECK(false, "an expression was executed as a statement");
  }
  return Flow::kNormal;
}

Status Evaluator::write(const Node& node, const ScopePtr& scope, TextBuilder& out) {
  for (const Node* child : node.children) {
    TSR_ASSIGN_OR_RETURN(const Value value, evaluate(*child, scope));
    TSR_ASSIGN_OR_RETURN(const Text text, print(budget_, value));
    TSR_RETURN_IF_ERROR(out.add(text));
  }
  return budget_.check_output(out.size());
}

Result<Evaluator::Flow> Evaluator::execute_if(const Node& node, const ScopePtr& scope, TextBuilder& out) {
  for (const Node* branch : node.children) {
    TSR_ASSIGN_OR_RETURN(const Value condition, evaluate(*branch->children[0], scope));
    if (is_truthy(condition)) return execute(branch->body, scope, out);
  }
  return execute(node.otherwise, scope, out);
}

Status Evaluator::assign(const Node& target, const ScopePtr& scope, const Value& value) {
  if (target.kind == NodeKind::kName) {
    return set_variable(*scope, target.name, value);
  }
  if (target.kind == NodeKind::kMember) {
    TSR_ASSIGN_OR_RETURN(const Value* found, find_variable(*scope, target.name));
    const auto* space = found == nullptr ? nullptr : std::get_if<std::shared_ptr<Namespace>>(found);
    if (space == nullptr)
      return at(target, fail(format("'{}.{}' cannot be set: '{}' is {}, wanted a namespace", target.name,
                                    target.member, target.name,
                                    found == nullptr ? "undefined" : format("a {}", type_name(*found)))));
    if (target.member.starts_with('_'))
      return at(target, fail(format("'{}' begins with '_', which templates may not use", target.member)));
    TSR_ASSIGN_OR_RETURN(Value * held, find_variable(**space, target.member));
    if (held != nullptr) {
      *held = value;
    } else {
      TSR_ASSIGN_OR_RETURN(Lease lease, budget_.lease(2 * sizeof(Value)));
      (*space)->lease.add(std::move(lease));
      (*space)->variables.emplace_back(target.member, value);
    }
    return {};
  }
  TSR_ASSIGN_OR_RETURN(const ListPtr items, iterate(budget_, value));
  if (items->items.size() != target.children.size())
    return at(target,
              fail(format("{} variables are set to {} values", target.children.size(), items->items.size())));
  for (size_t i = 0; i < target.children.size(); ++i)
    TSR_RETURN_IF_ERROR(assign(*target.children[i], scope, items->items[i]));
  return {};
}

Result<Evaluator::Flow> Evaluator::execute_for(const Node& node, const ScopePtr& scope, TextBuilder& out) {
  TSR_ASSIGN_OR_RETURN(const Value iterable, evaluate(*node.children[1], scope));
  return run_loop(node, scope, iterable, 0, out);
}

Result<Evaluator::Flow> Evaluator::run_loop(const Node& node, const ScopePtr& scope, const Value& iterable,
                                            int64_t depth0, TextBuilder& out) {
  TSR_RETURN_IF_ERROR(enter(node));
  Result<ListPtr> iterated = iterate(budget_, iterable);
  if (!iterated.ok()) return at(*node.children[1], iterated.status());
  ListPtr items = std::move(iterated).value();
  if (const Node* condition = node.children[2]) {
    std::vector<Value> chosen;
    for (const Value& item : items->items) {
      TSR_RETURN_IF_ERROR(budget_.spend(2));
      const ScopePtr own = inner(scope);
      TSR_RETURN_IF_ERROR(assign(*node.children[0], own, item));
      TSR_ASSIGN_OR_RETURN(const Value holds, evaluate(*condition, own));
      if (is_truthy(holds)) chosen.push_back(item);
    }
    TSR_ASSIGN_OR_RETURN(Value list, make_list(budget_, std::move(chosen)));
    items = std::get<ListPtr>(std::move(list));
  }
  TSR_RETURN_IF_ERROR(budget_.spend_allocations(4));
  auto loop = std::make_shared<Loop>();
  loop->items = items;
  loop->depth0 = depth0;
  loop->depth = items->depth + 1;
  loop->recursive = node.is_recursive ? &node : nullptr;
  if (node.is_recursive) {
    loop->scope = scope;
    captured_scopes_.push_back(scope);
  }
  bool completed = false;  // a completed iteration
  ScopePtr own;
  for (size_t i = 0; i < items->items.size(); ++i) {
    TSR_RETURN_IF_ERROR(budget_.spend(2));  // a scope
    loop->index0 = i;
    // A macro or inner loop may hold the last iteration's scope.
    if (own != nullptr && own.use_count() == 1)
      own->variables.clear();
    else
      own = inner(scope);
    TSR_RETURN_IF_ERROR(set_variable(*own, "loop", loop));
    TSR_RETURN_IF_ERROR(assign(*node.children[0], own, items->items[i]));
    TSR_ASSIGN_OR_RETURN(const Flow flow, execute(node.body, own, out));
    if (flow == Flow::kBreak) break;
    completed |= flow == Flow::kNormal;
  }
  // As in Jinja2 also if every iteration broke off.
  leave();
  if (completed || node.otherwise.empty()) return Flow::kNormal;
  return execute(node.otherwise, inner(scope), out);
}

Result<Text> Evaluator::render_inner(std::span<const Node* const> body, const ScopePtr& scope) {
  TextBuilder out(budget_);
  TSR_ASSIGN_OR_RETURN(const Flow flow, execute(body, inner(scope), out));
  TSR_CHECK(flow == Flow::kNormal, "a block was left by a loop's control");
  return out.finish();
}

Status Evaluator::execute_buffered(const Node& node, const ScopePtr& scope, TextBuilder& out) {
  TSR_ASSIGN_OR_RETURN(const Text text, render_inner(node.body, scope));
  if (node.kind == NodeKind::kGeneration) {
    TextBuilder marked(budget_);
    TSR_RETURN_IF_ERROR(marked.add(text));
    marked.mark_generation();
    TSR_ASSIGN_OR_RETURN(const Text spoken, marked.finish());
    return out.add(spoken);
  }
  const Node* filter = node.children[node.kind == NodeKind::kSetBlock ? 1 : 0];
  Value value = text;
  if (filter != nullptr) {
    const Value given = text;
    TSR_ASSIGN_OR_RETURN(value, evaluate_filter(*filter, scope, &given));
  }
  if (node.kind == NodeKind::kSetBlock) return assign(*node.children[0], scope, value);
  TSR_ASSIGN_OR_RETURN(const Text printed, print(budget_, value));
  return out.add(printed);
}

Result<Evaluator::Flow> Evaluator::execute_with(const Node& node, const ScopePtr& scope, TextBuilder& out) {
  TSR_RETURN_IF_ERROR(budget_.spend_allocations(1));
  const ScopePtr own = inner(scope);
  std::vector<Value> values;
  for (size_t i = 1; i < node.children.size(); i += 2) {
    TSR_ASSIGN_OR_RETURN(Value value, evaluate(*node.children[i], scope));
    values.push_back(std::move(value));
  }
  for (size_t i = 0; i < values.size(); ++i)
    TSR_RETURN_IF_ERROR(assign(*node.children[2 * i], own, values[i]));
  return execute(node.body, own, out);
}

Status Evaluator::execute_call_block(const Node& node, const ScopePtr& scope, TextBuilder& out) {
  const Node& target = *node.children[0];
  TSR_ASSIGN_OR_RETURN(const Value function, evaluate(*target.children[0], scope));
  TSR_ASSIGN_OR_RETURN(Arguments arguments, evaluate_arguments(target, scope));
  TSR_ASSIGN_OR_RETURN(Value caller, make_macro(node, scope));
  arguments.named.emplace_back("caller", std::move(caller));
  TSR_ASSIGN_OR_RETURN(const Value result, call(function, arguments));
  TSR_ASSIGN_OR_RETURN(const Text text, print(budget_, result));
  return out.add(text);
}

}  // namespace tessera::jinja
