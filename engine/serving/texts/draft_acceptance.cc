#include "engine/serving/texts/draft_acceptance.h"

#include <algorithm>

namespace tessera {

size_t DraftAcceptance::wanted(size_t most) {
  if (pause_ > 0) {
    --pause_;
    return 0;
  }
  return std::min<size_t>(most, rate_ > 0.75 ? most : rate_ > 0.4 ? 3 : 1);
}

void DraftAcceptance::record(size_t drafted, size_t accepted) {
  constexpr double kNewest = 0.25;
  // Drafts after a rejected one carry no information.
  const size_t seen = std::min(drafted, accepted + 1);
  for (size_t i = 0; i < seen; ++i) rate_ += kNewest * ((i < accepted ? 1.0 : 0.0) - rate_);
  if (accepted > 0) {
    next_pause_ = kShortestPause;
  } else if (rate_ < 0.3) {
    pause_ = next_pause_;
    next_pause_ = std::min(2 * next_pause_, kLongestPause);
  }
}

double DraftAcceptance::expected(size_t drafted) const {
  double sum = 0, chance = 1;
  for (size_t i = 0; i < drafted; ++i) sum += chance *= rate_;
  return sum;
}

}  // namespace tessera
