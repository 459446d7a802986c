// ByteSource over a mapping, and over borrowed memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "graph/base/status_codes.h"
#include "graph/base/text.h"
#include "serialize/model.h"

namespace tessera {
namespace {

class MemorySource final : public ByteSource {
 public:
  MemorySource(std::span<const std::byte> bytes, std::shared_ptr<const void> owner)
      : bytes_(bytes), owner_(std::move(owner)) {}

  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }

  Status read_at(int64_t offset, std::span<std::byte> out) const override {
    if (!inside(offset, static_cast<int64_t>(out.size()))) {
      return Status(StatusCode::kCorrupt,
                    format("wanted {} bytes at {}, but there are {}", out.size(), offset, bytes_.size()));
    }
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }

  std::span<const std::byte> map(int64_t offset, int64_t bytes) const override {
    if (!inside(offset, bytes)) return {};
    return bytes_.subspan(static_cast<size_t>(offset), static_cast<size_t>(bytes));
  }

 private:
  bool inside(int64_t offset, int64_t bytes) const {
    return offset >= 0 && bytes >= 0 && offset <= size() && bytes <= size() - offset;
  }
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
};

struct File {
  int descriptor = -1;
  explicit File(int opened) : descriptor(opened) {}
  File(File&& other) noexcept : descriptor(std::exchange(other.descriptor, -1)) {}
  File& operator=(File&&) = delete;
  ~File() {
    if (descriptor >= 0) ::close(descriptor);
  }
};

struct Mapping {
  void* address = nullptr;
  size_t size = 0;
  ~Mapping() {
    if (address != nullptr) munmap(address, size);
  }
};

class FileSource final : public ByteSource {
 public:
  FileSource(std::string path, const struct stat& found, std::shared_ptr<const Mapping> mapping)
      : path_(std::move(path)),
        found_(found),
        bytes_({static_cast<const std::byte*>(mapping->address), mapping->size}, mapping) {}

  int64_t size() const override { return bytes_.size(); }

  Status read_at(int64_t offset, std::span<std::byte> out) const override {
    const File file = reopen();
    // The name now refers to another file or none, so the mapped file cannot be truncated by name.
    if (file.descriptor < 0 || out.empty() || bytes_.map(offset, static_cast<int64_t>(out.size())).empty())
      return bytes_.read_at(offset, out);
    for (size_t done = 0; done < out.size();) {
      const ssize_t got = ::pread(file.descriptor, out.data() + done, out.size() - done,
                                static_cast<off_t>(offset + static_cast<int64_t>(done)));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Status(StatusCode::kIo, format("{}: cannot read: {}", path_, std::strerror(errno)));
      if (got == 0)
        return Status(StatusCode::kCorrupt, format("{}: ends at {} of {} bytes: it was cut while it was read",
                                                   path_, offset + static_cast<int64_t>(done), size()));
      done += static_cast<size_t>(got);
    }
    return {};
  }

  std::span<const std::byte> map(int64_t offset, int64_t bytes) const override {
    return bytes_.map(offset, bytes);
  }

  // Only whole pages; others may use the partial ones.
  void drop(std::span<const std::byte> bytes) const override {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = (reinterpret_cast<uintptr_t>(bytes.data()) + page - 1) / page * page;
    const auto end = reinterpret_cast<uintptr_t>(bytes.data() + bytes.size()) / page * page;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }

  std::vector<std::string> paths() const override { return {path_}; }

  // Checks by name, so that models hold no descriptors. If the
  // name refers to another file now, the mapped one is unchanged.
  Status unchanged() const override {
    struct stat now {};
    if (::stat(path_.c_str(), &now) != 0 || now.st_dev != found_.st_dev || now.st_ino != found_.st_ino)
      return {};
    if (now.st_size == found_.st_size && now.st_mtim.tv_sec == found_.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == found_.st_mtim.tv_nsec)
      return {};
    return Status(
        kChanged,
        format("{}: was written to after it was opened, when it had {} bytes (now {}): open it again, "
               "and replace it by renaming another file to it",
               path_, int64_t{found_.st_size}, int64_t{now.st_size}));
  }

 private:
  // By name, without holding a descriptor; an empty File if the name refers to another file now.
  File reopen() const {
    File file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat now {};
    if (file.descriptor >= 0 &&
        (::fstat(file.descriptor, &now) != 0 || now.st_dev != found_.st_dev || now.st_ino != found_.st_ino))
      ::close(std::exchange(file.descriptor, -1));
    return file;
  }

  const std::string path_;
  const struct stat found_;
  const MemorySource bytes_;
};

}  // namespace

std::shared_ptr<const ByteSource> bytes_in_memory(std::span<const std::byte> bytes,
                                                  std::shared_ptr<const void> owner) {
  return std::make_shared<MemorySource>(bytes, std::move(owner));
}

Result<std::shared_ptr<const ByteSource>> open_file(const std::string& path) {
  auto failed = [&path](std::string_view what) {
    const int error = errno;
    const StatusCode code = error == ENOENT   ? StatusCode::kNotFound
                            : error == ENOMEM ? StatusCode::kOutOfMemory
                                              : StatusCode::kIo;
    return Status(code, format("{}: {}: {}", path, what, std::strerror(error)));
  };
  // O_NONBLOCK: opening a pipe without a writer must
  // not wait; it is refused as no regular file.
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.descriptor < 0) return failed("cannot open");
  struct stat info {};
  if (::fstat(file.descriptor, &info) != 0) return failed("cannot stat");
  if (!S_ISREG(info.st_mode))
    return Status(StatusCode::kInvalidArgument,
                  format("{}: is {}, wanted a file", path,
                         S_ISDIR(info.st_mode) ? "a folder" : "a device, pipe or socket"));
  auto mapping = std::make_shared<Mapping>();
  if (info.st_size > 0) {  // mmap refuses length 0
    const auto size = static_cast<size_t>(info.st_size);
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor, 0);
    if (address == MAP_FAILED) return failed("cannot map");
    mapping->address = address;
    mapping->size = size;
  }
  return std::shared_ptr<const ByteSource>(std::make_shared<FileSource>(path, info, std::move(mapping)));
}

}  // namespace tessera
