// ShardingRule: an op's loop nest as named factors, einsum style: "btk,kn->btn". It is the whole index
// structure of the op. From it follow the candidate placements (assign mesh axes to a factor), the local
// shapes, whether an output is sharded or partial, and the collective when a consumer disagrees.
//
// A tensor dim is an ordered product of factors, major to minor: "(kg)" is q-heads = kv heads x group. A dim
// that the op does not index (extent 1, or broadcast) is written "1".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum class ReduceKind : uint8_t { kSum = 0, kMax = 1 };

enum class FactorKind : uint8_t {
  kPass,    // may be sharded; in every output that depends on it
  kReduce,  // may be sharded; outputs that have it are sharded along it, those without it are partial(reduce)
  kPhased,  // normalised over (norm channel): whole, or split through the op's phased form (OpDef::phases)
  kReplicate,  // may not be sharded: the op needs it whole (softmax axis, norm channel, top-k)
};

struct Factor {
  char name = '?';
  FactorKind kind = FactorKind::kPass;
  ReduceKind reduce = ReduceKind::kSum;  // for kReduce
  int64_t extent = 0;                    // from the shapes given (global or local)
  int64_t unit = 1;                      // shards are whole multiples of it (quantised block)
};

struct ShardingRule {
  // One entry per dim: its factors, whose product it is, major to minor; empty for an unindexed dim.
  using OperandDims = std::vector<std::string>;

  std::vector<Factor> factors;
  std::vector<OperandDims> inputs;
  std::vector<OperandDims> outputs;

  // Sets of inputs in which the op is jointly linear: f is linear in all
  // of a set at once, the others held fixed. A sum-partial may be carried
  // through exactly one set. matmul: {0}, {1}; add: {0, 1}; softmax: none.
  std::vector<std::vector<int>> linear;

  // Two factors that index one order (a causal mask's queries and keys): an element at position p of
  // `earlier` affects only positions p and later of `later`. 0: no such pair.
  struct Order {
    char later = 0, earlier = 0;
  };
  Order order;

  const Factor* find(char name) const;
  Factor* find(char name);
};

// Parses "btk,kn->btn" and sets every factor to kPass, or kReduce(sum) when no output has it. Extents are 0
// until `bind_extents` reads them from operand shapes. "(hd)" is a product, "1" an unindexed dim, "" a scalar
// operand.
ShardingRule parse_rule(std::string_view text);
std::string to_text(const ShardingRule& rule);

}  // namespace tessera
