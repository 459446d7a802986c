#include "text/grammar/rule_analysis.h"

#include <algorithm>
#include <string>

#include "graph/base/quote.h"
#include "graph/base/text.h"

namespace tessera::grammar {
namespace {

// Number of operands that must have a property for the
// expression to have it: 0 for always, UINT32_MAX for never.
using Needed = uint32_t (*)(const Expressions&, const Expression&);
constexpr uint32_t kNever = UINT32_MAX;

uint32_t count_required(const Expressions& all, const Expression& expression) {
  uint32_t count = 0;
  for (size_t i = 1; i < expression.operand_count; ++i) count += all.is_required(expression, i);
  return count;
}

uint32_t needed_by_all_kinds(const Expressions& all, const Expression& expression) {
  switch (expression.kind) {
    case ExpressionKind::kSequence: return expression.operand_count;
    case ExpressionKind::kChoice: return expression.operand_count == 0 ? kNever : 1;
    case ExpressionKind::kRepeat:
    case ExpressionKind::kCounted: return expression.minimum == 0 ? 0 : 1;
    case ExpressionKind::kMembers: return count_required(all, expression);
    default: return 1;  // a call: its rule
  }
}

uint32_t needed_to_be_empty(const Expressions& all, const Expression& expression) {
  switch (expression.kind) {
    case ExpressionKind::kLiteral: return all.text(expression.value).empty() ? 0 : kNever;
    case ExpressionKind::kCharacters: return kNever;
    case ExpressionKind::kLiterals:
      for (uint32_t i = 0; i < expression.minimum; ++i)
        if (all.text(expression.value + i).empty()) return 0;
      return kNever;
    default: return needed_by_all_kinds(all, expression);
  }
}

uint32_t needed_to_match(const Expressions& all, const Expression& expression) {
  switch (expression.kind) {
    case ExpressionKind::kLiteral: return 0;
    case ExpressionKind::kCharacters: return all.set(expression.value).is_empty() ? kNever : 0;
    case ExpressionKind::kLiterals: return expression.minimum == 0 ? kNever : 0;
    default: return needed_by_all_kinds(all, expression);
  }
}

// Users: the users of each id, in one array.
class Users {
 public:
  explicit Users(size_t count) : first_(count + 1) {}
  template <class ForEach>
  void fill(ForEach for_each) {  // for_each(visit), visit(used, user)
    for_each([&](uint32_t used, uint32_t) { ++first_[used + 1]; });
    for (size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    users_.resize(first_.back());
    std::vector<uint32_t> next(first_.begin(), first_.end() - 1);
    for_each([&](uint32_t used, uint32_t user) { users_[next[used]++] = user; });
  }
  std::span<const uint32_t> of(uint32_t used) const {
    return std::span(users_).subspan(first_[used], first_[used + 1] - first_[used]);
  }

 private:
  std::vector<uint32_t> first_, users_;
};

// The least fixed point of the property.
std::vector<bool> find_property(const Expressions& all, Needed needed) {
  const auto count = static_cast<uint32_t>(all.size());
  Users users(count), callers(all.rules().size()), roots(count);
  users.fill([&](auto visit) {
    for (uint32_t id = 0; id < count; ++id)
      for (size_t i = 0; i < all[id].operand_count; ++i)
        if (all[id].kind != ExpressionKind::kMembers || all.is_required(all[id], i))
          visit(all.operands(all[id])[i], id);
  });
  callers.fill([&](auto visit) {
    for (uint32_t id = 0; id < count; ++id)
      if (all[id].kind == ExpressionKind::kCall) visit(all[id].value, id);
  });
  roots.fill([&](auto visit) {
    for (uint32_t rule = 0; rule < all.rules().size(); ++rule) visit(all.rules()[rule].expression, rule);
  });
  std::vector<uint32_t> open(count);
  std::vector<bool> has(count);
  std::vector<uint32_t> work;
  const auto meet = [&](uint32_t id) {
    if (has[id]) return;
    has[id] = true;
    work.push_back(id);
  };
  for (uint32_t id = 0; id < count; ++id) {
    open[id] = needed(all, all[id]);
    if (open[id] == 0) meet(id);
  }
  while (!work.empty()) {
    const uint32_t id = work.back();
    work.pop_back();
    for (const uint32_t user : users.of(id))
      if (open[user] != kNever && open[user] > 0 && --open[user] == 0) meet(user);
    for (const uint32_t rule : roots.of(id))
      for (const uint32_t caller : callers.of(rule)) meet(caller);
  }
  return has;
}

// LeftCorners: depth-first search over expressions that may come first in another.
class LeftCorners {
 public:
  LeftCorners(const Expressions& all, RuleAnalysis& analysis) : all_(all), analysis_(analysis) {}

