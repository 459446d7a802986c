// PagePool: reference counts and contents of pages of keys and values. Pages are
// shared by content: a page is found by its tokens and the tokens before it, so texts
// with a common prefix share its pages. One thread at a time, except `count_known`.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "engine/serving/pages/page_index.h"
#include "engine/serving/pages/state_snapshots.h"
#include "engine/serving/pages/window_pages.h"

namespace tessera {

// PageCopy: copies the first `count` positions of a page, and of its window page, to another page (copy on write); -1: no page.
struct PageCopy {
  int32_t from, to;
  int64_t count;
  int32_t window_from = -1, window_to = -1;
};

class PagePool {
 public:
  using Content = PageIndex::Content;
  using Found = PageIndex::Found;
  using Beginning = PageIndex::Beginning;

  // SnapshotRows: the rows of state that hold snapshots.
  struct SnapshotRows {
    int64_t first = 0, count = 0;
  };
  PagePool(int64_t pages, int64_t page_size, WindowExtent windows, SnapshotRows snapshots);
  PagePool(int64_t pages, int64_t page_size, WindowExtent windows = {}) : PagePool(pages, page_size, windows, SnapshotRows()) {}

  int64_t page_size() const { return page_size_; }
  int64_t pages() const { return static_cast<int64_t>(users_.size()); }
  // Pages that `take` can return: those not retained, cached or empty.
  int64_t available() const { return available_; }
  // Pages of window layers, one for a page of this pool. A retained page may also retain its window page.
  WindowPages& windows() { return windows_; }
  const WindowPages& windows() const { return windows_; }
  // States of recurrent layers after some of the recorded tokens.
  StateSnapshots& snapshots() { return snapshots_; }
  bool is_known(int32_t page) const { return index_.contains(page); }
  bool has_user(int32_t page) const { return users_[static_cast<size_t>(page)] > 0; }

  // Takes an empty or evicted page and retains it once; nullopt if all
  // pages are retained. Cached pages are evicted least recently used first.
  std::optional<int32_t> take();
  // Retains the page; its recorded positions must not be written.
  void hold(int32_t page);
  // Retains an unused page, keeps its first `count` positions and lets the caller write the rest.
  void take_over(int32_t page, int64_t count);
  // Releases the page. Its contents stay cached until the page is taken.
  void give_back(int32_t page);

  // Finds and retains the page that holds `tokens`, a full page, after `before`.
  std::optional<Found> find(Content before, std::span<const int32_t> tokens);
  // Finds the page with the longest common prefix with `tokens`, without retaining it.
  std::optional<Beginning> find_beginning(Content before, std::span<const int32_t> tokens) const {
    return index_.find_beginning(before, tokens);
  }
  // Returns the number of first tokens of a text that are cached. Any thread.
  int64_t count_known(Content before, std::span<const int32_t> tokens) const;
  // Records the tokens of `page`, retained once. A page recorded for the
  // same tokens stays, unless it lost its window page and `page` has one.
  Content remember(int32_t page, Content before, std::span<const int32_t> tokens);
  // Records a partly filled page, unless a page with the same beginning is recorded.
  void remember_beginning(int32_t page, Content before, std::span<const int32_t> tokens);

  // Drops all records, and all snapshots.
  void forget_all();

 private:
  // Whether `page`, which has a window page, replaces `known`, which lost its own.
  bool takes_place_of(int32_t known, int32_t page) const {
    return known != page && !windows_.has(known) && windows_.has(page);
  }
  void replace(int32_t page, Content before, std::span<const int32_t> tokens);

  const int64_t page_size_;
  PageIndex index_;
  std::list<int32_t> idle_;                            // pages not retained; the first is taken next
  std::vector<int32_t> users_;                         // reference counts, by page
  std::vector<std::list<int32_t>::iterator> idle_at_;  // by page, while it is not retained
  int64_t available_;
  WindowPages windows_;
  StateSnapshots snapshots_;
};

}  // namespace tessera
