#include "capi/engine/generator.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ranges>
#include <utility>

#include "capi/engine/host_view.h"
#include "capi/engine/program_cache.h"
#include "capi/engine/text_stream.h"
#include "graph/base/text.h"
#include "graph/transform/decoding.h"
#include "runtime/arranged_weights.h"

namespace tessera {
namespace {

// Pieces computed ahead of the caller; then the worker waits.
constexpr size_t kPiecesAhead = 64;
constexpr std::string_view kDecode = "decode";

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Result<std::unique_ptr<Generator>> Generator::create(std::shared_ptr<Runtime> runtime,
                                                     std::shared_ptr<SharedModel> model,
                                                     const Options& options) {
  std::unique_ptr<Generator> generator(new Generator);
  TSR_ASSIGN_OR_RETURN(generator->settings_, read_generator_settings(options));
  GeneratorSettings& settings = generator->settings_;
  TSR_RETURN_IF_ERROR(finalize_context(settings, model->context_length()));
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<DeviceSet> devices,
                       runtime->open_devices(settings.compute.devices, settings.compute.profile));
  const Graph forward = model->graph();
  const auto make = [&]() -> Result<std::shared_ptr<const LoadedProgram>> {
    TSR_ASSIGN_OR_RETURN(CompiledProgram compiled, compile_generation(forward, settings, devices));
    if (settings.inference.repack) take_arranged_variants(compiled.program, *devices);
    return prepare(runtime, devices, std::move(compiled));
  };
  TSR_ASSIGN_OR_RETURN(auto prepared,
                       model->programs().find_or_make(format("generator {}", settings.context), forward,
                                                      options, settings.compute, *runtime, *devices, make));
  TSR_ASSIGN_OR_RETURN(auto running, ProgramRunner::create(std::move(prepared),
                                                           SessionOptions{.trace = settings.compute.trace},
                                                           model, model->seed()));
  TSR_RETURN_IF_ERROR(generator->take_program(std::move(running), forward, *model));
  return generator;
}

Result<std::unique_ptr<Generator>> Generator::create(std::shared_ptr<Trainer> trainer,
                                                     const Options& options) {
  TSR_ASSIGN_OR_RETURN(auto weights, TrainedWeights::of(std::move(trainer)));
  TSR_RETURN_IF_ERROR(TrainedWeights::check_options(options, "generator"));
  std::unique_ptr<Generator> generator(new Generator);
  TSR_ASSIGN_OR_RETURN(generator->settings_, read_generator_settings(options));
  GeneratorSettings& settings = generator->settings_;
  TSR_RETURN_IF_ERROR(finalize_context(settings, weights->model()->context_length()));
  const bool trace = settings.compute.trace;
  TSR_ASSIGN_OR_RETURN(settings.compute, weights->compute_settings(settings.compute.memory_limit));
  const Graph& forward = weights->forward();
  const TrainedPlan along = weights->plan();
  TSR_ASSIGN_OR_RETURN(CompiledProgram compiled,
                       compile_generation(forward, settings, weights->devices(), &along));
  TSR_ASSIGN_OR_RETURN(auto running, weights->load(std::move(compiled), SessionOptions{.trace = trace}));
  TSR_RETURN_IF_ERROR(generator->take_program(std::move(running), forward, *weights->model()));
  generator->trained_ = std::move(weights);
  return generator;
}

Status Generator::take_program(std::unique_ptr<ProgramRunner> running, const Graph& forward,
                               const SharedModel& model) {
  running_ = std::move(running);
  rope_switch_ = rope_switch(forward) < settings_.context ? rope_switch(forward) : 0;
  const Shape& logits = forward.type(*forward.find_output("logits")).shape;
  vocabulary_ = static_cast<int32_t>(logits[logits.rank() - 1]);
  tokenizer_ = model.tokenizer();
  TSR_RETURN_IF_ERROR(check_stop(settings_.text));
  report_.context = settings_.context;
  count_bytes_read();
  report_.launches = running_->session().launches(kDecode);
  return {};
}

// The worker waits for its job, which ends soon.
Generator::~Generator() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  changed_.notify_all();
}

