// PromptEngine: an engine for texts without generation. Common prefixes are computed once,
// without padding. It submits some requests ahead, and takes results as they end. One thread.
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

// Returns whether these options of a scorer or an embedder allow an engine:
// none of batches, windows, and the division of work among devices.
bool may_share_prefixes(const Options& options);

class PromptEngine {
 public:
  // `options` of a scorer or an embedder, of which the engine's are used, and `more` of the engine. Null
  // without an engine for the model by these options, and for a text of `longest` tokens above its context.
  static Result<std::unique_ptr<PromptEngine>> create(std::shared_ptr<Runtime> runtime,
                                                      std::shared_ptr<SharedModel> model,
                                                      const Options& options, const Options& more,
                                                      int64_t longest);
  Engine& engine() { return *engine_; }

  // Submit returns the number of text i's request; nullopt: it needs none. Take receives a request's results.
  using Submit = std::function<Result<std::optional<int64_t>>(size_t text)>;
  using Take = std::function<Status(size_t text, int64_t request)>;
  // Begins with `count` texts.
  void start(size_t count, Submit submit, Take take);
  // Computes for a moment; returns the done share.
  Result<double> step();
  bool is_done() const { return next_ == count_ && in_progress_.empty(); }
  // Members of both kinds of reports: "positions", "seconds", "seq", "batch", "cached_tokens", "plan", "devices".
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
