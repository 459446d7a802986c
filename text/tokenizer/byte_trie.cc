#include "text/tokenizer/byte_trie.h"

#include <algorithm>

namespace tessera {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int32_t>> keys) {
  std::erase_if(keys, [](const auto& key) { return key.first.empty(); });
  std::ranges::stable_sort(keys, {}, &std::pair<std::string_view, int32_t>::first);
  struct Node {
    size_t begin, end;  // range of keys
  };
  // Breadth first: a node's edges are adjacent, and an edge's number is its node's minus one.
  std::vector<Node> level = {{0, keys.size()}}, next;
  for (size_t depth = 0; !level.empty(); ++depth) {
    next.clear();
    for (Node node : level) {
      first_.push_back(static_cast<uint32_t>(bytes_.size()));
      int32_t value = -1;
      while (node.begin < node.end && keys[node.begin].first.size() == depth)
        value = keys[node.begin++].second;
      values_.push_back(value);
      while (node.begin < node.end) {
        const char byte = keys[node.begin].first[depth];
        size_t end = node.begin + 1;
        while (end < node.end && keys[end].first[depth] == byte) ++end;
        bytes_.push_back(static_cast<uint8_t>(byte));
        if (depth == 0) root_[static_cast<uint8_t>(byte)] = static_cast<uint32_t>(bytes_.size());
        next.push_back({node.begin, end});
        node.begin = end;
      }
    }
    level.swap(next);
  }
  first_.push_back(static_cast<uint32_t>(bytes_.size()));
}

}  // namespace tessera
