// RuleMasks: allowed tokens at places of a grammar's rules, independent of the caller.
//
// Most tokens stay within a rule, such as that of strings, or break it: for these one walk over the
// vocabulary decides. The few that pass the rule's end are listed, and tried at each state (Dong et al.
// 2024, "XGrammar", adaptive token masks). Large repetition counts share an answer too. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "graph/base/result.h"
#include "text/grammar/state_pool.h"
#include "text/grammar/token_bytes.h"
#include "text/grammar/token_set.h"

namespace tessera::grammar {

struct RuleMask {
  std::shared_ptr<const TokenSet> allowed;  // in every context
  std::vector<uint32_t>
      undecided;  // depend on the context; ascending positions in the vocabulary's order
};

class RuleMasks {
 public:
  // Results are dropped when they and the walks' states exceed `most_bytes`.
  RuleMasks(const Automaton& automaton, const TokenBytes& tokens, size_t most_bytes)
      : tokens_(tokens), automaton_(automaton), most_bytes_(most_bytes) {}

  // The mask of configurations with equal `after` that take bytes.
  // Valid until the next call. kUnsupported if the walk takes too long.
  Result<const RuleMask*> find(std::span<const Configuration> configurations);

 private:
  static constexpr size_t kMostWalkBytes = size_t{128} << 20;  // states of one walk
  static constexpr uint64_t kMostWork = 20'000'000;            // configurations visited by one walk
  // Longer tokens are tried at each state if a count represents several.
  static constexpr size_t kCountedBytes = 16;

  bool share_count(Configuration& configuration) const;
  Result<RuleMask> walk(StateId start, size_t most_bytes);

  const TokenBytes& tokens_;
  const Automaton& automaton_;
  const size_t most_bytes_;
  std::unique_ptr<StatePool> pool_;
  std::unordered_map<StateId, RuleMask> masks_;
  size_t bytes_ = 0;
};

}  // namespace tessera::grammar
