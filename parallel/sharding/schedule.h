// Schedule: the order in which nodes run, micro-batches unrolled.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace tessera {

// kSend, kReceive: `tensor` goes to, or comes from, the devices of another pipeline stage.
enum class TaskKind : uint8_t { kNode, kSend, kReceive };

struct Task {
  NodeId node = kNoNode;  // of a message: its first reader
  int32_t micro_batch = 0;
  TaskKind kind = TaskKind::kNode;
  TensorId tensor = kNoTensor;
  int32_t peer = -1;   // index into EntryLayout::places
  bool total = false;  // the sum over all micro-batches
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
