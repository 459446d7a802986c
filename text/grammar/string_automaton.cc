#include "text/grammar/string_automaton.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "graph/base/text.h"

namespace tessera::grammar {
namespace {

constexpr uint64_t kMostRules = uint64_t{1} << 14;  // of an automaton with length bounds

CharacterSet united(const CharacterSet& a, const CharacterSet& b) {
  std::vector<CharacterRange> ranges(a.ranges().begin(), a.ranges().end());
  ranges.insert(ranges.end(), b.ranges().begin(), b.ranges().end());
  return CharacterSet(std::move(ranges));
}

// Whether an accepting state is reachable, by state.
std::vector<bool> find_live(const StringAutomaton& automaton) {
  const size_t count = automaton.states.size();
  std::vector<std::vector<uint32_t>> sources(count);
  std::vector<uint32_t> queue;
  std::vector<bool> live(count);
  for (uint32_t i = 0; i < count; ++i) {
    for (const auto& edge : automaton.states[i].edges) sources[edge.target].push_back(i);
    if (automaton.states[i].accepts) {
      live[i] = true;
      queue.push_back(i);
    }
  }
  while (!queue.empty()) {
    const uint32_t at = queue.back();
    queue.pop_back();
    for (const uint32_t source : sources[at])
      if (!live[source]) {
        live[source] = true;
        queue.push_back(source);
      }
  }
  return live;
}

// Loop: characters repeated without bound, if the automaton has no other texts: C{least,}.
struct Loop {
  CharacterSet characters;
  uint32_t least = 0;
};
std::optional<Loop> find_loop(const StringAutomaton& automaton) {
  const auto& states = automaton.states;
  uint32_t at = 0;
  for (uint32_t least = 0; least <= states.size(); ++least) {
    if (states[at].edges.size() != 1) return {};
    const auto& edge = states[at].edges[0];
    const auto same = [&](const CharacterSet& other) {
      return std::ranges::equal(other.ranges(), states[0].edges[0].characters.ranges());
    };
    if (!same(edge.characters)) return {};
    if (edge.target == at) {
      if (!states[at].accepts) return {};
      // C* is C+ with an accepting first state.
      const bool has_empty = states[0].accepts && least == 1;
      for (uint32_t i = 0, from = 0; i < least && !has_empty; ++i, from = states[from].edges[0].target)
        if (states[from].accepts) return {};
      return Loop{edge.characters, has_empty ? 0 : least};
    }
    at = edge.target;
  }
  return {};
}

class AutomatonWriter {
 public:
  AutomatonWriter(Expressions& out, const StringAutomaton& automaton, TextForm form)
      : out_(out), automaton_(automaton), form_(form) {}

  // counts: texts have minimum to maximum characters.
  ExpressionId write(bool counts, uint32_t minimum, uint32_t maximum) {
    counts_ = counts;
    minimum_ = minimum;
    maximum_ = maximum;
    if (counts) distance_ = distances();
    const RuleId root = rule_of(0, 0);
    while (!queue_.empty()) {
      const auto [state, count] = queue_.back();
      queue_.pop_back();
      define(state, count);
    }
    return out_.call(root);
  }

 private:
  // Minimum number of characters to an accepting state, by state.
  std::vector<uint32_t> distances() const {
    std::vector<uint32_t> distance(automaton_.states.size(), kUnbounded);
    bool is_changed = true;
    std::vector<std::vector<uint32_t>> sources(automaton_.states.size());
    std::vector<uint32_t> layer;
    for (uint32_t i = 0; i < automaton_.states.size(); ++i) {
      for (const auto& edge : automaton_.states[i].edges) sources[edge.target].push_back(i);
      if (automaton_.states[i].accepts) {
        distance[i] = 0;
        layer.push_back(i);
      }
    }
    for (uint32_t steps = 1; is_changed; ++steps) {
      is_changed = false;
      std::vector<uint32_t> next;
      for (const uint32_t at : layer)
        for (const uint32_t source : sources[at])
          if (distance[source] == kUnbounded) {
            distance[source] = steps;
            next.push_back(source);
            is_changed = true;
          }
      layer = std::move(next);
    }
    return distance;
  }

  RuleId rule_of(uint32_t state, uint32_t count) {
    // Past the minimum, counts matter only for a maximum.
    if (counts_ && maximum_ == kUnbounded) count = std::min(count, minimum_);
    if (!counts_) count = 0;
    const auto [found, is_new] = rules_.try_emplace({state, count}, 0);
    if (is_new) {
      found->second = out_.declare_rule("state of a string");
      queue_.push_back({state, count});
    }
    return found->second;
  }

  ExpressionId characters(const CharacterSet& set) {
    std::vector<std::pair<uint32_t, uint32_t>> key;
    for (const CharacterRange& range : set.ranges()) key.emplace_back(range.first, range.last);
    const auto [found, is_new] = sets_.try_emplace(std::move(key), 0);
    if (is_new) {
      const RuleId rule = out_.declare_rule("characters of a string");
      const ExpressionId body = character_of(out_, set, form_);
      out_.define_rule(rule, out_.sequence({out_.empty(), body}));
      found->second = rule;
    }
    return out_.call(found->second);
  }

