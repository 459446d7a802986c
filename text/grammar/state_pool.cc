#include "text/grammar/state_pool.h"

#include <algorithm>
#include <functional>

namespace tessera::grammar {
namespace {

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

uint64_t hash_configuration(uint64_t hash, const Configuration& configuration) {
  return mix(mix(hash, configuration.node | uint64_t{configuration.repetitions} << 32), configuration.after);
}

uint64_t hash_configurations(std::span<const Configuration> configurations) {
  uint64_t hash = configurations.size();
  for (const Configuration& each : configurations) hash = hash_configuration(hash, each);
  return hash;
}

bool is_end(const Configuration& configuration) { return configuration.node == kAcceptNode; }

}  // namespace

void StatePool::VisitedSet::clear() {
  count_ = 0;
  if (++round_ == 0) {
    slots_.assign(slots_.size(), {});
    round_ = 1;
  }
}

bool StatePool::VisitedSet::insert(const Configuration& configuration) {
  if (2 * count_ >= slots_.size()) {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    count_ = 0;
    for (const Slot& slot : old)
      if (slot.round == round_) insert(slot.configuration);
  }
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash_configuration(0, configuration) & mask;; at = (at + 1) & mask) {
    Slot& slot = slots_[at];
    if (slot.round != round_) {
      slot = {configuration, round_};
      ++count_;
      return true;
    }
    if (slot.configuration == configuration) return false;
  }
}

StatePool::StatePool(const Automaton& automaton) : automaton_(automaton), table_(1024, kUnknown) {
  states_.resize(3);  // the special states, without configurations
  table_[hash_configurations({}) & (table_.size() - 1)] = kDeadState;
  callers_.resize(automaton.rules.size());
  uint32_t most = 0;
  for (const AutomatonRule& rule : automaton.rules) most = std::max(most, rule.rank);
  rule_of_rank_.resize(size_t{most} + 1);
  for (uint32_t rule = 0; rule < automaton.rules.size(); ++rule)
    rule_of_rank_[automaton.rules[rule].rank] = rule;
}

StateId StatePool::start() {
  seeds_.assign(1, {automaton_.rules[0].start, 0, kEndOfText});
  return close();
}

size_t StatePool::bytes() const {
  return configurations_.size() * sizeof(Configuration) + states_.size() * sizeof(State) +
         (rows_.size() + table_.size()) * sizeof(StateId);
}

StateId StatePool::intern(std::span<const Configuration> configurations) {
  found_.assign(configurations.begin(), configurations.end());
  std::ranges::sort(found_);
  found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
  return intern_sorted(found_);
}

StateId StatePool::intern_sorted(std::span<const Configuration> configurations) {
  if (configurations.size() > kMostConfigurations) {
    is_exhausted_ = true;
    return kDeadState;
  }
  size_t mask = table_.size() - 1;
  size_t at = hash_configurations(configurations) & mask;
  for (; table_[at] != kUnknown; at = (at + 1) & mask)
    if (std::ranges::equal(this->configurations(table_[at]), configurations)) return table_[at];
  const auto id = static_cast<StateId>(states_.size());
  State state;
  state.begin = configurations_.size();
  state.count = static_cast<uint32_t>(configurations.size());
  state.can_end = std::ranges::any_of(configurations, is_end);
  configurations_.insert(configurations_.end(), configurations.begin(), configurations.end());
  states_.push_back(state);
  table_[at] = id;
  if (2 * states_.size() > table_.size()) grow_table();
  return id;
}

void StatePool::grow_table() {
  table_.assign(table_.size() * 2, kUnknown);
  const size_t mask = table_.size() - 1;
  for (StateId id = 0; id < states_.size(); ++id) {
    if (id == kEndOfText || id == kOpaqueState) continue;
    size_t at = hash_configurations(configurations(id)) & mask;
    while (table_[at] != kUnknown) at = (at + 1) & mask;
    table_[at] = id;
  }
}

StateId StatePool::find_step(StateId state, uint8_t byte_class) {
  if (is_exhausted_) return kDeadState;
  seeds_.clear();
  for (const Configuration& each : configurations(state)) {
    const Node& node = automaton_.nodes[each.node];
    if (node.kind == NodeKind::kBytes && automaton_.sets[node.value][byte_class])
      seeds_.push_back({node.next, each.repetitions, each.after});
  }
  work_ += states_[state].count;
  const StateId next = close();
  if (is_exhausted_) return kDeadState;
  if (states_[state].row == kNoRow) {
    const size_t classes = automaton_.class_byte.size();
    states_[state].row = static_cast<uint32_t>(rows_.size());
    rows_.resize(rows_.size() + classes, kUnknown);
  }
  return rows_[states_[state].row + byte_class] = next;
}