// Counts from the instructions of "decode". Tables are read by rows (OpCost), every other parameter whole.
void Generator::count_bytes_read() {
  for (const RankProgram& rank : running_->session().executable().program().ranks)
    for (const EntryPoint& entry : rank.entries) {
      if (entry.name != kDecode) continue;
      for (const Instruction& instruction : entry.code) {
        const auto* kernel = std::get_if<KernelInst>(&instruction);
        if (kernel == nullptr) continue;
        const KernelDesc& desc = rank.kernels[static_cast<size_t>(kernel->kernel)];
        const OpCost cost = desc.op->cost({desc.attrs, desc.inputs, desc.outputs, desc.factors});
        for (size_t i = 0; i < kernel->inputs.size(); ++i) {
          if (kernel->inputs[i].slot < 0) continue;
          const SlotKind kind = rank.slots[static_cast<size_t>(kernel->inputs[i].slot)].kind;
          const int64_t operand = bytes(desc.inputs[i]);
          if (kind == SlotKind::kParameter)
            report_.parameter_bytes_read += std::min(operand, static_cast<int64_t>(cost.bytes_read));
          if (kind == SlotKind::kState && desc.op->name == "attention_cached") {
            const int64_t window = attr_i64(desc.attrs, "window"), rows = desc.inputs[i].shape[1];
            const int64_t read = window > 0 ? std::min(rows, window + desc.inputs[0].shape[1]) : rows;
            report_.cache_bytes_read += rows > 0 ? operand / rows * read : 0;
          }
        }
      }
    }
}

Status Generator::check_stop(const TextSettings& text) const {
  if (tokenizer_ || text.stop.empty()) return {};
  return Status(StatusCode::kFailedPrecondition, "generator: option 'stop' needs a model with a tokenizer");
}

Status Generator::feed_sampling(const TextSettings& text, int64_t drawn) {
  std::vector<std::string_view> entries = {kDecode};
  for (const PrefillChunk& chunk : kPrefillChunks) entries.push_back(chunk.entry);
  for (const std::string_view entry : entries) {
    if (!running_->has_entry(entry)) continue;
    TSR_RETURN_IF_ERROR(running_->feed_scalar(entry, "temperature", text.temperature));
    TSR_RETURN_IF_ERROR(running_->feed_scalar(entry, "top_k", static_cast<double>(text.top_k)));
    TSR_RETURN_IF_ERROR(running_->feed_scalar(entry, "top_p", text.top_p));
    const std::array<int64_t, 1> seed{drawn};  // not through a double: all 64 bits count
    TSR_RETURN_IF_ERROR(running_->feed(
        entry, "seed", HostTensor{{DType::kI64, Shape{}}, std::as_bytes(std::span(seed)), nullptr}));
  }
  return {};
}

Status Generator::start(std::string_view prompt, const Options& options) {
  TSR_ASSIGN_OR_RETURN(TextSettings text, read_text_settings(options, settings_.text));
  if (!tokenizer_)
    return Status(StatusCode::kFailedPrecondition,
                  "the model has no tokenizer: give it one, or start from token ids");
  const std::span<const int32_t> before = tokenizer_->before_text();
  std::vector<int32_t> ids(before.begin(), before.end());
  if (ids.empty() && prompt.empty() && tokenizer_->data().bos >= 0) ids.push_back(tokenizer_->data().bos);
  TSR_ASSIGN_OR_RETURN(const std::vector<int32_t> encoded,
                       tokenizer_->encode(prompt, {.parse_special = text.special}));
  ids.insert(ids.end(), encoded.begin(), encoded.end());
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
        format("the prompt has {} tokens, the context holds {}: shorten it or raise option 'context'",
               prompt.size(), settings_.context));
  for (const int32_t token : prompt)
    if (token < 0 || token >= vocabulary_)
      return Status(StatusCode::kInvalidArgument,
                    format("the prompt has token id {}, the model has {} tokens", token, vocabulary_));
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
  if (running_->failed()) {
    cached_.clear();
    prefilled_ = 0;
    TSR_RETURN_IF_ERROR(running_->restore());
  }
  report_.seed = text.seed ? *text.seed : Runtime::draw_seed();
  TSR_RETURN_IF_ERROR(feed_sampling(text, report_.seed));
  text_ = std::move(text);
  worker_.call();
  job_ = std::move(prompt);
  last_entry_.clear();
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
  // The end is never removed: asking again gives the same answer.
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
  std::vector<int32_t> prompt;
  {
    const std::lock_guard lock(mutex_);
    prompt = std::move(*job_);
    job_.reset();
    busy_ = true;
  }
  Finish finish = Finish::kNone;
  Status status = catch_status([&]() -> Status {
    TSR_ASSIGN_OR_RETURN(finish, generate(prompt));
    return {};
  });
  // In one stroke: who sees the end may read the logits.
  const std::lock_guard lock(mutex_);
  if (status.ok()) pieces_.push_back(TextPiece{TextPiece::Kind::kEnd, finish, -1, {}});
  failure_ = std::move(status);
  busy_ = false;
  changed_.notify_all();
}

