// Which measured profile prices the devices at hand.
#pragma once

#include <memory>
#include <string>

#include "graph/device_profile.h"
#include "graph/program.h"
#include "runtime/device_set.h"

namespace tessera {

struct ProfileChoice {
  // A file; "auto": the one in the cache folder where there is one of these devices; "none" or nothing:
  // built-in rates, the same on every machine of a kind.
  std::string name;
  std::string cache_folder;
  std::string ignored;  // out: why the profile in the cache folder was not taken
  std::string path;     // out: of the file that was taken
};

// Null for none. A file that is named has to be good and of these devices: kCorrupt, kNotFound or
// kInvalidArgument say what was found; what "auto" finds is ignored when it is not.
Result<std::shared_ptr<const DeviceProfile>> find_profile(ProfileChoice& choice, const DeviceSet& devices);

Result<DeviceProfile> read_profile(const std::string& path);
Status write_profile(DeviceProfile& profile, const std::string& path);  // sets its checksum; makes its folder

// Times the program's kernels that can be computed in several ways and that the devices' profile knows no
// choice for, adds what was the fastest to the profile's file, and lets programs that are lowered from now on
// take it: those of later processes too, so that they compute the same bits. What another process has added
// meanwhile stands. kFailedPrecondition without a profile to keep it in; nothing where the backend has one
// way for everything.
Status keep_fastest_algorithms(const Program& program, DeviceSet& devices);

// <cache folder>/profile-cpu.json for "cpu:4".
std::string default_profile_path(const std::string& cache_folder, std::string_view devices);

}  // namespace tessera
