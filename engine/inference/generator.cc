#include "engine/inference/generator.h"

#include <algorithm>
#include <utility>

#include "engine/program/program_cache.h"
#include "engine/sampling/text_stream.h"
#include "engine/serving/scheduler/single_row.h"
#include "graph/base/memory_limit.h"
#include "graph/base/text.h"
#include "runtime/arranged_weights.h"

namespace tessera {
namespace {

// Pieces computed ahead of the caller, at most.
constexpr size_t kPiecesAhead = 64;
constexpr int64_t kText = 0;  // request number; there is one text at a time

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The model's context, shortened so that its keys and values fit half of
// the memory left by the parameters, but at least the default 2048 tokens.
int64_t context_in_memory(const Graph& graph, int64_t longest, int64_t memory_limit) {
  constexpr int64_t kUsual = 2048, kStep = 64;
  const int64_t most = std::min(longest > 0 ? longest : kUsual, kMostWholeContext);
  int64_t token_bytes = 0, parameter_bytes = 0;
  for (const TensorId id : graph.tensors_of_kind(TensorKind::kParameter))
    parameter_bytes += bytes(graph.type(id));
  for (const Node& node : graph.nodes()) {
    const ContextOperands& context = node.op->context;
    if (context.keys < 0 || attr_i64_or(node.attrs, "window", 0) > 0) continue;  // a window is soon full
    for (const int operand : {context.keys, context.values}) {                   // k, v [B, S, KV, D]
      const Shape& shape = graph.type(node.inputs[static_cast<size_t>(operand)]).shape;
      token_bytes += shape.dims()[2] * shape.dims()[3] * int64_t{4};
    }
  }
  const int64_t memory = memory_limit > 0 ? memory_limit : process_memory_limit();
  const int64_t room = std::max<int64_t>(0, memory - parameter_bytes) / 2;
  const int64_t fits = token_bytes > 0 ? room / token_bytes / kStep * kStep : most;
  return std::min(most, std::max(fits, kUsual));
}

void choose_context(GeneratorSettings& settings, const Graph& graph, int64_t longest) {
  if (settings.context != kWholeContext) return;
  settings.context = context_in_memory(graph, longest, settings.compute.memory_limit);
}

}  // namespace

Result<std::unique_ptr<Generator>> Generator::create(std::shared_ptr<Runtime> runtime,
                                                     std::shared_ptr<SharedModel> model,
                                                     const Options& options) {
  TSR_ASSIGN_OR_RETURN(GeneratorSettings settings, read_generator_settings(options));
  const Graph forward = model->graph();
  choose_context(settings, forward, model->context_length());
  TSR_RETURN_IF_ERROR(finalize_context(settings, model->context_length()));
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<DeviceSet> devices,
                       runtime->open_devices(settings.compute.devices, settings.compute.profile));
  ServingSettings serving = single_row_settings(settings, forward, *devices);
  const auto make = [&]() -> Result<std::shared_ptr<const LoadedProgram>> {
    TSR_ASSIGN_OR_RETURN(CompiledProgram compiled, compile_serving(forward, serving, devices));
    if (settings.inference.repack) take_arranged_variants(compiled.program, *devices);
    return prepare(runtime, devices, std::move(compiled));
  };
  TSR_ASSIGN_OR_RETURN(auto prepared,
                       model->kept<ProgramCache>().find_or_make(format("generator {}", settings.context), forward,
                                                      options, settings.compute, *runtime, *devices, make));
  TSR_ASSIGN_OR_RETURN(auto running, ProgramRunner::create(std::move(prepared),
                                                           SessionOptions{.trace = settings.compute.trace, .side = CoreSide::kInference},
                                                           model, model->seed()));
  TSR_ASSIGN_OR_RETURN(auto core,
                       ServingCore::create(std::move(running), std::move(model), std::move(serving)));
  return create(std::move(settings), std::move(core));
}

Result<std::unique_ptr<Generator>> Generator::create(std::shared_ptr<WeightOwner> trainer,
                                                     const Options& options) {
  TSR_ASSIGN_OR_RETURN(auto weights, TrainedWeights::of(std::move(trainer)));
  TSR_RETURN_IF_ERROR(TrainedWeights::check_options(options, "generator"));
  TSR_ASSIGN_OR_RETURN(GeneratorSettings settings, read_generator_settings(options));
  choose_context(settings, weights->forward(), weights->model()->context_length());
  TSR_RETURN_IF_ERROR(finalize_context(settings, weights->model()->context_length()));
  const bool trace = settings.compute.trace;
  TSR_ASSIGN_OR_RETURN(settings.compute, weights->compute_settings(settings.compute.memory_limit));
  ServingSettings serving = single_row_settings(settings, weights->forward(), *weights->devices());
  const TrainedPlan along = weights->plan();
  TSR_ASSIGN_OR_RETURN(CompiledProgram compiled,
                       compile_serving(weights->forward(), serving, weights->devices(), &along));
  TSR_ASSIGN_OR_RETURN(auto running, weights->load(std::move(compiled), SessionOptions{.trace = trace, .side = CoreSide::kInference}));
  TSR_ASSIGN_OR_RETURN(
      auto core, ServingCore::create(std::move(running), weights->model(), std::move(serving), weights));
  return create(std::move(settings), std::move(core));
}

