// MaskCache: what all constraints of one grammar and one vocabulary share: states seen before, and the tokens allowed
// there. Any thread; one at a time works, the others wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "graph/base/result.h"
#include "text/grammar/grammar.h"
#include "text/grammar/rule_masks.h"
#include "text/grammar/state_pool.h"
#include "text/grammar/token_bytes.h"

namespace tessera::grammar {

// What a cache may take; past that it forgets what no constraint is at, and finds it again.
struct MaskCacheLimits {
  size_t state_bytes = size_t{64} << 20;
  size_t mask_bytes = size_t{64} << 20;  // of states, and as much of rules
};

class MaskCache {
 public:
  MaskCache(Grammar::Shared grammar, std::shared_ptr<const TokenBytes> tokens,
            const MaskCacheLimits& limits = {});

  const TokenBytes& tokens() const { return *tokens_; }

 private:
  friend class Constraint;
  // States refer to each other, so they are dropped together: constraints move to a new generation when theirs has
  // grown, and take along what they still need.
  struct Generation {
    Generation(const Automaton& automaton, size_t most_state_bytes)
        : states(automaton), most_bytes(most_state_bytes) {}
    struct Mask {
      std::shared_ptr<const TokenSet> rule;
      TokenSet others;
    };
    StatePool states;
    std::unordered_map<StateId, Mask> masks;  // by states whose configurations have one `after`
    size_t mask_bytes = 0;
    size_t most_bytes;  // of states
  };
  static constexpr size_t kMostBytes = size_t{1} << 30;  // of the states that constraints are at

  // The rest with mutex_ held.
  Status add_allowed(Generation& generation, StateId state, std::span<uint32_t> mask);
  Result<const Generation::Mask*> find_mask(Generation& generation, StateId state);
  // Moves the states of one text out of a generation that has grown too large.
  Status renew(std::shared_ptr<Generation>& generation, std::vector<StateId>& history);

  const Grammar::Shared grammar_;
  const std::shared_ptr<const TokenBytes> tokens_;
  const MaskCacheLimits limits_;
  std::mutex mutex_;
  RuleMasks rule_masks_;
  std::shared_ptr<Generation> newest_;
};

}  // namespace tessera::grammar
