// DraftModel: a smaller model that drafts how texts of another one go on ("speculative decoding", Leviathan et al., 2022):
// the likeliest tokens, for all texts in the same steps. Each row has pages for a whole context, and remembers the tokens
// whose keys and values they hold; what a text has in common with them is not computed again. Nothing has to be told
// when a text is rewound, preempted or ends. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/program/program_runner.h"
#include "engine/program/serving_settings.h"
#include "engine/serving/scheduler/step_times.h"

namespace tessera {

class DraftModel {
 public:
  // settings: of the server whose texts it continues; its rows, its context (or the draft's own, where that is shorter),
  // its devices, by a plan of its own. served_rows: of the served model's table; tokens past them are not guessed.
  static Result<std::unique_ptr<DraftModel>> create(std::shared_ptr<Runtime> runtime,
                                                    std::shared_ptr<DeviceSet> devices,
                                                    const std::shared_ptr<SharedModel>& draft,
                                                    const ServingSettings& settings, int64_t served_rows);

  // One on other devices, with the plan of this one.
  Result<std::unique_ptr<DraftModel>> replicate(std::shared_ptr<DeviceSet> devices) const;

  struct Text {
    int32_t row;  // its own until it ends; another text may have it then
    std::span<const int32_t> tokens;
    size_t wanted;
  };
  struct Proposal {
    std::vector<std::vector<int32_t>>
        drafts;  // by text; fewer than wanted where tokens of it are still to compute
    double seconds = 0,
           catch_up_seconds = 0;  // the latter: the part for many tokens of texts that are new to it
  };
  // At most a step's tokens are caught up in a call.
  Result<Proposal> propose(std::span<const Text> texts);

  // Seconds of a step with so many tokens; nothing before one was measured.
  std::optional<double> step_seconds(int64_t tokens) const;
  int64_t arena_bytes() const;  // of a device, at most
  Status recover();             // after a failure
  ProgramRunner& runner() { return *running_; }

 private:
  // Rows of its table, and the first ones, which the served model has too: those that are guessed.
  struct Rows {
    int64_t all = 0, guessed = 0;
  };
  explicit DraftModel(ServingSettings settings);
  static Result<std::unique_ptr<DraftModel>> create(std::shared_ptr<const LoadedProgram> program,
                                                    std::shared_ptr<SharedModel> draft,
                                                    const ServingSettings& settings, Rows rows);
  // Tokens that follow those that a row holds.
  struct Part {
    int32_t row;
    std::span<const int32_t> tokens;
  };
  // The likeliest token behind each part.
  Result<std::vector<int32_t>> run(std::span<const Part> parts);

  const ServingSettings settings_;
  const std::vector<ServingEntry> entries_;
  std::shared_ptr<SharedModel> model_;
  std::unique_ptr<ProgramRunner> running_;
  Rows rows_;
  std::vector<int32_t> table_;              // [rows, pages of a context]
  std::vector<std::vector<int32_t>> held_;  // by row: tokens whose keys and values are in its pages
  StepTimes step_times_;
  double run_seconds_ = 0;  // of the last run
  std::vector<float> logits_;
};

// kInvalidArgument unless both have the same tokens: by their tokenizers, or by number where one has none. Tables may be
// padded to different numbers of rows: unused tokens are none.
Status check_draft_vocabulary(const SharedModel& model, const SharedModel& draft);

}  // namespace tessera
