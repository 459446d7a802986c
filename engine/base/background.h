// Background: long work on its own thread, polled by its owner. One thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "engine/base/runtime.h"
#include "engine/base/work_progress.h"
#include "graph/base/result.h"

namespace tessera {

// BackgroundWork: the part of Background that is independent of the result type.
class BackgroundWork {
 public:
  // Begins `work` in a CancelScope and a ProgressScope. `noun`: for messages. runtime: cancels
  // the work when its cancel is raised during a step, and its hooks see the thread; may be null.
  BackgroundWork(const char* noun, std::shared_ptr<Runtime> runtime, std::function<Status()> work);
  // Cancels the work and waits for its end. In a forked child, where the thread does not exist, does nothing.
  ~BackgroundWork();
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;

  Status step();        // waits at most 0.1 s for the end; returns the work's failure, also later
  double done() const;  // 1: a step has seen the work end well
  WorkProgress progress() const;
  Status take();        // call once, when done is 1

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
