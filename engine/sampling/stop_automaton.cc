#include "engine/sampling/stop_automaton.h"

#include <algorithm>

namespace tessera {

StopAutomaton::StopAutomaton(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  add_nodes(texts);
  for (State node = nodes_[0].children; node < nodes_[0].children_end; ++node)
    first_[nodes_[static_cast<size_t>(node)].byte] = node;
  // Nodes are visited by depth, so shorter suffixes are complete.
  for (size_t parent = 0; parent < nodes_.size(); ++parent)
    for (State index = nodes_[parent].children; index < nodes_[parent].children_end; ++index) {
      Node& node = nodes_[static_cast<size_t>(index)];
      if (parent > 0) node.suffix = step(nodes_[parent].suffix, node.byte);
      if (node.found == 0) node.found = nodes_[static_cast<size_t>(node.suffix)].found;
    }
}

// `texts` are sorted, so texts with a node's prefix are adjacent.
void StopAutomaton::add_nodes(const std::vector<std::string>& texts) {
  struct Range {
    size_t begin, end;
  };
  std::vector<Range> ranges = {{0, texts.size()}};  // by node
  nodes_.emplace_back();
  for (size_t parent = 0; parent < nodes_.size(); ++parent) {
    auto [at, end] = ranges[parent];
    const uint32_t depth = nodes_[parent].depth;
    nodes_[parent].children = static_cast<State>(nodes_.size());
    if (at < end && texts[at].size() == depth) {
      nodes_[parent].found = depth;
      ++at;
    }
    while (at < end) {
      const char byte = texts[at][depth];
      size_t next = at + 1;
      while (next < end && texts[next][depth] == byte) ++next;
      nodes_.push_back({.children = 0,
                        .children_end = 0,
                        .suffix = 0,
                        .depth = depth + 1,
                        .found = 0,
                        .byte = static_cast<unsigned char>(byte)});
      ranges.push_back({at, next});
      at = next;
    }
    nodes_[parent].children_end = static_cast<State>(nodes_.size());
  }
}

StopAutomaton::State StopAutomaton::child(State state, unsigned char byte) const {
  if (state == 0) return first_[byte];
  const Node& parent = nodes_[static_cast<size_t>(state)];
  const auto begin = nodes_.begin() + parent.children, end = nodes_.begin() + parent.children_end;
  const auto found = std::lower_bound(
      begin, end, byte, [](const Node& node, unsigned char wanted) { return node.byte < wanted; });
  return found != end && found->byte == byte ? static_cast<State>(found - nodes_.begin()) : 0;
}

StopAutomaton::State StopAutomaton::step(State state, unsigned char byte) const {
  State next = child(state, byte);
  while (next == 0 && state != 0) {
    state = nodes_[static_cast<size_t>(state)].suffix;
    next = child(state, byte);
  }
  return next;
}

size_t StopAutomaton::found_bytes(State state, size_t shorter_than) const {
  while (state != 0 && found_bytes(state) >= shorter_than) state = nodes_[static_cast<size_t>(state)].suffix;
  return found_bytes(state);
}

}  // namespace tessera