Result<std::unique_ptr<Generator>> Generator::create(GeneratorSettings settings,
                                                     std::unique_ptr<ServingCore> core) {
  std::unique_ptr<Generator> generator(new Generator(std::move(settings), std::move(core)));
  TSR_RETURN_IF_ERROR(generator->check_stop(generator->settings_.text));
  return generator;
}

Generator::Generator(GeneratorSettings settings, std::unique_ptr<ServingCore> core)
    : settings_(std::move(settings)), core_(std::move(core)), tokenizer_(core_->text_model().tokenizer), prompt_note_(tokenizer_.get()) {
  report_.context = settings_.context;
  const Session& session = core_->runner().session();
  const TokenReads reads = count_token_reads(session.executable().program(), core_->settings());
  report_.parameter_bytes_read = reads.parameter_bytes;
  report_.cache_bytes_read = reads.cache_bytes;
  report_.launches = session.launches(serving_entries(core_->settings()).front().name);
}

// Waits for the worker, whose job ends soon.
Generator::~Generator() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  changed_.notify_all();
}

Status Generator::check_stop(const TextSettings& text) const {
  if (tokenizer_ || text.stop.empty()) return {};
  return Status(StatusCode::kFailedPrecondition, "generator: option 'stop' needs a model with a tokenizer");
}

Status Generator::start(std::string_view prompt, const Options& options) {
  TSR_ASSIGN_OR_RETURN(TextSettings text, read_text_settings(options, settings_.text));
  if (!tokenizer_)
    return Status(StatusCode::kFailedPrecondition,
                  "the model has no tokenizer: give it one, or start from token ids");
  TSR_ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer_->encode(prompt, {.parse_special = text.special}));
  prompt_note_.warn(prompt, text.special, runtime());
  ids = tokenizer_->with_before_text(std::move(ids));
  if (ids.empty() && prompt.empty() && tokenizer_->data().bos >= 0) ids.push_back(tokenizer_->data().bos);
  if (ids.empty())
    return Status(StatusCode::kInvalidArgument,
                  "the prompt is empty and the tokenizer has no beginning-of-sequence token to start from");
  return begin(std::move(ids), std::move(text));
}

Status Generator::start(std::vector<int32_t> prompt, const Options& options) {
  TSR_ASSIGN_OR_RETURN(TextSettings text, read_text_settings(options, settings_.text));
  return begin(std::move(prompt), std::move(text));
}

Status Generator::begin(std::vector<int32_t> prompt, TextSettings text) {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  TSR_RETURN_IF_ERROR(check_stop(text));
  if (prompt.empty()) return Status(StatusCode::kInvalidArgument, "a prompt needs at least one token");
  if (static_cast<int64_t>(prompt.size()) > settings_.context)
    return Status(
        StatusCode::kInvalidArgument,
        format("the prompt has {} tokens, the context holds {}{}", prompt.size(), settings_.context,
               remedy_for_length(std::ssize(prompt), settings_.context, settings_.longest)));
  const int64_t vocabulary = core_->text_model().vocabulary;
  for (const int32_t token : prompt)
    if (token < 0 || token >= vocabulary)
      return Status(StatusCode::kInvalidArgument,
                    format("the prompt has token id {}, the model has {} tokens", token, vocabulary));
  std::unique_lock lock(mutex_);
  cancelled_ = true;
  changed_.notify_all();
  wait_until_idle(lock);
  cancelled_ = false;
  pieces_.clear();
  failure_ = Status();
  report_.prompt_tokens = static_cast<int64_t>(prompt.size());
  report_.tokens = report_.reused_tokens = 0;
  report_.prefill_seconds = report_.decode_seconds = 0;
  if (core_->runner().failed()) {
    std::vector<ServingEvent> events;
    TSR_RETURN_IF_ERROR(core_->recover(Status(), events));
  }
  report_.seed = text.seed ? *text.seed : Runtime::draw_seed();
  ServingRequest request;
  request.prompt = std::move(prompt);
  request.seed = static_cast<uint64_t>(report_.seed);
  if (!text.stop.empty()) request.stops = std::make_shared<const StopAutomaton>(text.stop);
  echoes_ = text.echo;
  SamplingSettings sampling;
  static_cast<TextSettings&>(sampling) = std::move(text);
  request.sampling = std::make_shared<const SamplingSettings>(std::move(sampling));
  worker_.call();
  job_ = std::move(request);
  has_logits_ = false;
  started_ = true;
  return {};
}

void Generator::cancel() {
  if (!runtime().in_creating_process()) return;
  const std::lock_guard lock(mutex_);  // otherwise a worker about to wait for room could miss it
  cancelled_ = true;
  changed_.notify_all();
}

void Generator::wait_until_idle(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [this] { return !busy_ && !job_; });
}

