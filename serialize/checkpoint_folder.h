// Folder F of a checkpoint, and its replacement by a new checkpoint.
//
// A save writes to F.saving, which is locked, fsyncs files and folder, and exchanges the two names in one step
// (renameat2 with RENAME_EXCHANGE); F.saving, now the old checkpoint, is removed. If the file system cannot exchange,
// F moves to F.saving/replaced and F.saving to F. After an interruption F is the old or the new checkpoint, or
// (between those two renames) absent with a complete F.saving: `readable_folder` finds it, and the next save moves it
// into place. Earlier versions moved F to F.previous instead: it is read if F is absent, and never written or removed.
//
// Planted names (links, pipes, folders with foreign contents) are neither followed nor removed.
#pragma once

#include <string>

#include "graph/base/result.h"

namespace tessera {

std::string shard_name(size_t index);

// The folder without a trailing slash, symbolic links resolved, so that names next to it can be made.
std::string real_folder(std::string folder);

// The folder that holds F's checkpoint.
std::string readable_folder(const std::string& folder);

// Checks that a folder to be replaced holds only a checkpoint; an absent one passes.
Status check_replaceable(const std::string& folder);

// Completes a save that was interrupted between two renames.
Status finish_cut_save(const std::string& folder);

// SavingFolder: F.saving, locked for one saver. Removed with this object unless it was put in place.
class SavingFolder {
 public:
  explicit SavingFolder(std::string folder) : folder_(std::move(folder)), path_(folder_ + ".saving") {}
  SavingFolder(const SavingFolder&) = delete;
  SavingFolder& operator=(const SavingFolder&) = delete;
  ~SavingFolder();

  Status open_empty();
  Status put_in_place();  // moves it to F with F's permissions
  const std::string& path() const { return path_; }

 private:
  std::string folder_, path_;
  int descriptor_ = -1;
  bool is_in_place_ = false;
};

}  // namespace tessera
