// AtomicFolder: a folder that is replaced as a whole or not at all. Files are written
// to a temporary folder next to its path, which `commit` syncs and renames. Without
// `commit` the temporary folder is removed and the path is unchanged. One thread.
#pragma once

#include <functional>
#include <string>

#include "graph/base/result.h"

namespace tessera {

class AtomicFolder {
 public:
  // Returns an error if the non-empty folder must not be replaced.
  using MayReplace = std::function<Status(const std::string& folder)>;

  // The path may be new, an empty folder, or one accepted by `may_replace`; links to folders
  // are followed. kInvalidArgument for a file. Removes temporary folders of killed writers.
  static Result<AtomicFolder> create(const std::string& path, const MayReplace& may_replace);
  // The status of `create`, without changing the parent folder.
  static Status check(const std::string& path, const MayReplace& may_replace) {
    return create(path, may_replace).status();
  }
  AtomicFolder(AtomicFolder&& other) noexcept;
  AtomicFolder& operator=(AtomicFolder&&) = delete;
  ~AtomicFolder();

  const std::string& temporary_path() const { return temporary_; }  // folder of the files until `commit`
  // The new folder and its files keep mode, owner and group of the old ones, as far as permitted.
  Status commit();

 private:
  AtomicFolder(std::string path, std::string temporary, int descriptor, MayReplace may_replace)
      : path_(std::move(path)),
        temporary_(std::move(temporary)),
        may_replace_(std::move(may_replace)),
        descriptor_(descriptor) {}

  std::string path_, temporary_;
  MayReplace may_replace_;
  int descriptor_ = -1;  // of the temporary folder, locked
};

}  // namespace tessera
