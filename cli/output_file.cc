#include "output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "command.h"

namespace cli {

namespace {

constexpr mode_t kAll = 0777;

[[noreturn]] void fail(const std::string& path) {
  throw Error(TSR_IO, path + ": cannot write: " + std::strerror(errno));
}

std::optional<struct stat> plain_file(const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return std::nullopt;
  return found;
}

// As far as this process may; members of another group get what all others have.
void keep_permissions(const std::string& name, const struct stat& old) {
  const int file = open(name.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat now {};
  if (file < 0) return;
  mode_t mode = old.st_mode & kAll;
  if (fstat(file, &now) == 0 && (now.st_uid != old.st_uid || now.st_gid != old.st_gid) &&
      fchown(file, old.st_uid, old.st_gid) != 0 && now.st_gid != old.st_gid &&
      fchown(file, static_cast<uid_t>(-1), old.st_gid) != 0)
    mode = (mode & ~mode_t{070}) | (mode & 07) << 3;
  (void)fchmod(file, mode);
  close(file);
}

}  // namespace

bool is_own_file(const std::string& path) {
  struct stat found {};
  return lstat(path.c_str(), &found) != 0 || S_ISREG(found.st_mode);
}

File open_in_place(const std::string& path) {
  // Without waiting for the reader of a pipe.
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0666);
  if (file < 0 && errno == ENXIO)
    throw Error(TSR_IO, path + ": is a pipe or socket that nobody reads; start its reader first, or name a file");
  if (file < 0) fail(path);
  (void)fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_NONBLOCK);
  File opened(fdopen(file, "wb"));
  if (!opened) close(file), fail(path);
  return opened;
}

File make_file(const std::string& name, const std::string& path) {
  const int file = open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, plain_file(path) ? 0600 : 0666);
  return file < 0 ? nullptr : File(fdopen(file, "wb"));
}

bool put_in_place(const std::string& name, const std::string& path) {
  if (const auto old = plain_file(path)) keep_permissions(name, *old);
  return std::rename(name.c_str(), path.c_str()) == 0;
}

File make_temporary(const std::string& path, std::string& name) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::string tried = path + ".tmp-" + std::to_string(getpid()) + "-" + std::to_string(attempt);
    if (File file = make_file(tried, path)) {
      name = tried;
      return file;
    }
    if (errno != EEXIST) break;
  }
  fail(path);
}

void write_file(const std::string& path, const std::string& content) {
  check_output(path, Output::kText);
  const bool is_own = is_own_file(path);
  std::string name;
  File file = is_own ? make_temporary(path, name) : open_in_place(path);
  bool is_written = std::fwrite(content.data(), 1, content.size(), file.get()) == content.size();
  is_written &= std::fclose(file.release()) == 0;
  if (is_written && (!is_own || put_in_place(name, path))) return;
  const int error = errno;
  if (is_own) unlink(name.c_str());
  errno = error;
  fail(path);
}

}  // namespace cli