StateId StatePool::close() {
  most_work_ = work_ + kMostStepWork;
  found_.clear();
  visited_.clear();
  visit(false);
  // Callers precede callees, so the callers of a rule are complete when it is entered.
  while (!called_ranks_.empty()) {
    std::ranges::pop_heap(called_ranks_, std::greater<>());
    const uint32_t rule = rule_of_rank_[called_ranks_.back()];
    called_ranks_.pop_back();
    std::vector<Configuration>& callers = callers_[rule];
    std::ranges::sort(callers);
    callers.erase(std::unique(callers.begin(), callers.end()), callers.end());
    const StateId after = intern_sorted(callers);
    callers.clear();
    seeds_.assign(1, {automaton_.rules[rule].start, 0, after});
    if (!is_exhausted_) visit(true);
  }
  if (is_exhausted_) return kDeadState;
  std::ranges::sort(found_);
  return intern_sorted(found_);
}

// is_predicted: the rule has just begun. Its empty text is handled by the split before its call.
void StatePool::visit(bool is_predicted) {
  while (!seeds_.empty()) {
    const Configuration at = seeds_.back();
    seeds_.pop_back();
    if (!visited_.insert(at)) continue;
    ++work_;
    const Node& node = automaton_.nodes[at.node];
    switch (node.kind) {
      case NodeKind::kBytes: found_.push_back(at); break;
      case NodeKind::kSplit:
        seeds_.push_back({node.other, at.repetitions, at.after});
        seeds_.push_back({node.next, at.repetitions, at.after});
        break;
      case NodeKind::kCall: predict(node.value, {node.next, at.repetitions, at.after}); break;
      case NodeKind::kEnter: {
        const Counter& counter = automaton_.counters[node.value];
        if (counter.maximum == kUnbounded)
          seeds_.push_back({node.next, std::min(at.repetitions + 1, counter.minimum), at.after});
        else if (at.repetitions < counter.maximum)
          seeds_.push_back({node.next, at.repetitions + 1, at.after});
        break;
      }
      case NodeKind::kLeave:
        if (at.repetitions >= automaton_.counters[node.value].minimum)
          seeds_.push_back({node.next, 0, at.after});
        break;
      case NodeKind::kAccept:
        if (is_predicted) break;
        if (at.after == kEndOfText || at.after == kOpaqueState) {
          found_.push_back({kAcceptNode, 0, at.after});
        } else {
          const auto after = configurations(at.after);
          seeds_.insert(seeds_.end(), after.begin(), after.end());
          work_ += after.size();
        }
        break;
    }
    if (found_.size() > kMostConfigurations || work_ > most_work_) is_exhausted_ = true;
    if (is_exhausted_) {
      seeds_.clear();
      for (std::vector<Configuration>& callers : callers_) callers.clear();
      called_ranks_.clear();
      return;
    }
  }
}

void StatePool::predict(uint32_t rule, const Configuration& caller) {
  std::vector<Configuration>& callers = callers_[rule];
  if (callers.empty()) {
    called_ranks_.push_back(automaton_.rules[rule].rank);
    std::ranges::push_heap(called_ranks_, std::greater<>());
  }
  // Tail call: a call at a rule's end returns to the rule's caller, so such recursion needs no stack.
  if (caller.node == kAcceptNode && caller.after > kOpaqueState) {
    const auto after = configurations(caller.after);
    callers.insert(callers.end(), after.begin(), after.end());
    work_ += after.size();
  } else {
    callers.push_back(caller);
  }
}

StateId StatePool::adopt(const StatePool& other, StateId state, std::vector<StateId>& known) {
  known.resize(other.states_.size(), kUnknown);
  for (const StateId special : {kDeadState, kEndOfText, kOpaqueState}) known[special] = special;
  std::vector<StateId> open{state};
  std::vector<Configuration> moved;
  while (!open.empty()) {
    const StateId id = open.back();
    if (known[id] != kUnknown) {
      open.pop_back();
      continue;
    }
    const size_t depth = open.size();
    moved.clear();
    for (const Configuration& each : other.configurations(id)) {
      if (known[each.after] == kUnknown)
        open.push_back(each.after);
      else
        moved.push_back({each.node, each.repetitions, known[each.after]});
    }
    if (open.size() > depth) continue;  // dependencies come first
    known[id] = intern(moved);
    open.pop_back();
  }
  return known[state];
}

}  // namespace tessera::grammar
