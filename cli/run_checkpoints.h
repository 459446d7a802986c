// RunCheckpoints: the checkpoints of one training: the newest, those before it, and the best. A thread writes them from
// copies while the training goes on.
//   FOLDER           the newest
//   FOLDER.step-N    the newest K, with --keep K above 1
//   FOLDER.best      that with the least held-out loss, with --keep-best
// All three share their files by hard links, and each is there whole or not at all.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "command.h"

namespace cli {

// FolderLock: FOLDER.lock, held while a training writes to FOLDER. Throws where another process holds it.
class FolderLock {
 public:
  explicit FolderLock(std::string folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::string path_;
  int descriptor_ = -1;
};

class RunCheckpoints {
 public:
  // `folder` empty: no checkpoint is written. `keep`: number of newest checkpoints to keep.
  RunCheckpoints(const std::string& folder, int64_t keep, bool keeps_best);
  ~RunCheckpoints();  // waits for the thread

  bool writes() const { return !folder_.empty(); }
  const std::string& folder() const { return folder_; }
  std::string best_folder() const { return folder_ + ".best"; }
  // The last whole checkpoint that is still there; empty: none.
  std::string last_good() const;
  int64_t saved_step() const { return saved_step_; }  // -1: none yet

  // Continues a run that was resumed from `from` at `step`, with its best checkpoint. False: that is missing.
  bool resume(const std::string& from, int64_t step, int64_t best_step);
  // Copies the trainer's values, and has a thread write them. Waits for the previous checkpoint. Lack of space, or an
  // error of input or output, is a warning; the third in a row, or any other error, throws.
  void save(const Trainer& trainer, int64_t step, bool is_best, const Options& notes);
  void wait();    // waits for the last one; fails as `save` does
  void finish();  // waits too, and throws for every failure

 private:
  void write(const Saving& saving, int64_t step, bool is_best);
  void keep_links(const std::string& from, int64_t step);
  void settle(bool is_final);

  const std::string folder_;
  const int64_t keep_;
  const bool keeps_best_;
  std::unique_ptr<FolderLock> lock_;
  std::string last_good_;
  int64_t saved_step_ = -1, writing_step_ = -1;
  int failures_ = 0;
  std::thread thread_;
  std::optional<Error> failure_;  // the thread's error, once it is joined
};

}  // namespace cli
