// WindowPages: a second pool of pages, for the layers that see only a window. Each window page belongs to a
// page of the first pool, its owner, and holds the same positions. A sequence retains those that its next
// tokens can see; released ones stay cached until they are evicted. One thread at a time, except `has`.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

namespace tessera {

// WindowExtent: the number of window pages and the largest window; 0 pages: one pool serves all layers.
struct WindowExtent {
  int64_t pages = 0, window = 0;
};

class WindowPages {
 public:
  // `owners`: number of pages of the first pool. Without
  // window pages every owner counts as complete.
  WindowPages(WindowExtent extent, int64_t owners, int64_t page_size);

  bool is_used() const { return !users_.empty(); }
  int64_t pages() const { return static_cast<int64_t>(users_.size()); }
  // Window pages that `take` can return.
  int64_t available() const;
  // Index, in a text's pages, of the first page that tokens from `position` on see.
  int64_t first_page(int64_t position) const;
  // Whether `owner` has a window page. Any thread.
  bool has(int32_t owner) const { return !is_used() || page_of(owner) >= 0; }
  // Returns the owner's window page; -1: none.
  int32_t page_of(int32_t owner) const {
    return is_used() ? pages_[static_cast<size_t>(owner)].load(std::memory_order_relaxed) : -1;
  }

  // Takes a window page for `owner`, which has none, and retains it once; false if all are retained. Eviction
  // order: empty pages, pages behind a text's window, likely prefixes; each least recently used first.
  bool take(int32_t owner);
  // Retains the owner's window page.
  void hold(int32_t owner);
  // Releases the owner's window page. kept: texts are likely to begin with it.
  void give_back(int32_t owner, bool kept);
  // Empties the owner's window page, which must not be retained.
  void detach(int32_t owner);

  // Returns the number of first tokens that can be reused: those of the full pages, then
  // `rest_tokens` of page `rest`, as far as the window pages seen by the next token exist.
  int64_t count_usable(std::span<const int32_t> full, int32_t rest, int64_t rest_tokens) const;

 private:
  enum class Idle : uint8_t { kFree, kPassed, kKept };
  struct Place {
    Idle list;
    std::list<int32_t>::iterator at;
  };
  std::list<int32_t>& idle(Idle list) { return idle_[static_cast<size_t>(list)]; }
  void put(int32_t page, Idle list);

  const int64_t window_, page_size_;
  std::vector<std::atomic<int32_t>> pages_;  // by owner
  std::vector<int32_t> owners_, users_;      // by page; -1: empty
  std::list<int32_t> idle_[3];               // the first is taken next
  std::vector<Place> places_;                // by page, while it is not retained
};

}  // namespace tessera
