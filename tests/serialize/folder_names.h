// The names in a folder.
#pragma once

#include <filesystem>
#include <set>
#include <string>

namespace tessera::testing {

inline std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(folder))
    names.insert(entry.path().filename());
  return names;
}

}  // namespace tessera::testing
