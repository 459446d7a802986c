// IndexInput: an input of a graph whose integers are row indices of some tensor (token
// ids of a vocabulary, positions, labels of a loss), found by the ops that read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/host_tensor.h"

namespace tessera {

struct IndexInput {
  std::string name;
  int64_t rows = 0;       // 0 <= value < rows
  bool is_label = false;  // negative values are ignored by the loss
  std::string counted;    // the tensor with these rows, or the op that reads them; for messages
};

// Index inputs in the order of the graph's inputs. An input that passes
// through other ops first is left out, and so is one whose rows are a symbol.
std::vector<IndexInput> index_inputs(const Graph& graph);

// LookUp: a node that reads rows of a table by their numbers.
struct LookUp {
  TensorId table, ids;
  int64_t rows;
};
std::optional<LookUp> find_look_up(const Graph& graph, const Node& node);

// kInvalidArgument names the first value that numbers no row.
Status check_rows(const IndexInput& input, const HostTensor& value);

// Counts the labels that are not negative.
int64_t count_labels(const HostTensor& labels);

}  // namespace tessera
