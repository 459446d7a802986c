#include "runtime/session.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>

#include "graph/analysis/issue_order.h"
#include "graph/base/text.h"
#include "graph/base/waiting.h"
#include "runtime/box_copy.h"
#include "runtime/host_services.h"
#include "runtime/memory_probe.h"
#include "runtime/rank_executor.h"
#include "runtime/session_comms.h"
#include "runtime/stack_room.h"
#include "runtime/watchdog.h"

namespace tessera {

namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A named tensor as the ranks hold it.
struct Placed {
  std::string name;
  TensorType global;
  SlotKind kind = SlotKind::kParameter;
  std::vector<std::pair<int32_t, const Binding*>> bindings;  // by ascending rank
  bool written = false;
};

// An entry point as the ranks know it.
struct Entry {
  std::string name;
  std::vector<int32_t> index;  // in each rank's program; -1 where the rank has no part in it
  std::vector<Placed> inputs, outputs;
};

void add_binding(std::vector<Placed>& list, const Binding& binding, SlotKind kind, int32_t rank) {
  auto found = std::ranges::find(list, binding.name, &Placed::name);
  if (found == list.end())
    found = list.insert(list.end(), Placed{binding.name, binding.global, kind, {}, false});
  found->bindings.emplace_back(rank, &binding);
}

Status unknown(std::string_view what, std::string_view name, std::span<const std::string> candidates) {
  return Status(StatusCode::kNotFound, format("{} '{}' does not exist; nearest: {}", what, name,
                                              join(nearest_names(name, candidates), ", ")));
}

std::vector<std::string> names_of(const std::vector<Placed>& list) {
  std::vector<std::string> names;
  for (const Placed& placed : list) names.push_back(placed.name);
  return names;
}

}  // namespace

struct Session::Impl {
  Impl(std::shared_ptr<Executable> given, SessionOptions wanted)
      : executable(std::move(given)),
        program(executable->program()),
        options(std::move(wanted)),
        comms(executable->impl(), options.perturbation_seed) {}
  ~Impl() {
    watchdog.reset();
    stop_threads();
  }

  std::shared_ptr<Executable> executable;  // shared: its Program and kernels outlive every session on them
  const Program& program;
  SessionOptions options;
  const pid_t pid = getpid();
  RunSignals signals;
  std::vector<std::unique_ptr<RankExecutor>> ranks;
  SessionComms comms;
  std::vector<std::vector<MemoryProbe>> probes;  // of each rank's arenas; empty when not measuring
  std::unique_ptr<Watchdog> watchdog;

  std::vector<Placed> tensors;  // parameters, states, constants
  std::unordered_map<std::string, size_t> tensor_index;
  std::vector<Entry> entries;
  size_t unwritten = 0;  // parameters and constants that nobody has written yet

  // The run in progress. The caller publishes it and raises `generation`; the last rank raises `done`.
  std::vector<std::thread> threads;
  WaitWord generation{0}, done{0};
  std::atomic<int32_t> remaining{0};
  std::atomic<bool> closing{false}, in_run{false};
  std::atomic<const Entry*> current{nullptr};
  std::atomic<int64_t> runs{0};
  bool may_spin = false;

  std::mutex mutex;  // guards the four below
  Status first_error;
  bool running = false, cancelled = false;
  bool failed = false;

  bool in_forked_child() const { return pid != getpid(); }

  Status setup();
  void index_bindings();
  Status start_threads();
  void stop_threads();
  void rank_loop(int32_t rank);
  void run_rank(int32_t rank);
  void run_first_rank();
  void fail(const Status& status);
  void stop_run();
  Status check_host_memory() const;
  Status check_order() const;
  Watchdog::Sight look() const;
  void bark();

  Status usable() const;
  Result<Entry*> find_entry(std::string_view name);
  Result<Placed*> find_tensor(std::string_view name);
  Status copy_in(Placed& placed, const HostTensor& value);
  Status copy_out(const Placed& placed, std::span<std::byte> out);
  Status zero_states();
  Status run(Entry& entry);
  Status synchronize();
  void note_touched(int32_t rank, const SlotRef& at, int64_t bytes);
};

