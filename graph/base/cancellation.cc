#include "graph/base/cancellation.h"

#include "graph/base/cancellation_share.h"

namespace tessera {

namespace {

// The innermost scope of this thread, which all its callees use.
thread_local const CancelScope* innermost = nullptr;

}  // namespace

CancelScope::CancelScope(const CancelSignal& signal)
    : signal_(signal), before_(signal.times_raised()), outer_(innermost) {
  innermost = this;
}

CancelScope::~CancelScope() { innermost = outer_; }

const CancelScope* innermost_cancel_scope() { return innermost; }

SharedCancelScope::SharedCancelScope(const CancelScope* scope) : outer_(innermost) { innermost = scope; }

SharedCancelScope::~SharedCancelScope() { innermost = outer_; }

void cancellation_point() {
  if (innermost != nullptr && innermost->is_cancelled()) throw Cancelled();
}

}  // namespace tessera
