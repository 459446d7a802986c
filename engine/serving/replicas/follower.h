// Follower: computes this process' part of programs that the first process uses (Session::follow), on threads of its own, until that one has
// freed them.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "engine/program/program_runner.h"
#include "graph/base/thread.h"

namespace tessera {

class Follower {
 public:
  // The runners outlive it. Throws std::system_error where the system refuses a thread.
  explicit Follower(std::span<ProgramRunner* const> runners);
  ~Follower() { (void)wait(-1); }
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // Waits for the end, for `timeout_s` seconds at most; negative: as long as it takes. An error: why the first process is lost. Any thread.
  Status wait(double timeout_s);
  bool has_ended();
  // The error of calls that are the first process' to make.
  static Status refused(const ProgramRunner& runner, std::string_view what);

 private:
  std::mutex mutex_;  // guards the next three
  std::condition_variable changed_;
  size_t following_ = 0;
  Status failure_;
  std::vector<Thread> threads_;
};

}  // namespace tessera
