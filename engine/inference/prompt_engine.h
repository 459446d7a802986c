// PromptEngine: an engine for texts that are computed and not continued. What they begin with alike is computed once, and nothing
// is padded. Their requests are submitted some ahead, and taken as they end. One thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "engine/serving/replicas/engine.h"
#include "text/json.h"

namespace tessera {

// Whether an engine may compute what scorers and embedders do by these options: nothing is said of batches, of windows, and of how
// devices share the work.
bool may_share_prefixes(const Options& options);

class PromptEngine {
 public:
  // `options` of a scorer or an embedder, of which the engine's are taken, and `more` of the engine. Null where no engine serves the
  // model by them, and where a text of `longest` tokens is longer than its context.
  static Result<std::unique_ptr<PromptEngine>> create(std::shared_ptr<Runtime> runtime,
                                                      std::shared_ptr<SharedModel> model,
                                                      const Options& options, const Options& more,
                                                      int64_t longest);
  Engine& engine() { return *engine_; }

  // The number of text i's request; nothing: it needs none. And what a request has computed.
  using Submit = std::function<Result<std::optional<int64_t>>(size_t text)>;
  using Take = std::function<Status(size_t text, int64_t request)>;
  // Begins with `count` texts.
  void start(size_t count, Submit submit, Take take);
  // Computes for a moment; the share that is done.
  Result<double> step();
  bool is_done() const { return next_ == count_ && in_progress_.empty(); }
  // Of both kinds of reports: "positions", "seconds", "seq", "batch", "cached_tokens", "plan", "devices".
  Result<Json> report();

 private:
  explicit PromptEngine(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
  Status take_event(const ServingEvent& event);

  const std::unique_ptr<Engine> engine_;
  Submit submit_;
  Take take_;
  size_t count_ = 0, next_ = 0;
  std::map<int64_t, size_t> in_progress_;  // texts by the numbers of their requests
};

}  // namespace tessera
