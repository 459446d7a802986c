// CaptureAgreement: the ranks that communicate in an entry point capture it together or not at all: what one
// captures, another may not issue. Each says before whether it can, and after whether it did, and goes by
// what all have said. One of an entry, of the ranks' threads.
#pragma once

#include <condition_variable>
#include <mutex>

namespace tessera {

class CaptureAgreement {
 public:
  // Before anything runs: one member more, which can never where `may` is false.
  void join(bool may) {
    members_ += 1;
    is_possible_ = is_possible_ && may;
  }
  bool is_possible() const { return is_possible_; }

  // Waits for all members; whether every one of them said yes. False, at once, after a stop.
  bool all(bool mine);
  void stop();   // from any thread: wakes who waits
  void renew();  // after a stop, when nobody waits any more

 private:
  int members_ = 0;
  bool is_possible_ = true;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  int arrived_ = 0, round_ = 0;
  bool is_yes_ = true;     // of the round under way
  bool last_yes_ = false;  // of the round before
  bool is_stopped_ = false;
};

}  // namespace tessera
