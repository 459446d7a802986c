// A device profile as JSON: versioned, with a
// checksum of its content, exact in a round trip.
#pragma once

#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/device_profile.h"

namespace tessera {

// Sets profile.checksum to the text's.
std::string device_profile_to_json(DeviceProfile& profile);

// kCorrupt, with what was found and wanted: not JSON, another format or version,
// unknown or missing keys, numbers that are not positive and finite, tables that
// do not match their marks, more work in less time, a wrong checksum.
Result<DeviceProfile> device_profile_from_json(std::string_view text);

}  // namespace tessera
