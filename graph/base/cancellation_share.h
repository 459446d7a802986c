// SharedCancelScope: cancellation of helper threads, by the scope of the thread that they help.
#pragma once

#include "graph/base/cancellation.h"

namespace tessera {

// The innermost scope of the calling thread; null where it has none.
const CancelScope* innermost_cancel_scope();

// While it exists, the calling thread heeds `scope` (null: none), which must outlive it.
class SharedCancelScope {
 public:
  explicit SharedCancelScope(const CancelScope* scope);
  ~SharedCancelScope();
  SharedCancelScope(const SharedCancelScope&) = delete;
  SharedCancelScope& operator=(const SharedCancelScope&) = delete;

 private:
  const CancelScope* const outer_;
};

}  // namespace tessera
