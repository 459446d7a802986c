// Schedule: the order in which nodes run, micro-batches unrolled.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace tessera {

struct Task {
  NodeId node = kNoNode;
  int32_t micro_batch = 0;
  friend bool operator==(const Task&, const Task&) = default;
};

// Graph order, forward and backward once per micro-batch. Update nodes run once, in the last micro-batch,
// each as soon as its operands are complete and nothing reads the old value of what it changes: a gradient
// lives no longer than it must, but for `delay` more nodes, during which it may be reduced over ranks.
std::vector<Task> schedule(const Graph& graph, int32_t micro_batches, int32_t delay = 0);

// Whether input i of the node is read at all (not `shape_only`).
bool reads_input(const Node& node, size_t i);

// The tensor whose bytes `tensor` shows, through nodes that are views; itself for all others.
TensorId viewed(const Graph& graph, TensorId tensor);

}  // namespace tessera
