// ByteTrie: a set of byte strings with numbers,
// looked up byte by byte. Immutable; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

class ByteTrie {
 public:
  static constexpr uint32_t kRoot = 0, kNone = UINT32_MAX;

  ByteTrie() = default;
  // The last of equal keys counts. Values are not negative; empty keys are dropped.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> keys);

  // The child of `node` by `byte`; kNone: no key continues so.
  uint32_t next(uint32_t node, uint8_t byte) const {
    if (node == kRoot) return root_[byte];
    uint32_t at = first_[node], end = first_[node + 1];
    while (end - at > 8) {
      const uint32_t middle = at + (end - at) / 2;
      (bytes_[middle] <= byte ? at : end) = middle;
    }
    for (; at < end; ++at)
      if (bytes_[at] == byte) return at + 1;  // nodes are numbered by their incoming edges
    return kNone;
  }
  // The value of the key that ends at a node, or -1.
  int32_t value(uint32_t node) const { return values_[node]; }
  bool is_empty() const { return bytes_.empty(); }

 private:
  std::array<uint32_t, 256> root_ = [] {
    std::array<uint32_t, 256> none{};
    none.fill(kNone);
    return none;
  }();
  std::vector<uint8_t> bytes_;   // of edges, by source node, ascending
  std::vector<uint32_t> first_;  // first edge by node, with a sentinel
  std::vector<int32_t> values_;
};

}  // namespace tessera
