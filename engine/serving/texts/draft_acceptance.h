// DraftAcceptance: the acceptance rate of a text's drafts, and the number of drafts worth proposing. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

class DraftAcceptance {
 public:
  // Number of drafts for the next step, at most `most`; 0 for a while after failures.
  size_t wanted(size_t most);
  // Records that the first `accepted` of `drafted` drafts were accepted.
  void record(size_t drafted, size_t accepted);
  // Expected number of accepted drafts.
  double expected(size_t drafted) const;

 private:
  double rate_ = 0.7;  // moving average of the acceptance rate
  int64_t pause_ = 0, next_pause_ = kShortestPause;
  static constexpr int64_t kShortestPause = 4, kLongestPause = 512;
};

}  // namespace tessera
