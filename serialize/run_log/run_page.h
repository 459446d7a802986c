// The page of a training run.
#pragma once

#include <string>

#include "text/json.h"

namespace tessera {

// One self-contained HTML file. `run` is described in
// engine/training/run_log.h; the page holds it in the element with id "run".
std::string run_page(const Json& run);

}  // namespace tessera
