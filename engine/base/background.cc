#include "engine/base/background.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "graph/base/cancellation.h"
#include "graph/base/progress.h"
#include "graph/base/status_codes.h"
#include "graph/base/text.h"
#include "graph/base/thread.h"

namespace tessera {

namespace {

constexpr auto kStepTime = std::chrono::milliseconds(100);
constexpr auto kLookTime = std::chrono::milliseconds(10);  // poll interval of the runtime's cancel signal

}  // namespace

struct BackgroundWork::Impl {
  const char* noun;
  std::shared_ptr<Runtime> runtime;
  std::function<Status()> work;
  const pid_t process = getpid();
  CancelSignal signal;
  std::atomic<bool> is_cancelled{false};  // also if it precedes the thread's signal handling
  Progress progress;
  std::mutex mutex;
  std::condition_variable ended;
  std::optional<Status> outcome;  // guarded by mutex
  bool is_done = false, is_taken = false;
  Thread thread;

  void run() {
    Status status = catch_status([&]() -> Status {
      if (runtime) {
        const tsr_host_api& host = runtime->registry().host();
        host.thread_started(host.host, "work", 0);
      }
      const CancelScope cancel(signal);
      const ProgressScope reported(progress);
      if (is_cancelled) throw Cancelled();
      return work();
    });
    work = nullptr;  // frees its captures before the end is visible
    const std::lock_guard lock(mutex);
    outcome = std::move(status);
    ended.notify_all();
  }

  void cancel() {
    is_cancelled = true;
    signal.raise();
  }
};

BackgroundWork::BackgroundWork(const char* noun, std::shared_ptr<Runtime> runtime,
                               std::function<Status()> work)
    : impl_(std::make_unique<Impl>()) {
  impl_->noun = noun;
  impl_->runtime = std::move(runtime);
  impl_->work = std::move(work);
  impl_->thread = Thread([impl = impl_.get()] { impl->run(); });
}

BackgroundWork::~BackgroundWork() {
  if (impl_->process != getpid()) {
    (void)impl_.release();
    return;
  }
  impl_->cancel();
  impl_->thread.join();
}

Status BackgroundWork::step() {
  if (impl_->process != getpid())
    return Status(
        kForked,
        format("this {} belongs to process {}, this is process {}: threads do not survive fork; begin "
               "it after forking",
               impl_->noun, impl_->process, getpid()));
  std::optional<CancelScope> scope;
  if (impl_->runtime) scope.emplace(impl_->runtime->cancel_signal());
  std::unique_lock lock(impl_->mutex);
  const auto has_ended = [&] { return impl_->outcome.has_value(); };
  for (auto left = kStepTime; left > left.zero() && !has_ended(); left -= kLookTime) {
    impl_->ended.wait_for(lock, kLookTime, has_ended);
    if (!scope || !scope->is_cancelled() || has_ended()) continue;
    impl_->cancel();
    impl_->ended.wait(lock, has_ended);
  }
  if (!has_ended()) return {};
  TSR_RETURN_IF_ERROR(*impl_->outcome);
  impl_->is_done = true;
  return {};
}

double BackgroundWork::done() const {
  constexpr double kMost = 0.999;  // until a step has seen the end
  return impl_->is_done ? 1 : std::min(impl_->progress.share(), kMost);
}

WorkProgress BackgroundWork::progress() const {
  return {done(), 0, 0, "", impl_->is_done ? "" : impl_->noun};
}

Status BackgroundWork::take() {
  if (impl_->is_taken)
    return Status(StatusCode::kFailedPrecondition,
                  format("the {}'s result was taken already, by an earlier finish", impl_->noun));
  if (!impl_->is_done)
    return Status(StatusCode::kFailedPrecondition, format("{} % of the {} are done: step until 1 is done",
                                                          static_cast<int64_t>(100 * done()), impl_->noun));
  impl_->is_taken = true;
  return {};
}

}  // namespace tessera
