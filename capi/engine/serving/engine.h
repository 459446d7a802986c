// Engine: serves requests of any threads. A worker computes while there are requests, and queues events; one thread
// collects them. In a forked child everything is kFailedPrecondition.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capi/engine/serving/best_of.h"
#include "capi/engine/serving/engine_settings.h"
#include "capi/engine/serving/event_queue.h"
#include "capi/engine/serving/request_maker.h"
#include "capi/engine/serving/serving_core.h"
#include "runtime/on_call_threads.h"

namespace tessera {

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<Runtime> runtime,
                                                std::shared_ptr<SharedModel> model, const Options& options);
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
  Runtime& runtime() { return *core_->runner().prepared()->runtime; }

  // What a request with a PromptTask computed, once it has ended: as much as fits is copied, and what fits whole is the
  // caller's from here on. The count of all of it. greedy: as many as items, or empty.
  Result<size_t> take_embedding(int64_t request, std::span<float> items);
  Result<size_t> take_scores(int64_t request, std::span<float> items, std::span<uint8_t> greedy);
  // Numbers of a vector; kFailedPrecondition without hidden states.
  Result<size_t> embedding_width() const;

  // Details of an event as JSON; empty where there are none.
  std::string details_json(const ServingEvent& event) const;

 private:
  // Wishes for the worker, which it takes in between steps.
  struct Answer {
    int64_t request;
    int32_t index;
    std::vector<float> logits;
  };
  struct Incoming {
    struct Submitted {
      ServingCore::Texts texts;
      int64_t request, made, given;
    };
    std::vector<Submitted> requests;
    std::vector<int64_t> cancelled;
    std::vector<Answer> answers;
    std::vector<std::function<void()>> calls;
    bool is_empty() const {
      return requests.empty() && cancelled.empty() && answers.empty() && calls.empty();
    }
  };

  Engine(std::unique_ptr<ServingCore> core, std::shared_ptr<SharedModel> model, EngineSettings settings);
  void work();  // until there is nothing to do
  void take_in(Incoming incoming, std::vector<ServingEvent>& events);
  void hand_out(std::vector<ServingEvent> events);
  void wake_worker();  // with mutex_ held
  // The worker calls it between two steps; its result.
  Status between_steps(const std::function<Status()>& call);
  Result<int64_t> add(ServingRequest request);
  Result<size_t> take_result(int64_t request, bool scores, std::span<float> items, std::span<uint8_t> greedy);
  void refresh_report();

  const std::shared_ptr<SharedModel> model_;
  const EngineSettings settings_;
  RequestMaker maker_;
  std::unique_ptr<ServingCore> core_;  // the worker's; its constant parts are anyone's
  BestOf best_of_;                     // the worker's

  std::mutex mutex_;
  std::condition_variable changed_;
  EventQueue queue_;
  Incoming incoming_;
  // Logits that texts wait with, from their events on.
  std::map<std::pair<int64_t, int32_t>, std::vector<float>> waiting_logits_;
  std::map<std::pair<int64_t, int32_t>, KeptSequence> kept_;  // by request and index, until they are taken
  std::map<int64_t, PromptResult> results_;                   // by request, likewise
  std::map<int64_t, int64_t> in_progress_;  // texts without an end in the queue, by request
  int64_t next_request_ = 0, generated_ = 0;
  double seconds_ = 0;
  ServingCore::Counts counts_;
  std::vector<MemoryReport> memory_, draft_memory_;
  bool busy_ = false, closing_ = false;
  // Last: everything above exists while it runs.
  OnCallThreads worker_{1, [this](int32_t) { work(); }, false,
                        [this](int32_t) {
                          const tsr_host_api& host = runtime().registry().host();
                          host.thread_started(host.host, "engine", 0);
                        }};
};

}  // namespace tessera
