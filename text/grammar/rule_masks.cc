#include "text/grammar/rule_masks.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera::grammar {

// Normalizes a count to one equivalent for the next kCountedBytes bytes; returns whether others share it.
bool RuleMasks::share_count(Configuration& configuration) const {
  const uint32_t id = automaton_.counter_of[configuration.node];
  if (id == kUnbounded) return false;
  const Counter& counter = automaton_.counters[id];
  const uint32_t count = configuration.repetitions;
  const bool is_maximum_far = counter.maximum == kUnbounded || counter.maximum - count > kCountedBytes;
  if (!is_maximum_far) return false;
  if (count + kCountedBytes < counter.minimum) {
    configuration.repetitions = 1;
    return true;
  }
  if (count >= counter.minimum && counter.maximum != kUnbounded) {
    configuration.repetitions = std::max(counter.minimum, 1u);
    return true;
  }
  return false;
}

Result<const RuleMask*> RuleMasks::find(std::span<const Configuration> configurations) {
  if (pool_ == nullptr || bytes_ + pool_->bytes() > most_bytes_) {
    masks_.clear();
    bytes_ = 0;
    pool_ = std::make_unique<StatePool>(automaton_);
  }
  std::vector<Configuration> opaque(configurations.begin(), configurations.end());
  bool is_shared = false;
  for (Configuration& each : opaque) {
    if (each.after != kEndOfText) each.after = kOpaqueState;
    if (share_count(each)) is_shared = true;
  }
  const StateId start = pool_->intern(opaque);
  if (const auto found = masks_.find(start); found != masks_.end()) return &found->second;
  TSR_ASSIGN_OR_RETURN(RuleMask mask, walk(start, is_shared ? kCountedBytes : SIZE_MAX));
  bytes_ += mask.allowed->bytes() + mask.undecided.capacity() * sizeof(uint32_t);
  return &masks_.emplace(start, std::move(mask)).first->second;
}

Result<RuleMask> RuleMasks::walk(StateId start, size_t most_bytes) {
  RuleMask mask;
  std::vector<int32_t> allowed;
  pool_->take_exhausted();
  const auto trie = tokens_.trie();
  const auto order = tokens_.order();
  const uint64_t most_work = pool_->work() + kMostWork;
  const size_t most_pool_bytes = pool_->bytes() + kMostWalkBytes;
  // By depth: the state, and whether the rule could have ended there, with its caller continuing.
  const bool is_root = pool_->configurations(start)[0].after == kEndOfText;
  std::vector<StateId> states(tokens_.longest() + 1);
  std::vector<uint8_t> has_ended(tokens_.longest() + 1);
  states[0] = start;
  has_ended[0] = false;
  const auto leave_undecided = [&](size_t first_node, size_t end_node) {
    for (uint32_t at = tokens_.first_token(first_node); at < tokens_.first_token(end_node); ++at)
      mask.undecided.push_back(at);
  };
  for (size_t i = 0; i < trie.size();) {
    const TokenBytes::TrieNode& node = trie[i];
    const StateId state = pool_->step(states[node.depth - 1u], node.byte);
    if (state == kDeadState) {
      if (has_ended[node.depth - 1u]) leave_undecided(i, node.skip);
      i = node.skip;
      continue;
    }
    for (uint32_t at = node.first_token; at < tokens_.first_token(i + 1); ++at) allowed.push_back(order[at]);
    if (node.depth >= most_bytes) {
      leave_undecided(i + 1, node.skip);
      i = node.skip;
      continue;
    }
    states[node.depth] = state;
    has_ended[node.depth] = has_ended[node.depth - 1u] || (!is_root && pool_->can_end(state));
    ++i;
    if (pool_->work() > most_work || pool_->bytes() > most_pool_bytes)
      return Status(StatusCode::kUnsupported,
                    "the grammar is too ambiguous: finding the allowed tokens takes too long");
  }
  if (pool_->take_exhausted())
    return Status(StatusCode::kUnsupported,
                  format("the grammar is too ambiguous: a text can be read in more than {} ways at once",
                         StatePool::kMostConfigurations));
  mask.allowed = std::make_shared<const TokenSet>(std::move(allowed), tokens_.mask_words());
  mask.undecided.shrink_to_fit();
  return mask;
}

}  // namespace tessera::grammar
