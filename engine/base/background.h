// Background: long work on a thread of its own, for which its owner waits a little at a time. One thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "engine/base/runtime.h"
#include "engine/base/work_progress.h"
#include "graph/base/result.h"

namespace tessera {

// What BackgroundWork is for any result.
class BackgroundWork {
 public:
  // Begins `work`, within a CancelScope and a ProgressScope. `noun` is for messages; runtime: whose cancel during a
  // step ends the work, and whose hooks hear of the thread; may be null.
  BackgroundWork(const char* noun, std::shared_ptr<Runtime> runtime, std::function<Status()> work);
  // Cancels the work and waits for its end. In a forked child, where the thread does not exist, everything stays as it is.
  ~BackgroundWork();
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;

  Status step();        // waits for the end, at most a tenth of a second; the work's failure, also later
  double done() const;  // 1: the work has ended well, as a step has seen
  WorkProgress progress() const;
  Status take();  // once, when done is 1

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

template <class Made>
class Background {
 public:
  Background(const char* noun, std::shared_ptr<Runtime> runtime, std::function<Result<Made>()> make)
      : made_(std::make_shared<Made>()),
        work_(noun, std::move(runtime), [made = made_, make = std::move(make)]() -> Status {
          TSR_ASSIGN_OR_RETURN(*made, make());
          return {};
        }) {}

  Status step() { return work_.step(); }
  double done() const { return work_.done(); }
  WorkProgress progress() const { return work_.progress(); }
  Result<Made> finish() {
    TSR_RETURN_IF_ERROR(work_.take());
    return std::move(*made_);
  }

 private:
  std::shared_ptr<Made> made_;
  BackgroundWork work_;
};

}  // namespace tessera
