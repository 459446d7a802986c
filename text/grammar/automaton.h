// Automaton: the one form of every grammar. Each rule is a nondeterministic automaton over bytes, whose calls of other
// rules make the whole a pushdown automaton. From every node the end can be reached. Immutable plain data.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "text/grammar/expression.h"

namespace tessera::grammar {

using ByteSet = std::bitset<256>;

inline constexpr uint32_t kAcceptNode = 0;
inline constexpr size_t kMostNodes = size_t{1} << 20;

enum class NodeKind : uint8_t {
  kAccept,  // the rule ends; node 0 alone
  kBytes,   // one byte of sets[value], then `next`
  kSplit,   // `next` or `other`
  kCall,    // rule `value`, then `next`; never its empty text, past which a split leads
  kEnter,   // another repetition of counters[value] begins
  kLeave,   // no further one does
};

struct Node {
  NodeKind kind = NodeKind::kAccept;
  uint32_t value = 0;
  uint32_t next = 0, other = 0;
};

struct Counter {
  uint32_t minimum = 0, maximum = 0;  // kUnbounded: without end
};

struct AutomatonRule {
  uint32_t start = 0;
  uint32_t rank = 0;  // above those of all rules that begin with it; none share one
};

struct Automaton {
  std::vector<Node> nodes;
  std::vector<AutomatonRule> rules;  // the root first
  std::vector<Counter> counters;
  std::vector<uint32_t> counter_of;  // by node; kUnbounded for nodes outside of counted repetitions
  // Bytes that no set tells apart are one class; sets hold classes.
  std::array<uint8_t, 256> class_of{};
  std::vector<uint8_t> class_byte;  // one of each class
  std::vector<ByteSet> sets;
};

// kInvalidArgument where no text matches.
Result<Automaton> build_automaton(const Expressions& expressions, RuleId root);

}  // namespace tessera::grammar
