// RunSamples: texts that the weights being trained write, for the same prompts at each evaluation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/serving/replicas/engine.h"
#include "engine/settings/run_settings.h"
#include "engine/training/trainer.h"

namespace tessera {

struct RunSample {
  std::string prompt, text;
};

class RunSamples {
 public:
  // An engine on the trainer, where there are prompts; one that cannot be submitted fails here.
  static Result<std::unique_ptr<RunSamples>> create(const RunSettings& settings, std::shared_ptr<Trainer> trainer);

  bool is_empty() const { return prompts_.empty(); }
  // Greedy texts of the weights as they are now, one for each prompt, in their order.
  Result<std::vector<RunSample>> write() const;

 private:
  struct Prompt {
    std::string text;
    bool is_message;
  };
  RunSamples() = default;
  Result<int64_t> submit(const Prompt& prompt) const;

  std::vector<Prompt> prompts_;
  std::unique_ptr<Engine> engine_;  // null without prompts
};

}  // namespace tessera