  void define(uint32_t state, uint32_t count) {
    const StringAutomaton::State& from = automaton_.states[state];
    std::vector<ExpressionId> parts;
    for (const auto& edge : from.edges) {
      if (counts_ && maximum_ != kUnbounded &&
          uint64_t{count} + 1 + distance_[edge.target] > uint64_t{maximum_})
        continue;
      const RuleId next = rule_of(edge.target, count + 1);
      const bool is_small = edge.characters.ranges().size() == 1 &&
                            edge.characters.ranges()[0].first == edge.characters.ranges()[0].last;
      const ExpressionId one =
          is_small ? character_of(out_, edge.characters, form_) : characters(edge.characters);
      parts.push_back(out_.sequence({one, out_.call(next)}));
    }
    if (from.accepts && (!counts_ || count >= minimum_)) parts.push_back(out_.empty());
    const RuleId rule = rules_.at({state, counts_ ? count : 0});
    out_.define_rule(rule, out_.sequence({out_.empty(), out_.choice(std::move(parts))}));
  }

  Expressions& out_;
  const StringAutomaton& automaton_;
  const TextForm form_;
  bool counts_ = false;
  uint32_t minimum_ = 0, maximum_ = kUnbounded;
  std::vector<uint32_t> distance_;
  std::map<std::pair<uint32_t, uint32_t>, RuleId> rules_;
  std::vector<std::pair<uint32_t, uint32_t>> queue_;
  std::map<std::vector<std::pair<uint32_t, uint32_t>>, RuleId> sets_;
};

}  // namespace

Result<StringAutomaton> StringAutomaton::of(Languages& languages, LanguageId language) {
  const std::vector<CharacterSet> classes = languages.character_classes(language);
  StringAutomaton all;
  std::map<LanguageId, uint32_t> ids = {{language, 0}};
  std::vector<LanguageId> queue = {language};
  for (size_t i = 0; i < queue.size(); ++i) {
    State state;
    state.accepts = languages.is_nullable(queue[i]);
    std::map<uint32_t, CharacterSet> edges;
    for (const CharacterSet& each : classes) {
      const LanguageId next = languages.derivative(queue[i], each.ranges()[0].first);
      TSR_RETURN_IF_ERROR(languages.status());
      if (next == languages.nothing()) continue;
      const auto [found, is_new] = ids.try_emplace(next, static_cast<uint32_t>(queue.size()));
      if (is_new) queue.push_back(next);
      CharacterSet& edge = edges[found->second];
      edge = united(edge, each);
    }
    if (queue.size() > kMostStates)
      return Status(StatusCode::kUnsupported,
                    format("the limits of a text together are too large: more than {} states", kMostStates));
    for (auto& [target, characters] : edges) state.edges.push_back({std::move(characters), target});
    all.states.push_back(std::move(state));
  }
  const std::vector<bool> live = find_live(all);
  if (!live[0]) return StringAutomaton();
  std::vector<uint32_t> number(all.states.size());
  StringAutomaton made;
  for (size_t i = 0; i < all.states.size(); ++i)
    if (live[i]) {
      number[i] = static_cast<uint32_t>(made.states.size());
      made.states.push_back(std::move(all.states[i]));
    }
  for (State& state : made.states) {
    std::erase_if(state.edges, [&](const Edge& edge) { return !live[edge.target]; });
    for (Edge& edge : state.edges) edge.target = number[edge.target];
  }
  return made;
}

uint32_t StringAutomaton::shortest() const {
  std::vector<bool> seen(states.size());
  std::vector<uint32_t> layer = {0};
  for (uint32_t length = 0; !layer.empty(); ++length) {
    std::vector<uint32_t> next;
    for (const uint32_t at : layer) {
      if (states[at].accepts) return length;
      for (const Edge& edge : states[at].edges)
        if (!seen[edge.target]) {
          seen[edge.target] = true;
          next.push_back(edge.target);
        }
    }
    layer = std::move(next);
  }
  return kUnbounded;
}

uint32_t StringAutomaton::longest() const {
  // By layers: a text with as many characters as states repeats a state.
  std::vector<uint32_t> layer = {0};
  for (uint32_t length = 0; length <= states.size(); ++length) {
    std::vector<uint32_t> next;
    for (const uint32_t at : layer)
      for (const Edge& edge : states[at].edges) next.push_back(edge.target);
    std::ranges::sort(next);
    next.erase(std::unique(next.begin(), next.end()), next.end());
    if (next.empty()) return length;
    layer = std::move(next);
  }
  return kUnbounded;
}

Result<ExpressionId> write_automaton(Expressions& out, const StringAutomaton& automaton, TextForm form,
                                     uint32_t minimum, uint32_t maximum) {
  if (automaton.states.empty() || minimum > maximum) return out.nothing();
  if (const auto loop = find_loop(automaton)) {
    minimum = std::max(minimum, loop->least);
    if (minimum > maximum) return out.nothing();
    return out.repeat(character_of(out, loop->characters, form), minimum, maximum);
  }
  const auto states = static_cast<uint64_t>(automaton.states.size());
  const uint32_t shortest = automaton.shortest();
  if (shortest > maximum) return out.nothing();
  const bool counts = minimum > shortest || (maximum != kUnbounded && automaton.longest() > maximum);
  if (counts && minimum * states > kMostRules)
    return Status(StatusCode::kUnsupported,
                  format("a text of {} characters and more with a pattern or a format of {} states is too large, "
                         "wanted at most {} in all",
                         minimum, states, kMostRules));
  if (counts && maximum != kUnbounded) {
    const auto most = static_cast<uint32_t>(kMostRules / states);
    maximum = std::min(maximum, std::max({most, minimum, shortest}));
  }
  return AutomatonWriter(out, automaton, form).write(counts, minimum, maximum);
}

}  // namespace tessera::grammar
