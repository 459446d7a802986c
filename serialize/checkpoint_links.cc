#include "serialize/checkpoint_links.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string_view>
#include <system_error>

#include "graph/base/text.h"
#include "serialize/atomic_file.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBest = ".best", kStep = ".step-", kLinking = ".linking", kRemoving = ".removing";
constexpr size_t kMostDigits = 15;  // of a step

bool is_there(const std::string& path) {
  struct stat ignored {};
  return lstat(path.c_str(), &ignored) == 0;
}

bool is_own_entry(std::string_view name) { return name.starts_with("manifest") || name.starts_with("shard-"); }

// Removes a checkpoint's folder or a part of one;
// foreign contents stay. False: it still exists.
bool remove_folder(const std::string& path) {
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
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

Status foreign(const std::string& path) {
  return Status(StatusCode::kIo, path + ": is no folder of a checkpoint, or holds other files too, and is in the way of "
                                        "one; move it away");
}

// Fills `made` with the files of `from`: hard links, or copies on file systems without them.
std::error_code link_files(const std::string& from, const std::string& made) {
  std::error_code error;
  for (fs::directory_iterator it(from, error), end; !error && it != end; it.increment(error)) {
    const fs::path source = it->path(), target = fs::path(made) / source.filename();
    if (!is_own_entry(source.filename().string()) || !it->is_regular_file(error) || it->is_symlink(error)) continue;
    fs::create_hard_link(source, target, error);
    if (!error) continue;
    error.clear();
    fs::copy_file(source, target, error);
    if (error) break;
    const int descriptor = ::open(target.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor >= 0) (void)::fsync(descriptor), ::close(descriptor);
  }
  return error;
}

// Renames `made` to `to`, replacing an earlier checkpoint.
Status put_in_place(const std::string& made, const std::string& to) {
  if (renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    if (remove_folder(made)) return {};
    (void)renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE);
    remove_folder(made);
    return foreign(to);
  }
  TSR_RETURN_IF_ERROR(discard_checkpoint(to));
  return std::rename(made.c_str(), to.c_str()) == 0 ? Status() : io_error(to, "cannot rename onto it");
}

bool is_step_suffix(std::string_view suffix) {
  return suffix.starts_with(kStep) && suffix.size() > kStep.size() && suffix.size() <= kStep.size() + kMostDigits &&
         std::ranges::all_of(suffix.substr(kStep.size()), [](char c) { return c >= '0' && c <= '9'; });
}

// Calls `use` for each sibling of `folder` whose name begins with its name: the path, and the rest of the name.
void for_each_sibling(const std::string& folder,
                      const std::function<void(const std::string& path, std::string_view suffix)>& use) {
  const std::string own = fs::path(folder).filename().string();
  std::error_code ignored;
  for (fs::directory_iterator it(parent_folder(folder), ignored), end; !ignored && it != end; it.increment(ignored)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(own)) use(it->path().string(), std::string_view(name).substr(own.size()));
  }
}

}  // namespace

std::string best_folder(const std::string& folder) { return folder + std::string(kBest); }
std::string step_folder(const std::string& folder, int64_t step) {
  return folder + std::string(kStep) + std::to_string(step);
}

std::vector<int64_t> kept_steps(const std::string& folder) {
  std::vector<int64_t> steps;
  for_each_sibling(folder, [&](const std::string&, std::string_view suffix) {
    if (is_step_suffix(suffix)) steps.push_back(parse_i64(suffix.substr(kStep.size())).value_or(0));
  });
  std::ranges::sort(steps, std::greater());
  return steps;
}

Status link_checkpoint(const std::string& from, const std::string& to) {
  const std::string made = to + std::string(kLinking);
  remove_folder(made);
  struct stat like {};
  if (::stat(from.c_str(), &like) != 0) return io_error(from, "cannot look at the checkpoint");
  if (mkdir(made.c_str(), 0700) != 0) return io_error(made, "cannot make the folder");
  (void)chmod(made.c_str(), like.st_mode & 0777);  // as private as the checkpoint whose files it shares
  if (const std::error_code error = link_files(from, made)) {
    remove_folder(made);
    return Status(StatusCode::kIo, format("{}: cannot keep the checkpoint: {}", to, error.message()));
  }
  TSR_RETURN_IF_ERROR(sync_folder(made));
  TSR_RETURN_IF_ERROR(put_in_place(made, to));
  return sync_folder(parent_folder(to));
}

// Renamed before removal, so that a partial checkpoint never has a checkpoint's name.
Status discard_checkpoint(const std::string& path) {
  if (!is_there(path)) return {};
  const std::string removed = path + std::string(kRemoving);
  if (!remove_folder(removed)) return foreign(removed);
  if (std::rename(path.c_str(), removed.c_str()) != 0) return io_error(path, "cannot rename");
  if (remove_folder(removed)) return {};
  (void)std::rename(removed.c_str(), path.c_str());
  return foreign(path);
}

Status remove_unfinished_links(const std::string& folder) {
  std::vector<std::string> found;
  for_each_sibling(folder, [&](const std::string& path, std::string_view suffix) {
    for (const std::string_view ending : {kLinking, kRemoving}) {
      if (!suffix.ends_with(ending)) continue;
      const std::string_view name = suffix.substr(0, suffix.size() - ending.size());
      if (name == kBest || is_step_suffix(name)) found.push_back(path);
    }
  });
  for (const std::string& path : found)
    if (!remove_folder(path)) return foreign(path);
  return {};
}

}  // namespace tessera