Result<int32_t> Generator::advance(std::string_view entry, int64_t chunk, std::span<const int32_t> tokens,
                                   int64_t start) {
  std::vector<int32_t> padded(tokens.begin(), tokens.end());
  padded.resize(static_cast<size_t>(chunk));
  const std::array<int32_t, 1> from{static_cast<int32_t>(start)};
  const std::array<int32_t, 1> length{static_cast<int32_t>(tokens.size())};
  TSR_RETURN_IF_ERROR(running_->feed(entry, "tokens", view_of(padded, Shape{1, chunk})));
  TSR_RETURN_IF_ERROR(running_->feed(entry, "start", view_of(from, Shape{1})));
  TSR_RETURN_IF_ERROR(running_->feed(entry, "length", view_of(length, Shape{1})));
  if (rope_switch_ > 0) {
    const std::array<int32_t, 1> row{static_cast<int32_t>(rope_row_)};
    TSR_RETURN_IF_ERROR(running_->feed(entry, "rope_row", view_of(row, Shape{1})));
  }
  cached_.resize(static_cast<size_t>(start));
  TSR_RETURN_IF_ERROR(running_->run(entry));
  cached_.insert(cached_.end(), tokens.begin(), tokens.end());
  last_entry_ = entry;
  int32_t token = -1;
  TSR_RETURN_IF_ERROR(
      running_->session().fetch_into(entry, "token", std::as_writable_bytes(std::span(&token, 1))));
  return token;
}

// Processes the prompt in chunks, the last of which may be partly padding (`length` says so). Returns the
// token sampled after the last; tokens sampled after earlier chunks mean nothing.
Result<int32_t> Generator::prefill(std::span<const int32_t> prompt, int64_t done) {
  const int64_t count = static_cast<int64_t>(prompt.size());
  int32_t token = -1;
  while (done < count && !cancelled_) {
    const int64_t rest = count - done;
    // The largest chunk that is full; the smallest may be partly padding.
    PrefillChunk chunk{kDecode, 1};
    for (const PrefillChunk& larger : std::views::reverse(kPrefillChunks))
      if (running_->has_entry(larger.entry) && (rest >= larger.tokens || (chunk.tokens == 1 && rest > 1)))
        chunk = larger;
    const int64_t take = std::min(rest, chunk.tokens);
    TSR_ASSIGN_OR_RETURN(token,
                         advance(chunk.entry, chunk.tokens,
                                 prompt.subspan(static_cast<size_t>(done), static_cast<size_t>(take)), done));
    done += take;
    if (chunk.entry != kDecode) prefilled_ = done;
  }
  return token;
}

Result<std::optional<WeightLock::Reading>> Generator::hold_weights() {
  if (trained_ == nullptr) return std::optional<WeightLock::Reading>();
  TSR_ASSIGN_OR_RETURN(WeightLock::Reading reading, trained_->read(*running_, weights_version_));
  is_stale_ |= std::exchange(weights_version_, reading.version()) != reading.version();
  return std::optional<WeightLock::Reading>(std::move(reading));
}

Result<int32_t> Generator::append(int32_t last, int64_t start) {
  TSR_ASSIGN_OR_RETURN(const std::optional<WeightLock::Reading> reading, hold_weights());
  if (!std::exchange(is_stale_, false) && rope_row(start + 1) == rope_row_)
    return advance(kDecode, 1, std::array{last}, start);
  rope_row_ = rope_row(start + 1);
  std::vector<int32_t> all(cached_.begin(), cached_.begin() + start);
  all.push_back(last);
  prefilled_ = 0;
  return prefill(all, 0);
}

int64_t Generator::count_reusable(std::span<const int32_t> prompt) const {
  if (rope_row(std::ssize(prompt)) != rope_row_) return 0;
  const auto parted = std::ranges::mismatch(prompt.first(prompt.size() - 1), cached_);
  const int64_t common = parted.in1 - prompt.begin();
  // Chunks give a token the same bits whatever their sizes; one token at a time gives it others on GPUs. What an answer
  // left in the caches is computed again, and so is what would leave another token over for the end.
  for (const PrefillChunk& smallest : std::views::reverse(kPrefillChunks))
    if (running_->has_entry(smallest.entry))
      return std::min(common, prefilled_) / smallest.tokens * smallest.tokens;
  return common;
}

