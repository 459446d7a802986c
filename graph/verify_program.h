// The second half of verify(Program): what ranks say to each other. Called once every rank is sound by
// itself.
#pragma once

#include "graph/base/status.h"
#include "graph/program.h"

namespace tessera {

// Groups are listed alike by all members; running every entry, each collective meets the same one on every
// member, each receive its send, and nothing waits for ever.
Status verify_exchanges(const Program& program);

}  // namespace tessera
