// Prices from a device profile: tables interpolated at the given shape.
#pragma once

#include <optional>

#include "graph/device_profile.h"
#include "graph/op_def.h"

namespace tessera {

// Seconds: alone on the device, and with every shared core busy.
struct Seconds {
  double alone_s = 0, shared_s = 0;
};

// One kernel launch; nullopt if the profile has neither a table for the op nor one for any op.
std::optional<Seconds> kernel_seconds(const DeviceProfile& profile, const OpDef& op, const OpView& view);

// From the last arrival; other group sizes use the nearest measured ones.
std::optional<double> collective_seconds(const DeviceProfile& profile, CollectiveKind kind, int32_t members,
                                         double bytes);

std::optional<double> copy_seconds(const DeviceProfile& profile, Tier from, Tier to, double bytes);

// Linear between marks; constant below the first; proportional beyond the last.
double at(const PriceCurve& curve, double bytes);

}  // namespace tessera