bool Generator::ends(int32_t token) const {
  if (tokenizer_ && tokenizer_->ends_text(token)) return true;
  return std::find(text_.stop_ids.begin(), text_.stop_ids.end(), token) != text_.stop_ids.end();
}

Result<Finish> Generator::generate(std::span<const int32_t> prompt) {
  TextStream echoed({}), stream(text_.stop);
  const std::unique_ptr<TextDecoder> decoder = tokenizer_ ? tokenizer_->decoder() : nullptr;
  const auto decode = [&](int32_t token) { return decoder ? decoder->add(token) : std::string(); };
  for (const int32_t token : prompt) {
    const std::string bytes = decode(token);
    if (text_.echo && !(tokenizer_ && token == tokenizer_->data().bos) &&
        !put(TextPiece{TextPiece::Kind::kToken, Finish::kNone, token, echoed.add(bytes)}))
      return Finish::kCancelled;
  }
  int32_t previous = prompt.back();
  (void)stream.add(echoed.finish());  // the beginning of a character, which later bytes may complete
  // Every token except the last one sampled is written to the cache.
  const int64_t count = static_cast<int64_t>(prompt.size());
  int64_t room = settings_.context - count + 1;
  if (text_.max_tokens > 0) room = std::min(room, text_.max_tokens);

  auto begin = std::chrono::steady_clock::now();
  int64_t reused = 0;
  int32_t token = -1;
  {
    TSR_ASSIGN_OR_RETURN(const std::optional<WeightLock::Reading> reading, hold_weights());
    if (!std::exchange(is_stale_, false)) reused = count_reusable(prompt);
    prefilled_ = reused;
    rope_row_ = rope_row(count);
    TSR_ASSIGN_OR_RETURN(token, prefill(prompt, reused));
  }
  {
    const std::lock_guard lock(mutex_);
    report_.reused_tokens = reused;
    report_.prefill_seconds = seconds_since(begin);
  }
  begin = std::chrono::steady_clock::now();
  Finish finish = Finish::kLength;
  for (int64_t made = 0; made < room; ++made) {
    if (made > 0) {
      TSR_ASSIGN_OR_RETURN(token, append(previous, count + made - 1));
    }
    if (cancelled_) return Finish::kCancelled;
    if (token < 0 || token >= vocabulary_)
      return Status(StatusCode::kInternal,
                    format("sampling gave token {} of {}: the logits are not finite", token, vocabulary_));
    if (ends(token)) {
      finish = Finish::kStop;
      break;
    }
    {
      const std::lock_guard lock(mutex_);
      report_.tokens = made + 1;
      report_.decode_seconds = seconds_since(begin);
    }
    if (!put(TextPiece{TextPiece::Kind::kToken, Finish::kNone, token, stream.add(decode(token))}))
      return Finish::kCancelled;
    if (stream.stopped()) return Finish::kStop;
    previous = token;
  }
  std::string rest = decoder ? stream.add(decoder->finish()) : std::string();
  rest += stream.finish();
  if (!rest.empty())
    if (!put(TextPiece{TextPiece::Kind::kToken, Finish::kNone, -1, std::move(rest)}))
      return Finish::kCancelled;
  return finish;
}

Result<HostTensor> Generator::logits() {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  std::unique_lock lock(mutex_);
  if (busy_ || job_ || !started_)
    return Status(StatusCode::kFailedPrecondition,
                  "logits can be read when a text was started and is complete");
  if (last_entry_.empty())
    return Status(StatusCode::kFailedPrecondition,
                  "there are no logits: the text was cancelled before its first token was computed");
  TSR_ASSIGN_OR_RETURN(HostTensor value, running_->session().fetch(last_entry_, "logits"));
  value.type.shape = Shape{vocabulary_};  // [1, V]
  return value;
}

Result<std::string> Generator::trace_json() {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  const std::lock_guard lock(mutex_);
  if (busy_ || job_)
    return Status(StatusCode::kFailedPrecondition, "a trace can be read when the text is complete");
  return running_->trace_json();
}

Result<std::string> Generator::report_json() {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  const std::lock_guard lock(mutex_);
  GeneratorReport report = report_;
  if (!busy_ && !job_) report.memory = running_->session().memory();
  return generator_json(report, running_->record());
}

}  // namespace tessera
