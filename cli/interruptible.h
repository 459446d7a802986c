// Interruptible: Ctrl-C during planning, loading, conversion or measurement
// ends that call, with a message; a second one ends the process at once.
#pragma once

#include "handle.h"

namespace cli {

// One instance at a time.
class Interruptible {
 public:
  // For long work in steps, which needs no runtime: `check` after each is soon enough.
  Interruptible() : Interruptible(nullptr) {}
  explicit Interruptible(const Runtime& runtime) : Interruptible(runtime.get()) {}
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  // Throws for an error, and after Ctrl-C.
  void check(tsr_status* status) const;
  // Returns whether Ctrl-C was pressed.
  bool interrupted() const;

 private:
  explicit Interruptible(tsr_runtime* runtime);
};

// make<Plan>(tsr_plan_new, runtime.get(), ...), with Ctrl-C.
template <class H, class Function, class... Args>
H make_interruptible(Function function, const Runtime& runtime, Args... arguments) {
  const Interruptible interruptible(runtime);
  typename H::pointer raw = nullptr;
  tsr_status* const status = function(runtime.get(), arguments..., &raw);
  H made(raw);
  interruptible.check(status);
  return made;
}

}  // namespace cli
