// StateSnapshots: which rows of state hold copies of recurrent layers' state, each after some first tokens of a text. A snapshot
// is found by the full pages of those tokens and by the tokens after them. The least recently used one is replaced. One thread.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "engine/serving/pages/page_index.h"

namespace tessera {

// StateCopy: copies a row of state to another.
struct StateCopy {
  int32_t from, to;
};

class StateSnapshots {
 public:
  using Content = PageIndex::Content;

  // Rows [first_row, first_row + count); without rows nothing is found, and nothing taken.
  StateSnapshots(int64_t first_row, int64_t count, int64_t page_size);

  struct Found {
    int32_t row;
    int64_t size;  // the number of first tokens
  };
  // Finds the snapshot of most first tokens of `tokens`, whose full pages are `contents`, after `root`.
  std::optional<Found> find(Content root, std::span<const Content> contents, std::span<const int32_t> tokens);
  // Returns a row for the state after `before` and the tokens `rest`, fewer than a page; nullopt where there is one, or where
  // all rows are pinned.
  std::optional<int32_t> take(Content before, std::span<const int32_t> rest);
  // Drops what `take` recorded for the row.
  void forget(int32_t row);
  // Keeps a row from being taken until `unpin`.
  void pin(int32_t row);
  void unpin() { pinned_.clear(); }
  void forget_all();

 private:
  using Key = std::pair<Content, std::vector<int32_t>>;

  const int64_t page_size_;
  std::map<Key, int32_t> rows_;
  std::list<int32_t> order_;  // the first is taken next
  std::map<int32_t, Key> known_as_;
  std::vector<int32_t> pinned_;
};

}  // namespace tessera
