// PairTable: the merge result of a pair of ids. A hash table with open
// addressing: a lookup takes one or two memory reads. Filled once.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

class PairTable {
 public:
  struct Value {
    uint32_t rank;
    int32_t id;
  };

  explicit PairTable(size_t most) {
    size_t size = 16;
    while (size < 2 * most) size *= 2;
    entries_.resize(size);
  }
  // A later value of the same pair replaces the earlier. At most the announced number of pairs.
  void put(int32_t left, int32_t right, Value value) {
    Entry& entry = entries_[slot(key(left, right))];
    entry = {key(left, right), value};
  }
  const Value* find(int32_t left, int32_t right) const {
    const Entry& entry = entries_[slot(key(left, right))];
    return entry.key == kNone ? nullptr : &entry.value;
  }

 private:
  static constexpr uint64_t kNone = UINT64_MAX;  // ids are not negative
  struct Entry {
    uint64_t key = kNone;
    Value value{};
  };
  static uint64_t key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t slot(uint64_t key) const {
    const size_t mask = entries_.size() - 1;
    uint64_t hash = key * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
    size_t at = hash & mask;
    while (entries_[at].key != key && entries_[at].key != kNone) at = (at + 1) & mask;
    return at;
  }
  std::vector<Entry> entries_;
};

}  // namespace tessera
