// The page of a training run.
#pragma once

#include <string>

#include "text/json.h"

namespace tessera {

// One HTML file that needs nothing else. `run` is described in engine/training/run_log.h; the page has it in the element
// with the id "run".
std::string run_page(const Json& run);

}  // namespace tessera
