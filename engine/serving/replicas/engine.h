// Engine: serves requests of any threads by replicas over one model, each on a share of the devices. Their events come in one
// queue; one thread collects them. In a forked child everything is kForked.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/prompt_note.h"
#include "engine/serving/replicas/outbox.h"
#include "engine/serving/replicas/replica.h"
#include "engine/serving/scheduler/serving_core.h"
#include "engine/serving/texts/engine_settings.h"
#include "engine/serving/texts/request_builder.h"

namespace tessera {

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<Runtime> runtime,
                                                std::shared_ptr<SharedModel> model, const Options& options);
  // An engine on a trainer's weights: steps of the trainer and of requests exclude each other.
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<WeightOwner> trainer, const Options& options);
  ~Engine();

  // The request's number. Any thread.
  Result<int64_t> submit(std::string_view prompt, const Options& options);
  Result<int64_t> submit_tokens(std::vector<int32_t> prompt, const Options& options);
  Result<int64_t> submit_messages(std::string_view messages, const Options& options);

  // A sequence of this engine, then these tokens.
  Result<int64_t> submit_sequence(const KeptSequence& sequence, std::span<const int32_t> more,
                                  const Options& options);

  // The sequence of a text that has ended, of a request that keeps it; each can be taken once.
  Result<KeptSequence> take_sequence(int64_t request, int32_t index);
  Status save_sequence(const KeptSequence& sequence, const std::string& path);
  Result<KeptSequence> restore_sequence(const std::string& path);
  Result<int64_t> load_adapter(const std::string& path);
  Status drop_adapter(int64_t adapter);

  // The next event; kPending after `timeout_s`, or where it is negative and no request is in progress.
  Result<ServingEvent> next(double timeout_s);
  Result<int32_t> descriptor();
  Result<std::vector<float>> logits(int64_t request, int32_t index);
  // Empty: those that the model gave.
  Status answer(int64_t request, int32_t index, std::vector<float> logits);
  void cancel(int64_t request);
  Result<std::string> report_json();
  Runtime& runtime() { return *replicas_[0]->core().runner().prepared()->runtime; }

  // What a request with a PromptTask computed, once it has ended: as much as fits is copied, and what fits whole is the
  // caller's from here on. The count of all of it. greedy: as many as items, or empty.
  Result<size_t> take_embedding(int64_t request, std::span<float> items);
  Result<size_t> take_scores(int64_t request, std::span<float> items, std::span<uint8_t> greedy);
  // Numbers of a vector; kFailedPrecondition without hidden states.
  Result<size_t> embedding_width() const;

  // Details of an event as JSON; empty where there are none.
  std::string details_json(const ServingEvent& event) const;

 private:
  Engine(std::shared_ptr<SharedModel> model, EngineSettings settings);
  void add_replica(std::unique_ptr<ServingCore> core, bool has_others);
  Result<int64_t> add(ServingRequest request);
  // The replica that computes the texts of a new request. With routes_mutex_ held.
  Replica& choose(const ServingCore::Texts& texts);
  // The requests that have ended have no route any more.
  void put_events(Replica& from, std::vector<ServingEvent> events);
  // Another replica that has room takes over a request that `from` has not begun and has no room for.
  void rebalance(Replica& from);
  const ServingCore& core() const { return replicas_[0]->core(); }  // its constant parts are those of all

  const std::shared_ptr<SharedModel> model_;
  const EngineSettings settings_;
  RequestBuilder builder_;
  PromptNote prompt_note_;
  Outbox outbox_;
  std::vector<std::unique_ptr<Replica>> replicas_;  // at least one; none comes or goes

  // Taken before replicas' own locks, never with one of them held. A request changes its replica, and its replica is told
  // anything about it, with this held: no word gets lost on the way.
  mutable std::mutex routes_mutex_;
  std::map<int64_t, Replica*> routes_;  // of requests in progress
  int64_t next_request_ = 0;
};

}  // namespace tessera
