// ImportanceCollector: sums the squared inputs of a model's matrices over a text, window
// by window, into an importance matrix. One thread at a time, except the runtime's cancel.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/work_progress.h"
#include "engine/program/program_runner.h"
#include "engine/settings/window_settings.h"
#include "graph/transform/input_squares.h"
#include "serialize/importance_matrix.h"

namespace tessera {

class ImportanceCollector {
 public:
  // `ids`: a text of at least one window; tokens after the last whole window are ignored.
  static Result<std::unique_ptr<ImportanceCollector>> create(std::shared_ptr<Runtime> runtime,
                                                             std::shared_ptr<SharedModel> model,
                                                             std::span<const int32_t> ids,
                                                             const std::string& path, const Options& options);

  double done() const;  // share of the windows; 1: `finish` is possible
  WorkProgress progress() const;
  // Computes the next windows; after an error the same are retried.
  Status step();
  Result<std::string> finish();  // writes the file; returns the report of tsr_imatrix_finish

 private:
  ImportanceCollector() = default;
  Status check_ids(int64_t vocabulary) const;
  Status feed();
  Status add_results();

  ImportanceSettings settings_;
  std::string path_, family_;
  std::vector<int32_t> ids_;
  int32_t bos_ = -1;       // first token of windows; -1: none
  int64_t text_step_ = 0;  // text tokens per window
  int64_t windows_ = 0, next_ = 0;
  std::vector<InputSquares::Output> outputs_;
  std::unique_ptr<ProgramRunner> running_;
  ImportanceSums sums_;
  std::vector<int32_t> tokens_;  // present batch [batch, seq]
  bool is_written_ = false;
};

}  // namespace tessera
