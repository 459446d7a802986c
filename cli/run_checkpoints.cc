#include "run_checkpoints.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cli {

namespace {

namespace fs = std::filesystem;

constexpr int kMostFailures = 3;  // in a row

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error(TSR_IO, path + ": " + what + ": " + std::strerror(errno));
}

bool is_there(const std::string& path) {
  struct stat ignored {};
  return lstat(path.c_str(), &ignored) == 0;
}

std::string without_slash(std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder;
}

void sync(const std::string& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  (void)fsync(descriptor);
  close(descriptor);
}

// Whether a name in a checkpoint's folder is one that checkpoints have.
bool is_own_entry(std::string_view name) { return name.starts_with("manifest") || name.starts_with("shard-"); }

// Removes a checkpoint's folder, or a part of one. What is anything else, or holds it, stays: links are not followed.
// False: it is still there.
bool remove_folder(const std::string& path) {
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return !is_there(path);
  DIR* const stream = fdopendir(folder);
  if (stream == nullptr) {
    close(folder);
    return false;
  }
  std::vector<std::string> names;
  bool is_ours = true;
  while (const dirent* entry = readdir(stream)) {
    const std::string name = entry->d_name;
    struct stat found {};
    if (name == "." || name == "..") continue;
    is_ours &= is_own_entry(name) && fstatat(folder, name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 &&
               S_ISREG(found.st_mode);
    names.push_back(name);
  }
  if (is_ours)
    for (const std::string& name : names) unlinkat(folder, name.c_str(), 0);
  closedir(stream);
  return is_ours && rmdir(path.c_str()) == 0;
}

[[noreturn]] void refuse_foreign(const std::string& path) {
  throw Error(TSR_IO, path + ": is no folder of a checkpoint, or holds other files too, and is in the way of one; "
                             "move it away");
}

constexpr std::string_view kLinking = ".linking", kRemoving = ".removing";

// A folder is renamed before it is removed: no part of a checkpoint ever has a checkpoint's name.
void discard_checkpoint(const std::string& path) {
  if (!is_there(path)) return;
  const std::string removed = path + std::string(kRemoving);
  if (!remove_folder(removed)) refuse_foreign(removed);
  if (std::rename(path.c_str(), removed.c_str()) != 0) fail(path, "cannot rename");
  if (remove_folder(removed)) return;
  (void)std::rename(removed.c_str(), path.c_str());
  refuse_foreign(path);
}

// Files of a checkpoint never change, so several folders can share them.
void link_checkpoint(const std::string& from, const std::string& to) {
  const std::string made = to + std::string(kLinking);
  remove_folder(made);
  struct stat like {};
  if (stat(from.c_str(), &like) != 0) fail(from, "cannot look at the checkpoint");
  if (mkdir(made.c_str(), 0700) != 0) fail(made, "cannot make the folder");
  (void)chmod(made.c_str(), like.st_mode & 0777);  // as private as the checkpoint that it shares its files with
  std::error_code error;
  for (fs::directory_iterator it(from, error), end; !error && it != end; it.increment(error)) {
    const fs::path source = it->path(), target = fs::path(made) / source.filename();
    if (!is_own_entry(source.filename().string()) || !it->is_regular_file(error) || it->is_symlink(error)) continue;
    fs::create_hard_link(source, target, error);
    if (!error) continue;
    // A copy replaces the link where the file system has no hard links.
    error.clear();
    fs::copy_file(source, target, error);
    if (error) break;
    const int descriptor = open(target.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor >= 0) (void)fsync(descriptor), close(descriptor);
  }
  if (error) {
    remove_folder(made);
    throw Error(TSR_IO, to + ": cannot keep the checkpoint: " + error.message());
  }
  sync(made);
  if (renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    if (!remove_folder(made)) {
      (void)renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE);
      remove_folder(made);
      refuse_foreign(to);
    }
  } else {
    if (is_there(to)) discard_checkpoint(to);
    if (std::rename(made.c_str(), to.c_str()) != 0) fail(to, "cannot rename onto it");
  }
  const std::string parent = fs::path(to).parent_path().string();
  sync(parent.empty() ? "." : parent);
}

constexpr std::string_view kStep = ".step-";

// Whether a name ends as FOLDER.step-N does behind FOLDER.
bool is_step_name(std::string_view suffix) {
  return suffix.starts_with(kStep) && suffix.size() > kStep.size() && suffix.size() < kStep.size() + 16 &&
         std::ranges::all_of(suffix.substr(kStep.size()), [](char c) { return c >= '0' && c <= '9'; });
}

