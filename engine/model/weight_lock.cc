#include "engine/model/weight_lock.h"

namespace tessera {

WeightLock::Reading::Reading(WeightLock& lock) : lock_(&lock) {
  std::unique_lock own(lock.mutex_);
  lock.changed_.wait(own, [&] { return lock.updates_ == 0; });
  ++lock.readers_;
  version_ = lock.version_;
}

WeightLock::Reading::~Reading() {
  if (lock_ == nullptr) return;
  const std::lock_guard own(lock_->mutex_);
  --lock_->readers_;
  lock_->changed_.notify_all();
}

WeightLock::Update::Update(WeightLock& lock) : lock_(lock) {
  std::unique_lock own(lock.mutex_);
  ++lock.updates_;
  lock.changed_.wait(own, [&] { return lock.readers_ == 0 && !lock.is_updating_; });
  lock.is_updating_ = true;
}

WeightLock::Update::~Update() {
  const std::lock_guard own(lock_.mutex_);
  ++lock_.version_;
  --lock_.updates_;
  lock_.is_updating_ = false;
  lock_.changed_.notify_all();
}

}  // namespace tessera
