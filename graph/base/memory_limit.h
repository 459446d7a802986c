// Memory limit of this process: the smallest of what the machine has, what setrlimit allows and what the control
// groups that the process is in allow, each of them and all above it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// Bytes. Of RLIMIT_AS and RLIMIT_DATA the part that is left counts: what is mapped already cannot be used again.
int64_t process_memory_limit();

// The smallest limit of the control groups (version 1 and 2) that `groups`, as /proc/self/cgroup has it, names under
// the mounts that `mounts`, as /proc/self/mountinfo has it, names; INT64_MAX where there is none. Files are read
// below `root`, "" outside tests.
int64_t cgroup_memory_limit(std::string_view groups, std::string_view mounts, const std::string& root);

}  // namespace tessera
