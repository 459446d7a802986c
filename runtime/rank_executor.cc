#include "runtime/rank_executor.h"

#include <algorithm>

#include "graph/analysis/instructions.h"
#include "graph/analysis/read_only_parameters.h"
#include "graph/base/text.h"
#include "runtime/host_services.h"

namespace tessera {

RankExecutor::RankExecutor(const Executable::Impl& executable, size_t index, const SessionOptions& options,
                           RunSignals& signals)
    : api_(executable.api()),
      devices_(executable.devices->impl()),
      program_(executable.program.ranks[index]),
      kernels_(executable.kernels[index]),
      rank_(executable.program.rank_of(index)),
      options_(options),
      signals_(signals),
      blocking_(has_flag(api_, TSR_BACKEND_BLOCKING)),
      ranks_(working_ranks(executable.program)),
      may_spin_(static_cast<int32_t>(ranks_) <= devices_.threads),
      has_spare_cores_(static_cast<int32_t>(ranks_) < devices_.threads),
      device_(devices_.devices[index]),
      fused_(api_, device_),
      timers_(options.trace && !blocking_ && DeviceTimers::is_supported(api_)
                  ? std::make_unique<DeviceTimers>(api_, device_)
                  : nullptr) {}

RankExecutor::~RankExecutor() {
  for (const auto& stream : streams_) stream->thread.reset();
  captures_.clear();
  timers_.reset();
  for (tsr_abi_event* event : events_) api_.event_destroy(event);
  for (const auto& stream : streams_)
    if (stream->stream != nullptr) api_.stream_destroy(stream->stream);
}

Result<std::unique_ptr<RankExecutor>> RankExecutor::create(const Executable::Impl& executable, size_t index,
                                                           const SessionOptions& options,
                                                           RunSignals& signals) {
  std::unique_ptr<RankExecutor> made(new RankExecutor(executable, index, options, signals));
  const auto build = [&]() -> Status {
    TSR_ASSIGN_OR_RETURN(
        made->memory_,
        RankMemory::create(made->api_, made->device_, made->program_, options.file_folder,
                           options.weights ? options.weights->of_rank(index) : std::vector<SharedWeight>()));
    TSR_RETURN_IF_ERROR(made->resolve());
    made->give_threads();
    return {};
  };
  if (const Status status = build(); !status.ok())
    return status.with_context(format("rank {} ({})", made->rank_, executable.devices->device_name(made->rank_)));
  return made;
}

// ---- resolving

RankStream& RankExecutor::stream_of(const StreamId& id) {
  return **std::ranges::find_if(streams_, [&](const auto& stream) { return stream->id == id; });
}

Status RankExecutor::resolve() {
  std::vector<Dependencies> dependencies;
  std::vector<StreamId> ids = {StreamId{}};
  size_t waits = 0;
  const StreamOptions streams =
      options_.streams.value_or(usual_streams(ranks_, devices_.info.shared_cores > 0 ? devices_.threads : 0));
  for (const EntryPoint& entry : program_.entries) {
    dependencies.push_back(find_dependencies(program_, entry, streams));
    for (const Stream& stream : dependencies.back().streams) ids.push_back(stream.id);
    waits += dependencies.back().waits.size();
  }
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  for (const StreamId& id : ids) {
    auto stream = std::make_unique<RankStream>();
    stream->id = id;
    stream->steps.resize(program_.entries.size());
    stream->perturbation =
        Perturbation(Perturbation::part(options_.perturbation_seed, static_cast<uint64_t>(rank_) * 1024 +
                                                                        static_cast<uint64_t>(track_of(id))));
    streams_.push_back(std::move(stream));
    TSR_RETURN_IF_ERROR(take_error(api_.stream_create(device_, &streams_.back()->stream)));
  }
  resolver_.emplace(api_, program_, kernels_, *memory_);
  waits_.reserve(waits);
  order_.resize(program_.entries.size());
  for (size_t entry = 0; entry < program_.entries.size(); ++entry)
    TSR_RETURN_IF_ERROR(resolve_entry(entry, dependencies[entry]));
  return {};
}

Status RankExecutor::resolve_entry(size_t entry, const Dependencies& dependencies) {
  const std::vector<Instruction>& code = program_.entries[entry].code;
  std::vector<RankStream*> streams;
  for (const Stream& stream : dependencies.streams) {
    streams.push_back(&stream_of(stream.id));
    streams.back()->steps[entry].reserve(stream.code.size());
  }
  const auto step_at = [&](const StreamWait& at) -> Step& {
    return streams[static_cast<size_t>(at.stream)]->steps[entry][static_cast<size_t>(at.position)];
  };
  for (size_t at = 0; at < code.size(); ++at) {
    RankStream& stream = *streams[static_cast<size_t>(dependencies.stream[at])];
    Step& step = stream.steps[entry].emplace_back();
    step.instruction = static_cast<int32_t>(at);
    if (const std::vector<Step>& steps = stream.steps[entry]; steps.size() > 1) {
      const auto before = static_cast<size_t>(steps[steps.size() - 2].instruction);
      step.begins_batch = micro_batch_of(code[at]) != micro_batch_of(code[before]);
    }
    if (const Status status = resolver_->resolve(code[at], step); !status.ok())
      return failure(static_cast<int32_t>(entry), step, status);
    step.wait_begin = static_cast<int32_t>(waits_.size());
    for (const StreamWait& wait : dependencies.waits_of(static_cast<int32_t>(at))) {
      Step& awaited = step_at(wait);
      if (!awaited.is_awaited && !blocking_) {
        TSR_RETURN_IF_ERROR(take_error(api_.event_create(device_, &awaited.event)));
        events_.push_back(awaited.event);
      }
      awaited.is_awaited = true;
      waits_.push_back({streams[static_cast<size_t>(wait.stream)], wait.position + 1, awaited.event});
    }
    step.wait_end = static_cast<int32_t>(waits_.size());
    if (!blocking_) order_[entry].emplace_back(&stream, dependencies.position[at]);
  }
  if (!blocking_) return prepare_issue(entry, streams);
  // A trace times single kernels.
  if (options_.fuse_launches && !options_.trace)
    for (RankStream* stream : streams) TSR_RETURN_IF_ERROR(fused_.fuse(stream->steps[entry]));
  mark_updates(entry);
  return {};
}

// A fused launch writes what its members write.
void RankExecutor::mark_updates(size_t entry) {
  const std::vector<Instruction>& code = program_.entries[entry].code;
  for (const auto& stream : streams_) {
    std::vector<Step>& steps = stream->steps[entry];
    auto first = std::ranges::find_if(steps, [&](const Step& step) {
      return writes_parameter(program_, code[static_cast<size_t>(step.instruction)]);
    });
    if (first == steps.end()) continue;
    while (first->kind == Step::Kind::kFused) --first;
    first->begins_update = true;
  }
}

// Prepares an entry for a backend that does not block: fused launches, timers and capture.
Status RankExecutor::prepare_issue(size_t entry, std::span<RankStream* const> streams) {
  // Host times would attribute a fused launch to the first of its instructions.
  const bool host_times = options_.trace && timers_ == nullptr;
  if (options_.fuse_launches && !host_times)
    for (RankStream* stream : streams) TSR_RETURN_IF_ERROR(fused_.fuse(stream->steps[entry]));
  if (timers_ != nullptr)
    for (RankStream* stream : streams)
      for (Step& step : stream->steps[entry]) TSR_RETURN_IF_ERROR(timers_->add(step));
  bool sends = false, uses_file = false, communicates = false;
  std::vector<tsr_abi_stream*> used;
  for (const RankStream* stream : streams) {
    used.push_back(stream->stream);
    for (const Step& step : stream->steps[entry]) {
      sends |= step.kind == Step::Kind::kSend || step.kind == Step::Kind::kReceive;
      uses_file |= step.kind == Step::Kind::kFileRead || step.kind == Step::Kind::kFileWrite;
      communicates |= step.communicates();
    }
  }
  const std::string& name = program_.entries[entry].name;
  EntryCapture& capture = *captures_.emplace_back(std::make_unique<EntryCapture>(
      api_, device_, std::move(used),
      [this, entry](CollectiveOrder& order) { return issue_steps(static_cast<int32_t>(entry), order); },
      [this, &name](int32_t level, const std::string& what) {
        log(level, format("rank {}, entry '{}' is {}", rank_, name, what));
      }));
  const bool is_wanted = options_.capture && !host_times && can_capture(api_),
             may_capture = is_wanted && !sends && !uses_file;
  if (communicates) {
    CaptureVote& vote = signals_.votes[name];
    vote.add_member(may_capture);
    capture.set_vote(vote);
  }
  if (may_capture)
    capture.allow();
  else if (is_wanted)
    capture.refuse(sends ? "it sends and receives by way of the host" : "it reads or writes a file");
  return {};
}

// Only blocking backends have shared weights: a launch, fused or not, reads the addresses when it runs.
Status RankExecutor::unshare(int32_t slot) {
  const SlotRef ref{slot, 0};
  const auto* before = static_cast<const std::byte*>(memory_->address(ref));
  TSR_RETURN_IF_ERROR(memory_->unshare(slot));
  const MovedBytes moved{before, program_.slots[static_cast<size_t>(slot)].bytes,
                         static_cast<std::byte*>(memory_->address(ref))};
  resolver_->move(moved);
  for (const auto& stream : streams_)
    for (std::vector<Step>& steps : stream->steps)
      for (Step& step : steps) step.in = moved.moved(step.in);
  return {};
}

// ---- threads

void RankExecutor::give_threads() {
  if (!blocking_) return;
  for (size_t i = 1; i < streams_.size(); ++i)
    streams_[i]->thread = std::make_unique<OnCallThreads>(
        1,
        [this, stream = streams_[i].get()](int32_t) {
          run_stream(*stream, stream->entry);
          finish_stream();
        },
        false,
        [host = devices_.host, rank = rank_](int32_t) { host->thread_started(host->host, "stream", rank); });
}

void RankExecutor::finish_stream() {
  if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
}

// ---- running

void RankExecutor::run(int32_t index) {
  const auto entry = static_cast<size_t>(index);
  // An exchange, so that an earlier `wake` is seen with the `stop` before it.
  for (const auto& stream : streams_) stream->done.exchange(0, std::memory_order_acq_rel);
  if (!blocking_) return issue_all(index);
  int helpers = 0;
  for (size_t i = 1; i < streams_.size(); ++i) helpers += streams_[i]->steps[entry].empty() ? 0 : 1;
  running_.store(helpers, std::memory_order_relaxed);
  for (size_t i = 1; i < streams_.size(); ++i) {
    RankStream& stream = *streams_[i];
    if (stream.steps[entry].empty()) continue;
    stream.entry = index;
    const Status called = catch_status([&] {
      stream.thread->call();
      return Status();
    });
    if (called.ok()) continue;
    signals_.fail(called);
    finish_stream();
  }
  run_stream(*streams_[0], index);
  for (int left; (left = running_.load(std::memory_order_acquire)) > 0;)
    wait_while(running_, left, may_spin_);
}

int64_t RankExecutor::launches(int32_t index) const {
  int64_t count = 0;
  for (const auto& stream : streams_)
    count += std::ranges::count(stream->steps[static_cast<size_t>(index)], Step::Kind::kKernel, &Step::kind);
  return count;
}

bool RankExecutor::is_captured(int32_t index) const {
  return !blocking_ && captures_[static_cast<size_t>(index)]->is_captured();
}

void RankExecutor::wake() {
  for (const auto& stream : streams_) {
    stream->done.fetch_or(RankStream::kStopped, std::memory_order_acq_rel);
    stream->done.notify_all();
  }
  for (const auto& capture : captures_) capture->stop();
}

void RankExecutor::release_comms() {
  for (const auto& capture : captures_) capture->release_comms();
  comms_ = {};
}

void RankExecutor::run_stream(RankStream& stream, int32_t entry) {
  const Status status = catch_status([&]() -> Status {
    for (const Step& step : stream.steps[static_cast<size_t>(entry)]) {
      TSR_RETURN_IF_ERROR(run_step(stream, entry, step));
      stream.done.fetch_add(1, std::memory_order_acq_rel);
      if (step.is_awaited) stream.done.notify_all();
    }
    return {};
  });
  stream.activity.store(StreamActivity::kIdle, std::memory_order_relaxed);
  if (!status.ok()) signals_.fail(status);
}

Status RankExecutor::run_step(RankStream& stream, int32_t entry, const Step& step) {
  stream.instruction.store(step.instruction, std::memory_order_relaxed);
  stream.perturbation.pause();
  if (step.wait_begin != step.wait_end) {
    stream.activity.store(StreamActivity::kWaits, std::memory_order_relaxed);
    for (int32_t wait = step.wait_begin; wait < step.wait_end; ++wait)
      if (!wait_for(waits_[static_cast<size_t>(wait)])) break;
  }
  stream.activity.store(StreamActivity::kComputes, std::memory_order_relaxed);  // also while others have their turn
  if (&stream == streams_[0].get()) signals_.turn->pass(step.begins_batch);
  if (step.begins_update && signals_.begin_update) signals_.begin_update();
  if (signals_.stop.load(std::memory_order_acquire))
    return failure(entry, step, Status(StatusCode::kAborted, "stopped before it, since another rank failed"));
  const int64_t begin_ns = options_.trace ? host_now_ns() : 0;
  stream.activity.store(step.communicates() ? StreamActivity::kCommunicates : StreamActivity::kComputes,
                        std::memory_order_relaxed);
  if (const Status status = execute(stream, step); !status.ok()) return failure(entry, step, status);
  if (options_.trace) record(stream, entry, step, begin_ns);
  return {};
}

// Whether to spin: not for messages, which are late, nor for copies whose threads need the core.
bool RankExecutor::spins_for(const RankStream& other) const {
  if (other.id.kind == StreamKind::kSend || other.id.kind == StreamKind::kReceive) return false;
  if (other.id.kind == StreamKind::kCopies) return has_spare_cores_;
  return may_spin_;
}

// Waits for the other stream; false once the run has failed.
bool RankExecutor::wait_for(const StepWait& wait) const {
  for (int done; (done = wait.stream->done.load(std::memory_order_acquire)) < wait.count;)
    wait_while(wait.stream->done, done, spins_for(*wait.stream));
  return !signals_.stop.load(std::memory_order_acquire);
}

// Issues to all streams from one thread; the device keeps the order.
Status RankExecutor::issue_steps(int32_t entry, CollectiveOrder& order) {
  for (const auto& [stream, position] : order_[static_cast<size_t>(entry)]) {
    const Step& step = stream->steps[static_cast<size_t>(entry)][static_cast<size_t>(position)];
    if (signals_.stop.load(std::memory_order_acquire))
      return failure(entry, step,
                     Status(StatusCode::kAborted, "stopped before it, since another rank failed"));
    const bool on_host = step.kind == Step::Kind::kFileRead || step.kind == Step::Kind::kFileWrite;
    for (int32_t at = step.wait_begin; at < step.wait_end; ++at) {
      const StepWait& wait = waits_[static_cast<size_t>(at)];
      TSR_RETURN_IF_ERROR(take_error(on_host ? api_.stream_synchronize(wait.stream->stream)
                                             : api_.stream_wait(stream->stream, wait.event)));
    }
    if (on_host) TSR_RETURN_IF_ERROR(take_error(api_.stream_synchronize(stream->stream)));
    const bool is_collective = step.kind == Step::Kind::kCollective;
    if (is_collective) TSR_RETURN_IF_ERROR(order.before(stream->stream));
    const int64_t begin_ns = options_.trace ? host_now_ns() : 0;
    if (step.begins != nullptr)
      TSR_RETURN_IF_ERROR(take_error(api_.event_record(step.begins, stream->stream)));
    // Group members wait for each other on the host, as does a receive; the watchdog must know.
    stream->instruction.store(step.instruction, std::memory_order_relaxed);
    if (step.communicates()) stream->activity.store(StreamActivity::kCommunicates, std::memory_order_relaxed);
    const Status done = execute(*stream, step);
    stream->activity.store(StreamActivity::kIdle, std::memory_order_relaxed);
    if (!done.ok()) return failure(entry, step, done);
    stream->done.fetch_add(1, std::memory_order_relaxed);
    if (is_collective) TSR_RETURN_IF_ERROR(order.after(stream->stream));
    if (step.event != nullptr) TSR_RETURN_IF_ERROR(take_error(api_.event_record(step.event, stream->stream)));
    if (step.ends != nullptr) TSR_RETURN_IF_ERROR(take_error(api_.event_record(step.ends, stream->stream)));
    if (options_.trace && (timers_ == nullptr || on_host)) record(*stream, entry, step, begin_ns);
  }
  return {};
}

void RankExecutor::issue_all(int32_t entry) {
  const Status status = catch_status([&]() -> Status {
    if (timers_ != nullptr) TSR_RETURN_IF_ERROR(timers_->begin(streams_[0]->stream));
    TSR_RETURN_IF_ERROR(captures_[static_cast<size_t>(entry)]->run(comms_.groups));
    streams_[0]->activity.store(StreamActivity::kComputes, std::memory_order_relaxed);
    for (const auto& stream : streams_)
      TSR_RETURN_IF_ERROR(take_error(api_.stream_synchronize(stream->stream)));
    if (timers_ == nullptr) return {};
    return timers_->read(entry, order_[static_cast<size_t>(entry)], signals_.origin_ns);
  });
  streams_[0]->activity.store(StreamActivity::kIdle, std::memory_order_relaxed);
  if (status.ok()) return;
  signals_.fail(status);
  // Earlier launches still access this rank's arenas, and its peers'.
  for (const auto& stream : streams_) (void)take_error(api_.stream_synchronize(stream->stream));
}

Status RankExecutor::execute(const RankStream& stream, const Step& step) {
  tsr_abi_stream* const on = stream.stream;
  switch (step.kind) {
    case Step::Kind::kKernel:
      return take_error(api_.kernel_launch(step.kernel, on, step.inputs, step.outputs, step.workspace));
    case Step::Kind::kCollective:
      return comms_.groups[static_cast<size_t>(step.channel)]->end->collective(on, step.collective, step.in, step.out);
    // The sender is the first member of a pair's communicator.
    case Step::Kind::kSend: return comms_.sends.at(step.channel)->send(on, 1, step.in, step.row_bytes);
    case Step::Kind::kReceive: return comms_.receives.at(step.channel)->receive(on, 0, step.out, step.row_bytes);
    case Step::Kind::kCopy:
      return take_error(api_.copy(on, step.in, step.out, step.rows, step.row_bytes, step.in_stride_bytes,
                                  step.out_stride_bytes));
    case Step::Kind::kFileRead:
      for (int64_t row = 0; row < step.rows; ++row)
        TSR_RETURN_IF_ERROR(memory_->file()->read(
            step.file_offset + row * step.in_stride_bytes,
            static_cast<std::byte*>(step.out) + row * step.out_stride_bytes, step.row_bytes));
      return {};
    case Step::Kind::kFileWrite:
      for (int64_t row = 0; row < step.rows; ++row)
        TSR_RETURN_IF_ERROR(memory_->file()->write(
            step.file_offset + row * step.out_stride_bytes,
            step.in == nullptr ? nullptr
                               : static_cast<const std::byte*>(step.in) + row * step.in_stride_bytes,
            step.row_bytes));
      return {};
    case Step::Kind::kFused: return {};
  }
  return {};
}

// ---- reports

Status RankExecutor::failure(int32_t entry, const Step& step, const Status& status) const {
  const EntryPoint& point = program_.entries[static_cast<size_t>(entry)];
  return status.with_context(
      format("rank {} ({}), entry '{}', instruction {} ({})", rank_,
             devices_.names[static_cast<size_t>(rank_ - devices_.ranks.first)], point.name, step.instruction,
             instruction_label(program_, point.code[static_cast<size_t>(step.instruction)])));
}

void RankExecutor::log(int32_t level, const std::string& text) const {
  if (devices_.host->log != nullptr) devices_.host->log(devices_.host->host, level, text.c_str());
}

RankExecutor::Progress RankExecutor::progress() const {
  Progress progress;
  for (const auto& stream : streams_) {
    const StreamActivity activity = stream->activity.load(std::memory_order_relaxed);
    progress.computes |= activity == StreamActivity::kComputes;
    progress.communicates |= activity == StreamActivity::kCommunicates;
    progress.done += stream->done.load(std::memory_order_relaxed);
  }
  return progress;
}

std::string RankExecutor::waiting_text(int32_t index) const {
  const EntryPoint& entry = program_.entries[static_cast<size_t>(index)];
  std::string communicating, waiting;
  for (const auto& stream : streams_) {
    const StreamActivity activity = stream->activity.load(std::memory_order_relaxed);
    const int32_t at = stream->instruction.load(std::memory_order_relaxed);
    if (activity == StreamActivity::kIdle || at < 0 || static_cast<size_t>(at) >= entry.code.size()) continue;
    std::string& text = activity == StreamActivity::kWaits ? waiting : communicating;
    text += format("{}{}", text.empty() ? "" : " and ", tessera::waiting_text(program_, rank_, entry, at));
  }
  if (communicating.empty() && waiting.empty()) return format("rank {} is done", rank_);
  return !communicating.empty() ? communicating : waiting + " for another stream";
}

void RankExecutor::record(RankStream& stream, int32_t entry, const Step& step, int64_t begin_ns) {
  stream.add_record(
      {entry, step.instruction, begin_ns - signals_.origin_ns, host_now_ns() - signals_.origin_ns});
}

int64_t RankExecutor::allocations_in_runs() const {
  int64_t growths = 0;
  for (const auto& stream : streams_) growths += stream->growths;
  return growths;
}

std::vector<TraceEvent> RankExecutor::take_trace() {
  std::vector<TraceEvent> events;
  for (const auto& stream : streams_)
    for (const RankStream::Record& record : std::exchange(stream->records, {})) {
      const EntryPoint& entry = program_.entries[static_cast<size_t>(record.entry)];
      TraceEvent& event =
          events.emplace_back(traced(program_, entry, entry.code[static_cast<size_t>(record.instruction)]));
      event.rank = rank_;
      event.track = track_of(stream->id);
      event.stream = to_text(stream->id);
      event.begin_ns = record.begin_ns;
      event.end_ns = record.end_ns;
    }
  return events;
}

}  // namespace tessera
