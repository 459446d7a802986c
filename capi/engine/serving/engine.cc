#include "capi/engine/serving/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "capi/engine/loading.h"
#include "capi/engine/report.h"
#include "capi/engine/serving/event_details.h"
#include "graph/base/text.h"
#include "serialize/opened_model.h"

namespace tessera {

namespace {

// Events ahead of the caller; then the worker waits.
constexpr size_t kEventsAhead = 4096;

using Kind = ServingEvent::Kind;

Result<std::shared_ptr<SharedModel>> load_draft(const std::string& path) {
  TSR_ASSIGN_OR_RETURN(auto source, open_model_file(path));
  return load_shared_model(std::move(source), path);
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<Runtime> runtime,
                                               std::shared_ptr<SharedModel> model, const Options& options) {
  TSR_RETURN_IF_ERROR(runtime->check_process());
  TSR_ASSIGN_OR_RETURN(EngineSettings settings, read_engine_settings(options, *model));
  if (!settings.draft_model.empty()) {
    auto draft = load_draft(settings.draft_model);
    if (!draft.ok()) return draft.status().with_context("the draft model");
    settings.serving.draft = std::move(*draft);
  }
  TSR_ASSIGN_OR_RETURN(auto core, ServingCore::create(std::move(runtime), model, settings.serving));
  TSR_RETURN_IF_ERROR(check_tokens(settings.sampling, core->text_model().vocabulary));
  std::unique_ptr<Engine> engine(new Engine(std::move(core), std::move(model), std::move(settings)));
  engine->refresh_report();
  return engine;
}

Engine::Engine(std::unique_ptr<ServingCore> core, std::shared_ptr<SharedModel> model, EngineSettings settings)
    : model_(std::move(model)),
      settings_(std::move(settings)),
      maker_(model_, settings_.sampling),
      core_(std::move(core)) {}

// The worker ends after its step.
Engine::~Engine() {
  const std::lock_guard lock(mutex_);
  closing_ = true;
  core_->runner().cancel();
  changed_.notify_all();
}

Result<int64_t> Engine::submit(std::string_view prompt, const Options& options) {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  TSR_ASSIGN_OR_RETURN(ServingRequest request, maker_.of_text(prompt, options));
  return add(std::move(request));
}

Result<int64_t> Engine::submit_tokens(std::vector<int32_t> prompt, const Options& options) {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  TSR_ASSIGN_OR_RETURN(ServingRequest request, maker_.of_tokens(std::move(prompt), options));
  return add(std::move(request));
}

Result<int64_t> Engine::submit_messages(std::string_view messages, const Options& options) {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  TSR_ASSIGN_OR_RETURN(ServingRequest request, maker_.of_messages(messages, options));
  return add(std::move(request));
}

Result<int64_t> Engine::add(ServingRequest request) {
  int64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = next_request_++;
  }
  TSR_ASSIGN_OR_RETURN(ServingCore::Texts texts, core_->make_texts(request, number));
  const std::lock_guard lock(mutex_);
  wake_worker();
  in_progress_[number] = request.sampling->n;
  incoming_.requests.push_back({std::move(texts), number, request.sampling->best_of, request.sampling->n});
  return number;
}

Result<int64_t> Engine::submit_sequence(const KeptSequence& sequence, std::span<const int32_t> more,
                                        const Options& options) {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  std::vector<int32_t> prompt = sequence.tokens;
  prompt.insert(prompt.end(), more.begin(), more.end());
  return submit_tokens(std::move(prompt), options);
}

Result<KeptSequence> Engine::take_sequence(int64_t request, int32_t index) {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find({request, index});
  if (found == kept_.end())
    return Status(
        StatusCode::kNotFound,
        format("text {} of request {} is not kept: wanted one that has ended, of a request with the option "
               "'keep', and whose sequence was not taken yet",
               index, request));
  KeptSequence sequence = std::move(found->second);
  kept_.erase(found);
  return sequence;
}

Result<size_t> Engine::take_result(int64_t request, bool scores, std::span<float> items,
                                   std::span<uint8_t> greedy) {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  const std::lock_guard lock(mutex_);
  const auto found = results_.find(request);
  if (found == results_.end() || found->second.is_scores != scores)
    return Status(
        StatusCode::kNotFound,
        format("request {} has no {}: wanted one with the option '{}' that has ended, and whose result was "
               "not taken yet",
               request, scores ? "scores" : "embedding", scores ? "score_from" : "embed"));
  const PromptResult& result = found->second;
  const size_t count = result.values.size();
  std::ranges::copy(std::span(result.values).first(std::min(count, items.size())), items.begin());
  std::ranges::copy(std::span(result.greedy).first(std::min(result.greedy.size(), greedy.size())),
                    greedy.begin());
  if (items.size() >= count) results_.erase(found);
  return count;
}

Result<size_t> Engine::take_embedding(int64_t request, std::span<float> items) {
  return take_result(request, false, items, {});
}

Result<size_t> Engine::take_scores(int64_t request, std::span<float> items, std::span<uint8_t> greedy) {
  return take_result(request, true, items, greedy);
}

Result<size_t> Engine::embedding_width() const {
  if (const size_t width = core_->text_model().hidden_width; width > 0) return width;
  return Status(StatusCode::kFailedPrecondition,
                "the engine gives no embeddings: set its option 'embeddings' to 1");
}

Status Engine::save_sequence(const KeptSequence& sequence, const std::string& path) {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  if (sequence.root != 0)
    return Status(
        StatusCode::kUnsupported,
        "the sequence was computed with an adapter, whose number means nothing in a file: keep its tokens "
        "(tsr_sequence_tokens) and submit them with the adapter");
  return between_steps([&] { return core_->save_sequence(sequence.tokens, sequence.root, path); });
}

Result<KeptSequence> Engine::restore_sequence(const std::string& path) {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  KeptSequence sequence;
  TSR_RETURN_IF_ERROR(between_steps([&]() -> Status {
    TSR_ASSIGN_OR_RETURN(sequence, core_->restore_sequence(path, 0));
    return {};
  }));
  return sequence;
}

Result<int64_t> Engine::load_adapter(const std::string& path) {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  return core_->load_adapter(path);
}

Status Engine::drop_adapter(int64_t adapter) {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  return core_->drop_adapter(adapter);
}

Status Engine::between_steps(const std::function<Status()>& call) {
  Status result;
  bool done = false;
  std::unique_lock lock(mutex_);
  wake_worker();
  incoming_.calls.push_back([&] {
    Status called = catch_status(call);
    const std::lock_guard inner(mutex_);
    result = std::move(called);
    done = true;
    changed_.notify_all();
  });
  changed_.wait(lock, [&] { return done; });
  return result;
}

void Engine::wake_worker() {
  if (busy_) {
    changed_.notify_all();
    return;
  }
  worker_.call();
  busy_ = true;
}

void Engine::cancel(int64_t request) {
  if (!runtime().in_creating_process()) return;
  const std::lock_guard lock(mutex_);
  if (!in_progress_.contains(request)) return;
  incoming_.cancelled.push_back(request);
  changed_.notify_all();
}

Result<std::vector<float>> Engine::logits(int64_t request, int32_t index) {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  const std::lock_guard lock(mutex_);
  const auto found = waiting_logits_.find({request, index});
  if (found == waiting_logits_.end())
    return Status(StatusCode::kNotFound,
                  format("text {} of request {} does not wait for logits", index, request));
  return found->second;
}

Status Engine::answer(int64_t request, int32_t index, std::vector<float> logits) {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  const int64_t vocabulary = core_->text_model().vocabulary;
  if (!logits.empty() && std::ssize(logits) != vocabulary)
    return Status(
        StatusCode::kInvalidArgument,
        format("{} logits are given, wanted {}, as many as the model has tokens", logits.size(), vocabulary));
  bool any = logits.empty();
  for (const float value : logits) {
    if (std::isnan(value) || value == HUGE_VALF)
      return Status(StatusCode::kInvalidArgument,
                    format("a logit is {}, wanted finite ones, or -inf to exclude a token", value));
    any |= std::isfinite(value);
  }
  if (!any) return Status(StatusCode::kInvalidArgument, "all logits are -inf: no token is left");
  const std::lock_guard lock(mutex_);
  if (waiting_logits_.erase({request, index}) == 0)
    return Status(StatusCode::kNotFound,
                  format("text {} of request {} does not wait for logits", index, request));
  incoming_.answers.push_back({request, index, std::move(logits)});
  changed_.notify_all();
  return {};
}

Result<int32_t> Engine::descriptor() {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  const std::lock_guard lock(mutex_);
  return queue_.descriptor();
}

Result<ServingEvent> Engine::next(double timeout_s) {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  if (std::isnan(timeout_s)) return Status(StatusCode::kInvalidArgument, "the timeout is not a number");
  std::unique_lock lock(mutex_);
  if (timeout_s < 0) {
    changed_.wait(lock, [this] { return queue_.size() > 0 || in_progress_.empty(); });
  } else {
    changed_.wait_for(lock, std::chrono::duration<double>(std::min(timeout_s, 1e6)),
                      [this] { return queue_.size() > 0; });
  }
  std::optional<ServingEvent> event = queue_.take();
  if (event && queue_.size() + 1 == kEventsAhead) changed_.notify_all();
  return event ? std::move(*event) : ServingEvent{};
}

void Engine::take_in(Incoming incoming, std::vector<ServingEvent>& events) {
  for (auto& request : incoming.requests) {
    if (request.made > request.given) best_of_.watch(request.request, request.made, request.given);
    core_->add(std::move(request.texts));
  }
  for (const Answer& answer : incoming.answers)  // one that was cancelled meanwhile does not wait any more
    (void)core_->answer(answer.request, answer.index, answer.logits, events);
  for (const int64_t request : incoming.cancelled) core_->cancel(request, events);
  for (const auto& call : incoming.calls) call();
}

// Into the queue; who is done is counted.
void Engine::hand_out(std::vector<ServingEvent> events) {
  events = best_of_.filter(std::move(events));
  const std::lock_guard lock(mutex_);
  for (ServingEvent& event : events) {
    if (event.kind == Kind::kToken) generated_ += event.token >= 0;
    if (event.kind == Kind::kLogits) {
      const std::span<const float> kept = core_->kept_logits(event.request, event.index);
      waiting_logits_[{event.request, event.index}].assign(kept.begin(), kept.end());
    }
    if (event.kind != Kind::kEnd) continue;
    waiting_logits_.erase({event.request, event.index});
    if (event.result) results_[event.request] = std::move(*event.result);
    if (event.sequence) kept_[{event.request, event.index}] = std::move(*event.sequence);
    if (const auto at = in_progress_.find(event.request); at != in_progress_.end() && --at->second == 0)
      in_progress_.erase(at);
  }
  counts_ = core_->counts();
  queue_.put(std::move(events));
  changed_.notify_all();
}

void Engine::work() {
  std::vector<ServingEvent> events;
  bool can_compute = true;  // there may be something to compute
  for (;;) {
    Incoming incoming;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] {
        if (closing_ || !incoming_.is_empty()) return true;
        return core_->is_idle() || (can_compute && queue_.size() < kEventsAhead);
      });
      if (closing_ || (incoming_.is_empty() && core_->is_idle())) {
        memory_ = core_->runner().session().memory();
        draft_memory_ = core_->draft_memory();
        busy_ = false;
        changed_.notify_all();
        return;
      }
      incoming = std::exchange(incoming_, {});
    }
    const auto begin = std::chrono::steady_clock::now();
    Status status = catch_status([&]() -> Status {
      take_in(std::move(incoming), events);
      TSR_ASSIGN_OR_RETURN(can_compute, core_->step(events));
      return {};
    });
    if (!status.ok() && !closing_) {
      can_compute = true;
      // Where that fails, too, every later request ends with an error of its own.
      const Status recovered = catch_status([&] { return core_->recover(status, events); });
      (void)recovered;
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    {
      const std::lock_guard lock(mutex_);
      seconds_ += seconds;
    }
    hand_out(std::exchange(events, {}));
  }
}