// ---- life

Status Session::Impl::check_host_memory() const {
  int64_t needed = 0;
  for (const RankProgram& rank : program.ranks) needed += rank.host_arena_bytes;
  if (options.host_memory_limit <= 0 || needed <= options.host_memory_limit) return {};
  return Status(
      StatusCode::kOutOfMemory,
      format("the program keeps {} ({} bytes) in host memory, the limit is {} ({} bytes); raise it to that, "
             "or offload to the file tier",
             bytes_text(needed), needed, bytes_text(options.host_memory_limit), options.host_memory_limit));
}

// A backend that does not block has one thread issue for all streams of a rank: better refused than stood
// still.
Status Session::Impl::check_order() const {
  const tsr_backend_api& api = executable->impl().api();
  if (program.ranks.size() < 2 || blocks(api)) return {};
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
  signals.origin_ns = now_ns();
  signals.fail = [this](const Status& status) { fail(status); };
  for (int32_t rank = 0; rank < static_cast<int32_t>(program.ranks.size()); ++rank) {
    TSR_ASSIGN_OR_RETURN(std::unique_ptr<RankExecutor> made,
                         RankExecutor::create(executable->impl(), rank, options, signals));
    ranks.push_back(std::move(made));
  }
  if (options.measure_memory) {
    for (const auto& rank : ranks) {
      std::vector<MemoryProbe>& mine = probes.emplace_back();
      for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
        if (rank->memory().arena(tier) == nullptr) continue;
        mine.emplace_back(executable->impl().api(), rank->stream(), tier, rank->memory().arena(tier),
                          rank->program());
        TSR_RETURN_IF_ERROR(mine.back().poison_all());
      }
    }
  }
  index_bindings();
  TSR_RETURN_IF_ERROR(comms.create());
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    ranks[rank]->set_comms(comms.ends_of(static_cast<int32_t>(rank)));
  TSR_RETURN_IF_ERROR(zero_states());
  TSR_RETURN_IF_ERROR(start_threads());
  if (options.watchdog_s <= 0 || ranks.size() < 2) return {};
  return catch_status([&] {
    watchdog = std::make_unique<Watchdog>(
        options.watchdog_s, [this] { return look(); }, [this] { bark(); });
    return Status();
  });
}

// ---- standing still

Watchdog::Sight Session::Impl::look() const {
  Watchdog::Sight sight;
  sight.running = in_run.load(std::memory_order_acquire);
  if (!sight.running) return sight;
  sight.done = runs.load(std::memory_order_relaxed) << 32;
  for (const auto& rank : ranks) {
    const RankExecutor::Standing standing = rank->standing();
    sight.computes |= standing.computes;
    sight.communicates |= standing.communicates;
    sight.done += standing.done;
  }
  return sight;
}

void Session::Impl::bark() {
  const Entry* entry = current.load(std::memory_order_acquire);
  std::vector<std::string> waits;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    if (entry->index[rank] >= 0) waits.push_back(ranks[rank]->waits(entry->index[rank]));
  const Status status(StatusCode::kTimeout,
                      format("entry '{}': no rank has computed or finished anything for {} s; {}",
                             entry->name, options.watchdog_s, join(waits, "; ")));
  const std::lock_guard lock(mutex);
  if (!running) return;  // it has just come to its end
  if (first_error.ok()) first_error = status;
  stop_run();
}

