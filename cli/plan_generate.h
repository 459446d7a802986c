// `tessera plan --cluster ... --mode generate`: a search for the best way to serve a model.
#pragma once

#include "command.h"

namespace cli {

void print_generate(const Json& plan);

}  // namespace cli
