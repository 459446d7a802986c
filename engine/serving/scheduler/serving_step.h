// ServingStep: one run of a serving entry: tokens of any rows, and those of them behind which logits are wanted. One thread
// at a time.
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
    int32_t slot;  // where its keys and values go
    int32_t window_slot = -1;  // slot in window pages
    int32_t adapter_slot = -1;
  };
  // `entry` outlives the step and has room for what is added.
  explicit ServingStep(const ServingEntry& entry);
  void add(const Token& token);
  // Logits behind the token that was added last are wanted.
  void want();
  // Row of the factors that all its tokens are rotated by, from 1 (make_serving).
  void set_rope_row(int32_t row) { rope_row_ = row; }

  // PageTables: [rows, columns] each; `windows` has window pages, and is empty without them.
  struct PageTables {
    std::span<const int32_t> pages, windows;
  };
  // logits [wanted, vocabulary], in the order in which they were wanted. Returns the seconds
  // that the run took.
  Result<double> run(ProgramRunner& runner, const PageTables& tables, int64_t rows, int64_t vocabulary,
                     std::vector<float>& logits) const;

  // Of the run: hidden [the entry's tokens, width], in the order in which they were added.
  Status fetch_hidden(ProgramRunner& runner, size_t width, std::vector<float>& hidden) const;

 private:
  const ServingEntry& entry_;
  std::vector<int32_t> ids_, row_, position_, slot_, window_slot_, adapter_, wanted_;
  size_t tokens_ = 0, chosen_ = 0;  // added, and wanted
  int32_t rope_row_ = 1;
};

}  // namespace tessera
