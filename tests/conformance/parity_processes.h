// Parts of the parity harness: a job on given devices, and one whose ranks live in several processes.
#pragma once

#include <memory>

#include "runtime/backend_registry.h"
#include "runtime/device_set.h"
#include "tests/conformance/parity_harness.h"

namespace tessera::parity {

BackendRegistry& registry();
int32_t ranks_of(const Plan& plan);
// Runs the ranks that live on `devices`.
Status run_on(const Job& job, const Graph& step, const Plan& plan, const std::shared_ptr<DeviceSet>& devices, Outcome& out);
Status run_in_processes(const Job& job, const Graph& step, const Plan& plan, int32_t processes, Outcome& out);

}  // namespace tessera::parity
