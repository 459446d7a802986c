// Options looked at by themselves, before a model or data is read.
#pragma once

#include <string>

#include "engine/base/options.h"

namespace tessera {

// What the maker of a `consumer` (trainer, planning, generator, scorer, embedder, imatrix or dataset) would say of these options
// alone; kNotFound for another consumer.
Status check_options(const std::string& consumer, const Options& options);

}  // namespace tessera
