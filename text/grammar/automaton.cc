#include "text/grammar/automaton.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "graph/base/text.h"
#include "text/grammar/rule_analysis.h"

namespace tessera::grammar {
namespace {

// AutomatonBuilder: creates nodes from end to begin; every part is given its successor.
class AutomatonBuilder {
 public:
  AutomatonBuilder(const Expressions& all, const RuleAnalysis& analysis) : all_(all), analysis_(analysis) {
    add({NodeKind::kAccept, 0, 0, 0});
  }

  Result<Automaton> build(RuleId root) {
    rule_of_.assign(all_.rules().size(), kUnbounded);
    number(root);
    for (size_t i = 0; i < queue_.size() && !is_full_; ++i) {
      const Expression& body = all_[all_.rules()[queue_[i]].expression];
      counter_ = kUnbounded;
      const uint32_t start = body.kind == ExpressionKind::kCounted
                                 ? emit_counted(body)
                                 : emit(all_.rules()[queue_[i]].expression, kAcceptNode);
      out_.rules[i] = {start, analysis_.rank[queue_[i]]};
    }
    if (is_full_)
      return Status(StatusCode::kUnsupported,
                    format("the grammar is too large: its automaton has more than {} nodes", kMostNodes));
    partition_bytes();
    return std::move(out_);
  }

 private:
  [[gnu::noinline]] uint32_t add(Node node) {
    if (out_.nodes.size() >= kMostNodes) {
      is_full_ = true;
      return kAcceptNode;
    }
    out_.nodes.push_back(node);
    out_.counter_of.push_back(counter_);
    return static_cast<uint32_t>(out_.nodes.size() - 1);
  }
  uint32_t add_split(uint32_t next, uint32_t other) {
    return next == other ? next : add({NodeKind::kSplit, 0, next, other});
  }
  uint32_t add_bytes(const ByteSet& set, uint32_t next) {
    const auto [found, is_new] = set_ids_.try_emplace(set, static_cast<uint32_t>(out_.sets.size()));
    if (is_new) out_.sets.push_back(set);
    return add({NodeKind::kBytes, found->second, next, 0});
  }

  // Inlines small rules without calls, such as a character, so that surrounding rules share masks.
  bool is_inlined(ExpressionId body) const {
    constexpr uint32_t kMostInlined = 32;
    const Expression& expression = all_[body];
    return expression.size <= kMostInlined && !expression.has_calls &&
           expression.kind != ExpressionKind::kCounted;
  }

  uint32_t number(RuleId rule) {
    if (rule_of_[rule] == kUnbounded) {
      rule_of_[rule] = static_cast<uint32_t>(queue_.size());
      queue_.push_back(rule);
      out_.rules.emplace_back();
    }
    return rule_of_[rule];
  }

  // The expression and its successor are productive. Recursion depth is that of expressions; other functions are not inlined,
  // which keeps the frame small.
  uint32_t emit(ExpressionId id, uint32_t next) {
    if (is_full_) return kAcceptNode;
    const Expression& expression = all_[id];
    const auto operands = all_.operands(expression);
    switch (expression.kind) {
      case ExpressionKind::kLiteral: return emit_literal(all_.text(expression.value), next);
      case ExpressionKind::kCharacters: return emit_characters(all_.set(expression.value), next);
      case ExpressionKind::kSequence:
        for (size_t i = operands.size(); i-- > 0;) next = emit(operands[i], next);
        return next;
      case ExpressionKind::kChoice: {
        uint32_t start = kUnbounded;
        for (size_t i = operands.size(); i-- > 0;) {
          if (!analysis_.is_productive[operands[i]]) continue;
          const uint32_t branch = emit(operands[i], next);
          start = start == kUnbounded ? branch : add_split(branch, start);
        }
        return start;
      }
      case ExpressionKind::kRepeat: return emit_repeat(expression, next);
      case ExpressionKind::kCounted: TSR_CHECK(false, "a counted repetition is a rule"); return next;
      case ExpressionKind::kCall: {
        const ExpressionId body = all_.rules()[expression.value].expression;
        if (is_inlined(body)) return emit(body, next);
        const uint32_t call = add({NodeKind::kCall, number(expression.value), next, 0});
        return analysis_.is_nullable[id] ? add_split(call, next) : call;
      }
      case ExpressionKind::kLiterals: return emit_literals(expression, next);
      case ExpressionKind::kMembers: return emit_members(expression, next);
    }
    return next;
  }

