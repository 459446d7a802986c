#include "runtime/session.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "graph/analysis/issue_order.h"
#include "graph/base/status_codes.h"
#include "graph/base/text.h"
#include "graph/base/waiting.h"
#include "runtime/host_services.h"
#include "runtime/led_work.h"
#include "runtime/on_call_threads.h"
#include "runtime/rank_executor.h"
#include "runtime/session_comms.h"
#include "runtime/session_memory.h"
#include "runtime/session_values.h"
#include "runtime/watchdog.h"

namespace tessera {

namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

struct Session::Impl {
  Impl(std::shared_ptr<Executable> given, SessionOptions wanted)
      : executable(std::move(given)),
        program(executable->program()),
        options(std::move(wanted)),
        comms(executable->impl(), options),
        memory(executable->impl(), ranks),
        values(executable->impl(), ranks, comms, memory) {}
  ~Impl() {
    if (leads() && !in_forked_child()) (void)tell({.kind = LedCalls::Kind::kEnd});
    watchdog.reset();
    others.reset();
    for (const auto& rank : ranks) rank->release_comms();
    // Freeing device memory waits for all running work, and blocks launches that
    // another run needs to end; so it happens while no run holds the devices.
    if (!ranks.empty()) lock_devices(last_guard);
  }
  // Holds the devices outside of a run, for work that is issued to them and ends later.
  void lock_devices(std::optional<DeviceRunLock::Guard>& guard) {
    const DeviceSet::Impl& devices = executable->impl().devices->impl();
    static const std::atomic<bool> kNever = false;
    if (!has_flag(*devices.api, TSR_BACKEND_BLOCKING))
      guard.emplace(*devices.run_lock, *devices.api, devices.ordinals, kNever);
  }
  // A new communicator calls its library once, which is a run like others.
  Status connect() {
    std::optional<DeviceRunLock::Guard> guard;
    if (ranks.size() > 1) lock_devices(guard);
    TSR_RETURN_IF_ERROR(comms.create());
    for (size_t at = 0; at < ranks.size(); ++at) ranks[at]->set_comms(comms.members_of(at));
    return {};
  }

  std::shared_ptr<Executable> executable;  // shared: its Program and kernels must outlive every session
  const Program& program;
  SessionOptions options;
  const pid_t pid = getpid();
  RunSignals signals;
  std::optional<DeviceRunLock::Guard> last_guard;  // released after everything with device memory
  RankExecutors ranks;  // that live here, as in Program::ranks
  SessionComms comms;
  SessionMemory memory;
  SessionValues values;
  std::unique_ptr<Watchdog> watchdog;

  // The run in progress. The caller publishes it and wakes the other ranks' threads; the last rank
  // raises `done`.
  std::unique_ptr<OnCallThreads> others;  // thread i runs ranks[i + 1]
  WaitWord done{0};
  std::atomic<int32_t> remaining{0};
  std::atomic<bool> in_run{false};
  std::atomic<const SessionEntry*> current{nullptr};
  std::atomic<int64_t> runs{0};
  bool may_spin = false;

  std::mutex update_mutex;  // guards the update's beginning
  bool has_begun_update = false;

  std::mutex mutex;  // guards the four members below
  Status first_error;
  bool running = false, cancelled = false;
  bool failed = false;

  mutable std::atomic<int64_t> last_done{-1};  // at the watchdog's last look

  LedWork led_work;
  std::unique_ptr<LedCalls> led_calls;  // null: every process makes its own calls
  bool leads() const { return led_calls != nullptr && led_calls->is_first(); }
  Status tell(const LedCalls::Call& call);

  // Begins an update for all ranks.
  void begin_update();

  bool in_forked_child() const { return pid != getpid(); }

  CoreSide side() const {
    const DeviceSet::Impl& devices = executable->impl().devices->impl();
    const bool shares_cores = devices.info.shared_cores > 0 && has_flag(*devices.api, TSR_BACKEND_BLOCKING);
    return shares_cores ? options.side : CoreSide::kNone;
  }
  Status setup();
  void run_rank(size_t at);
  Status run_all(const SessionEntry& entry);
  void fail(const Status& status);
  void stop_run(const Status& why);
  Status check_host_memory() const;
  Status check_order() const;
  Watchdog::Progress poll() const;
  void on_stall();

