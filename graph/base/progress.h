// Progress of long work, such as planning, for another thread to show. The work is done inside
// a ProgressScope and reports its share now and then; without a scope reports are dropped.
#pragma once

#include <atomic>

namespace tessera {

// A share from 0 to 1 that never falls; for any thread.
class Progress {
 public:
  void reach(double share);
  double share() const { return share_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> share_{0};
};

// While a scope exists, reports of the calling thread update `progress`, which must outlive it. The innermost counts.
class ProgressScope {
 public:
  explicit ProgressScope(Progress& progress);
  ~ProgressScope();
  ProgressScope(const ProgressScope&) = delete;
  ProgressScope& operator=(const ProgressScope&) = delete;

 private:
  Progress* const outer_;
};

// Reports the done share of the calling thread's work; costs a few instructions.
void report_progress(double share);

}  // namespace tessera
