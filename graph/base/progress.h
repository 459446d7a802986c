// Progress of long work, such as planning, for another thread to show. The work is done inside a ProgressScope and
// reports its share now and then; without a scope a report is for nobody.
#pragma once

#include <atomic>

namespace tessera {

// From 0 to 1; never falls. Any thread.
class Progress {
 public:
  void reach(double share);
  double share() const { return share_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> share_{0};
};

// While one lives, reports of the calling thread go to `progress`, which must outlive it. The innermost counts.
class ProgressScope {
 public:
  explicit ProgressScope(Progress& progress);
  ~ProgressScope();
  ProgressScope(const ProgressScope&) = delete;
  ProgressScope& operator=(const ProgressScope&) = delete;

 private:
  Progress* const outer_;
};

// The share of the calling thread's work that is done; costs a few instructions.
void report_progress(double share);

}  // namespace tessera
