#include "engine/training/run_samples.h"

#include <algorithm>
#include <map>
#include <utility>

#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {

namespace {

constexpr int64_t kAtOnce = 8;  // concurrent texts of the engine

}  // namespace

Result<std::unique_ptr<RunSamples>> RunSamples::create(const RunSettings& settings, std::shared_ptr<Trainer> trainer) {
  std::unique_ptr<RunSamples> made(new RunSamples());
  for (const std::string& text : settings.samples) made->prompts_.push_back({text, false});
  for (const std::string& text : settings.sample_messages) made->prompts_.push_back({text, true});
  if (made->is_empty()) return made;
  const int64_t sequences = std::min(kAtOnce, static_cast<int64_t>(made->prompts_.size()));
  TSR_ASSIGN_OR_RETURN(made->engine_, Engine::create(std::move(trainer), {{"sequences", sequences},
                                                                          {"temperature", 0.0},
                                                                          {"max_tokens", settings.sample_tokens}}));
  for (const Prompt& prompt : made->prompts_) {
    TSR_ASSIGN_OR_RETURN(const int64_t request, made->submit(prompt));
    made->engine_->cancel(request);
  }
  for (size_t left = made->prompts_.size(); left > 0;) {
    TSR_ASSIGN_OR_RETURN(const ServingEvent event, made->engine_->next(-1));
    left -= event.kind == ServingEvent::Kind::kEnd ? 1 : 0;
  }
  return made;
}

Result<int64_t> RunSamples::submit(const Prompt& prompt) const {
  if (!prompt.is_message) return engine_->submit(prompt.text, {});
  return engine_->submit_messages(dump(Json::array({{{"role", "user"}, {"content", prompt.text}}})), {});
}

Result<std::vector<RunSample>> RunSamples::write() const {
  std::map<int64_t, size_t> places;
  std::vector<RunSample> samples;
  for (const Prompt& prompt : prompts_) {
    TSR_ASSIGN_OR_RETURN(const int64_t request, submit(prompt));
    places[request] = samples.size();
    samples.push_back({prompt.text, ""});
  }
  for (size_t left = samples.size(); left > 0;) {
    TSR_ASSIGN_OR_RETURN(const ServingEvent event, engine_->next(-1));
    const auto place = places.find(event.request);
    if (event.kind == ServingEvent::Kind::kPending || place == places.end()) continue;
    RunSample& sample = samples[place->second];
    if (event.kind == ServingEvent::Kind::kToken) sample.text += event.text;
    if (event.kind != ServingEvent::Kind::kEnd) continue;
    --left;
    if (event.finish == ServingEvent::Finish::kFailed)
      return event.failure.with_context(format("the sample of '{}'", sample.prompt));
  }
  return samples;
}

}  // namespace tessera
