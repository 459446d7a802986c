// Engine: serves requests from any thread by replicas of one model, each on a share of the devices.
// All events go to one queue, read by one thread. In a forked child every call is kForked.
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
#include "engine/serving/replicas/follower.h"
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
  // An engine on a trainer's weights. Training steps and serving steps exclude each other.
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<WeightOwner> trainer, const Options& options);
  ~Engine();

  // Returns the request's number. Any thread.
  Result<int64_t> submit(std::string_view prompt, const Options& options);
  Result<int64_t> submit_tokens(std::vector<int32_t> prompt, const Options& options);
  Result<int64_t> submit_messages(std::string_view messages, const Options& options);

  // Continues a sequence of this engine with more tokens.
  Result<int64_t> submit_sequence(const KeptSequence& sequence, std::span<const int32_t> more,
                                  const Options& options);

  // Returns the sequence of a text that has ended, once, if its request keeps sequences.
  Result<KeptSequence> take_sequence(int64_t request, int32_t index);
  Status save_sequence(const KeptSequence& sequence, const std::string& path);
  Result<KeptSequence> restore_sequence(const std::string& path);
  Result<int64_t> load_adapter(const std::string& path);
  Result<int64_t> load_adapter(const SharedModel& adapted);
  Result<int64_t> load_adapter(WeightOwner& trainer);
  Status drop_adapter(int64_t adapter);

  // Whether process 0 has the requests, of which this one computes its part; and whether that one has freed its engine.
  bool follows() const { return follower_ != nullptr; }
  bool has_followed() const { return follower_ != nullptr && follower_->has_ended(); }
  // Why no request can be computed any more: another process is lost; ok: they can.
  Status world_failure() const;
  // Returns the next event. Where this process follows, it waits for the end. kPending: none within `timeout_s`, or, if that is negative, no request is in progress.
  Result<ServingEvent> next(double timeout_s);
  Result<int32_t> descriptor();
  Result<std::vector<float>> logits(int64_t request, int32_t index);
  // Empty logits: those of the model.
  Status answer(int64_t request, int32_t index, std::vector<float> logits);
  void cancel(int64_t request);
  Result<std::string> report_json();
  Runtime& runtime() { return *replicas_[0]->core().runner().prepared()->runtime; }

  // Moves the result of an ended PromptTask to `items` and returns its full size. A result
  // that does not fit is copied in part and kept. greedy: as many as items, or empty.
  Result<size_t> take_embedding(int64_t request, std::span<float> items);
  Result<size_t> take_scores(int64_t request, std::span<float> items, std::span<uint8_t> greedy);
  // Returns the width of a vector; kFailedPrecondition without hidden states.
  Result<size_t> embedding_width() const;

  // Returns the details of an event as JSON, or an empty string.
  std::string details_json(const ServingEvent& event) const;

 private:
  Engine(std::shared_ptr<SharedModel> model, EngineSettings settings);
  Status check_call();  // whether this process may have requests
  void add_replica(std::unique_ptr<ServingCore> core, bool has_others);
  Result<int64_t> add(ServingRequest request);
  // Chooses the replica of a new request. Requires routes_mutex_.
  Replica& choose(const ServingCore::Texts& texts);
  // Erases the routes of ended requests.
  void put_events(Replica& from, std::vector<ServingEvent> events);
  // Moves a waiting request of `from`, for which it has no room, to a replica that has room.
  void rebalance(Replica& from);
  const ServingCore& core() const { return replicas_[0]->core(); }  // its constant parts equal those of every replica

  const std::shared_ptr<SharedModel> model_;
  const EngineSettings settings_;
  RequestBuilder builder_;
  PromptNote prompt_note_;
  Outbox outbox_;
  std::vector<std::unique_ptr<Replica>> replicas_;  // at least one; fixed after creation

  // Held while a request moves to another replica and while a replica receives a command about
  // it, so no command is lost. Taken before the replicas' own locks, never while one is held.
  mutable std::mutex routes_mutex_;
  std::map<int64_t, Replica*> routes_;  // of requests in progress
  int64_t next_request_ = 0;
  std::unique_ptr<Follower> follower_;  // null: the requests are this process'. Destroyed first
};

}  // namespace tessera
