// TokenCounts: how often each token occurs among a sequence's last tokens, updated as it grows.
// The cost per token is constant; memory is that of the distinct tokens, and of the window if any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

namespace tessera {

class TokenCounts {
 public:
  struct Count {
    int32_t token = 0;
    int32_t all = 0;        // occurrences in prompt and text
    int32_t generated = 0;  // occurrences after the prompt
  };

  // `window`: number of last tokens that count; 0: all.
  explicit TokenCounts(int64_t window = 0) : window_(window) {}

  void add(int32_t token, bool is_generated);
  // One entry per token of the window, in unspecified order.
  std::span<const Count> counts() const { return counts_; }

 private:
  struct Recent {
    int32_t token;
    bool is_generated;
  };

  void remove(Recent recent);

  int64_t window_;
  std::deque<Recent> recent_;  // with a window: its tokens, oldest first
  std::vector<Count> counts_;
  std::unordered_map<int32_t, size_t> index_;  // token -> place in counts_
};

}  // namespace tessera
