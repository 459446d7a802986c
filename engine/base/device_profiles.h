// Device profiles: finds, reads and updates the measured profile of the present devices.
#pragma once

#include <memory>
#include <string>

#include "graph/device_profile.h"
#include "graph/program.h"
#include "runtime/device_set.h"

namespace tessera {

struct ProfileChoice {
  // A file; "auto": the profile in the cache folder, if it matches the devices;
  // "none" or empty: built-in rates, equal on every machine of a kind.
  std::string name;
  std::string cache_folder;
  std::string ignored;  // out: why the profile in the cache folder was not used
  std::string path;     // out: path of the profile in use
};

// Returns null for none. A named file must be valid and match the devices: kCorrupt,
// kNotFound or kInvalidArgument otherwise. "auto" ignores an invalid file.
Result<std::shared_ptr<const DeviceProfile>> find_profile(ProfileChoice& choice, const DeviceSet& devices);

Result<DeviceProfile> read_profile(const std::string& path);
Status write_profile(DeviceProfile& profile, const std::string& path);  // sets its checksum; makes its folder

// Times the program's kernels that have several algorithms and no choice in the
// profile, and adds the fastest to its file. Later programs, also in other processes,
// use them and compute the same bits. Concurrent choices of another process are kept.
// kFailedPrecondition without a profile; no effect if the backend has no alternatives.
Status keep_fastest_algorithms(const Program& program, DeviceSet& devices);

// Default file of a profile: <cache folder>/profile-cpu.json for "cpu:4".
std::string default_profile_path(const std::string& cache_folder, std::string_view devices);

}  // namespace tessera
