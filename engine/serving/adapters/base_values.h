// Whether an adapter's base has the values of the served model: an adapter corrects those, and no others.
#pragma once

#include <cstdint>
#include <string>

#include "engine/model/shared_model.h"
#include "graph/base/status.h"
#include "graph/host_tensor.h"

namespace tessera {

// Compares a parameter of an adapted model, drawn from `seed` where it has no value, with that of `base`. Values that both
// share cost nothing; of larger ones three parts of 64 KiB are read. Another storage type is accepted, as adapters of
// quantised weights may be served over others. kInvalidArgument names the first number that differs.
Status check_base_value(const SharedModel& adapted, uint64_t seed, const SharedModel& base, const std::string& name);
// Compares a whole value.
Status check_base_value(const HostTensor& value, const SharedModel& base, const std::string& name);

}  // namespace tessera
