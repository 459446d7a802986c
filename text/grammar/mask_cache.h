// MaskCache: states visited and their allowed tokens, shared by the
// constraints of one grammar and vocabulary. Any thread; one works at a time.
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

// MaskCacheLimits: beyond them unused entries are dropped and recomputed later.
struct MaskCacheLimits {
  size_t state_bytes = size_t{64} << 20;
  size_t mask_bytes = size_t{64} << 20;  // for states, and as much for rules
};

class MaskCache {
 public:
  MaskCache(Grammar::Shared grammar, std::shared_ptr<const TokenBytes> tokens,
            const MaskCacheLimits& limits = {});

  const TokenBytes& tokens() const { return *tokens_; }

 private:
  friend class Constraint;
  // Generation: states refer to each other, so they are dropped together. Constraints
  // move to a new generation when theirs is too large, with the states they need.
  struct Generation {
    Generation(const Automaton& automaton, size_t most_state_bytes)
        : states(automaton), most_bytes(most_state_bytes) {}
    struct Mask {
      std::shared_ptr<const TokenSet> rule;
      TokenSet others;
    };
    StatePool states;
    std::unordered_map<StateId, Mask> masks;  // by states whose configurations share one `after`
    size_t mask_bytes = 0;
    size_t most_bytes;  // of states
  };
  static constexpr size_t kMostBytes = size_t{1} << 30;  // of states in use

  // These require mutex_.
  Status add_allowed(Generation& generation, StateId state, std::span<uint32_t> mask);
  Result<const Generation::Mask*> find_mask(Generation& generation, StateId state);
  // Moves the states of one text to a new generation.
  Status renew(std::shared_ptr<Generation>& generation, std::vector<StateId>& history);

  const Grammar::Shared grammar_;
  const std::shared_ptr<const TokenBytes> tokens_;
  const MaskCacheLimits limits_;
  std::mutex mutex_;
  RuleMasks rule_masks_;
  std::shared_ptr<Generation> newest_;
};

}  // namespace tessera::grammar
