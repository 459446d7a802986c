#include "runtime/capture_agreement.h"

#include <utility>

namespace tessera {

bool CaptureAgreement::all(bool mine) {
  std::unique_lock lock(mutex_);
  if (is_stopped_) return false;
  is_yes_ = is_yes_ && mine;
  if (++arrived_ == members_) {
    arrived_ = 0;
    round_ += 1;
    last_yes_ = std::exchange(is_yes_, true);
    changed_.notify_all();
    return last_yes_;
  }
  // The next round cannot end before this member has come to it.
  changed_.wait(lock, [&, round = round_] { return round_ != round || is_stopped_; });
  return last_yes_ && !is_stopped_;
}

void CaptureAgreement::stop() {
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  changed_.notify_all();
}

void CaptureAgreement::renew() {
  const std::lock_guard lock(mutex_);
  is_stopped_ = false;
  is_yes_ = true;
  arrived_ = 0;
}

}  // namespace tessera
