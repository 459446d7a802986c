// Temporary names of files and folders while they are written: readers
// never see a partial one, and later writers find those of killed writers.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tessera {

inline constexpr std::string_view kTemporary = ".tmp-";
// Whether a name's rest has the form "PID-ATTEMPT".
bool is_temporary_number(std::string_view rest);

// Prefix of temporary names of `path`, followed by
// "PID-ATTEMPT". Long names are truncated to make room.
std::string temporary_prefix(const std::string& path);
// Whether `name` still refers to the open file or folder.
bool is_same_file(int descriptor, const std::string& name);
// Calls `remove` for each temporary name with `prefix`.
void for_each_leftover(const std::string& prefix, const std::function<void(const std::string& path)>& remove);

}  // namespace tessera
