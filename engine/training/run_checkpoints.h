// RunCheckpoints: the checkpoints of one training run: the newest, earlier ones, and the best
// (serialize/checkpoint_links.h). A thread writes each from a copy while training continues.
#pragma once

#include <cstdint>
#include <functional>
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
  // The errors of `create`, before there is a trainer.
  static Status check(const RunSettings& settings);
  // Locks the folder and removes leftovers of killed runs. Without a folder no checkpoint is written. With several
  // processes the first one has the files; calls are collective.
  static Result<std::unique_ptr<RunCheckpoints>> create(const RunSettings& settings, std::shared_ptr<Trainer> trainer);
  ~RunCheckpoints();  // waits for the thread

  bool writes() const { return !folder_.empty(); }
  const std::string& folder() const { return folder_; }
  int64_t saved_step() const { return saved_step_; }  // step of the last complete one; -1: none
  // The last complete checkpoint that still exists; empty: none.
  std::string last_good() const;

  // Continues a run resumed from `from` at `step`, with its best checkpoint. False: the best one is missing.
  Result<bool> resume(const std::string& from, int64_t step, int64_t best_step);
  // Copies the trainer's values; the thread writes them. Waits for the previous checkpoint. Lack
  // of space and I/O errors are warnings; the third in a row, and any other error, is a failure.
  Status save(int64_t step, bool is_best, const Options& notes);
  Status wait();    // waits for the last one; fails as `save` does
  Status wait_here() { return finish_write(false); }  // without the other processes
  Status finish();  // waits; every failure is returned
  std::vector<std::string> take_warnings();

 private:
  RunCheckpoints(const RunSettings& settings, std::shared_ptr<Trainer> trainer)
      : folder_(settings.checkpoint),
        keep_(settings.keep),
        keeps_best_(settings.keeps_best),
        trainer_(std::move(trainer)) {}
  // Does `work` in the first process; the others get its error, or the state after it.
  Status lead(const std::function<Status()>& work);
  Status open_folder();
  Result<bool> resume_here(const std::string& from, int64_t step, int64_t best_step);
  Status save_here(int64_t step, bool is_best, const Options& notes);
  // Runs on the thread.
  Status write(const CheckpointSnapshot& snapshot, int64_t step, bool is_best);
  Status keep_step(const std::string& from, int64_t step);
  Status finish_write(bool is_final);

  const std::string folder_;
  const int64_t keep_;
  const bool keeps_best_;
  const std::shared_ptr<Trainer> trainer_;
  std::unique_ptr<FolderLock> lock_;
  std::string last_good_;
  int64_t saved_step_ = -1, writing_step_ = -1;
  int failures_ = 0;  // in a row
  Status failure_;    // of a checkpoint whose thread did not start
  std::vector<std::string> warnings_;         // not taken yet
  std::vector<std::string> thread_warnings_;  // of the thread, while it runs
  std::optional<BackgroundWork> thread_;
};

}  // namespace tessera
