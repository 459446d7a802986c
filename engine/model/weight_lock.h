// WeightLock: a readers-writer lock on a trainer's
// weights; an update precedes waiting readers. Any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

namespace tessera {

class WeightLock {
 public:
  // Reading: excludes updates during its lifetime.
  class Reading {
   public:
    explicit Reading(WeightLock& lock);
    Reading(Reading&& other) noexcept
        : lock_(std::exchange(other.lock_, nullptr)), version_(other.version_) {}
    Reading& operator=(Reading&&) = delete;
    ~Reading();
    int64_t version() const { return version_; }  // changes with each update

   private:
    WeightLock* lock_;
    int64_t version_ = 0;
  };
  // Update: exclusive use of the weights during its lifetime.
  class Update {
   public:
    explicit Update(WeightLock& lock);
    Update(const Update&) = delete;
    Update& operator=(const Update&) = delete;
    ~Update();

   private:
    WeightLock& lock_;
  };

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t version_ = 0, readers_ = 0, updates_ = 0;  // updates_: running or waiting
  bool is_updating_ = false;
};

}  // namespace tessera
