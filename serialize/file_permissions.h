// FilePermissions: mode, owner and group that a file or folder
// keeps when it is replaced. New ones follow the umask.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>

namespace tessera {

class FilePermissions {
 public:
  // nullopt if absent. Follows links.
  static std::optional<FilePermissions> of(const std::string& path);

  // Applies them to an open file or folder, as far as permitted. If
  // the group cannot be kept, group members get the rights of others.
  void apply(int descriptor) const;
  // Applies them to `name` in an open folder; does not follow links.
  void apply_in(int folder, const std::string& name) const;

 private:
  explicit FilePermissions(const struct stat& found)
      : mode_(found.st_mode), owner_(found.st_uid), group_(found.st_gid) {}
  mode_t mode_;
  uid_t owner_;
  gid_t group_;
};

// Copies permissions of `old` to its replacement, and of
// plain files to those of equal names, three levels deep.
void keep_permissions_of_folder(const std::string& old, const std::string& replacement);

}  // namespace tessera
