#include "engine/serving/replicas/follower.h"

#include <chrono>

#include "graph/base/text.h"
#include "runtime/transport.h"

namespace tessera {

Follower::Follower(std::span<ProgramRunner* const> runners) {
  for (ProgramRunner* const runner : runners) {
    {
      const std::lock_guard lock(mutex_);
      ++following_;
    }
    threads_.emplace_back([this, runner] {
      const Status ended = catch_status([&] { return runner->session().follow(); });
      if (!ended.ok()) runner->prepared()->runtime->log().add(3, format("this process follows process 0 no longer: {}", ended.message()));
      const std::lock_guard lock(mutex_);
      --following_;
      if (failure_.ok()) failure_ = ended;
      changed_.notify_all();
    });
  }
}

Status Follower::wait(double timeout_s) {
  const auto has_ended = [&] { return following_ == 0; };
  std::unique_lock lock(mutex_);
  if (timeout_s < 0)
    changed_.wait(lock, has_ended);
  else
    changed_.wait_for(lock, std::chrono::duration<double>(timeout_s), has_ended);
  return failure_;
}

bool Follower::has_ended() {
  const std::lock_guard lock(mutex_);
  return following_ == 0;
}

Status Follower::refused(const ProgramRunner& runner, std::string_view what) {
  return Status(StatusCode::kUnsupported,
                format("{}: process 0 has the requests, and this is process {}, which computes its part of each step: make the call there, or a "
                       "runtime with option 'processes' none for an engine of its own",
                       what, runner.prepared()->devices->channel()->transport().process()));
}

}  // namespace tessera
