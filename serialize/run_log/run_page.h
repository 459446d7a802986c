// The page of a training run.
#pragma once

#include <string>

#include "serialize/json.h"

namespace tessera {

// One HTML file that needs nothing else. `run` is what capi/engine/run_log.h describes; it is in the page, too, in the
// element with the id "run".
std::string run_page(const Json& run);

}  // namespace tessera
