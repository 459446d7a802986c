// ServingStep: the inputs of one run of a serving entry: tokens of any
// rows, and the tokens whose logits are requested. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/program/program_runner.h"
#include "engine/program/serving_settings.h"

namespace tessera {

class ServingStep {
 public:
  struct Token {
    int32_t id, row, position;
    int32_t slot;  // slot for its key and value
    int32_t window_slot = -1;  // slot in window pages
    int32_t adapter_slot = -1;
  };
  // `entry` must outlive the step and have room for all tokens.
  explicit ServingStep(const ServingEntry& entry);
  void add(const Token& token);
  // For a draft block: adds the hidden states, `width` numbers each, that its next tokens are read with.
  void add_hidden(std::span<const float> rows, size_t width);
  // Requests the logits of the last token added.
  void want();
  // Row of RoPE factors for all tokens, from 1 (make_serving).
  void set_rope_row(int32_t row) { rope_row_ = row; }

  // PageTables: [rows, columns] each; `windows`: table of window pages, or empty.
  struct PageTables {
    std::span<const int32_t> pages, windows;
  };
  // Writes logits [requested, vocabulary] in the order
  // of requests. Returns the seconds of the run.
  Result<double> run(ProgramRunner& runner, const PageTables& tables, int64_t rows, int64_t vocabulary,
                     std::vector<float>& logits) const;

  // Writes the run's hidden states [entry tokens, width] in the order of tokens.
  Status fetch_hidden(ProgramRunner& runner, size_t width, std::vector<float>& hidden) const;

 private:
  const ServingEntry& entry_;
  std::vector<int32_t> ids_, row_, position_, slot_, window_slot_, adapter_, wanted_;
  std::vector<float> hidden_;  // empty: none
  size_t hidden_width_ = 0;
  size_t tokens_ = 0, chosen_ = 0;  // tokens added, and those with logits
  int32_t rope_row_ = 1;
};

}  // namespace tessera
