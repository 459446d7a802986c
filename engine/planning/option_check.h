// Options looked at by themselves, before a model or data is read.
#pragma once

#include <string>

#include "engine/base/options.h"

namespace tessera {

// Checks the options of a `consumer` (trainer, planning, generator, scorer, embedder, imatrix or dataset) alone, with the
// errors of its constructor; kNotFound for another consumer.
Status check_options(const std::string& consumer, const Options& options);

}  // namespace tessera
