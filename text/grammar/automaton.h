// Automaton: the common form of all grammars. Each rule is a nondeterministic automaton over bytes; calls
// between rules make a pushdown automaton. The end is reachable from every node. Immutable plain data.
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
  kAccept,  // end of the rule; only node 0
  kBytes,   // one byte of sets[value], then `next`
  kSplit,   // `next` or `other`
  kCall,    // rule `value`, then `next`; never its empty text, which a split bypasses
  kEnter,   // begins another repetition of counters[value]
  kLeave,   // ends the repetitions
};

struct Node {
  NodeKind kind = NodeKind::kAccept;
  uint32_t value = 0;
  uint32_t next = 0, other = 0;
};

struct Counter {
  uint32_t minimum = 0, maximum = 0;  // kUnbounded: no maximum
};

struct AutomatonRule {
  uint32_t start = 0;
  uint32_t rank = 0;  // higher than those of all rules that begin with it; unique
};

struct Automaton {
  std::vector<Node> nodes;
  std::vector<AutomatonRule> rules;  // root first
  std::vector<Counter> counters;
  std::vector<uint32_t> counter_of;  // by node; kUnbounded outside of counted repetitions
  // Bytes that no set distinguishes form a class; sets contain classes.
  std::array<uint8_t, 256> class_of{};
  std::vector<uint8_t> class_byte;  // a representative of each class
  std::vector<ByteSet> sets;
};

// kInvalidArgument if no text matches.
Result<Automaton> build_automaton(const Expressions& expressions, RuleId root);

}  // namespace tessera::grammar
