// Graph -> graph: further uses of the pages of a graph of make_serving: their positions are
// copied, read and written, in all attentions at once. A slot is page * S + position in the
// page, as there; -1: none. States in window pages (window_states) have inputs "window_from"
// and "window_slot" in place of "from" and "slot"; inputs without states are left out.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// Inputs "from" i32[N] and "slot" i32[N, 1]: slot[n, 0] receives the value at from[n], bit for
// bit. All are read before any is written. State: that of `serving`. Symbol left: N, as below.
Result<Graph> make_page_copy(const Graph& serving);

// Input "from" i32[N]; for each state of pages an output of its name and ".rows", [N, KV * D]: the value at from[n], 0 for none.
Result<Graph> make_page_read(const Graph& serving);

// Input "slot" i32[N, 1], and for each of these states one of its name and ".rows", [N, 1, KV, D], to be written there.
Result<Graph> make_page_write(const Graph& serving);

}  // namespace tessera
