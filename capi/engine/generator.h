// Generator: continues a text token by token. A worker thread computes and queues pieces; `next` collects
// them. The worker starts with a text and ends soon after the last: an idle generator has none. One thread at a
// time, except for `cancel`. In a forked child everything is kFailedPrecondition: the worker does not exist there and
// its locks stay locked.
#pragma once

#include <atomic>
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

#include "capi/engine/program_runner.h"
#include "capi/engine/report.h"
#include "capi/engine/settings.h"
#include "capi/engine/trained_weights.h"
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
  // A generator on a trainer's weights. An update in the middle of a text changes the tokens after it.
  static Result<std::unique_ptr<Generator>> create(std::shared_ptr<Trainer> trainer, const Options& options);
  ~Generator();

  // `options`: those of one text (read_text_settings); what they leave out is as the generator was made.
  Status start(std::string_view prompt, const Options& options = {});
  Status start(std::vector<int32_t> prompt, const Options& options = {});
  Result<TextPiece> next(double timeout_s);  // negative: as long as it takes
  Result<HostTensor> logits();
  Result<std::string> report_json();
  Result<std::string> trace_json();  // of a text that is complete
  Runtime& runtime() { return *running_->prepared()->runtime; }
  void cancel();  // any thread

 private:
  Generator() = default;
  Status take_program(std::unique_ptr<ProgramRunner> running, const Graph& forward, const SharedModel& model);
  // Keeps the trainer's weights as they are while the result lives, and drops caches of older weights. Nothing without
  // a trainer.
  Result<std::optional<WeightLock::Reading>> hold_weights();
  void work();  // the job, on the worker thread
  Result<Finish> generate(std::span<const int32_t> prompt);
  Status check_stop(const TextSettings& text) const;
  Status begin(std::vector<int32_t> prompt, TextSettings text);
  Status feed_sampling(const TextSettings& text, int64_t seed);
  void count_bytes_read();
  Result<int32_t> advance(std::string_view entry, int64_t chunk, std::span<const int32_t> tokens,
                          int64_t start);
  int64_t rope_row(int64_t tokens) const { return rope_switch_ > 0 && tokens > rope_switch_ ? 2 : 1; }
  // Writes the token after `start` others into the caches, and returns the next; where the longer text wants
  // the other factors of rotations, computes the whole text again.
  Result<int32_t> append(int32_t last, int64_t start);
  // Behind the first `done` tokens, which the caches hold.
  Result<int32_t> prefill(std::span<const int32_t> prompt, int64_t done);
  // Tokens of the prompt that the caches hold as computing all of it would leave them there; at least the last one is
  // computed, for its logits.
  int64_t count_reusable(std::span<const int32_t> prompt) const;
  bool ends(int32_t token) const;
  bool put(TextPiece piece);  // waits for room; false when cancelled
  void wait_until_idle(std::unique_lock<std::mutex>& lock);

  GeneratorSettings settings_;
  TextSettings text_;                           // of the text in progress; the worker reads it
  std::shared_ptr<const Tokenizer> tokenizer_;  // may be null
  std::shared_ptr<const TrainedWeights> trained_;  // null: the weights are the model's
  int64_t weights_version_ = -1;                   // version of the trained weights that the caches are of
  bool is_stale_ = false;                          // the caches are of older weights
  std::unique_ptr<ProgramRunner> running_;
  std::string last_entry_;  // last entry run for this text; empty before the first
  std::vector<int32_t> cached_;  // tokens that the caches hold, in order; the worker writes both
  int64_t prefilled_ = 0;        // of these, the first that chunks computed
  // Sequences of more tokens than this are rotated by other factors (rope_switch); 0: there are no others. And the row
  // of factors that the caches were computed by.
  int64_t rope_switch_ = 0, rope_row_ = 1;
  int32_t vocabulary_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TextPiece> pieces_;
  std::optional<std::vector<int32_t>> job_;
  bool busy_ = false, started_ = false;
  Status failure_;  // of the job, delivered by next after its pieces
  std::atomic<bool> cancelled_{false};
  GeneratorReport report_;
  // Last: everything above exists while it runs.
  OnCallThreads worker_{1, [this](int32_t) { work(); }, false,
                        [this](int32_t) {
                          const tsr_host_api& host = runtime().registry().host();
                          host.thread_started(host.host, "generator", 0);
                        }};
};

}  // namespace tessera
