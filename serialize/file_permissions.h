// FilePermissions: the mode, owner and group that a file or folder keeps when it is written again under another name.
// A new one has what the umask leaves.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>

namespace tessera {

class FilePermissions {
 public:
  // None where there is no such file or folder. Links are followed.
  static std::optional<FilePermissions> of(const std::string& path);

  // Gives them to an open file or folder, as far as this process may. Where the group cannot be kept, its members get
  // what all others have.
  void apply(int descriptor) const;
  // To `name` in the folder that is open, which is not followed.
  void apply_in(int folder, const std::string& name) const;

 private:
  explicit FilePermissions(const struct stat& found)
      : mode_(found.st_mode), owner_(found.st_uid), group_(found.st_gid) {}
  mode_t mode_;
  uid_t owner_;
  gid_t group_;
};

// Gives a folder that replaces `old` its permissions, and its plain files those of the files of the same names, three
// levels deep.
void keep_permissions_of_folder(const std::string& old, const std::string& replacement);

}  // namespace tessera
