// Constraint: a text under a grammar, token by token. A copy continues independently, and takes four
// bytes per token. One thread at a time; constraints of one MaskCache may use different threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "text/grammar/mask_cache.h"

namespace tessera::grammar {

class Constraint {
 public:
  explicit Constraint(std::shared_ptr<MaskCache> cache);  // the empty text

  // Sets the bits of allowed tokens and clears others: mask [mask_words()], token t is bit t % 32
  // of word t / 32. End tokens are allowed if can_end(); after one, nothing is. kUnsupported, with
  // an undefined mask, if no token of the vocabulary can continue, or the grammar is too ambiguous.
  Status write_allowed(std::span<uint32_t> mask) const;
  std::shared_ptr<const TokenBytes> shared_tokens() const { return cache_->tokens_; }
  size_t mask_words() const { return cache_->tokens().mask_words(); }

  // kFailedPrecondition for a forbidden token, without effect.
  Status accept(int32_t token);
  // Accepts bytes that are part of a token; they count as one token.
  Status accept_text(std::string_view bytes);

  bool can_end() const;    // an end token is allowed
  bool must_end() const;   // only an end token is allowed
  bool has_ended() const;  // an end token was accepted
  // Whether the text may end after its first `size` tokens and these bytes. size <= size().
  bool can_end_after(size_t size, std::string_view bytes) const;

  size_t size() const { return history_.size() - 1; }  // tokens accepted
  void rewind(size_t size);                            // size <= size()

 private:
  Result<StateId> follow(StateId state, std::string_view text, int32_t token) const;
  Status refuse(int32_t token, std::string_view text, StateId state, size_t accepted_bytes) const;
  std::shared_ptr<MaskCache> cache_;
  std::shared_ptr<MaskCache::Generation> generation_;
  std::vector<StateId> history_;  // before the first token, and after each
};

}  // namespace tessera::grammar
