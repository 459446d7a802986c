// Traces in Chrome's format, which Perfetto and chrome://tracing open: a process for each rank, a thread for
// each of its streams, a complete event for each instruction. Measured and predicted traces differ only in
// their times.
#pragma once

#include <span>
#include <string>

#include "graph/trace.h"

namespace tessera {

// `devices`: names by rank; other ranks are shown by number.
std::string trace_json(std::span<const TraceEvent> events, std::span<const std::string> devices);

}  // namespace tessera