  Status walk(RuleId root) {
    state_.resize(all_.size());
    is_collected_.resize(all_.size());
    std::vector<bool> is_queued(all_.rules().size());
    std::vector<RuleId> queue{root};
    is_queued[root] = true;
    // All called rules, each walked from its start.
    for (size_t i = 0; i < queue.size(); ++i) {
      const ExpressionId start = all_.rules()[queue[i]].expression;
      if (state_[start] == kNew) TSR_RETURN_IF_ERROR(descend(start));
      collect_calls(start, queue, is_queued);
    }
    // Finished last, ranked first.
    const auto count = static_cast<uint32_t>(finished_.size());
    std::vector<uint32_t> order(all_.size());
    for (uint32_t i = 0; i < count; ++i) order[finished_[i]] = count - i;
    for (const RuleId rule : queue) analysis_.rank[rule] = order[all_.rules()[rule].expression];
    return {};
  }

 private:
  enum State : uint8_t { kNew, kOpen, kDone };
  struct Frame {
    ExpressionId id;
    size_t next;
  };

  // The `index`-th expression that may come first; false after the last.
  bool first(const Expression& expression, size_t index, ExpressionId& child) const {
    const auto operands = all_.operands(expression);
    switch (expression.kind) {
      case ExpressionKind::kCall: child = all_.rules()[expression.value].expression; return index == 0;
      case ExpressionKind::kSequence:
        if (index >= operands.size() || (index > 0 && !analysis_.is_nullable[operands[index - 1]]))
          return false;
        break;
      case ExpressionKind::kMembers: {  // the separator is first after an empty member
        if (index >= operands.size()) return false;
        if (index > 1 && all_.is_required(expression, index - 1) &&
            !analysis_.is_nullable[operands[index - 1]])
          return false;
        break;
      }
      default:
        if (index >= operands.size()) return false;
    }
    child = operands[index];
    return true;
  }

  Status descend(ExpressionId start) {
    stack_.assign(1, {start, 0});
    state_[start] = kOpen;
    while (!stack_.empty()) {
      Frame& frame = stack_.back();
      ExpressionId child = 0;
      if (!first(all_[frame.id], frame.next, child)) {
        state_[frame.id] = kDone;
        finished_.push_back(frame.id);
        stack_.pop_back();
        continue;
      }
      ++frame.next;
      if (state_[child] == kOpen) return left_recursion(child);
      if (state_[child] == kDone) continue;
      state_[child] = kOpen;
      stack_.push_back({child, 0});
    }
    return {};
  }

  Status left_recursion(ExpressionId again) const {
    constexpr size_t kMostNames = 8;
    std::vector<std::string> names;
    size_t at = stack_.size();
    while (at > 0 && stack_[at - 1].id != again) --at;
    for (size_t i = at > 0 ? at - 1 : 0; i < stack_.size() && names.size() < kMostNames; ++i)
      if (const Expression& expression = all_[stack_[i].id]; expression.kind == ExpressionKind::kCall)
        names.push_back("'" + quote(all_.rules()[expression.value].name, 64) + "'");
    return Status(
        StatusCode::kUnsupported,
        format(
            "a rule begins with itself (left recursion): {}; wanted one that matches something first, such "
            "as a repetition",
            join(names, ", then ")));
  }

  // Includes calls that never come first.
  void collect_calls(ExpressionId start, std::vector<RuleId>& queue, std::vector<bool>& is_queued) {
    std::vector<ExpressionId> work{start};
    while (!work.empty()) {
      const ExpressionId id = work.back();
      work.pop_back();
      if (is_collected_[id]) continue;
      is_collected_[id] = true;
      const Expression& expression = all_[id];
      if (expression.kind == ExpressionKind::kCall && !is_queued[expression.value]) {
        is_queued[expression.value] = true;
        queue.push_back(expression.value);
      }
      const auto operands = all_.operands(expression);
      work.insert(work.end(), operands.begin(), operands.end());
    }
  }

  const Expressions& all_;
  RuleAnalysis& analysis_;
  std::vector<State> state_;
  std::vector<bool> is_collected_;
  std::vector<ExpressionId> finished_;
  std::vector<Frame> stack_;
};

}  // namespace

Result<RuleAnalysis> analyze_rules(const Expressions& expressions, RuleId root) {
  RuleAnalysis analysis;
  analysis.is_nullable = find_property(expressions, needed_to_be_empty);
  analysis.is_productive = find_property(expressions, needed_to_match);
  analysis.rank.resize(expressions.rules().size());
  for (ExpressionId id = 0; id < expressions.size(); ++id) {
    const Expression& expression = expressions[id];
    if (expression.kind == ExpressionKind::kCounted &&
        analysis.is_nullable[expressions.operands(expression)[0]])
      return Status(
          StatusCode::kUnsupported,
          format("what may be empty is repeated {} to {} times; wanted a body that is not empty, or '*'",
                 expression.minimum,
                 expression.maximum == kUnbounded ? "any number of" : to_text(expression.maximum)));
  }
  LeftCorners corners(expressions, analysis);
  TSR_RETURN_IF_ERROR(corners.walk(root));
  return analysis;
}

}  // namespace tessera::grammar
