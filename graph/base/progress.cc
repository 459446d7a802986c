#include "graph/base/progress.h"

#include <algorithm>
#include <utility>

namespace tessera {

namespace {

// The progress of this thread's innermost scope, which all its callees use.
thread_local Progress* innermost = nullptr;

}  // namespace

void Progress::reach(double share) {
  if (share > share_.load(std::memory_order_relaxed))  // only one thread reports
    share_.store(std::min(share, 1.0), std::memory_order_relaxed);
}

ProgressScope::ProgressScope(Progress& progress) : outer_(std::exchange(innermost, &progress)) {}

ProgressScope::~ProgressScope() { innermost = outer_; }

void report_progress(double share) {
  if (innermost != nullptr) innermost->reach(share);
}

}  // namespace tessera
