// RunSamples: texts that the weights being trained write, for the same prompts at each evaluation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command.h"

namespace cli {

struct SampleOptions {
  std::vector<std::string> prompts, messages;
  int64_t tokens = 48;
};
void add_sample_options(CLI::App& command, SampleOptions& options);

struct WrittenSample {
  std::string prompt, text;
};

class RunSamples {
 public:
  // An engine on the trainer, where there are prompts.
  RunSamples(const SampleOptions& options, const Trainer& trainer);

  bool is_empty() const { return prompts_.empty(); }
  // Greedy texts of the weights as they are now, one for each prompt, in their order.
  std::vector<WrittenSample> write() const;

 private:
  struct Prompt {
    std::string text;
    bool is_message;
  };
  int64_t submit(const Prompt& prompt) const;

  const int64_t tokens_;
  std::vector<Prompt> prompts_;
  Engine engine_;  // null without prompts
};

// "sample  > prompt | text" lines for people, on one line each.
std::string sample_line(const WrittenSample& sample);

}  // namespace cli
