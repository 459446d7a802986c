#include "engine/serving/scheduler/draft_backoff.h"

#include <algorithm>

namespace tessera {

void DraftBackoff::record_plain(double seconds) {
  since_plain_ = 0;
  pause_s_ = std::max(0.0, pause_s_ - seconds);
}

void DraftBackoff::record_drafted(double plain_s, double spent_s, double catch_up_s) {
  constexpr double kKept = 0.98;               // decay of older steps, per step
  constexpr double kStepsAhead = 64;           // steps over which catching up is amortized
  constexpr int64_t kFewest = 3, kTrial = 12;  // steps until a loss of half, and until any loss, begins a pause
  constexpr int64_t kProven = 256;             // steps until earlier failures are forgotten
  ++since_plain_;
  ++steps_;
  ahead_s_ += catch_up_s;
  const double share = ahead_s_ / kStepsAhead;
  ahead_s_ -= share;
  spent_s += share - catch_up_s;
  plain_s_ = kKept * plain_s_ + plain_s;
  spent_s_ = kKept * spent_s_ + spent_s;
  lost_s_ += spent_s - plain_s;
  if (steps_ >= kProven) failures_ = 0;
  if ((steps_ >= kTrial && spent_s_ > plain_s_) || (steps_ >= kFewest && spent_s_ > 2 * plain_s_))
    begin_pause(plain_s);
}

void DraftBackoff::begin_pause(double step_s) {
  constexpr double kOfLoss = 40, kShortestSteps = 16;  // a loss of 2.5 % at first
  constexpr int64_t kMostDoubled = 8;
  const double lost = std::max(0.0, lost_s_ + ahead_s_);
  pause_s_ = std::max(kOfLoss * lost, kShortestSteps * step_s) *
             static_cast<double>(int64_t{1} << std::min(failures_, kMostDoubled));
  ++failures_;
  steps_ = 0;
  plain_s_ = spent_s_ = lost_s_ = ahead_s_ = 0;
}

}  // namespace tessera
