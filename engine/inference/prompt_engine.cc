#include "engine/inference/prompt_engine.h"

#include <algorithm>
#include <utility>

#include "graph/base/text.h"

namespace tessera {
namespace {

constexpr size_t kInProgress = 64;
constexpr int64_t kSequences = 8, kLeastCache = 4096;
constexpr double kStep_s = 0.1;  // a step's duration

// Options of scorers and embedders alone; those of devices and threads are engines' too.
constexpr const char* kNotOfEngines[] = {
    "seq",    "stride",  "batch",     "bos",  "measure_memory", "share_prefixes",
    "output", "pooling", "normalize", "pairs"};

}  // namespace

bool may_share_prefixes(const Options& options) {
  return std::ranges::none_of(std::initializer_list<const char*>{"stride", "batch", "parallel", "plan_file"},
                              [&](const char* key) { return options.contains(key); });
}

Result<std::unique_ptr<PromptEngine>> PromptEngine::create(std::shared_ptr<Runtime> runtime,
                                                           std::shared_ptr<SharedModel> model,
                                                           const Options& options, const Options& more,
                                                           int64_t longest) {
  Options of_engine = more;
  of_engine.insert(options.begin(), options.end());
  for (const char* key : kNotOfEngines) of_engine.erase(key);
  if (const auto seq = options.find("seq"); seq != options.end()) of_engine["context"] = seq->second;
  of_engine["sequences"] = kSequences;
  if (!options.contains("memory_limit"))
    of_engine["cache_tokens"] = std::min(std::max(2 * longest, kLeastCache), kSequences * (longest + 64));
  Result<std::unique_ptr<Engine>> engine = Engine::create(std::move(runtime), std::move(model), of_engine);
  const StatusCode code = engine.status().code();
  if (code == StatusCode::kInvalidArgument || code == StatusCode::kUnsupported)
    return std::unique_ptr<PromptEngine>();
  if (!engine.ok()) return engine.status();
  std::unique_ptr<PromptEngine> made(new PromptEngine(std::move(*engine)));
  TSR_ASSIGN_OR_RETURN(const Json report, made->report());
  if (report["seq"].get<int64_t>() < longest) made.reset();
  return made;
}

void PromptEngine::start(size_t count, Submit submit, Take take) {
  submit_ = std::move(submit);
  take_ = std::move(take);
  count_ = count;
  next_ = 0;
  for (const auto& [request, text] : in_progress_) engine_->cancel(request);
  in_progress_.clear();
}

Result<double> PromptEngine::step() {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  while (std::chrono::duration<double>(Clock::now() - begin).count() < kStep_s) {
    for (; in_progress_.size() < kInProgress && next_ < count_; ++next_) {
      TSR_ASSIGN_OR_RETURN(const std::optional<int64_t> request, submit_(next_));
      if (request) in_progress_[*request] = next_;
    }
    if (in_progress_.empty()) return 1.0;
    TSR_ASSIGN_OR_RETURN(const ServingEvent event, engine_->next(kStep_s));
    TSR_RETURN_IF_ERROR(take_event(event));
  }
  const double done = static_cast<double>(next_ - in_progress_.size());
  return is_done() ? 1.0 : done / static_cast<double>(count_);
}

Status PromptEngine::take_event(const ServingEvent& event) {
  const auto found = in_progress_.find(event.request);
  if (event.kind != ServingEvent::Kind::kEnd || found == in_progress_.end()) return {};
  if (event.finish != ServingEvent::Finish::kStop)
    return event.failure.ok()
               ? Status(StatusCode::kCancelled, format("text {} ended before it was computed", found->second))
               : event.failure.with_context(format("text {}", found->second));
  TSR_RETURN_IF_ERROR(take_(found->second, event.request));
  in_progress_.erase(found);
  return {};
}

Result<Json> PromptEngine::report() {
  TSR_ASSIGN_OR_RETURN(const std::string text, engine_->report_json());
  const Json report = Json::parse(text);
  return Json{{"positions", report["tokens"]},
              {"seconds", report["seconds"]},
              {"seq", report["context"]},
              {"batch", report["sequences"]},
              {"cached_tokens", report["cached_tokens"]},
              {"plan", report["plan"]},
              {"devices", report["devices"]}};
}

}  // namespace tessera
