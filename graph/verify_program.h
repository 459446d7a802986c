// The second half of verify(Program): agreement between ranks. Called once every rank is valid by itself.
#pragma once

#include "graph/base/status.h"
#include "graph/program.h"

namespace tessera {

// Groups are listed equally by all members. In every entry, each collective matches the same one on every
// member, each receive its send, and nothing deadlocks.
Status verify_exchanges(const Program& program);

}  // namespace tessera
