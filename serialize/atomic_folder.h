// AtomicFolder: a folder of files that appears whole or not at all. Its files are written into a folder with a temporary
// name next to its path, which `commit` syncs and renames. Without `commit` that folder is removed and the path keeps
// its old contents. One thread.
#pragma once

#include <functional>
#include <string>

#include "graph/base/result.h"

namespace tessera {

class AtomicFolder {
 public:
  // A status other than ok where the folder, which has files, must not be replaced.
  using MayReplace = std::function<Status(const std::string& folder)>;

  // The path may be new, an empty folder, or one that `may_replace`; links to folders are followed. kInvalidArgument for
  // a file. Temporary folders of `path` whose writers were killed are removed.
  static Result<AtomicFolder> create(const std::string& path, const MayReplace& may_replace);
  // The status that `create` would return; leaves the folder around it as it was.
  static Status check(const std::string& path, const MayReplace& may_replace) {
    return create(path, may_replace).status();
  }
  AtomicFolder(AtomicFolder&& other) noexcept;
  AtomicFolder& operator=(AtomicFolder&&) = delete;
  ~AtomicFolder();

  const std::string& temporary_path() const { return temporary_; }  // where files are written, until `commit`
  // The new folder, and its files, keep mode, owner and group of the old ones, as far as this process may.
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
