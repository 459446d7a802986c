#include "engine/training/run_checkpoints.h"

#include <sys/stat.h>

#include <optional>
#include <utility>

#include "graph/base/text.h"
#include "serialize/checkpoint_folder.h"
#include "serialize/checkpoint_links.h"

namespace tessera {

namespace {

constexpr int kMostFailures = 3;  // in a row

bool is_there(const std::string& path) {
  struct stat ignored {};
  return lstat(path.c_str(), &ignored) == 0;
}

// Checks, before the first step, that nothing blocks the best checkpoint's place.
Status check_best(const std::string& best) {
  struct stat found {};
  if (lstat(best.c_str(), &found) != 0) return {};
  if (!S_ISDIR(found.st_mode))
    return Status(StatusCode::kIo, best + ": is no folder of a checkpoint, and is in the way of one; move it away");
  return Trainer::check_folder(best);
}

// The best checkpoint of the run that `from` belongs to: next to the run's folder, also if `from` is a kept step.
// step.
std::string best_of_run(const std::string& from) {
  const std::string best = best_folder(from);
  const size_t at = from.rfind(".step-");
  return is_there(best) || at == std::string::npos ? best : best_folder(from.substr(0, at));
}

}  // namespace

Status RunCheckpoints::check(const RunSettings& settings) {
  RunCheckpoints made(settings, nullptr);
  return made.writes() ? made.open_folder() : Status();
}

Result<std::unique_ptr<RunCheckpoints>> RunCheckpoints::create(const RunSettings& settings, std::shared_ptr<Trainer> trainer) {
  std::unique_ptr<RunCheckpoints> made(new RunCheckpoints(settings, std::move(trainer)));
  if (made->writes()) TSR_RETURN_IF_ERROR(made->lead([&] { return made->open_folder(); }));
  return made;
}

RunCheckpoints::~RunCheckpoints() { (void)finish_write(true); }

Status RunCheckpoints::open_folder() {
  TSR_RETURN_IF_ERROR(Trainer::check_folder(folder_));
  TSR_ASSIGN_OR_RETURN(lock_, FolderLock::acquire(folder_));
  TSR_RETURN_IF_ERROR(remove_unfinished_links(folder_));
  return keeps_best_ ? check_best(best_folder(folder_)) : Status();
}

// The others learn the steps of the checkpoints, on which a run's course depends, and the last folder's name for errors.
Status RunCheckpoints::lead(const std::function<Status()>& work) {
  TSR_ASSIGN_OR_RETURN(const std::string found, trainer_->lead([&]() -> Result<std::string> {
    TSR_RETURN_IF_ERROR(work());
    return format("{} {} {}", saved_step_, writing_step_, last_good_);
  }));
  if (trainer_->is_first_process()) return {};
  const size_t first = found.find(' '), second = found.find(' ', first + 1);
  const std::optional<int64_t> saved = parse_i64(found.substr(0, first)), writing = parse_i64(found.substr(first + 1, second - first - 1));
  TSR_CHECK(saved && writing, "the first process tells two steps and a folder");
  saved_step_ = *saved, writing_step_ = *writing, last_good_ = found.substr(second + 1);
  return {};
}

Result<bool> RunCheckpoints::resume(const std::string& from, int64_t step, int64_t best_step) {
  bool has_best = true;
  TSR_RETURN_IF_ERROR(lead([&]() -> Status {
    TSR_ASSIGN_OR_RETURN(has_best, resume_here(from, step, best_step));
    return {};
  }));
  return trainer_->agree(has_best);
}

Result<bool> RunCheckpoints::resume_here(const std::string& from, int64_t step, int64_t best_step) {
  last_good_ = from;
  if (!writes()) return true;
  if (from == folder_) {
    saved_step_ = step;
    TSR_RETURN_IF_ERROR(keep_step(from, step));
    std::swap(warnings_, thread_warnings_);
  }
  const std::string best = best_folder(folder_);
  if (!keeps_best_ || best_step == 0) return true;
  if (best_step == step) {
    if (from != best) TSR_RETURN_IF_ERROR(link_checkpoint(from, best));
    return true;
  }
  const std::string earlier = best_of_run(from);
  if (!is_there(earlier)) return false;
  TSR_ASSIGN_OR_RETURN(const CheckpointReader checkpoint, CheckpointReader::open(earlier));
  if (checkpoint.info().step != best_step) return false;
  if (earlier != best) TSR_RETURN_IF_ERROR(link_checkpoint(earlier, best));
  return true;
}

Status RunCheckpoints::keep_step(const std::string& from, int64_t step) {
  if (keep_ == 1) return {};
  const std::string own = step_folder(folder_, step);
  if (!is_there(own)) TSR_RETURN_IF_ERROR(link_checkpoint(from, own));
  int64_t kept = 0;
  for (const int64_t other : kept_steps(folder_)) {
    const bool is_of_replaced_run = other > step;
    if (!is_of_replaced_run && ++kept <= keep_) continue;
    // Other files in it stay.
    if (const Status discarded = discard_checkpoint(step_folder(folder_, other)); !discarded.ok())
      thread_warnings_.push_back(format("an old checkpoint is kept: {}", discarded.message()));
  }
  return {};
}

Status RunCheckpoints::write(const CheckpointSnapshot& snapshot, int64_t step, bool is_best) {
  TSR_ASSIGN_OR_RETURN(WrittenCheckpoint written, snapshot.write(folder_));
  TSR_RETURN_IF_ERROR(written.commit());
  if (keep_ > 1) {
    TSR_RETURN_IF_ERROR(discard_checkpoint(step_folder(folder_, step)));  // left by a run that this one replaces
    TSR_RETURN_IF_ERROR(keep_step(folder_, step));
  }
  return is_best && keeps_best_ ? link_checkpoint(folder_, best_folder(folder_)) : Status();
}

Status RunCheckpoints::save(int64_t step, bool is_best, const Options& notes) {
  return lead([&] { return save_here(step, is_best, notes); });
}

Status RunCheckpoints::save_here(int64_t step, bool is_best, const Options& notes) {
  TSR_RETURN_IF_ERROR(finish_write(false));
  writing_step_ = step;
  failure_ = Trainer::check_folder(folder_);
  if (failure_.ok()) failure_ = trainer_->usable();
  if (!failure_.ok()) return {};
  Result<CheckpointSnapshot> snapshot = trainer_->snapshot_here(notes);
  failure_ = snapshot.status();
  if (!failure_.ok()) return {};
  // std::function copies its capture; a pointer avoids copying the values.
  thread_.emplace("checkpoint", trainer_->runtime(),
                  [this, copy = std::make_shared<const CheckpointSnapshot>(std::move(*snapshot)), step, is_best] {
                    return write(*copy, step, is_best);
                  });
  return {};
}

std::string RunCheckpoints::last_good() const {
  if (last_good_.empty()) return {};
  std::vector<std::string> tried = {last_good_};
  if (writes()) {
    tried.push_back(folder_);
    for (const int64_t step : kept_steps(folder_)) tried.push_back(step_folder(folder_, step));
    tried.push_back(best_folder(folder_));
  }
  for (const std::string& folder : tried)
    if (CheckpointReader::open(folder).ok()) return folder;
  return {};
}

std::vector<std::string> RunCheckpoints::take_warnings() { return std::exchange(warnings_, {}); }

Status RunCheckpoints::wait() {
  return lead([&] { return finish_write(false); });
}
Status RunCheckpoints::finish() {
  return lead([&] { return finish_write(true); });
}

Status RunCheckpoints::finish_write(bool is_final) {
  if (writing_step_ < 0) return {};
  Status failure = std::exchange(failure_, {});
  if (thread_) {
    while (failure.ok() && thread_->done() < 1) failure = thread_->step();
    thread_.reset();
  }
  for (std::string& warning : std::exchange(thread_warnings_, {})) warnings_.push_back(std::move(warning));
  const int64_t step = std::exchange(writing_step_, -1);
  if (failure.ok()) {
    last_good_ = folder_, saved_step_ = step, failures_ = 0;
    return {};
  }
  const bool may_pass = failure.code() == StatusCode::kIo || failure.code() == StatusCode::kOutOfMemory;
  if (is_final || !may_pass || ++failures_ >= kMostFailures) return failure;
  const std::string last = last_good();
  warnings_.push_back(format("the checkpoint of step {} was not written: {}{}; the training goes on, and the next one is tried",
                             step, failure.message(), last.empty() ? "" : "; the last good checkpoint is " + last));
  return {};
}

}  // namespace tessera
