// Memory limit of this process: the least of the machine's memory, setrlimit's limits
// and the limits of the process's control groups, each of them and all above it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// Bytes. Of RLIMIT_AS and RLIMIT_DATA only the rest counts: mapped memory cannot be used again.
int64_t process_memory_limit();

// The smallest limit of the control groups (version 1 and 2) that `groups` (the text of
// /proc/self/cgroup) lists, under the mounts of `mounts` (the text of /proc/self/mountinfo);
// INT64_MAX without a limit. Files are read below `root`, "" outside tests.
int64_t cgroup_memory_limit(std::string_view groups, std::string_view mounts, const std::string& root);

}  // namespace tessera