void Session::Impl::index_bindings() {
  for (int32_t rank = 0; rank < static_cast<int32_t>(program.ranks.size()); ++rank) {
    const RankProgram& part = program.ranks[static_cast<size_t>(rank)];
    const std::pair<const std::vector<Binding>*, SlotKind> lists[] = {
        {&part.parameters, SlotKind::kParameter},
        {&part.states, SlotKind::kState},
        {&part.constants, SlotKind::kConstant}};
    for (const auto& [list, kind] : lists)
      for (const Binding& binding : *list) {
        const auto [at, is_new] = tensor_index.emplace(binding.name, tensors.size());
        if (is_new)
          tensors.push_back(Placed{binding.name, binding.global, kind, {}, kind == SlotKind::kState});
        tensors[at->second].bindings.emplace_back(rank, &binding);
      }
    for (size_t index = 0; index < part.entries.size(); ++index) {
      const EntryPoint& point = part.entries[index];
      auto entry = std::ranges::find(entries, point.name, &Entry::name);
      if (entry == entries.end())
        entry = entries.insert(entries.end(),
                               Entry{point.name, std::vector<int32_t>(program.ranks.size(), -1), {}, {}});
      entry->index[static_cast<size_t>(rank)] = static_cast<int32_t>(index);
      for (const Binding& input : point.inputs) add_binding(entry->inputs, input, SlotKind::kInput, rank);
      for (const Binding& output : point.outputs)
        add_binding(entry->outputs, output, SlotKind::kOutput, rank);
    }
  }
  unwritten = static_cast<size_t>(std::ranges::count(tensors, false, &Placed::written));
}

Status Session::Impl::start_threads() {
  may_spin = static_cast<int32_t>(ranks.size()) <= executable->devices().impl().threads;
  threads.reserve(ranks.size());
  return catch_status([&] {
    for (size_t rank = 1; rank < ranks.size(); ++rank)
      threads.emplace_back([this, rank] { rank_loop(static_cast<int32_t>(rank)); });
    return Status();
  });
}