  [[gnu::noinline]] uint32_t emit_literal(const std::string& text, uint32_t next) {
    for (size_t i = text.size(); i-- > 0;)
      next = add_bytes(ByteSet().set(static_cast<uint8_t>(text[i])), next);
    return next;
  }

  uint32_t emit_repeat(const Expression& expression, uint32_t next) {
    const ExpressionId body = all_.operands(expression)[0];
    if (!analysis_.is_productive[body]) return next;  // none of it, then
    uint32_t copies = expression.minimum;
    uint32_t start = next;
    if (expression.maximum == kUnbounded) {
      const uint32_t loop = add({NodeKind::kSplit, 0, next, next});
      const uint32_t again = emit(body, loop);
      out_.nodes[loop].next = again;
      start = copies > 0 ? again : loop;
      if (copies > 0) --copies;
    } else {
      for (uint32_t i = expression.minimum; i < expression.maximum && !is_full_; ++i)
        start = add_split(emit(body, start), next);
    }
    for (uint32_t i = 0; i < copies && !is_full_; ++i) start = emit(body, start);
    return start;
  }

  uint32_t emit_counted(const Expression& expression) {
    const ExpressionId body = all_.operands(expression)[0];
    if (!analysis_.is_productive[body]) return kAcceptNode;
    const auto counter = static_cast<uint32_t>(out_.counters.size());
    out_.counters.push_back({expression.minimum, expression.maximum});
    counter_ = counter;
    const uint32_t leave = add({NodeKind::kLeave, counter, kAcceptNode, 0});
    const uint32_t enter = add({NodeKind::kEnter, counter, kAcceptNode, 0});
    const uint32_t loop = add_split(enter, leave);
    const uint32_t start = emit(body, loop);
    out_.nodes[enter].next = start;
    return loop;
  }

  [[gnu::noinline]] uint32_t emit_characters(const CharacterSet& set, uint32_t next) {
    // From the last byte to the first: equal suffixes are shared, and leading bytes with the same rest form one set.
    std::map<std::pair<std::pair<uint8_t, uint8_t>, uint32_t>, uint32_t> ends;
    std::map<uint32_t, ByteSet> leads;
    for (const Utf8Range& range : utf8_ranges(set)) {
      uint32_t rest = next;
      for (size_t i = range.size; i-- > 1;) {
        const auto key = std::pair(std::pair(range.first[i], range.last[i]), rest);
        const auto found = ends.find(key);
        if (found != ends.end()) {
          rest = found->second;
          continue;
        }
        rest = add_bytes(bytes_between(range.first[i], range.last[i]), rest);
        ends.emplace(key, rest);
      }
      leads[rest] |= bytes_between(range.first[0], range.last[0]);
    }
    uint32_t start = kUnbounded;
    for (const auto& [rest, bytes] : leads) {
      const uint32_t lead = add_bytes(bytes, rest);
      start = start == kUnbounded ? lead : add_split(lead, start);
    }
    return start;
  }

  static ByteSet bytes_between(uint8_t first, uint8_t last) {
    ByteSet set;
    for (unsigned byte = first; byte <= last; ++byte) set.set(byte);
    return set;
  }

