// AtomicFile: a file that is replaced as a whole or not at all. It is written under a temporary
// name next to its path, fsynced and renamed by `commit`, which also fsyncs the folder. Without
// `commit` the temporary file is removed and the path is unchanged. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "graph/base/result.h"

namespace tessera {

class AtomicFile {
 public:
  // The path may be new, a file, or a link to one, which stays a link.
  // kInvalidArgument for folders, devices, pipes and sockets, which a rename would
  // replace. Removes temporary files of killed writers (a writer locks its own).
  // The new file keeps mode, owner and group of the old one, as far as permitted.
  static Result<AtomicFile> create(const std::string& path);
  // For a derived name: a link there is replaced, not followed.
  static Result<AtomicFile> create_derived(const std::string& path);
  // The status of `create`, without changing the folder.
  static Status check(const std::string& path) { return create(path).status(); }
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Status append(std::span<const std::byte> bytes);
  Status pad_to(uint64_t position);                                       // zeros
  Status overwrite(uint64_t position, std::span<const std::byte> bytes);  // of the appended bytes
  Status truncate_to(uint64_t position);                                  // drops the bytes after it
  const std::string& temporary_path() const { return temporary_; }  // path of the contents until `commit`
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
           sent_end_ = 0;  // the last part sent to the disk; earlier parts are on it
};

// Syncs a folder, so that a rename or a new name in it survives a power cut.
Status sync_folder(const std::string& folder);
std::string parent_folder(const std::string& path);  // "." for a bare name

// kIo (or kNotFound, kOutOfMemory) with the path, the failed action and the text of errno.
Status io_error(const std::string& path, std::string_view what);

}  // namespace tessera
