// DraftModel: a smaller model that proposes the likeliest next tokens of a larger model's texts
// ("speculative decoding", Leviathan et al., 2022), all texts in the same steps. Each row has
// pages for a whole context and remembers its tokens; only tokens after the common prefix are
// computed. Rewound, preempted and ended texts need no notification. One thread at a time.
//
// A draft block (MTP) is one, too, of the model itself: it reads with each token the hidden state of the token before it, which it
// is told after each step. Its drafts after the first read its own hidden states. Of a text it sees the tokens that were computed
// since the text's row began: not those of a cached prefix.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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

  // Observation: hidden states of a text's tokens from `first` on, and its tokens so far.
  struct Observation {
    int32_t row;
    int64_t number;  // of the text
    std::span<const int32_t> tokens;
    int64_t first;
    std::span<const float> hidden;
  };
  // Takes note of a step, for a draft block; computes what has gathered. Returns the seconds of that.
  Result<double> observe(std::span<const Observation> seen);

  struct Text {
    int32_t row;  // fixed until the text ends, then reused
    int64_t number;
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
  // Part: new tokens of a row, for a draft block with the hidden states of those before them.
  struct Part {
    int32_t row;
    std::span<const int32_t> tokens;
    std::span<const float> hidden;
  };
  // Row: a text's tokens whose keys and values are in the row's pages.
  struct Row {
    std::vector<int32_t> held;
    // For a draft block, which reads the token `first` + 1 + i with the hidden state of the one before it, at position i:
    int64_t number = -1;         // of the text; -1: none
    int64_t first = 0;           // the first token whose hidden state it was told
    int64_t hidden_begin = 0;    // hidden states from this position on, of which the last one held is the first
    std::vector<float> hidden;
  };
  // Unseen: tokens of a text that are not held, its last at least.
  struct Unseen {
    size_t text, wanted, count;
    std::span<const int32_t> tokens;
  };
  std::optional<Unseen> find_unseen(const Text& text, size_t index);
  Status draft_on(std::span<const Text> texts, std::vector<Unseen> active, std::vector<Part> parts,
                  std::vector<int32_t> likeliest, Proposal& proposal);
  // Returns the likeliest token after each part.
  Result<std::vector<int32_t>> run(std::span<const Part> parts);
  bool is_block() const { return hidden_width_ > 0; }
  // Positions with a hidden state, from the text's first.
  int64_t observed(const Row& row) const {
    return row.hidden_begin + std::ssize(row.hidden) / static_cast<int64_t>(hidden_width_);
  }
  void note(const Observation& seen);
  // The tokens of a text that are read, from the row's first position; none where the row is another text's.
  std::span<const int32_t> read_tokens(const Row& row, const Text& text) const;
  Part part_of(int32_t row, std::span<const int32_t> tokens) const;
  void drop_hidden(Row& row) const;  // of positions held, except the last

  const ServingSettings settings_;
  const std::vector<ServingEntry> entries_;
  std::shared_ptr<SharedModel> model_;
  std::unique_ptr<ProgramRunner> running_;
  Rows rows_;
  std::vector<int32_t> table_;              // [rows, pages of a context]
  std::vector<Row> texts_;                  // by row
  size_t hidden_width_ = 0;                 // of a draft block; 0: a model
  std::vector<float> hidden_, last_hidden_;  // of the last run's tokens; the last of each part
  StepTimes step_times_;
  double run_seconds_ = 0;  // of the last run
  std::vector<float> logits_;
};

// "the draft model" or "the draft block", for messages.
std::string_view name_of_draft(const ServingSettings& settings);

// kInvalidArgument unless both models have the same tokens, by their
// tokenizers, else by number. Padding of the tables may differ.
Status check_draft_vocabulary(const SharedModel& model, const SharedModel& draft);

}  // namespace tessera
