#include "text/grammar/mask_cache.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "graph/base/text.h"

namespace tessera::grammar {

MaskCache::MaskCache(Grammar::Shared grammar, std::shared_ptr<const TokenBytes> tokens,
                     const MaskCacheLimits& limits)
    : grammar_(std::move(grammar)),
      tokens_(std::move(tokens)),
      limits_(limits),
      rule_masks_(grammar_->automaton(), *tokens_, limits.mask_bytes),
      newest_(std::make_shared<Generation>(grammar_->automaton(), limits.state_bytes)) {}

Status MaskCache::add_allowed(Generation& generation, StateId state, std::span<uint32_t> mask) {
  // All configurations with the same continuation share a mask.
  const auto all = generation.states.configurations(state);
  std::vector<Configuration> configurations(all.begin(), all.end());
  std::erase_if(configurations, [](const Configuration& each) { return each.node == kAcceptNode; });
  std::ranges::stable_sort(configurations, {}, &Configuration::after);
  for (auto begin = configurations.begin(); begin != configurations.end();) {
    const auto end = std::find_if(begin, configurations.end(),
                                  [&](const Configuration& each) { return each.after != begin->after; });
    TSR_ASSIGN_OR_RETURN(const Generation::Mask* part,
                         find_mask(generation, generation.states.intern(std::span(begin, end))));
    part->rule->add_to(mask);
    part->others.add_to(mask);
    begin = end;
  }
  return {};
}

Result<const MaskCache::Generation::Mask*> MaskCache::find_mask(Generation& generation, StateId state) {
  if (const auto found = generation.masks.find(state); found != generation.masks.end()) return &found->second;
  StatePool& pool = generation.states;
  TSR_ASSIGN_OR_RETURN(const RuleMask* rule, rule_masks_.find(pool.configurations(state)));
  std::vector<int32_t> allowed;
  pool.take_exhausted();
  std::vector<StateId> states(tokens_->longest() + 1);
  states[0] = state;
  size_t alive = 0;  // number of allowed bytes of the previous token
  std::string_view before;
  for (const uint32_t position : rule->undecided) {
    const int32_t id = tokens_->order()[position];
    const std::string_view text = tokens_->bytes(id);
    const auto common = static_cast<size_t>(std::ranges::mismatch(before, text).in1 - before.begin());
    before = text;
    if (common > alive) continue;  // shares a forbidden prefix
    alive = common;
    while (alive < text.size()) {
      const StateId next = pool.step(states[alive], static_cast<uint8_t>(text[alive]));
      if (next == kDeadState) break;
      states[++alive] = next;
    }
    if (alive == text.size()) allowed.push_back(id);
  }
  if (pool.take_exhausted())
    return Status(StatusCode::kUnsupported,
                  format("the grammar is too ambiguous: the text can be read in more than {} ways at once",
                         StatePool::kMostConfigurations));
  if (generation.mask_bytes > limits_.mask_bytes) {
    generation.masks.clear();
    generation.mask_bytes = 0;
  }
  Generation::Mask mask{rule->allowed, TokenSet(std::move(allowed), tokens_->mask_words())};
  generation.mask_bytes += mask.others.bytes() + sizeof mask;
  return &generation.masks.emplace(state, std::move(mask)).first->second;
}

Status MaskCache::renew(std::shared_ptr<Generation>& generation, std::vector<StateId>& history) {
  if (generation->states.bytes() <= generation->most_bytes) return {};
  if (newest_->states.bytes() > newest_->most_bytes)
    newest_ = std::make_shared<Generation>(grammar_->automaton(), limits_.state_bytes);
  std::vector<StateId> known;
  for (StateId& state : history) state = newest_->states.adopt(generation->states, state, known);
  generation = newest_;
  const size_t bytes = generation->states.bytes();
  if (bytes > kMostBytes)
    return Status(
        StatusCode::kOutOfMemory,
        format("the state of the constrained text takes {}, wanted at most {}",
               bytes_text(static_cast<int64_t>(bytes)), bytes_text(static_cast<int64_t>(kMostBytes))));
  generation->most_bytes = std::max(generation->most_bytes, 2 * bytes);
  return {};
}

}  // namespace tessera::grammar
