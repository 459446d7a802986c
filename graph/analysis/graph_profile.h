// GraphProfile: the work, traffic and memory of a graph on one device, computed from shapes alone: nothing
// runs, nothing is allocated.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

struct WorkTotals {
  double flops = 0;  // a multiply and an add are two
  double bytes_read = 0, bytes_written = 0;
  // Results of forward nodes that backward or update nodes read, each once; a view counts as the value it
  // views.
  int64_t saved_bytes = 0;
  // Peak bytes of activations other than the saved ones, operands and results included.
  int64_t transient_bytes = 0;
  int64_t nodes = 0;

  void add(const WorkTotals& other);  // adds sums; transient bytes take the larger
  friend bool operator==(const WorkTotals&, const WorkTotals&) = default;
};

// kBackward covers both backward phases.
enum class WorkPhase : uint8_t { kForward = 0, kBackward = 1, kUpdate = 2 };
WorkPhase work_phase(Phase phase);

struct GraphProfile {
  std::vector<WorkTotals> nodes;                 // by NodeId; a view costs nothing
  WorkTotals phases[3];                          // by WorkPhase
  int64_t parameter_bytes = 0, state_bytes = 0;  // outlive a run

  WorkTotals total() const;
};

// `graph` has no symbols left.
Result<GraphProfile> profile_graph(const Graph& graph);

// "block.3" of "block.3.attention"; else the first word of the scope, empty for none.
std::string block_of(const Node& node);

}  // namespace tessera
