// TokenCounts: how often each token is among the last tokens of a sequence, kept up as the sequence grows. A token costs
// the same however long the sequence is, and memory is that of the distinct tokens, and of the window where there is one.
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
    int32_t all = 0;        // times, in the prompt and after it
    int32_t generated = 0;  // after the prompt
  };

  // `window`: tokens that count, the last ones; 0: all.
  explicit TokenCounts(int64_t window = 0) : window_(window) {}

  void add(int32_t token, bool is_generated);
  // One entry for each token of the window, in no order that means anything.
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
