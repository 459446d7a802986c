#include "run_samples.h"

#include <algorithm>
#include <map>

namespace cli {

namespace {

Engine engine_on(const Trainer& trainer, int64_t sequences, int64_t tokens) {
  const Options options = make<Options>(tsr_options_new);
  set(options, "sequences", sequences);
  set(options, "temperature", 0.0);
  set(options, "max_tokens", tokens);
  return make<Engine>(tsr_engine_new_for_trainer, trainer.get(), static_cast<const tsr_options*>(options.get()));
}

}  // namespace

void add_sample_options(CLI::App& command, SampleOptions& options) {
  command.add_option("--sample", options.prompts,
                     "a text that the model continues at each evaluation, and at the end; may be repeated");
  command.add_option("--sample-message", options.messages,
                     "a user's message that the model answers, likewise; may be repeated");
  command.add_option("--sample-tokens", options.tokens, "tokens of each, at most")->capture_default_str();
}

RunSamples::RunSamples(const SampleOptions& options, const Trainer& trainer) : tokens_(options.tokens) {
  for (const std::string& text : options.prompts) prompts_.push_back({text, false});
  for (const std::string& text : options.messages) prompts_.push_back({text, true});
  if (prompts_.empty()) return;
  if (tokens_ < 1)
    throw Error(TSR_INVALID_ARGUMENT, "--sample-tokens is " + std::to_string(tokens_) + ", wanted 1 or more");
  constexpr int64_t kAtOnce = 8;
  engine_ = engine_on(trainer, std::min(kAtOnce, static_cast<int64_t>(prompts_.size())), tokens_);
  // A prompt that cannot be submitted fails now, not after the first steps.
  for (const Prompt& prompt : prompts_) tsr_engine_cancel(engine_.get(), submit(prompt));
  for (size_t left = prompts_.size(); left > 0;) {
    tsr_event event{};
    event.struct_size = sizeof event;
    check(tsr_engine_next(engine_.get(), -1, &event));
    left -= event.kind == TSR_EVENT_END ? 1 : 0;
  }
}

int64_t RunSamples::submit(const Prompt& prompt) const {
  int64_t request = 0;
  if (!prompt.is_message) {
    check(tsr_engine_submit(engine_.get(), nullptr, prompt.text.data(), prompt.text.size(), &request));
    return request;
  }
  const std::string messages = Json::array({{{"role", "user"}, {"content", prompt.text}}}).dump();
  check(tsr_engine_submit_messages(engine_.get(), nullptr, messages.data(), messages.size(), &request));
  return request;
}

std::vector<WrittenSample> RunSamples::write() const {
  std::map<int64_t, size_t> places;
  std::vector<WrittenSample> samples;
  for (const Prompt& prompt : prompts_) {
    places[submit(prompt)] = samples.size();
    samples.push_back({prompt.text, ""});
  }
  for (size_t left = samples.size(); left > 0;) {
    tsr_event event{};
    event.struct_size = sizeof event;
    check(tsr_engine_next(engine_.get(), -1, &event));
    const auto place = places.find(event.request);
    if (event.kind == TSR_EVENT_PENDING || place == places.end()) continue;
    if (event.kind == TSR_EVENT_TOKEN) samples[place->second].text.append(event.text, event.text_size);
    if (event.kind != TSR_EVENT_END) continue;
    --left;
    if (event.finish == TSR_FINISH_FAILED) {
      const Json end = Json::parse(std::string(event.details, event.details_size));
      throw Error(TSR_FAILED_PRECONDITION, "the sample of '" + samples[place->second].prompt +
                                    "': " + end["error"]["message"].get<std::string>());
    }
  }
  return samples;
}

std::string sample_line(const WrittenSample& sample) {
  std::string line = "sample  " + sample.prompt + " | " + sample.text;
  std::ranges::replace(line, '\n', ' ');
  return line;
}

}  // namespace cli
