// A device profile as JSON: versioned, with a checksum over its content, and exact: what is read equals what
// was written.
#pragma once

#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/device_profile.h"

namespace tessera {

// Sets profile.checksum to that of the text.
std::string device_profile_to_json(DeviceProfile& profile);

// kCorrupt says what was found and wanted: not JSON, another format or version, unknown or missing keys,
// numbers that are not positive and finite, tables whose size does not fit their marks, more work that takes
// less time, content that does not match the checksum.
Result<DeviceProfile> device_profile_from_json(std::string_view text);

}  // namespace tessera