void Session::Impl::stop_threads() {
  closing = true;
  generation.fetch_add(1, std::memory_order_acq_rel);
  generation.notify_all();
  for (std::thread& thread : threads) thread.join();
  threads.clear();
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Session::~Session() {
  // In a forked child the rank threads do not exist: joining them would hang, so everything is left as it is.
  if (impl_->in_forked_child()) (void)impl_.release();
}

Result<std::unique_ptr<Session>> Session::create(std::shared_ptr<Executable> executable,
                                                 SessionOptions options) {
  auto impl = std::make_unique<Impl>(std::move(executable), options);
  TSR_RETURN_IF_ERROR(impl->setup());
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

// ---- running

void Session::Impl::rank_loop(int32_t rank) {
  int seen = 0;
  for (;;) {
    wait_while(generation, seen, may_spin);
    seen = generation.load(std::memory_order_acquire);
    if (closing) return;
    run_rank(rank);
  }
}

void Session::Impl::run_rank(int32_t rank) {
  const int32_t index = current.load(std::memory_order_relaxed)->index[static_cast<size_t>(rank)];
  if (index >= 0) ranks[static_cast<size_t>(rank)]->run(index);
  if (remaining.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    done.fetch_add(1, std::memory_order_acq_rel);
    done.notify_all();
  }
}

// Rank 0 is the caller: one thread less to wake, and as many threads as ranks for the system to place.
void Session::Impl::run_first_rank() {
  if (has_stack_for_kernels()) return run_rank(0);
  const Status ran = catch_status([&] {
    std::thread([this] { run_rank(0); }).join();
    return Status();
  });
  if (!ran.ok()) run_rank(0);  // no thread is to be had
}

// The first error of a run is the one to report; those of ranks that were then woken are not.
void Session::Impl::fail(const Status& status) {
  {
    const std::lock_guard lock(mutex);
    if (first_error.ok() ||
        (first_error.code() == StatusCode::kAborted && status.code() != StatusCode::kAborted))
      first_error = status;
  }
  stop_run();
}

void Session::Impl::stop_run() {
  signals.stop.store(true, std::memory_order_seq_cst);
  comms.abort();
  for (const auto& rank : ranks) rank->wake();
}

Status Session::Impl::usable() const {
  if (in_forked_child())
    return Status(
        StatusCode::kFailedPrecondition,
        format("this process is a forked child of {}, where the session's threads do not exist; create a new "
               "runtime after the fork",
               static_cast<int64_t>(pid)));
  if (failed)
    return Status(StatusCode::kFailedPrecondition,
                  format("the session has failed ({}); restore it first", first_error.to_string()));
  return {};
}

Status Session::Impl::run(Entry& entry) {
  if (unwritten > 0) {
    const auto missing = std::ranges::find(tensors, false, &Placed::written);
    return Status(
        StatusCode::kFailedPrecondition,
        format("{} '{}' has not been written ({} in all); write every parameter and constant before a run",
               missing->kind == SlotKind::kConstant ? "constant" : "parameter", missing->name,
               static_cast<uint64_t>(unwritten)));
  }
  for (const Placed& input : entry.inputs)
    if (!input.written)
      return Status(StatusCode::kFailedPrecondition,
                    format("input '{}' of entry '{}' has never been fed", input.name, entry.name));
  for (size_t rank = 0; rank < probes.size(); ++rank)
    for (MemoryProbe& probe : probes[rank])
      if (entry.index[rank] >= 0)
        TSR_RETURN_IF_ERROR(probe.before_run(static_cast<size_t>(entry.index[rank])));

  {
    const std::lock_guard lock(mutex);
    running = true;
    cancelled = false;
    first_error = Status();
    signals.stop.store(false, std::memory_order_relaxed);
  }
  current.store(&entry, std::memory_order_release);
  runs.fetch_add(1, std::memory_order_relaxed);
  in_run.store(true, std::memory_order_release);
  remaining.store(static_cast<int32_t>(ranks.size()), std::memory_order_relaxed);
  const int before = done.load(std::memory_order_acquire);
  generation.fetch_add(1, std::memory_order_acq_rel);
  generation.notify_all();
  run_first_rank();
  wait_while(done, before, may_spin);
  in_run.store(false, std::memory_order_release);

  {
    const std::lock_guard lock(mutex);
    running = false;
    if (cancelled)
      first_error = Status(StatusCode::kCancelled, format("entry '{}' was cancelled", entry.name));
    if (!first_error.ok()) {
      failed = true;
      return first_error;
    }
  }
  for (size_t rank = 0; rank < probes.size(); ++rank)
    for (MemoryProbe& probe : probes[rank])
      if (entry.index[rank] >= 0)
        TSR_RETURN_IF_ERROR(probe.after_run(static_cast<size_t>(entry.index[rank])));
  return {};
}

Status Session::run(std::string_view entry) {
  TSR_RETURN_IF_ERROR(impl_->usable());
  TSR_ASSIGN_OR_RETURN(Entry * found, impl_->find_entry(entry));
  return impl_->run(*found);
}

void Session::cancel() {
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->running) return;
  impl_->cancelled = true;
  impl_->stop_run();
}

bool Session::failed() const { return impl_->failed; }

Status Session::restore() {
  if (impl_->in_forked_child()) return impl_->usable();
  TSR_RETURN_IF_ERROR(impl_->comms.create());
  for (size_t rank = 0; rank < impl_->ranks.size(); ++rank)
    impl_->ranks[rank]->set_comms(impl_->comms.ends_of(static_cast<int32_t>(rank)));
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->failed = false;
    impl_->first_error = Status();
  }
  return impl_->zero_states();
}

// ---- values

Result<Entry*> Session::Impl::find_entry(std::string_view name) {
  for (Entry& entry : entries)
    if (entry.name == name) return &entry;
  std::vector<std::string> names;
  for (const Entry& entry : entries) names.push_back(entry.name);
  return unknown("entry point", name, names);
}

Result<Placed*> Session::Impl::find_tensor(std::string_view name) {
  const auto found = tensor_index.find(std::string(name));
  if (found == tensor_index.end()) return unknown("tensor", name, names_of(tensors));
  return &tensors[found->second];
}

