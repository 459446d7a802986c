// Device profiles: the choice and upkeep of the measured profile of the devices present.
#pragma once

#include <memory>
#include <string>

#include "graph/device_profile.h"
#include "graph/program.h"
#include "runtime/device_set.h"

namespace tessera {

struct ProfileChoice {
  // A file; "auto": the one in the cache folder, where it is of these devices; "none" or empty: built-in
  // rates, the same on every machine of a kind.
  std::string name;
  std::string cache_folder;
  std::string ignored;  // out: why the profile in the cache folder was not used
  std::string path;     // out: of the file that was taken
};

// Null for none. A named file must be valid and of these devices: kCorrupt, kNotFound or kInvalidArgument
// otherwise. An invalid file found by "auto" is ignored.
Result<std::shared_ptr<const DeviceProfile>> find_profile(ProfileChoice& choice, const DeviceSet& devices);

Result<DeviceProfile> read_profile(const std::string& path);
Status write_profile(DeviceProfile& profile, const std::string& path);  // sets its checksum; makes its folder

// Times the program's kernels that have several algorithms and no choice in the devices' profile, and adds
// the fastest to the profile's file. Programs lowered from now on use them, also in later processes, which
// then compute the same bits. Choices that another process has added meanwhile are kept. kFailedPrecondition
// without a profile; no effect where the backend has no alternatives.
Status keep_fastest_algorithms(const Program& program, DeviceSet& devices);

// Default file of a profile: <cache folder>/profile-cpu.json for "cpu:4".
std::string default_profile_path(const std::string& cache_folder, std::string_view devices);

}  // namespace tessera
