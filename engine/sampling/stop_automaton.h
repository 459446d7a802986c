// StopAutomaton: finds any of many texts in a stream of bytes, at a cost for each byte that does not grow with their
// number (Aho and Corasick, "Efficient string matching: an aid to bibliographic search", CACM 1975). Immutable; any
// number of streams may share one.
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
  // States are numbers; that of a stream's beginning is 0.
  using State = int32_t;

  explicit StopAutomaton(std::vector<std::string> texts);  // empty ones are never found

  // The state after one more byte.
  State step(State state, unsigned char byte) const;

  // The bytes read last that are the beginning of a text, at most; the whole of it where it was found.
  size_t begun_bytes(State state) const { return nodes_[static_cast<size_t>(state)].depth; }
  // The length of the longest text that ends here; 0: none does.
  size_t found_bytes(State state) const { return nodes_[static_cast<size_t>(state)].found; }
  // The longest one shorter than this; 0: none.
  size_t found_bytes(State state, size_t shorter_than) const;

 private:
  // A node is a beginning of a text. Nodes lie breadth first, so that the children of one are neighbours, in the
  // order of their bytes.
  struct Node {
    State children = 0, children_end = 0;
    State suffix = 0;  // the node of its longest proper suffix that is a beginning, too
    uint32_t depth = 0, found = 0;
    unsigned char byte = 0;  // that leads here
  };

  void add_nodes(const std::vector<std::string>& texts);
  State child(State state, unsigned char byte) const;  // 0: none

  std::vector<Node> nodes_;
  std::array<State, 256> first_{};  // children of state 0 by byte
};

}  // namespace tessera
