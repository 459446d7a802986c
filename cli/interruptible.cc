#include "interruptible.h"

#include <atomic>
#include <csignal>

namespace cli {

namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};

std::atomic<tsr_runtime*> interrupted_runtime{nullptr};
std::atomic<bool> was_interrupted{false};

void interrupt(int signal) {
  was_interrupted = true;
  tsr_runtime_cancel(interrupted_runtime.load());
  std::signal(signal, SIG_DFL);
}

}  // namespace

Interruptible::Interruptible(tsr_runtime* runtime) {
  interrupted_runtime = runtime;
  for (const int signal : kSignals) std::signal(signal, interrupt);
}

Interruptible::~Interruptible() {
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
  interrupted_runtime = nullptr;
}

void Interruptible::check(tsr_status* status) const {
  if (was_interrupted) {
    tsr_status_free(status);
    throw Error(TSR_CANCELLED, "interrupted; nothing was written");
  }
  cli::check(status);
}

bool Interruptible::interrupted() const { return was_interrupted; }

}  // namespace cli
