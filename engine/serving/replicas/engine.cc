// A request goes to the replica that finishes its prompt first (choose_replica). Replicas compute on threads of their own;
// their events meet in one outbox.
#include "engine/serving/replicas/engine.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "engine/program/report.h"
#include "engine/serving/replicas/replica_choice.h"
#include "engine/serving/replicas/replica_settings.h"
#include "engine/serving/texts/event_details.h"
#include "graph/base/text.h"

namespace tessera {

namespace {

// Counts the cached tokens of the prompt that the texts share.
int64_t count_cached(const ServingCore& core, const ServingCore::Texts& texts) {
  const Sequence& sequence = texts[0]->sequence;
  return core.count_cached(sequence.root,
                           std::span(sequence.tokens).first(static_cast<size_t>(sequence.reusable())));
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<Runtime> runtime,
                                               std::shared_ptr<SharedModel> model, const Options& options) {
  TSR_RETURN_IF_ERROR(runtime->check_process());
  TSR_ASSIGN_OR_RETURN(EngineSettings settings, read_engine_settings(options, model.get()));
  TSR_RETURN_IF_ERROR(load_draft_model(settings));
  TSR_ASSIGN_OR_RETURN(const int32_t replicas, count_replicas(settings.serving.compute.parallel));
  TSR_ASSIGN_OR_RETURN(auto core, ServingCore::create(std::move(runtime), model,
                                                      settings_of_replica(settings.serving, replicas),
                                                      {.index = 0, .count = replicas}));
  TSR_RETURN_IF_ERROR(check_tokens(settings.sampling, core->text_model().vocabulary));
  std::unique_ptr<Engine> engine(new Engine(std::move(model), std::move(settings)));
  std::vector<ProgramRunner*> runners = core->runners();
  const bool follows = core->runner().session().is_led();
  engine->add_replica(std::move(core), replicas > 1);
  if (follows) engine->follower_ = std::make_unique<Follower>(runners);
  for (int32_t index = 1; index < replicas; ++index) {
    TSR_ASSIGN_OR_RETURN(core, engine->core().replicate({.index = index, .count = replicas}));
    engine->add_replica(std::move(core), true);
  }
  return engine;
}

Result<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<WeightOwner> trainer, const Options& options) {
  TSR_ASSIGN_OR_RETURN(auto weights, TrainedWeights::of(std::move(trainer)));
  TSR_RETURN_IF_ERROR(TrainedWeights::check_options(options, "engine"));
  TSR_ASSIGN_OR_RETURN(EngineSettings settings, read_engine_settings(options, weights->model().get()));
  const std::string_view refused = settings.serving.adapters > 0        ? "'adapters'"
                                   : !settings.draft_model.empty()      ? "'draft_model'"
                                   : settings.serving.drafts_by_block ? "'speculation' mtp"
                                                                        : "";
  if (!refused.empty())
    return Status(StatusCode::kUnsupported,
                  format("engine: option {} of an engine on a trainer's weights: wanted an engine on a model", refused));
  std::shared_ptr<SharedModel> model = weights->model();
  TSR_ASSIGN_OR_RETURN(auto core, ServingCore::create(std::move(weights), settings.serving));
  TSR_RETURN_IF_ERROR(check_tokens(settings.sampling, core->text_model().vocabulary));
  std::unique_ptr<Engine> engine(new Engine(std::move(model), std::move(settings)));
  engine->add_replica(std::move(core), false);
  return engine;
}

Engine::Engine(std::shared_ptr<SharedModel> model, EngineSettings settings)
    : model_(std::move(model)), settings_(std::move(settings)), builder_(model_, settings_.sampling),
      prompt_note_(model_->tokenizer().get()) {}

void Engine::add_replica(std::unique_ptr<ServingCore> core, bool has_others) {
  Replica::Hooks hooks{
      .has_room = [this] { return outbox_.has_room(); },
      .put_events = [this](Replica& from,
                           std::vector<ServingEvent> events) { put_events(from, std::move(events)); },
      .rebalance = {}};
  if (has_others) hooks.rebalance = [this](Replica& from) { rebalance(from); };
  replicas_.push_back(
      std::make_unique<Replica>(std::move(core), static_cast<int32_t>(replicas_.size()), std::move(hooks)));
}

// Each worker ends after its step. Until then it may call other replicas.
Engine::~Engine() {
  if (runtime().in_creating_process())
    follower_.reset();
  else
    (void)follower_.release();  // its threads are the parent's
  for (const auto& replica : replicas_) replica->close();
  for (const auto& replica : replicas_) replica->join();
}

Status Engine::check_call() {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  if (follower_ != nullptr) return Follower::refused(replicas_[0]->core().runner(), "engine");
  return world_failure();
}

Status Engine::world_failure() const {
  const Channel* const channel = replicas_[0]->core().runner().prepared()->devices->channel();
  return channel != nullptr ? channel->failure() : Status();
}

Result<int64_t> Engine::submit(std::string_view prompt, const Options& options) {
  TSR_RETURN_IF_ERROR(check_call());
  TSR_ASSIGN_OR_RETURN(ServingRequest request, builder_.from_text(prompt, options));
  if (!request.task || !request.task->reads_hidden())  // an embedding request has no such option
    prompt_note_.warn(prompt, request.sampling->special, runtime());
  return add(std::move(request));
}

Result<int64_t> Engine::submit_tokens(std::vector<int32_t> prompt, const Options& options) {
  TSR_RETURN_IF_ERROR(check_call());
  TSR_ASSIGN_OR_RETURN(ServingRequest request, builder_.from_tokens(std::move(prompt), options));
  return add(std::move(request));
}

Result<int64_t> Engine::submit_messages(std::string_view messages, const Options& options) {
  TSR_RETURN_IF_ERROR(check_call());
  TSR_ASSIGN_OR_RETURN(ServingRequest request, builder_.from_messages(messages, options));
  return add(std::move(request));
}

Replica& Engine::choose(const ServingCore::Texts& texts) {
  if (replicas_.size() == 1) return *replicas_[0];
  std::vector<ReplicaLoad> loads;
  for (const auto& replica : replicas_)
    loads.push_back({replica->expected_tokens(), count_cached(replica->core(), texts)});
  const size_t chosen = choose_replica(loads);
  texts[0]->expect_cached(loads[chosen].cached_tokens);
  return *replicas_[chosen];
}

Result<int64_t> Engine::add(ServingRequest request) {
  int64_t number = 0;
  {
    const std::lock_guard lock(routes_mutex_);
    number = next_request_++;
  }
  TSR_ASSIGN_OR_RETURN(ServingCore::Texts texts, core().make_texts(request, number));
  const std::lock_guard lock(routes_mutex_);
  Replica& replica = choose(texts);
  outbox_.begin(number, request.sampling->best_of, request.sampling->n);
  const Status submitted = catch_status([&]() -> Status {
    routes_[number] = &replica;
    replica.submit(texts);
    return {};
  });
  if (submitted.ok()) return number;
  routes_.erase(number);
  outbox_.withdraw(number);
  return submitted;
}

Result<int64_t> Engine::submit_sequence(const KeptSequence& sequence, std::span<const int32_t> more,
                                        const Options& options) {
  TSR_RETURN_IF_ERROR(check_call());
  TSR_ASSIGN_OR_RETURN(ServingRequest request, builder_.from_sequence(sequence, more, options));
  return add(std::move(request));
}

Result<KeptSequence> Engine::take_sequence(int64_t request, int32_t index) {
  TSR_RETURN_IF_ERROR(check_call());
  return outbox_.take_sequence(request, index);
}

Result<size_t> Engine::take_embedding(int64_t request, std::span<float> items) {
  TSR_RETURN_IF_ERROR(check_call());
  return outbox_.take_result(request, false, items, {});
}

Result<size_t> Engine::take_scores(int64_t request, std::span<float> items, std::span<uint8_t> greedy) {
  TSR_RETURN_IF_ERROR(check_call());
  return outbox_.take_result(request, true, items, greedy);
}

Result<size_t> Engine::embedding_width() const {
  if (const size_t width = core().text_model().hidden_width; width > 0) return width;
  return Status(StatusCode::kFailedPrecondition,
                "the engine gives no embeddings: set its option 'embeddings' to 1");
}

Status Engine::save_sequence(const KeptSequence& sequence, const std::string& path) {
  TSR_RETURN_IF_ERROR(check_call());
  if (sequence.root != 0)
    return Status(
        StatusCode::kUnsupported,
        "the sequence was computed with an adapter, whose number means nothing in a file: keep its tokens "
        "(tsr_sequence_tokens) and submit them with the adapter");
  const auto cached = [&](const auto& it) { return it->core().count_cached(sequence.root, sequence.tokens); };
  Replica& holder = **std::ranges::max_element(replicas_, {}, cached);
  return holder.between_steps(
      [&] { return holder.core().save_sequence(sequence.tokens, sequence.root, path); });
}

Result<KeptSequence> Engine::restore_sequence(const std::string& path) {
  TSR_RETURN_IF_ERROR(check_call());
  const auto free_pages = [](const auto& it) { return it->report().counts.free_pages; };
  Replica& freest = **std::ranges::max_element(replicas_, {}, free_pages);
  KeptSequence sequence;
  TSR_RETURN_IF_ERROR(freest.between_steps([&]() -> Status {
    TSR_ASSIGN_OR_RETURN(sequence, freest.core().restore_sequence(path, 0));
    return {};
  }));
  return sequence;
}

Result<int64_t> Engine::load_adapter(const std::string& path) {
  TSR_RETURN_IF_ERROR(check_call());
  return replicas_[0]->core().load_adapter(path);
}

Result<int64_t> Engine::load_adapter(const SharedModel& adapted) {
  TSR_RETURN_IF_ERROR(check_call());
  return replicas_[0]->core().load_adapter(adapted);
}

Result<int64_t> Engine::load_adapter(WeightOwner& trainer) {
  TSR_RETURN_IF_ERROR(check_call());
  return replicas_[0]->core().load_adapter(trainer);
}

Status Engine::drop_adapter(int64_t adapter) {
  TSR_RETURN_IF_ERROR(check_call());
  return replicas_[0]->core().drop_adapter(adapter);
}

void Engine::cancel(int64_t request) {
  if (!runtime().in_creating_process()) return;
  const std::lock_guard lock(routes_mutex_);
  if (const auto route = routes_.find(request); route != routes_.end()) route->second->cancel(request);
}

Result<std::vector<float>> Engine::logits(int64_t request, int32_t index) {
  TSR_RETURN_IF_ERROR(check_call());
  return outbox_.logits(request, index);
}

Status Engine::answer(int64_t request, int32_t index, std::vector<float> logits) {
  TSR_RETURN_IF_ERROR(check_call());
  const int64_t vocabulary = core().text_model().vocabulary;
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
  TSR_RETURN_IF_ERROR(outbox_.take_logits(request, index));
  const std::lock_guard lock(routes_mutex_);
  if (const auto route = routes_.find(request); route != routes_.end())
    route->second->answer(request, index, std::move(logits));
  return {};
}

Result<int32_t> Engine::descriptor() {
  TSR_RETURN_IF_ERROR(check_call());
  return outbox_.descriptor();
}

Result<ServingEvent> Engine::next(double timeout_s) {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  if (std::isnan(timeout_s)) return Status(StatusCode::kInvalidArgument, "the timeout is not a number");
  if (follower_ != nullptr) {
    TSR_RETURN_IF_ERROR(follower_->wait(timeout_s));
    return ServingEvent{};
  }
  Outbox::Taken taken = outbox_.take(timeout_s);
  // A worker that found no room holds its lock until it sleeps, and `wake` waits for the lock.
  if (taken.makes_room)
    for (const auto& replica : replicas_) replica->wake();
  return std::move(taken.event);
}

void Engine::put_events(Replica& from, std::vector<ServingEvent> events) {
  const std::vector<int64_t> ended = outbox_.put(std::move(events), from.core());
  if (ended.empty()) return;
  {
    const std::lock_guard lock(routes_mutex_);
    for (const int64_t request : ended) routes_.erase(request);
  }
  // An idle replica, whose requests all wait for their caller, would not notice the room by itself.
  for (const auto& replica : replicas_)
    if (replica.get() != &from) replica->suggest_rebalance();
}

// Called by the worker of `from`, so that core is idle. The state of other replicas may change at any time.
void Engine::rebalance(Replica& from) {
  if (from.core().counts().waiting == 0) return;
  const auto has_room = [&](const auto& it) { return it.get() != &from && it->free_rows() > 0; };
  if (std::ranges::none_of(replicas_, has_room)) return;
  const std::lock_guard lock(routes_mutex_);
  // A pending command may cancel this request.
  const auto to = std::ranges::find_if(replicas_, has_room);
  if (to == replicas_.end() || from.has_commands()) return;
  ServingCore::Texts texts = from.core().take_waiting();
  if (texts.empty()) return;
  const int64_t request = texts[0]->request();
  texts[0]->expect_cached(count_cached((*to)->core(), texts));
  const Status submitted = catch_status([&]() -> Status {
    (*to)->submit(texts);
    return {};
  });
  if (submitted.ok())
    routes_[request] = to->get();
  else
    from.core().add(std::move(texts));
}

std::string Engine::details_json(const ServingEvent& event) const {
  return event_details_json(event, core().text_model().tokenizer.get());
}

Result<std::string> Engine::report_json() {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  const ServingSettings& serving = core().settings();  // of each replica
  EngineReport report;
  {
    const std::lock_guard lock(routes_mutex_);
    report.requests = next_request_;
  }
  report.replicas = std::ssize(replicas_);
  report.generated = outbox_.generated();
  report.adapters = core().adapters().size();
  report.context = serving.context;
  report.window = serving.window;
  report.sequences = report.replicas * serving.rows;
  report.batch_invariant = core().is_batch_invariant();
  report.not_obeyed = settings_.not_obeyed;
  std::vector<const PlanRecord*> plans;
  for (const auto& replica : replicas_) {
    const Replica::Report own = replica->report();
    report.running += own.counts.running;
    report.waiting += own.counts.waiting;
    report.steps += own.counts.steps;
    report.tokens += own.counts.tokens;
    report.cached_tokens += own.counts.reused;
    report.preemptions += own.counts.preemptions;
    report.drafted += own.counts.drafted;
    report.accepted_drafts += own.counts.accepted;
    report.cache_tokens += own.counts.pages * serving.page_size;
    report.free_cache_tokens += own.counts.free_pages * serving.page_size;
    report.window_cache_tokens += own.counts.window_pages * serving.page_size;
    report.free_window_cache_tokens += own.counts.free_window_pages * serving.page_size;
    report.seconds += own.seconds;
    report.draft_seconds += own.counts.draft_seconds;
    std::ranges::copy(own.memory, std::back_inserter(report.memory));
    std::ranges::copy(own.draft_memory, std::back_inserter(report.draft_memory));
    plans.push_back(&replica->core().runner().record());
  }
  return engine_json(report, plans);
}

}  // namespace tessera
