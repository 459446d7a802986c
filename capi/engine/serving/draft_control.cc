#include "capi/engine/serving/draft_control.h"

#include <algorithm>

namespace tessera {

size_t DraftRecord::wanted(size_t most) {
  if (pause_ > 0) {
    --pause_;
    return 0;
  }
  return std::min<size_t>(most, rate_ > 0.75 ? most : rate_ > 0.4 ? 3 : 1);
}

void DraftRecord::note(size_t guessed, size_t right) {
  constexpr double kNewest = 0.25;
  // Guesses behind a wrong one say nothing.
  const size_t seen = std::min(guessed, right + 1);
  for (size_t i = 0; i < seen; ++i) rate_ += kNewest * ((i < right ? 1.0 : 0.0) - rate_);
  if (right > 0) {
    next_pause_ = kShortestPause;
  } else if (rate_ < 0.3) {
    pause_ = next_pause_;
    next_pause_ = std::min(2 * next_pause_, kLongestPause);
  }
}

double DraftRecord::expected(size_t guessed) const {
  double sum = 0, chance = 1;
  for (size_t i = 0; i < guessed; ++i) sum += chance *= rate_;
  return sum;
}

void StepTimes::note(const std::string& entry, double seconds) {
  constexpr double kNewest = 0.2;
  Time& time = times_[entry];
  if (++time.runs <= 2)
    time.seconds = seconds;
  else  // one that was held up says little
    time.seconds += kNewest * (std::min(seconds, 2 * time.seconds) - time.seconds);
}

std::optional<double> StepTimes::find(const std::string& entry) const {
  const auto at = times_.find(entry);
  if (at == times_.end() || at->second.runs < 2) return {};
  return at->second.seconds;
}

bool StepTimes::pays(const std::string& plain, double certain, const std::string& with_guesses,
                     double guessed) {
  constexpr int64_t kTriedAgain = 256;
  if (plain == with_guesses) return true;
  const std::optional<double> without = find(plain), with = find(with_guesses);
  if (!without || !with) return true;
  if (*with * certain <= *without * (certain + guessed)) return true;
  if (++refused_ < kTriedAgain) return false;
  refused_ = 0;
  return true;
}

}  // namespace tessera
