// StopAutomaton: finds any of many texts in a byte stream, at a cost per byte
// independent of their number (Aho and Corasick, "Efficient string matching: an
// aid to bibliographic search", CACM 1975). Immutable; streams may share one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class StopAutomaton {
 public:
  // A state's number; 0: the start of a stream.
  using State = int32_t;

  explicit StopAutomaton(std::vector<std::string> texts);  // empty texts are never found

  // The state after another byte.
  State step(State state, unsigned char byte) const;

  // Length of the longest prefix of a text that the stream ends with; the whole text if it was found.
  size_t begun_bytes(State state) const { return nodes_[static_cast<size_t>(state)].depth; }
  // Length of the longest text that ends here; 0: none.
  size_t found_bytes(State state) const { return nodes_[static_cast<size_t>(state)].found; }
  // Length of the longest such text below `shorter_than`; 0: none.
  size_t found_bytes(State state, size_t shorter_than) const;

 private:
  // Node: a prefix of a text. Nodes are in breadth-first order,
  // so the children of a node are adjacent, by their bytes.
  struct Node {
    State children = 0, children_end = 0;
    State suffix = 0;  // the node of the longest proper suffix that is a prefix of a text
    uint32_t depth = 0, found = 0;
    unsigned char byte = 0;  // edge from the parent
  };

  void add_nodes(const std::vector<std::string>& texts);
  State child(State state, unsigned char byte) const;  // 0: none

  std::vector<Node> nodes_;
  std::array<State, 256> first_{};  // children of state 0 by byte
};

}  // namespace tessera
