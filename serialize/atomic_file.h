// AtomicFile: a file that appears whole or not at all. It is written under a temporary name next to its path,
// fsynced and renamed by `commit`, which also fsyncs the folder. Without `commit` the temporary file is
// removed and the path keeps its old contents. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "graph/base/result.h"

namespace tessera {

class AtomicFile {
 public:
  // The path may be new, a file, or a link to one, which stays a link. kInvalidArgument for a folder, and for
  // devices, pipes and sockets: a rename would put a file in their place.
  // Temporary files of `path` whose writers were killed are removed: a writer holds a lock on its own.
  // The new file keeps mode, owner and group of the old one, as far as this process may.
  static Result<AtomicFile> create(const std::string& path);
  // Of a name that is derived and not a user's own: a link there is replaced, not followed.
  static Result<AtomicFile> create_derived(const std::string& path);
  // The status that `create` would return; leaves the folder as it was.
  static Status check(const std::string& path) { return create(path).status(); }
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Status append(std::span<const std::byte> bytes);
  Status pad_to(uint64_t position);                                       // zeros
  Status overwrite(uint64_t position, std::span<const std::byte> bytes);  // of the appended bytes
  Status truncate_to(uint64_t position);                                  // forgets the bytes after it
  const std::string& temporary_path() const { return temporary_; }  // of what is written, until `commit`
  uint64_t position() const { return position_; }
  Status commit();

 private:
  AtomicFile(std::string path, std::string temporary, int descriptor)
      : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}
  static Result<AtomicFile> create_at(const std::string& path);
  Status write_all(std::span<const std::byte> bytes, uint64_t position);
  void start_writeback();

  std::string path_, temporary_;
  int descriptor_ = -1;
  uint64_t position_ = 0;
  uint64_t sent_begin_ = 0,
           sent_end_ = 0;  // the last part that was sent to the disk; those before it are there
};

// Syncs a folder, so that a rename or a new name in it survives a power cut.
Status sync_folder(const std::string& folder);
std::string parent_folder(const std::string& path);  // "." for a bare name

// kIo (or kNotFound, or kOutOfMemory) with the path, what was tried and the system's words for errno.
Status io_error(const std::string& path, std::string_view what);

}  // namespace tessera
