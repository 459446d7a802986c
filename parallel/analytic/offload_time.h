// What waits on the host, priced: the link between a device and its host's memory is one more resource, which
// works beside the device; a pass or an update waits for what takes longer there.
#pragma once

#include <cstdint>

#include "graph/cluster.h"
#include "parallel/analytic/foreign_plan.h"

namespace tessera {

// Bytes of host memory that one device may use.
int64_t host_share_bytes(const Cluster& cluster);

// Seconds by which a pass of `pass_s` grows when so many bytes cross the link beside it in one direction.
double waiting_seconds(const Cluster& cluster, double bytes, double pass_s);

// Optimizer state comes and goes at the same time, for each update, beside the updates of `update_s`.
double offloaded_update_seconds(const ForeignPlan& plan, const Cluster& cluster, double parameters,
                                double update_s);

// Optimizer state of one parameter: master weights where products are computed in a shorter type, and two
// moments, in f32.
double optimizer_bytes(const ForeignPlan& plan);

}  // namespace tessera