Status Session::Impl::synchronize() {
  for (const auto& rank : ranks)
    TSR_RETURN_IF_ERROR(take_error(executable->impl().api().stream_synchronize(rank->stream())));
  return {};
}

void Session::Impl::note_touched(int32_t rank, const SlotRef& at, int64_t bytes) {
  if (probes.empty() || at.slot < 0 || bytes == 0) return;
  const Slot& slot = program.ranks[static_cast<size_t>(rank)].slots[static_cast<size_t>(at.slot)];
  for (MemoryProbe& probe : probes[static_cast<size_t>(rank)])
    if (probe.tier() == slot.tier) probe.touched(slot.offset + at.offset + bytes);
}

Status Session::Impl::copy_in(Placed& placed, const HostTensor& value) {
  if (value.type != placed.global)
    return Status(StatusCode::kInvalidArgument, format("tensor '{}' is {}, the program wants {}", placed.name,
                                                       to_text(value.type), to_text(placed.global)));
  if (value.data.size() != static_cast<size_t>(bytes(placed.global)))
    return Status(StatusCode::kInvalidArgument,
                  format("tensor '{}' needs {} bytes, {} were given", placed.name, bytes(placed.global),
                         static_cast<uint64_t>(value.data.size())));
  for (const auto& [rank, binding] : placed.bindings) {
    RankExecutor& executor = *ranks[static_cast<size_t>(rank)];
    for (const Piece& piece : binding->pieces) {
      TSR_RETURN_IF_ERROR(
          executor.memory().write(executor.stream(), value.data.data(), placed.global, piece));
      note_touched(rank, piece.at, dtype_bytes(placed.global.dtype, box_elements(piece.box)));
    }
  }
  if (!placed.written && (placed.kind == SlotKind::kParameter || placed.kind == SlotKind::kConstant))
    --unwritten;
  placed.written = true;
  return synchronize();
}

Status Session::Impl::copy_out(const Placed& placed, std::span<std::byte> out) {
  if (out.size() != static_cast<size_t>(bytes(placed.global)))
    return Status(StatusCode::kInvalidArgument,
                  format("tensor '{}' is {} ({} bytes), the buffer has {} bytes", placed.name,
                         to_text(placed.global), bytes(placed.global), static_cast<uint64_t>(out.size())));
  int64_t covered = 0;
  for (size_t at = 0; at < placed.bindings.size(); ++at) {
    const auto& [rank, binding] = placed.bindings[at];
    for (const Piece& piece : binding->pieces) {
      // The lowest rank that lists a box owns it.
      bool is_owned = false;
      for (size_t lower = 0; lower < at && !is_owned; ++lower)
        is_owned = std::ranges::find(placed.bindings[lower].second->pieces, piece.box, &Piece::box) !=
                   placed.bindings[lower].second->pieces.end();
      if (is_owned) continue;
      RankExecutor& executor = *ranks[static_cast<size_t>(rank)];
      TSR_RETURN_IF_ERROR(executor.memory().read(executor.stream(), placed.global, piece, out.data()));
      covered += box_elements(piece.box);
    }
  }
  if (covered != placed.global.shape.elements())
    return Status(StatusCode::kInternal, format("tensor '{}': the ranks hold {} of its {} elements",
                                                placed.name, covered, placed.global.shape.elements()));
  return synchronize();
}

Status Session::Impl::zero_states() {
  for (const Placed& placed : tensors) {
    if (placed.kind != SlotKind::kState) continue;
    for (const auto& [rank, binding] : placed.bindings) {
      RankExecutor& executor = *ranks[static_cast<size_t>(rank)];
      for (const Piece& piece : binding->pieces) {
        const int64_t count = dtype_bytes(placed.global.dtype, box_elements(piece.box));
        TSR_RETURN_IF_ERROR(executor.memory().zero(executor.stream(), piece.at, count));
        note_touched(rank, piece.at, count);
      }
    }
  }
  return synchronize();
}

