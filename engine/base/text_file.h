// Text files that users name: training texts, plans, profiles, clusters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "graph/base/result.h"

namespace tessera {

// Size limits of plans and clusters as text; a plan names every tensor and node.
inline constexpr size_t kMostPlanBytes = size_t{256} << 20, kMostClusterBytes = size_t{16} << 20;

// Reads a file, or a pipe to its end. `what` begins messages. kNotFound;
// kInvalidArgument for folders, devices other than terminals, and more
// than `most` bytes or half of the process' memory; kIo.
Result<std::string> read_text_file(const std::string& path, std::string_view what, size_t most);

// The rest of standard input, at most `most` bytes and half of the memory.
Result<std::string> read_standard_input(std::string_view what, size_t most = SIZE_MAX);

// Whether `path` is, or will be, a file of its own: no link, device or pipe.
bool is_own_file(const std::string& path);
// Opens what a link, a device or a pipe leads to, for writing; a descriptor. kIo for a pipe that nobody reads.
Result<int> open_in_place(const std::string& path);
// Checks that a text can be written to `path`, before hours of work. takes_devices: links, devices and pipes are accepted.
Status check_text_path(const std::string& path, bool takes_devices);
// Writes a file of its own whole or not at all, with the permissions of the one that it replaces (AtomicFile); else straight into
// what a link, a device or a pipe leads to.
Status write_text_file(const std::string& path, std::string_view content);

}  // namespace tessera
