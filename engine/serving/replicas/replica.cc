#include "engine/serving/replicas/replica.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "engine/program/program_runner.h"

namespace tessera {

namespace {

int64_t expected_tokens(const ServingCore::Texts& texts) {
  int64_t sum = 0;
  for (const auto& text : texts) sum += text->expected_tokens();
  return sum;
}

}  // namespace

Replica::Replica(std::unique_ptr<ServingCore> core, int32_t number, Hooks hooks)
    : core_(std::move(core)),
      hooks_(std::move(hooks)),
      worker_(
          1, [this](int32_t) { work(); }, false,
          [this, number](int32_t) {
            const tsr_host_api& host = core_->runner().prepared()->runtime->registry().host();
            host.thread_started(host.host, "engine", number);
          }) {
  const std::lock_guard lock(mutex_);
  note_memory();
  report_.counts = core_->counts();
}

Replica::~Replica() {
  close();
  join();
}

void Replica::close() {
  const std::lock_guard lock(mutex_);
  closing_ = true;
  core_->stop();
  changed_.notify_all();
}

void Replica::join() {
  if (!core_->runner().prepared()->runtime->in_creating_process()) return;  // a forked child has no worker
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !busy_; });
}

void Replica::wake_worker() {
  if (busy_) {
    changed_.notify_all();
    return;
  }
  worker_.call();
  busy_ = true;
}

void Replica::wake() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void Replica::submit(ServingCore::Texts& texts) {
  const int64_t expected = tessera::expected_tokens(texts);
  const std::lock_guard lock(mutex_);
  commands_.requests.reserve(commands_.requests.size() + 1);
  wake_worker();
  expected_tokens_ += expected;
  texts_ += std::ssize(texts);
  commands_.requests.push_back(std::move(texts));
}

void Replica::cancel(int64_t request) {
  const std::lock_guard lock(mutex_);
  commands_.cancelled.push_back(request);
  changed_.notify_all();
}

void Replica::answer(int64_t request, int32_t index, std::vector<float> logits) {
  const std::lock_guard lock(mutex_);
  commands_.answers.push_back({request, index, std::move(logits)});
  changed_.notify_all();
}

Status Replica::between_steps(const std::function<Status()>& call) {
  Status result;
  bool done = false;
  std::unique_lock lock(mutex_);
  wake_worker();
  commands_.calls.push_back([&] {
    Status called = catch_status(call);
    const std::lock_guard inner(mutex_);
    result = std::move(called);
    done = true;
    changed_.notify_all();
  });
  changed_.wait(lock, [&] { return done; });
  return result;
}

void Replica::suggest_rebalance() {
  const std::lock_guard lock(mutex_);
  if (!busy_) return;
  commands_.rebalance = true;
  changed_.notify_all();
}

bool Replica::has_commands() const {
  const std::lock_guard lock(mutex_);
  return !commands_.is_empty();
}

int64_t Replica::free_rows() const {
  const std::lock_guard lock(mutex_);
  return std::max<int64_t>(0, core_->settings().rows - texts_);
}

int64_t Replica::expected_tokens() const {
  const std::lock_guard lock(mutex_);
  return expected_tokens_;
}

Replica::Report Replica::report() const {
  const std::lock_guard lock(mutex_);
  return report_;
}

void Replica::note_memory() {
  report_.memory = core_->runner().session().memory();
  report_.draft_memory = core_->draft_memory();
}

void Replica::note_work() {
  texts_ = core_->texts();
  expected_tokens_ = core_->expected_tokens();
  for (const ServingCore::Texts& texts : commands_.requests) {
    texts_ += std::ssize(texts);
    expected_tokens_ += tessera::expected_tokens(texts);
  }
}

void Replica::drain(Commands commands, std::vector<ServingEvent>& events) {
  for (ServingCore::Texts& texts : commands.requests) core_->add(std::move(texts));
  for (const Answer& answer : commands.answers)  // a cancelled text no longer waits
    (void)core_->answer(answer.request, answer.index, answer.logits, events);
  for (const int64_t request : commands.cancelled) core_->cancel(request, events);
  for (const auto& call : commands.calls) call();
}

void Replica::work() {
  std::vector<ServingEvent> events;
  bool can_compute = true;  // there may be something to compute
  for (;;) {
    Commands commands;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] {
        if (closing_ || !commands_.is_empty()) return true;
        return core_->is_idle() || (can_compute && hooks_.has_room());
      });
      if (closing_ || (commands_.is_empty() && core_->is_idle())) {
        note_memory();
        busy_ = false;
        changed_.notify_all();
        return;
      }
      commands = std::exchange(commands_, {});
    }
    const auto begin = std::chrono::steady_clock::now();
    Status status = catch_status([&]() -> Status {
      drain(std::move(commands), events);
      TSR_ASSIGN_OR_RETURN(can_compute, core_->step(events));
      return {};
    });
    if (!status.ok() && !closing_) {
      can_compute = true;
      // If recovery fails too, every later request ends with its own error.
      const Status recovered = catch_status([&] { return core_->recover(status, events); });
      (void)recovered;
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (hooks_.rebalance) hooks_.rebalance(*this);
    {
      // Before the events are queued, so that the caller finds them counted.
      const std::lock_guard lock(mutex_);
      report_.seconds += seconds;
      report_.counts = core_->counts();
      if (hooks_.rebalance) note_work();
    }
    hooks_.put_events(*this, std::exchange(events, {}));
  }
}

}  // namespace tessera