std::string Engine::details_json(const ServingEvent& event) const {
  return event_details_json(event, core_->text_model().tokenizer.get());
}

Result<std::string> Engine::report_json() {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  const ServingSettings& serving = core_->settings();
  const std::lock_guard lock(mutex_);
  EngineReport report;
  report.requests = next_request_;
  report.generated = generated_;
  report.running = counts_.running;
  report.waiting = counts_.waiting;
  report.steps = counts_.steps;
  report.tokens = counts_.tokens;
  report.cached_tokens = counts_.reused;
  report.preemptions = counts_.preemptions;
  report.guessed = counts_.guessed;
  report.right_guesses = counts_.right;
  report.adapters = core_->adapters().size();
  report.cache_tokens = counts_.pages * serving.page_size;
  report.free_cache_tokens = counts_.free_pages * serving.page_size;
  report.context = serving.context;
  report.sequences = serving.rows;
  report.batch_invariant = core_->is_batch_invariant();
  report.seconds = seconds_;
  report.not_obeyed = settings_.not_obeyed;
  report.memory = memory_;
  report.draft_seconds = counts_.draft_seconds;
  report.draft_memory = draft_memory_;
  return engine_json(report, core_->runner().record());
}

void Engine::refresh_report() {
  const std::lock_guard lock(mutex_);
  memory_ = core_->runner().session().memory();
  draft_memory_ = core_->draft_memory();
  counts_ = core_->counts();
}

}  // namespace tessera
