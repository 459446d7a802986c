// Generator: continues one text at a time, token by token: a server of one row
// (serving/serving_core.h). A worker thread computes and queues pieces, `next` collects them; it starts
// with a text and ends soon after, so an idle generator has no thread. One thread at a time, except
// `cancel`. In a forked child every call is kForked, since the worker does not exist there.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/prompt_note.h"
#include "engine/program/report.h"
#include "engine/program/trained_weights.h"
#include "engine/sampling/text_settings.h"
#include "engine/serving/scheduler/serving_core.h"
#include "engine/serving/texts/serving_request.h"
#include "engine/settings/generator_settings.h"
#include "runtime/on_call_threads.h"

namespace tessera {

// Values are those of TSR_FINISH_*.
enum class Finish : int32_t { kNone = 0, kLength = 1, kStop = 2, kCancelled = 3 };

struct TextPiece {
  enum class Kind : int32_t {
    kToken = 0,
    kPending = 1,
    kEnd = 2
  } kind = Kind::kPending;  // TSR_PIECE and so on
  Finish finish = Finish::kNone;
  int32_t token = -1;
  std::string text;
};

class Generator {
 public:
  static Result<std::unique_ptr<Generator>> create(std::shared_ptr<Runtime> runtime,
                                                   std::shared_ptr<SharedModel> model,
                                                   const Options& options);
  // A generator on a trainer's weights. An update during a text affects the tokens after it.
  static Result<std::unique_ptr<Generator>> create(std::shared_ptr<WeightOwner> trainer, const Options& options);
  ~Generator();

  // `options`: of this text (read_text_settings); defaults are the generator's.
  Status start(std::string_view prompt, const Options& options = {});
  Status start(std::vector<int32_t> prompt, const Options& options = {});
  Result<TextPiece> next(double timeout_s);  // negative: no timeout
  Result<HostTensor> logits();
  Result<std::string> report_json();
  Result<std::string> trace_json();  // of a complete text
  Runtime& runtime() { return *core_->runner().prepared()->runtime; }
  void cancel();  // any thread

 private:
  Generator(GeneratorSettings settings, std::unique_ptr<ServingCore> core);
  static Result<std::unique_ptr<Generator>> create(GeneratorSettings settings,
                                                   std::unique_ptr<ServingCore> core);
  void work();  // the job, on the worker thread
  Result<Finish> generate(const ServingRequest& request);
  // Emits the prompt as pieces; false if cancelled.
  bool echo(std::span<const int32_t> prompt);
  void note_event(const ServingEvent& event);
  Status check_stop(const TextSettings& text) const;
  Status begin(std::vector<int32_t> prompt, TextSettings text);
  bool put(TextPiece piece);  // waits for room; false if cancelled
  void wait_until_idle(std::unique_lock<std::mutex>& lock);

  const GeneratorSettings settings_;
  const std::unique_ptr<ServingCore> core_;           // stepped by the worker
  const std::shared_ptr<const Tokenizer> tokenizer_;  // may be null
  PromptNote prompt_note_;
  bool echoes_ = false;                               // for the present text; read by the worker
  bool has_logits_ = false;  // a token of the text was computed; written by the worker
  // When the text's first and second step began, and
  // its number of cached tokens. Written by the worker.
  std::chrono::steady_clock::time_point prefill_begin_, decode_begin_;
  int64_t reused_before_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TextPiece> pieces_;
  std::optional<ServingRequest> job_;
  bool busy_ = false, started_ = false;
  Status failure_;  // of the job; returned by next after its pieces
  std::atomic<bool> cancelled_{false};
  GeneratorReport report_;
  // Last: destroyed first, since its thread uses all members above.
  OnCallThreads worker_{1, [this](int32_t) { work(); }, false,
                        [this](int32_t) {
                          const tsr_host_api& host = runtime().registry().host();
                          host.thread_started(host.host, "generator", 0);
                        }};
};

}  // namespace tessera
