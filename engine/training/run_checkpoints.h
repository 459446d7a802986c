// RunCheckpoints: the checkpoints of one training run: the newest, those before it, and the best (serialize/checkpoint_links.h). A
// thread writes each from a copy while the training goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/background.h"
#include "engine/settings/run_settings.h"
#include "engine/training/trainer.h"
#include "serialize/folder_lock.h"

namespace tessera {

class RunCheckpoints {
 public:
  // Locks the folder, and removes what killed runs left. Without a folder no checkpoint is written.
  static Result<std::unique_ptr<RunCheckpoints>> create(const RunSettings& settings);
  ~RunCheckpoints();  // waits for the thread

  bool writes() const { return !folder_.empty(); }
  const std::string& folder() const { return folder_; }
  int64_t saved_step() const { return saved_step_; }  // of the last whole one; -1: none yet
  // The folder of the last whole checkpoint that is still there; empty: none.
  std::string last_good() const;

  // Continues a run that was resumed from `from` at `step`, with its best checkpoint. False: that one is missing.
  Result<bool> resume(const std::string& from, int64_t step, int64_t best_step);
  // Copies the trainer's values, and has a thread write them. Waits for the previous checkpoint. A lack of space, and an error
  // of input or output, is a warning; the third in a row and those after it, and any other error, are failures.
  Status save(const std::shared_ptr<Trainer>& trainer, int64_t step, bool is_best, const Options& notes);
  Status wait();    // for the last one; fails as `save` does
  Status finish();  // waits too; each failure counts
  std::vector<std::string> take_warnings();

 private:
  RunCheckpoints(const RunSettings& settings)
      : folder_(settings.checkpoint), keep_(settings.keep), keeps_best_(settings.keeps_best) {}
  // On the thread.
  Status write(const CheckpointSnapshot& snapshot, int64_t step, bool is_best);
  Status keep_step(const std::string& from, int64_t step);
  Status settle(bool is_final);

  const std::string folder_;
  const int64_t keep_;
  const bool keeps_best_;
  std::unique_ptr<FolderLock> lock_;
  std::string last_good_;
  int64_t saved_step_ = -1, writing_step_ = -1;
  int failures_ = 0;  // in a row
  Status failure_;    // of a checkpoint that the thread never began
  std::vector<std::string> warnings_;         // not taken yet
  std::vector<std::string> thread_warnings_;  // of the thread, while it runs
  std::optional<BackgroundWork> thread_;
};

}  // namespace tessera
