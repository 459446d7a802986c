// DraftModel: a smaller model that proposes the likeliest next tokens of a larger model's texts
// ("speculative decoding", Leviathan et al., 2022), all texts in the same steps. Each row has
// pages for a whole context and remembers its tokens; only tokens after the common prefix are
// computed. Rewound, preempted and ended texts need no notification. One thread at a time.
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

// Takes the draft model's arena of each device from the limit of the model's, where there is one; kOutOfMemory where
// nothing is left.
Status take_draft_bytes(int64_t draft_bytes, int64_t& memory_limit);

// Bytes of the fullest device.
int64_t arena_bytes_of(const Program& program);

class DraftModel {
 public:
  // settings: the server's rows and devices, and the shorter of both contexts; the plan is the
  // draft's own. served_rows: rows of the served table; the draft proposes no other tokens.
  static Result<std::unique_ptr<DraftModel>> create(std::shared_ptr<Runtime> runtime,
                                                    std::shared_ptr<DeviceSet> devices,
                                                    const std::shared_ptr<SharedModel>& draft,
                                                    const ServingSettings& settings, int64_t served_rows);

  // Its program alone; nothing is allocated.
  static Result<CompiledProgram> compile(const SharedModel& draft, const ServingSettings& settings,
                                         const std::shared_ptr<DeviceSet>& devices);

  // Creates the draft model on other devices, with the same plan.
  Result<std::unique_ptr<DraftModel>> replicate(std::shared_ptr<DeviceSet> devices) const;

  struct Text {
    int32_t row;  // fixed until the text ends, then reused
    std::span<const int32_t> tokens;
    size_t wanted;
  };
  struct Proposal {
    std::vector<std::vector<int32_t>>
        drafts;  // by text; empty or short while its tokens are caught up
    double seconds = 0,
           catch_up_seconds = 0;  // the part for many tokens of new texts
  };
  // Catches up at most one step's tokens a call.
  Result<Proposal> propose(std::span<const Text> texts);

  // Seconds of a step with `tokens` tokens; nullopt if not measured yet.
  std::optional<double> step_seconds(int64_t tokens) const;
  int64_t arena_bytes() const;  // of the fullest device
  Status recover();             // after a failure
  ProgramRunner& runner() { return *running_; }

 private:
  // Rows of the draft's table, and its first rows shared with the served model; only those are proposed.
  struct Rows {
    int64_t all = 0, guessed = 0;
  };
  explicit DraftModel(ServingSettings settings);
  static Result<std::unique_ptr<DraftModel>> create(std::shared_ptr<const LoadedProgram> program,
                                                    std::shared_ptr<SharedModel> draft,
                                                    const ServingSettings& settings, Rows rows);
  // Part: new tokens of a row.
  struct Part {
    int32_t row;
    std::span<const int32_t> tokens;
  };
  // Returns the likeliest token after each part.
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

// kInvalidArgument unless both models have the same tokens, by their
// tokenizers, else by number. Padding of the tables may differ.
Status check_draft_vocabulary(const SharedModel& model, const SharedModel& draft);

}  // namespace tessera