  Status usable() const;
  Status run(const SessionEntry& entry);
};

// ---- setup

Status Session::Impl::check_host_memory() const {
  int64_t needed = 0;
  for (const RankProgram& rank : program.ranks) needed += rank.host_arena_bytes;
  if (options.host_memory_limit <= 0 || needed <= options.host_memory_limit) return {};
  return Status(StatusCode::kOutOfMemory,
                format("the program keeps {} ({} bytes) in host memory, the limit is {} ({} bytes); raise it "
                       "to that, "
                       "or offload to the file tier",
                       bytes_text(needed), needed, bytes_text(options.host_memory_limit),
                       options.host_memory_limit))
      .with_number("needed_bytes", needed)
      .with_number("limit_bytes", options.host_memory_limit);
}

// Refuses an order that would deadlock on a backend that does not block, where one thread issues for all
// streams of a rank.
Status Session::Impl::check_order() const {
  const tsr_backend_api& api = executable->impl().api();
  if (program.ranks.size() < 2 || has_flag(api, TSR_BACKEND_BLOCKING)) return {};
  std::set<std::string> names;
  for (const RankProgram& rank : program.ranks)
    for (const EntryPoint& entry : rank.entries) names.insert(entry.name);
  for (const std::string& name : names)
    TSR_RETURN_IF_ERROR(
        check_issue_order(program, name).with_context(format("entry '{}' on backend '{}'", name, api.name)));
  return {};
}

Status Session::Impl::setup() {
  TSR_RETURN_IF_ERROR(check_host_memory());
  TSR_RETURN_IF_ERROR(check_order());
  TSR_RETURN_IF_ERROR(memory.note_used_before());
  signals.origin_ns = now_ns();
  signals.fail = [this](const Status& status) { fail(status); };
  if (options.before_update) signals.begin_update = [this] { begin_update(); };
  for (size_t at = 0; at < program.ranks.size(); ++at) {
    TSR_ASSIGN_OR_RETURN(std::unique_ptr<RankExecutor> made,
                         RankExecutor::create(executable->impl(), at, options, signals));
    ranks.push_back(std::move(made));
  }
  if (options.measure_memory) TSR_RETURN_IF_ERROR(memory.measure());
  values.note_shared();
  TSR_RETURN_IF_ERROR(connect());
  TSR_RETURN_IF_ERROR(values.zero_states());
  may_spin = static_cast<int32_t>(ranks.size()) <= executable->devices().impl().threads;
  others = std::make_unique<OnCallThreads>(
      static_cast<int32_t>(ranks.size()) - 1, [this](int32_t thread) { run_rank(static_cast<size_t>(thread) + 1); }, may_spin,
      [host = executable->devices().impl().host](int32_t thread) {
        host->thread_started(host->host, "rank", thread + 1);
      });
  if (options.watchdog_s > 0 && program.rank_set().world > 1)
    watchdog = std::make_unique<Watchdog>(
        options.watchdog_s, [this] { return poll(); }, [this] { on_stall(); });
  return {};
}

// ---- stalls

Watchdog::Progress Session::Impl::poll() const {
  Watchdog::Progress progress;
  progress.running = in_run.load(std::memory_order_acquire);
  if (!progress.running) return progress;
  progress.done = runs.load(std::memory_order_relaxed) << 32;
  for (const auto& rank : ranks) {
    const RankExecutor::Progress mine = rank->progress();
    progress.computes |= mine.computes;
    progress.communicates |= mine.communicates;
    progress.done += mine.done;
  }
  if (program.rank_set().is_whole()) return progress;
  if (progress.computes || progress.done != last_done.exchange(progress.done)) comms.note_activity();
  progress.computes |= comms.is_active_elsewhere();
  return progress;
}

void Session::Impl::on_stall() {
  const SessionEntry* entry = current.load(std::memory_order_acquire);
  std::vector<std::string> waits;
  for (size_t at = 0; at < ranks.size(); ++at)
    if (entry->index[at] >= 0) waits.push_back(ranks[at]->waiting_text(entry->index[at]));
  const Status status(StatusCode::kTimeout,
                      format("entry '{}': no rank has computed or finished anything for {} s; {}",
                             entry->name, options.watchdog_s, join(waits, "; ")));
  const std::lock_guard lock(mutex);
  if (!running) return;  // the run has just ended
  if (first_error.ok()) first_error = status;
  stop_run(status);
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Session::~Session() {
  // In a forked child the rank threads do not exist, and joining them would hang.
  if (impl_->in_forked_child()) (void)impl_.release();
}

Result<std::unique_ptr<Session>> Session::create(std::shared_ptr<Executable> executable,
                                                 SessionOptions options) {
  auto impl = std::make_unique<Impl>(std::move(executable), options);
  TSR_RETURN_IF_ERROR(impl->setup());
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

// ---- running

void Session::Impl::run_rank(size_t at) {
  const int32_t index = current.load(std::memory_order_relaxed)->index[at];
  if (index >= 0) ranks[at]->run(index);
  if (remaining.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    done.fetch_add(1, std::memory_order_acq_rel);
    done.notify_all();
  }
}

// Reports the first error of a run, which may be another process'; ranks woken afterwards fail as a consequence.
void Session::Impl::fail(const Status& given) {
  const Status elsewhere = given.code() == StatusCode::kAborted ? comms.failure_elsewhere() : Status();
  const Status& status = elsewhere.ok() ? given : elsewhere;
  {
    const std::lock_guard lock(mutex);
    if (first_error.ok() ||
        (first_error.code() == StatusCode::kAborted && status.code() != StatusCode::kAborted))
      first_error = status;
  }
  stop_run(status);
}

void Session::Impl::stop_run(const Status& why) {
  signals.stop.store(true, std::memory_order_seq_cst);
  executable->impl().devices->impl().run_lock->wake();
  executable->impl().devices->impl().arbiter->wake();
  comms.abort(why);
  for (const auto& rank : ranks) rank->wake();
}

Status Session::Impl::usable() const {
  if (in_forked_child())
    return Status(
        kForked,
        format("this process is a forked child of {}, where the session's threads do not exist; create a new "
               "runtime after the fork",
               static_cast<int64_t>(pid)));
  if (failed)
    return Status(kValuesLost,
                  format("the session has failed ({}); restore it first", first_error.to_string()));
  return {};
}

// Other ranks that write a parameter wait for the first. What the update waits for may need turns.
void Session::Impl::begin_update() {
  const std::lock_guard lock(update_mutex);
  if (has_begun_update) return;
  signals.turn->leave();
  options.before_update();
  signals.turn->resume();
  has_begun_update = true;
}

// An error if a rank has no thread; then nothing has begun.
Status Session::Impl::run_all(const SessionEntry& entry) {
  const DeviceSet::Impl& devices = executable->impl().devices->impl();
  CoreArbiter::Turn turn(*devices.arbiter, side(), signals.stop);
  signals.turn = &turn;
  has_begun_update = false;
  std::optional<DeviceRunLock::Guard> guard;
  if (ranks.size() > 1 && !has_flag(*devices.api, TSR_BACKEND_BLOCKING))
    guard.emplace(*devices.run_lock, *devices.api, devices.ordinals, signals.stop);
  if (signals.stop.load(std::memory_order_acquire)) return {};
  current.store(&entry, std::memory_order_release);
  runs.fetch_add(1, std::memory_order_relaxed);
  in_run.store(true, std::memory_order_release);
  remaining.store(static_cast<int32_t>(ranks.size()), std::memory_order_relaxed);
  const int before = done.load(std::memory_order_acquire);
  const Status called = catch_status([&] {
    if (watchdog != nullptr) watchdog->expect_run();
    others->call();
    return Status();
  });
  if (called.ok()) {
    // The caller runs the first rank, which saves a wake-up and a thread.
    run_rank(0);
    wait_while(done, before, may_spin);
  }
  in_run.store(false, std::memory_order_release);
  return called;
}

Status Session::Impl::run(const SessionEntry& entry) {
  TSR_RETURN_IF_ERROR(memory.before_run(entry.index));

  {
    const std::lock_guard lock(mutex);
    running = true;
    cancelled = false;
    first_error = Status();
    signals.stop.store(false, std::memory_order_relaxed);
  }
  const Status begun = run_all(entry);
  {
    const std::lock_guard lock(mutex);
    running = false;
    if (!begun.ok()) return begun;
    if (cancelled)
      first_error = Status(StatusCode::kCancelled, format("entry '{}' was cancelled", entry.name));
    if (!first_error.ok()) {
      failed = true;
      return first_error;
    }
  }
  return memory.after_run(entry.index);
}

Status Session::run(std::string_view entry) {
  TSR_RETURN_IF_ERROR(impl_->usable());
  TSR_ASSIGN_OR_RETURN(SessionEntry * found, impl_->values.find_entry(entry));
  found->ran = false;
  TSR_RETURN_IF_ERROR(impl_->values.check_written(*found));
  if (impl_->leads()) TSR_RETURN_IF_ERROR(impl_->tell({.kind = LedCalls::Kind::kRun, .entry = entry}));
  const Status made = impl_->run(*found);
  if (!made.ok() && impl_->led_calls != nullptr) impl_->comms.abort(made);
  found->ran = made.ok();
  return made;
}

void Session::cancel() {
  if (impl_->in_forked_child()) return;
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->running) return;
  impl_->cancelled = true;
  impl_->stop_run(Status(StatusCode::kCancelled, "the run was cancelled"));
}

bool Session::failed() const {
  if (impl_->in_forked_child()) return impl_->failed;
  const std::lock_guard lock(impl_->mutex);
  return impl_->failed;
}

Status Session::restore() {
  if (impl_->in_forked_child()) return impl_->usable();
  if (impl_->leads()) TSR_RETURN_IF_ERROR(impl_->tell({.kind = LedCalls::Kind::kRestore}));
  for (const auto& rank : impl_->ranks) rank->release_comms();
  TSR_RETURN_IF_ERROR(impl_->connect());
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->failed = false;
    impl_->first_error = Status();
  }
  return impl_->values.zero_states();
}

// ---- several processes

Result<std::string> Session::lead(const std::function<Result<std::string>()>& work) {
  Channel* const channel = impl_->comms.channel();
  if (channel == nullptr) return work();
  std::vector<std::byte> sent;
  return impl_->led_work.run(*channel, work, [&](const std::string& name) -> Status {
    TSR_ASSIGN_OR_RETURN(const SessionTensor* tensor, impl_->values.find_tensor(name));
    sent.resize(static_cast<size_t>(bytes(tensor->global)));
    return impl_->values.copy_out(*tensor, sent);
  });
}

void Session::end_world(const Status& why) {
  if (impl_->comms.channel() != nullptr) impl_->comms.abort(why);
}

Status Session::begin_lead() {
  const std::shared_ptr<Transport>& transport = impl_->executable->impl().devices->impl().transport;
  if (transport == nullptr || impl_->program.rank_set().is_whole()) return {};
  TSR_ASSIGN_OR_RETURN(std::unique_ptr<LedCalls> calls, LedCalls::open(transport));
  TSR_RETURN_IF_ERROR(impl_->values.learn_names(calls->channel()));
  impl_->led_calls = std::move(calls);
  return {};
}

bool Session::is_led() const { return impl_->led_calls != nullptr && !impl_->leads(); }

Status Session::follow() {
  if (!is_led()) return {};
  std::vector<std::byte> scratch;
  return impl_->led_calls->follow([&](const LedCalls::Call& call) {
    // What one process cannot do ends the call in all.
    const Status made = catch_status([&] { return make(call, scratch); });
    if (!made.ok()) impl_->comms.abort(made);
  });
}

Status Session::Impl::tell(const LedCalls::Call& call) {
  led_calls->keep(call);
  return led_calls->tell();
}

Status Session::make(const LedCalls::Call& call, std::vector<std::byte>& scratch) {
  using Kind = LedCalls::Kind;
  scratch.resize(static_cast<size_t>(call.bytes));
  switch (call.kind) {
    case Kind::kFeed: return feed(call.entry, call.name, call.value);
    case Kind::kWrite: return write(call.name, call.value);
    case Kind::kWriteRows: return write_rows(call.name, call.first, call.value);
    case Kind::kZeroState: return zero_state();
    case Kind::kRun: return run(call.entry);
    case Kind::kFetch: return fetch_into(call.entry, call.name, scratch);
    case Kind::kRead: return read_into(call.name, scratch);
    case Kind::kReadRows: return read_rows_into(call.name, call.first, scratch);
    case Kind::kRestore: return restore();
    case Kind::kEnd: break;
  }
  return {};
}

// ---- values

Status Session::write(std::string_view name, const HostTensor& value) {
  TSR_ASSIGN_OR_RETURN(SessionTensor * tensor, impl_->values.find_tensor(name));
  TSR_RETURN_IF_ERROR(impl_->values.copy_in(*tensor, value));
  if (impl_->leads()) impl_->led_calls->keep({.kind = LedCalls::Kind::kWrite, .name = name, .value = value});
  return {};
}

Status Session::write_rows(std::string_view name, int64_t first, const HostTensor& value) {
  TSR_ASSIGN_OR_RETURN(const SessionTensor* tensor, impl_->values.find_tensor(name));
  TSR_RETURN_IF_ERROR(impl_->values.copy_rows_in(*tensor, first, value));
  if (impl_->leads()) impl_->led_calls->keep({.kind = LedCalls::Kind::kWriteRows, .name = name, .first = first, .value = value});
  return {};
}

Status Session::read_rows_into(std::string_view name, int64_t first, std::span<std::byte> out) {
  TSR_ASSIGN_OR_RETURN(const SessionTensor* tensor, impl_->values.find_tensor(name));
  if (impl_->leads())
    TSR_RETURN_IF_ERROR(impl_->tell({.kind = LedCalls::Kind::kReadRows, .name = name, .first = first, .bytes = std::ssize(out)}));
  return impl_->values.copy_rows_out(*tensor, first, out);
}

Status Session::read_into(std::string_view name, std::span<std::byte> out) {
  TSR_ASSIGN_OR_RETURN(const SessionTensor* tensor, impl_->values.find_tensor(name));
  TSR_RETURN_IF_ERROR(impl_->led_work.announce(name));
  if (impl_->leads()) TSR_RETURN_IF_ERROR(impl_->tell({.kind = LedCalls::Kind::kRead, .name = name, .bytes = std::ssize(out)}));
  return impl_->values.copy_out(*tensor, out);
}

Result<HostTensor> Session::read(std::string_view name) {
  TSR_ASSIGN_OR_RETURN(const SessionTensor* tensor, impl_->values.find_tensor(name));
  TSR_RETURN_IF_ERROR(impl_->led_work.announce(name));
  if (impl_->leads()) TSR_RETURN_IF_ERROR(impl_->tell({.kind = LedCalls::Kind::kRead, .name = name, .bytes = bytes(tensor->global)}));
  return impl_->values.read(*tensor);
}

Status Session::feed(std::string_view entry, std::string_view input, const HostTensor& value) {
  TSR_RETURN_IF_ERROR(impl_->usable());
  TSR_ASSIGN_OR_RETURN(SessionTensor * tensor, impl_->values.find_input(entry, input));
  TSR_RETURN_IF_ERROR(impl_->values.copy_in(*tensor, value));
  if (impl_->leads()) impl_->led_calls->keep({.kind = LedCalls::Kind::kFeed, .entry = entry, .name = input, .value = value});
  return {};
}

Status Session::fetch_into(std::string_view entry, std::string_view output, std::span<std::byte> out) {
  TSR_RETURN_IF_ERROR(impl_->usable());
  TSR_ASSIGN_OR_RETURN(const SessionTensor* tensor, impl_->values.find_output(entry, output));
  if (impl_->leads())
    TSR_RETURN_IF_ERROR(impl_->tell({.kind = LedCalls::Kind::kFetch, .entry = entry, .name = output, .bytes = std::ssize(out)}));
  return impl_->values.copy_out(*tensor, out);
}

Result<HostTensor> Session::fetch(std::string_view entry, std::string_view output) {
  TSR_RETURN_IF_ERROR(impl_->usable());
  TSR_ASSIGN_OR_RETURN(const SessionTensor* tensor, impl_->values.find_output(entry, output));
  if (impl_->leads())
    TSR_RETURN_IF_ERROR(impl_->tell({.kind = LedCalls::Kind::kFetch, .entry = entry, .name = output, .bytes = bytes(tensor->global)}));
  return impl_->values.read(*tensor);
}

Status Session::zero_state() {
  if (impl_->leads()) impl_->led_calls->keep({.kind = LedCalls::Kind::kZeroState});
  return impl_->values.zero_states();
}

bool Session::is_shared(std::string_view name) const {
  const Result<SessionTensor*> found = impl_->values.find_tensor(name);
  return found.ok() && impl_->values.is_shared(**found);
}

const std::byte* Session::parameter_address(size_t index, const SlotRef& at) const {
  return static_cast<const std::byte*>(impl_->ranks[index]->memory().address(at));
}

// ---- reports

std::vector<MemoryReport> Session::memory() { return impl_->memory.report(impl_->options.weights.get()); }

std::vector<CommReport> Session::communication() const { return impl_->comms.report(); }

int64_t Session::allocations() const {
  int64_t count = 0;
  for (const auto& rank : impl_->ranks) count += rank->allocations_in_runs();
  return count;
}

std::vector<TraceEvent> Session::take_trace() {
  std::vector<TraceEvent> all;
  for (const auto& rank : impl_->ranks)
    for (TraceEvent& event : rank->take_trace()) all.push_back(std::move(event));
  return all;
}

int64_t Session::launches(std::string_view entry) const {
  int64_t most = 0;
  const Result<SessionEntry*> found = impl_->values.find_entry(entry);
  for (size_t at = 0; found.ok() && at < impl_->ranks.size(); ++at)
    if (const int32_t index = (*found)->index[at]; index >= 0)
      most = std::max(most, impl_->ranks[at]->launches(index));
  return most;
}

bool Session::is_captured(std::string_view entry) const {
  const Result<SessionEntry*> found = impl_->values.find_entry(entry);
  if (!found.ok()) return false;
  for (size_t at = 0; at < impl_->ranks.size(); ++at)
    if (const int32_t index = (*found)->index[at]; index >= 0 && !impl_->ranks[at]->is_captured(index))
      return false;
  return true;
}

std::map<std::string, TensorType> Session::types(SlotKind kind) const { return impl_->values.types(kind); }

bool Session::has_entry(std::string_view entry) const { return impl_->values.look_up_entry(entry) != nullptr; }

const TensorType* Session::find_input(std::string_view entry, std::string_view input) const {
  const SessionEntry* const found = impl_->values.look_up_entry(entry);
  if (found == nullptr) return nullptr;
  const auto tensor = std::ranges::find(found->inputs, input, &SessionTensor::name);
  return tensor != found->inputs.end() ? &tensor->global : nullptr;
}

std::vector<std::string> Session::input_names(std::string_view entry) const {
  std::vector<std::string> names;
  if (const SessionEntry* const found = impl_->values.look_up_entry(entry))
    for (const SessionTensor& input : found->inputs) names.push_back(input.name);
  std::ranges::sort(names);
  return names;
}

const Executable& Session::executable() const { return *impl_->executable; }

}  // namespace tessera