Result<TextPiece> Generator::next(double timeout_s) {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  std::unique_lock lock(mutex_);
  if (!started_)
    return Status(StatusCode::kFailedPrecondition, "nothing was started: call tsr_generator_start first");
  const auto ready = [this] { return !pieces_.empty() || (!busy_ && !job_); };
  if (timeout_s < 0) {
    changed_.wait(lock, ready);
  } else {
    changed_.wait_for(lock, std::chrono::duration<double>(std::min(timeout_s, 1e6)), ready);
  }
  if (pieces_.empty()) {
    if (busy_ || job_) return TextPiece{};
    TSR_RETURN_IF_ERROR(failure_);
    return Status(StatusCode::kInternal, "the text ended without saying so");
  }
  TextPiece piece = pieces_.front();
  // The end piece stays, so that further calls return it again.
  if (piece.kind != TextPiece::Kind::kEnd) pieces_.pop_front();
  changed_.notify_all();
  return piece;
}

bool Generator::put(TextPiece piece) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return cancelled_ || pieces_.size() < kPiecesAhead; });
  if (cancelled_) return false;
  pieces_.push_back(std::move(piece));
  changed_.notify_all();
  return true;
}

void Generator::work() {
  ServingRequest request;
  {
    const std::lock_guard lock(mutex_);
    request = std::move(*job_);
    job_.reset();
    busy_ = true;
  }
  Finish finish = Finish::kNone;
  Status status = catch_status([&]() -> Status {
    TSR_ASSIGN_OR_RETURN(finish, generate(request));
    return {};
  });
  std::vector<ServingEvent> dropped;
  core_->cancel(kText, dropped);
  // One lock: after the end the logits must be readable.
  const std::lock_guard lock(mutex_);
  if (status.ok()) pieces_.push_back(TextPiece{TextPiece::Kind::kEnd, finish, -1, {}});
  failure_ = std::move(status);
  busy_ = false;
  changed_.notify_all();
}

bool Generator::echo(std::span<const int32_t> prompt) {
  TextStream echoed({});
  const std::unique_ptr<TextDecoder> decoder = tokenizer_ ? tokenizer_->decoder() : nullptr;
  for (const int32_t token : prompt) {
    const std::string bytes = decoder ? decoder->add(token) : std::string();
    if (tokenizer_ && token == tokenizer_->data().bos) continue;
    if (!put(TextPiece{TextPiece::Kind::kToken, Finish::kNone, token, echoed.add(bytes)})) return false;
  }
  return true;
}

void Generator::note_event(const ServingEvent& event) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(has_logits_, true)) {
    report_.prefill_seconds = seconds_since(prefill_begin_);
    report_.reused_tokens = core_->counts().reused - reused_before_;
    decode_begin_ = std::chrono::steady_clock::now();
  }
  if (event.token < 0) return;
  ++report_.tokens;
  report_.decode_seconds = seconds_since(decode_begin_);
}

Result<Finish> Generator::generate(const ServingRequest& request) {
  if (echoes_ && !echo(request.prompt)) return Finish::kCancelled;
  prefill_begin_ = std::chrono::steady_clock::now();
  reused_before_ = core_->counts().reused;
  TSR_ASSIGN_OR_RETURN(ServingCore::Texts texts, core_->make_texts(request, kText));
  core_->add(std::move(texts));
  std::vector<ServingEvent> events;
  while (!cancelled_) {
    events.clear();
    TSR_ASSIGN_OR_RETURN(const bool has_computed, core_->step(events));
    TSR_CHECK(has_computed, "a text that has not ended has tokens to compute, and pages");
    if (cancelled_) break;
    for (ServingEvent& event : events) {
      note_event(event);
      if (event.kind == ServingEvent::Kind::kEnd) {
        TSR_RETURN_IF_ERROR(event.failure);
        return static_cast<Finish>(event.finish);
      }
      if (!put(TextPiece{TextPiece::Kind::kToken, Finish::kNone, event.token, std::move(event.text)}))
        return Finish::kCancelled;
    }
  }
  return Finish::kCancelled;
}

Result<HostTensor> Generator::logits() {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  std::unique_lock lock(mutex_);
  if (busy_ || job_ || !started_)
    return Status(StatusCode::kFailedPrecondition,
                  "logits can be read when a text was started and is complete");
  if (!has_logits_)
    return Status(StatusCode::kFailedPrecondition,
                  "there are no logits: the text was cancelled before its first token was computed");
  const std::span<const float> logits = core_->last_logits();
  return HostTensor::copy_of<float>({DType::kF32, {std::ssize(logits)}}, logits);
}

Result<std::string> Generator::trace_json() {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  const std::lock_guard lock(mutex_);
  if (busy_ || job_)
    return Status(StatusCode::kFailedPrecondition, "a trace can be read when the text is complete");
  return core_->runner().trace_json();
}

Result<std::string> Generator::report_json() {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  const std::lock_guard lock(mutex_);
  GeneratorReport report = report_;
  if (!busy_ && !job_) report.memory = core_->runner().session().memory();
  return generator_json(report, core_->runner().record());
}

}  // namespace tessera