// Steps of FOLDER.step-N, the newest first.
std::vector<int64_t> kept_steps(const std::string& folder) {
  const fs::path path(folder);
  const std::string own = path.filename().string();
  std::vector<int64_t> steps;
  std::error_code ignored;
  const fs::path parent = path.parent_path().empty() ? fs::path(".") : path.parent_path();
  for (fs::directory_iterator it(parent, ignored), end; !ignored && it != end; it.increment(ignored)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(own) && is_step_name(std::string_view(name).substr(own.size())))
      steps.push_back(std::stoll(name.substr(own.size() + kStep.size())));
  }
  std::ranges::sort(steps, std::greater());
  return steps;
}

// Removes unfinished folders of killed runs: FOLDER.best or FOLDER.step-N with the endings of unfinished work.
void remove_leftovers(const std::string& folder) {
  const fs::path path(folder);
  const std::string own = path.filename().string();
  std::vector<std::string> found;
  std::error_code ignored;
  const fs::path parent = path.parent_path().empty() ? fs::path(".") : path.parent_path();
  for (fs::directory_iterator it(parent, ignored), end; !ignored && it != end; it.increment(ignored)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(own)) continue;
    std::string_view suffix = std::string_view(name).substr(own.size());
    const std::string_view ending = suffix.ends_with(kLinking) ? kLinking : kRemoving;
    if (!suffix.ends_with(ending)) continue;
    suffix.remove_suffix(ending.size());
    if (suffix == ".best" || is_step_name(suffix)) found.push_back(it->path().string());
  }
  for (const std::string& it : found)
    if (!remove_folder(it)) refuse_foreign(it);
}

// What is in the way of the best checkpoint is told before the first step.
void check_best(const std::string& best) {
  struct stat found {};
  if (lstat(best.c_str(), &found) != 0) return;
  if (!S_ISDIR(found.st_mode)) refuse_foreign(best);
  check(tsr_trainer_check_folder(best.c_str()));
}

std::string step_folder(const std::string& folder, int64_t step) {
  return folder + ".step-" + std::to_string(step);
}

}  // namespace

FolderLock::FolderLock(std::string folder) : path_(std::move(folder) + ".lock") {
  for (int attempt = 0; attempt < 100; ++attempt) {
    descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (descriptor_ < 0) fail(path_, "cannot create");
    // It is removed at the end: what is somebody's file is no lock.
    struct stat held {
    }, there{};
    if (fstat(descriptor_, &held) != 0 || !S_ISREG(held.st_mode) || held.st_size != 0) {
      close(std::exchange(descriptor_, -1));
      throw Error(TSR_FAILED_PRECONDITION,
                  path_ + ": is no lock of a training, which is an empty file; move it away");
    }
    if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      close(std::exchange(descriptor_, -1));
      throw Error(
          TSR_FAILED_PRECONDITION,
          path_.substr(0, path_.size() - 5) +
              ": another training writes its checkpoints there; wait for its end, or give another --out "
              "or --checkpoint");
    }
    // The file may have been removed by its last holder between the two calls.
    if (lstat(path_.c_str(), &there) == 0 && held.st_ino == there.st_ino && held.st_dev == there.st_dev) return;
    close(std::exchange(descriptor_, -1));
  }
}

FolderLock::~FolderLock() {
  if (descriptor_ < 0) return;
  unlink(path_.c_str());
  close(descriptor_);
}

RunCheckpoints::RunCheckpoints(const std::string& folder, int64_t keep, bool keeps_best)
    : folder_(without_slash(folder)), keep_(keep), keeps_best_(keeps_best) {
  if (keep < 1)
    throw Error(TSR_INVALID_ARGUMENT,
                "--keep is " + std::to_string(keep) +
                    ", wanted 1 or more of the newest checkpoints (--checkpoint-every 0: none)");
  if (folder_.empty() && keep > 1)
    throw Error(TSR_INVALID_ARGUMENT,
                "--keep is of checkpoints, and none are written: --out or --checkpoint says "
                "where, --checkpoint-every how often");
  if (folder_.empty() && keeps_best)
    throw Error(TSR_INVALID_ARGUMENT,
                "--keep-best and --patience keep a checkpoint, and none are written: --out or "
                "--checkpoint says where, --checkpoint-every how often");
  if (folder_.empty()) return;
  check(tsr_trainer_check_folder(folder_.c_str()));
  lock_ = std::make_unique<FolderLock>(folder_);
  remove_leftovers(folder_);
  if (keeps_best_) check_best(best_folder());
}