Status Session::write(std::string_view name, const HostTensor& value) {
  TSR_ASSIGN_OR_RETURN(Placed * placed, impl_->find_tensor(name));
  return impl_->copy_in(*placed, value);
}

Status Session::read_into(std::string_view name, std::span<std::byte> out) {
  TSR_ASSIGN_OR_RETURN(const Placed* placed, impl_->find_tensor(name));
  return impl_->copy_out(*placed, out);
}

Result<HostTensor> Session::read(std::string_view name) {
  TSR_ASSIGN_OR_RETURN(const Placed* placed, impl_->find_tensor(name));
  std::span<std::byte> writable;
  HostTensor tensor = HostTensor::zeros(placed->global, &writable);
  TSR_RETURN_IF_ERROR(impl_->copy_out(*placed, writable));
  return tensor;
}

namespace {
Result<Placed*> find_placed(std::vector<Placed>& list, std::string_view what, const std::string& entry,
                            std::string_view name) {
  for (Placed& placed : list)
    if (placed.name == name) return &placed;
  return unknown(format("{} of entry '{}'", what, entry), name, names_of(list));
}
}  // namespace

Status Session::feed(std::string_view entry, std::string_view input, const HostTensor& value) {
  TSR_RETURN_IF_ERROR(impl_->usable());
  TSR_ASSIGN_OR_RETURN(Entry * found, impl_->find_entry(entry));
  TSR_ASSIGN_OR_RETURN(Placed * placed, find_placed(found->inputs, "input", found->name, input));
  return impl_->copy_in(*placed, value);
}

Status Session::fetch_into(std::string_view entry, std::string_view output, std::span<std::byte> out) {
  TSR_RETURN_IF_ERROR(impl_->usable());
  TSR_ASSIGN_OR_RETURN(Entry * found, impl_->find_entry(entry));
  TSR_ASSIGN_OR_RETURN(const Placed* placed, find_placed(found->outputs, "output", found->name, output));
  return impl_->copy_out(*placed, out);
}

Result<HostTensor> Session::fetch(std::string_view entry, std::string_view output) {
  TSR_RETURN_IF_ERROR(impl_->usable());
  TSR_ASSIGN_OR_RETURN(Entry * found, impl_->find_entry(entry));
  TSR_ASSIGN_OR_RETURN(const Placed* placed, find_placed(found->outputs, "output", found->name, output));
  std::span<std::byte> writable;
  HostTensor tensor = HostTensor::zeros(placed->global, &writable);
  TSR_RETURN_IF_ERROR(impl_->copy_out(*placed, writable));
  return tensor;
}

Status Session::zero_state() { return impl_->zero_states(); }

// ---- reports

std::vector<MemoryReport> Session::memory() {
  std::vector<MemoryReport> reports;
  for (size_t rank = 0; rank < impl_->ranks.size(); ++rank) {
    const RankProgram& program = impl_->program.ranks[rank];
    MemoryReport report;
    report.device = impl_->executable->devices().device_name(static_cast<int32_t>(rank));
    report.predicted_bytes = program.arena_bytes;
    report.host_predicted_bytes = program.host_arena_bytes;
    report.file_predicted_bytes = program.file_arena_bytes;
    if (!impl_->probes.empty()) {
      report.host_measured_bytes = 0;
      for (const MemoryProbe& probe : impl_->probes[rank])
        (probe.tier() == Tier::kDevice ? report.measured_bytes : report.host_measured_bytes) =
            probe.highest();
    }
    if (const FileArena* file = impl_->ranks[rank]->memory().file(); file != nullptr)
      report.file_measured_bytes = file->highest();
    report.max_live_bytes = program.max_live_bytes;
    reports.push_back(std::move(report));
  }
  return reports;
}

std::vector<CommReport> Session::communication() const { return impl_->comms.report(); }
void Session::reset_communication() { impl_->comms.reset_report(); }

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

const Executable& Session::executable() const { return *impl_->executable; }

}  // namespace tessera
