// Names under which files and folders are written before they take their own: a reader never meets a part of one, and
// a later writer finds those whose writers were killed.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tessera {

inline constexpr std::string_view kTemporary = ".tmp-";
// Whether a name goes on behind its prefix as "PID-ATTEMPT" does.
bool is_temporary_number(std::string_view rest);

// Temporary names of `path` begin with this; "PID-ATTEMPT" follows. A name that is long is cut, so that there is room
// for the rest.
std::string temporary_prefix(const std::string& path);
// Whether `name` still is the file or folder that is open.
bool is_same_file(int descriptor, const std::string& name);
// Calls `remove` with each temporary name of `prefix`.
void for_each_leftover(const std::string& prefix, const std::function<void(const std::string& path)>& remove);

}  // namespace tessera
