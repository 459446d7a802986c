// Schedule: the order in which nodes run, micro-batches unrolled.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace tessera {

// kSend, kReceive: a message between pipeline stages.
enum class TaskKind : uint8_t { kNode, kSend, kReceive };

struct Task {
  NodeId node = kNoNode;  // for a message: its first reader
  int32_t micro_batch = 0;
  TaskKind kind = TaskKind::kNode;
  TensorId tensor = kNoTensor;
  int32_t peer = -1;   // index into EntryLayout::places
  bool total = false;  // the sum over all micro-batches
  friend bool operator==(const Task&, const Task&) = default;
};

// Graph order, with forward and backward once per micro-batch. Update nodes run once, in
// the last micro-batch, as soon as their operands are complete and the old values are no
// longer read, plus `delay` nodes, during which a gradient may be reduced over ranks.
std::vector<Task> schedule(const Graph& graph, int32_t micro_batches, int32_t delay = 0);

// Whether input i is read (not `shape_only`).
bool reads_input(const Node& node, size_t i);

// The tensor whose bytes `tensor` shares through views; itself otherwise.
TensorId viewed(const Graph& graph, TensorId tensor);

}  // namespace tessera