  // A trie of the texts, which shares prefixes.
  [[gnu::noinline]] uint32_t emit_literals(const Expression& expression, uint32_t next) {
    std::vector<std::string_view> texts;
    for (uint32_t i = 0; i < expression.minimum; ++i) texts.push_back(all_.text(expression.value + i));
    std::ranges::sort(texts);
    struct TrieNode {
      uint32_t start = kUnbounded;  // of the part built so far
      uint32_t parent = 0;
      uint8_t byte = 0;
      bool is_end = false;
    };
    std::vector<TrieNode> trie(1);
    std::vector<uint32_t> path{0};
    std::string_view before;
    for (const std::string_view text : texts) {
      const size_t common = static_cast<size_t>(std::ranges::mismatch(before, text).in1 - before.begin());
      path.resize(common + 1);
      for (size_t i = common; i < text.size(); ++i) {
        trie.push_back({kUnbounded, path.back(), static_cast<uint8_t>(text[i]), false});
        path.push_back(static_cast<uint32_t>(trie.size() - 1));
      }
      trie[path.back()].is_end = true;
      before = text;
    }
    for (size_t i = trie.size(); i-- > 0 && !is_full_;) {  // children follow their parents
      TrieNode& node = trie[i];
      if (node.is_end) node.start = node.start == kUnbounded ? next : add_split(node.start, next);
      if (i == 0) break;
      const uint32_t edge = add_bytes(ByteSet().set(node.byte), node.start);
      uint32_t& start = trie[node.parent].start;
      start = start == kUnbounded ? edge : add_split(edge, start);
    }
    return is_full_ ? kAcceptNode : trie[0].start;
  }

  // Two nodes per member: without and with a member before it.
  uint32_t emit_members(const Expression& expression, uint32_t next) {
    const auto operands = all_.operands(expression);
    uint32_t start = next, later = next;
    for (size_t i = operands.size(); i-- > 1 && !is_full_;) {
      if (!analysis_.is_productive[operands[i]]) continue;
      const uint32_t member = emit(operands[i], later);
      const uint32_t separated = emit(operands[0], member);
      const bool is_required = all_.is_required(expression, i);
      start = is_required ? member : add_split(member, start);
      later = is_required ? separated : add_split(separated, later);
    }
    return start;
  }

  // Partitions bytes into classes that no set splits, then writes sets of classes.
  void partition_bytes() {
    auto& class_of = out_.class_of;
    size_t count = 1;
    for (const ByteSet& set : out_.sets) {
      if (count == 256) break;
      std::array<int, 256> inside;
      inside.fill(-1);
      std::vector<bool> has_outside(count);
      for (size_t byte = 0; byte < 256; ++byte)
        if (!set[byte]) has_outside[class_of[byte]] = true;
      const size_t before = count;
      for (size_t byte = 0; byte < 256; ++byte) {
        if (!set[byte] || class_of[byte] >= before || !has_outside[class_of[byte]]) continue;
        int& target = inside[class_of[byte]];
        if (target < 0) target = static_cast<int>(count++);
        class_of[byte] = static_cast<uint8_t>(target);
      }
    }
    out_.class_byte.resize(count);
    for (size_t byte = 256; byte-- > 0;) out_.class_byte[class_of[byte]] = static_cast<uint8_t>(byte);
    for (ByteSet& set : out_.sets) {
      ByteSet classes;
      for (size_t each = 0; each < count; ++each) classes[each] = set[out_.class_byte[each]];
      set = classes;
    }
  }

  const Expressions& all_;
  const RuleAnalysis& analysis_;
  Automaton out_;
  std::unordered_map<ByteSet, uint32_t> set_ids_;
  std::vector<uint32_t> rule_of_;  // by rule of the expressions
  std::vector<RuleId> queue_;      // rules in the order of the automaton
  uint32_t counter_ = kUnbounded;  // of the present rule
  bool is_full_ = false;
};

}  // namespace

Result<Automaton> build_automaton(const Expressions& expressions, RuleId root) {
  TSR_RETURN_IF_ERROR(expressions.status());
  TSR_ASSIGN_OR_RETURN(const RuleAnalysis analysis, analyze_rules(expressions, root));
  if (!analysis.is_productive[expressions.rules()[root].expression])
    return Status(StatusCode::kInvalidArgument, "no text matches: each contradicts itself or never ends");
  return AutomatonBuilder(expressions, analysis).build(root);
}

}  // namespace tessera::grammar
