// Prices out of a device profile: tables interpolated over the shape at hand.
#pragma once

#include <optional>

#include "graph/device_profile.h"
#include "graph/op_def.h"

namespace tessera {

// Seconds with the device to itself, and with one device on every shared core.
struct Seconds {
  double alone_s = 0, shared_s = 0;
};

// One launch of a kernel; nothing when the profile has neither a table of the op nor one for any op.
std::optional<Seconds> kernel_seconds(const DeviceProfile& profile, const OpDef& op, const OpView& view);

// From the group's last arrival; measured groups of the nearest size stand for those between and beyond.
std::optional<double> collective_seconds(const DeviceProfile& profile, CollectiveKind kind, int32_t members,
                                         double bytes);

std::optional<double> copy_seconds(const DeviceProfile& profile, Tier from, Tier to, double bytes);

// On straight lines between marks; the first mark's below it; in proportion beyond the last.
double at(const PriceCurve& curve, double bytes);

}  // namespace tessera
