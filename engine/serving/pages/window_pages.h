// WindowPages: a second pool of pages, for keys and values of layers that see only a window. Each belongs to a page of
// the first pool and holds the same positions. A sequence holds those that a token still to compute can see; pages left
// behind stay for others until they are wanted for something else. One thread at a time, except for `has`.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

namespace tessera {

// WindowExtent: the pages of window layers, and the largest of their windows; no pages: one pool for all layers.
struct WindowExtent {
  int64_t pages = 0, window = 0;
};

class WindowPages {
 public:
  // `owners`: number of pages of the first pool. Without window pages every page has what it needs, and nothing is
  // counted.
  WindowPages(WindowExtent extent, int64_t owners, int64_t page_size);

  bool is_used() const { return !users_.empty(); }
  int64_t pages() const { return static_cast<int64_t>(users_.size()); }
  // Pages that `take` can give.
  int64_t available() const;
  // Index in a text of the first page that tokens from `position` on see.
  int64_t first_page(int64_t position) const;
  // Whether the page `owner` has a window page. Any thread.
  bool has(int32_t owner) const { return !is_used() || page_of(owner) >= 0; }
  // The owner's window page; -1: none.
  int32_t page_of(int32_t owner) const {
    return is_used() ? pages_[static_cast<size_t>(owner)].load(std::memory_order_relaxed) : -1;
  }

  // Takes a window page with one user for `owner`, which has none; false where all have users. Empty pages go first,
  // then those that texts left behind, then kept ones; of each kind the one unused for longest.
  bool take(int32_t owner);
  // Adds a user to the owner's window page.
  void hold(int32_t owner);
  // Releases a user. kept: a text is likely to begin with the page.
  void give_back(int32_t owner, bool kept);
  // Empties the owner's window page, which has no user.
  void detach(int32_t owner);

  // Number of first tokens of a text that can be taken over: those in these full pages and in `rest_tokens` of the page
  // `rest` after them, as far as the window pages that the next token sees are there.
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
  std::vector<int32_t> owners_, users_;      // by page; -1: it holds nothing
  std::list<int32_t> idle_[3];               // the first is taken next
  std::vector<Place> places_;                // by page, while it has no user
};

}  // namespace tessera
