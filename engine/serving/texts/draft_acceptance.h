// DraftAcceptance: how often the drafts for a text came true, and so how many of them are worth having. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

class DraftAcceptance {
 public:
  // Guesses wanted for the next step, at most so many; 0 for a while after they failed.
  size_t wanted(size_t most);
  // So many tokens were guessed, and the first `right` of them came true.
  void record(size_t drafted, size_t accepted);
  // Tokens that so many drafts bring, on average.
  double expected(size_t drafted) const;

 private:
  double rate_ = 0.7;  // of drafts that were right, lately
  int64_t pause_ = 0, next_pause_ = kShortestPause;
  static constexpr int64_t kShortestPause = 4, kLongestPause = 512;
};

}  // namespace tessera