RunCheckpoints::~RunCheckpoints() {
  if (thread_.joinable()) thread_.join();
}

bool RunCheckpoints::resume(const std::string& from_as_given, int64_t step, int64_t best_step) {
  const std::string from = without_slash(from_as_given);
  last_good_ = from;
  if (!writes()) return true;
  if (from == folder_) {
    saved_step_ = step;
    keep_links(from, step);
  }
  if (!keeps_best_ || best_step == 0) return true;
  if (best_step == step) {
    if (from != best_folder()) link_checkpoint(from, best_folder());
    return true;
  }
  // The best checkpoint is next to the run's folder, also where a kept step is resumed.
  std::string best = from + ".best";
  if (const size_t at = from.rfind(".step-"); !is_there(best) && at != std::string::npos)
    best = from.substr(0, at) + ".best";
  if (!is_there(best)) return false;
  const Json info = Json::parse(text(tsr_checkpoint_info, best.c_str()));
  if (info["step"].get<int64_t>() != best_step) return false;
  if (best != best_folder()) link_checkpoint(best, best_folder());
  return true;
}

void RunCheckpoints::keep_links(const std::string& from, int64_t step) {
  if (keep_ == 1) return;
  if (!is_there(step_folder(folder_, step))) link_checkpoint(from, step_folder(folder_, step));
  int64_t kept = 0;
  // Later steps belong to a run that this one replaces.
  for (const int64_t other : kept_steps(folder_))
    if (other > step || ++kept > keep_) try {
        discard_checkpoint(step_folder(folder_, other));
      } catch (const Error& error) {  // what others put there stays
        std::cerr << "warning: an old checkpoint is kept: " << error.what() << '\n';
      }
}

void RunCheckpoints::write(const Saving& saving, int64_t step, bool is_best) {
  for (double done = 0; done < 1;) check(tsr_saving_step(saving.get(), &done));
  check(tsr_saving_finish(saving.get()));
  if (keep_ > 1) {
    discard_checkpoint(step_folder(folder_, step));  // it belongs to a run that this one replaces
    keep_links(folder_, step);
  }
  if (is_best && keeps_best_) link_checkpoint(folder_, best_folder());
}

void RunCheckpoints::save(const Trainer& trainer, int64_t step, bool is_best, const Options& notes) {
  settle(false);
  writing_step_ = step;
  try {
    auto saving =
        std::make_shared<Saving>(make<Saving>(tsr_saving_new_snapshot, trainer.get(), folder_.c_str(),
                                              static_cast<const tsr_options*>(notes.get())));
    thread_ = std::thread([this, saving, step, is_best] {
      try {
        write(*saving, step, is_best);
      } catch (const Error& error) {
        failure_ = error;
      } catch (const std::exception& error) {  // of the file system, or of memory
        failure_ = Error(TSR_IO, folder_ + ": " + error.what());
      }
      *saving = nullptr;  // frees the copy too
    });
  } catch (const Error& error) {
    failure_ = error;
  }
}

std::string RunCheckpoints::last_good() const {
  if (last_good_.empty()) return {};
  std::vector<std::string> tried = {last_good_};
  if (writes()) {
    tried.push_back(folder_);
    for (const int64_t step : kept_steps(folder_)) tried.push_back(step_folder(folder_, step));
    tried.push_back(best_folder());
  }
  for (const std::string& folder : tried) try {
      (void)text(tsr_checkpoint_info, folder.c_str());
      return folder;
    } catch (const Error&) {  // removed by others, say
    }
  return {};
}

void RunCheckpoints::wait() { settle(false); }
void RunCheckpoints::finish() { settle(true); }

void RunCheckpoints::settle(bool is_final) {
  if (thread_.joinable()) thread_.join();
  if (writing_step_ < 0) return;
  const int64_t step = std::exchange(writing_step_, -1);
  if (!failure_) {
    last_good_ = folder_, saved_step_ = step, failures_ = 0;
    return;
  }
  const Error failure = *failure_;
  failure_.reset();
  const bool may_pass = failure.code() == TSR_IO || failure.code() == TSR_OUT_OF_MEMORY;
  if (is_final || !may_pass || ++failures_ == kMostFailures) throw failure;
  const std::string last_good = this->last_good();
  std::cerr << "warning: the checkpoint of step " << step << " was not written: " << failure.what()
            << (last_good.empty() ? "" : "; the last good checkpoint is " + last_good)
            << "; the training goes on, and the next one is tried\n";
}

}  // namespace cli
