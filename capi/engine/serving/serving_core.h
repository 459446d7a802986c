// ServingCore: a program of serving entries, the pages of its sequences, and the texts that are being made. The
// caller of `step` computes. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "capi/engine/program_runner.h"
#include "capi/engine/sampler.h"
#include "capi/engine/serving/page_pool.h"
#include "capi/engine/serving/scheduler.h"
#include "capi/engine/serving/serving_settings.h"
#include "capi/engine/text_stream.h"

namespace tessera {

struct ServingRequest {
  std::vector<int32_t> prompt;
  std::shared_ptr<const SamplingSettings> sampling;
  uint64_t seed = 0;
  int32_t priority = 0;  // the higher, the earlier
};

struct ServingEvent {
  enum class Kind : int32_t { kToken, kEnd } kind = Kind::kToken;
  enum class Finish : int32_t {
    kNone,
    kLength,
    kStop,
    kCancelled,
    kFailed
  } finish = Finish::kNone;  // of kEnd
  int64_t request = 0;
  int32_t token = -1;  // of kToken
  Status failure;      // of kFailed
};

class ServingCore {
 public:
  static Result<std::unique_ptr<ServingCore>> create(std::shared_ptr<Runtime> runtime,
                                                     std::shared_ptr<SharedModel> model,
                                                     ServingSettings settings);
  ~ServingCore();

  // The request's number. kInvalidArgument for empty prompts, tokens outside the vocabulary, and what does not fit the
  // context or the pages.
  Result<int64_t> submit(ServingRequest request);
  // Ends a request, which has an event then; no effect on one that has ended.
  void cancel(int64_t request);
  // Computes a step and adds its events, as far as there is one; whether there is more to do.
  Result<bool> step(std::vector<ServingEvent>& events);

  struct Counts {
    int64_t steps = 0, tokens = 0, reused = 0, preemptions = 0;
    int64_t running = 0, waiting = 0, pages = 0, free_pages = 0;
  };
  Counts counts() const;
  const ProgramRunner& runner() const { return *running_; }

 private:
  struct Text;  // of a request
  explicit ServingCore(ServingSettings settings);

  const ServingEntry& entry_for(int64_t tokens) const;
  Status run(const std::vector<StepPart>& parts, std::vector<Text*>& wanted, std::vector<float>& logits);
  void take_token(Text& text, std::span<const float> logits, std::vector<ServingEvent>& events);
  void end(Text& text, ServingEvent::Finish finish, Status failure, std::vector<ServingEvent>& events);

  const ServingSettings settings_;
  const std::vector<ServingEntry> entries_;
  std::unique_ptr<ProgramRunner> running_;
  std::vector<int32_t> end_ids_;  // of the model
  int64_t vocabulary_ = 0;
  PagePool pool_;
  Scheduler scheduler_;
  std::map<int64_t, std::unique_ptr<Text>> texts_;  // by number
  std::vector<int64_t> cancelled_;
  int64_t next_ = 0;
  Counts counts_;
  // Memory that every step uses.
  std::vector<int32_t> table_;
  std::vector<float> logits_;
  SamplerScratch scratch_;
};

}  // namespace tessera
