// Clusters by name, for planning on hardware that is absent: "dgx-a100-80gb:512", "pcie-rtx-4090:16",
// "cpu:4".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"

namespace tessera {

// FORM-KIND:COUNT. The form is dgx (eight devices per node on NVLink, a network
// card each) or pcie (PCIe within the node, 100 Gbit/s between nodes); a kind alone
// has its usual form. Without COUNT: one node. Errors name the nearest presets.
Result<Cluster> cluster_preset(std::string_view text);

std::vector<std::string> cluster_preset_names();  // "dgx-a100-80gb", ...

}  // namespace tessera
