// PagePool: which pages of keys and values are whose. Pages are shared by content: a page is known by its tokens, as far as
// it is filled, and by what is before them, so that texts with a common beginning have its pages in common. One thread at
// a time, except for `count_known`.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "engine/serving/pages/page_index.h"
#include "engine/serving/pages/window_pages.h"

namespace tessera {

// The first `count` positions of a page are wanted in another ("copy on write"), and those of their window pages; -1: none.
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

  PagePool(int64_t pages, int64_t page_size, WindowExtent windows = {});

  int64_t page_size() const { return page_size_; }
  int64_t pages() const { return static_cast<int64_t>(users_.size()); }
  // Pages that `take` can give: those without a user, whatever they hold.
  int64_t available() const { return available_; }
  // Pages of window layers, by the pages of this pool. Users of a page may hold its window page, too.
  WindowPages& windows() { return windows_; }
  const WindowPages& windows() const { return windows_; }
  bool is_known(int32_t page) const { return index_.contains(page); }
  bool has_user(int32_t page) const { return users_[static_cast<size_t>(page)] > 0; }

  // A page for one user, of any content; nothing where all have users. Of pages that hold something those without a user
  // for longest go first.
  std::optional<int32_t> take();
  // One user more; positions that it is known to hold are not written.
  void hold(int32_t page);
  // A page without a user gets one, who keeps its first `count` positions and writes the others.
  void take_over(int32_t page, int64_t count);
  // One user fewer. What it holds stays known until the page is taken.
  void give_back(int32_t page);

  // The page that holds `tokens`, page_size of them, after `before`; it has one user more.
  std::optional<Found> find(Content before, std::span<const int32_t> tokens);
  // The page that begins most like `tokens`, fewer or more of them; it has no user more.
  std::optional<Beginning> find_beginning(Content before, std::span<const int32_t> tokens) const {
    return index_.find_beginning(before, tokens);
  }
  // The number of first tokens that a text could take over from pages. Any thread.
  int64_t count_known(Content before, std::span<const int32_t> tokens) const;
  // Records that `page`, of one user, holds these tokens. A page already known for them stays known, unless it has lost
  // its window page and `page` has one.
  Content remember(int32_t page, Content before, std::span<const int32_t> tokens);
  // The same of a page that is partly filled, unless a page that begins so is known.
  void remember_beginning(int32_t page, Content before, std::span<const int32_t> tokens);

  // No page is known for anything from here on.
  void forget_all();

 private:
  // Whether `page`, which has a window page, becomes known in place of `known`, which lost its own.
  bool takes_place_of(int32_t known, int32_t page) const {
    return known != page && !windows_.has(known) && windows_.has(page);
  }
  void replace(int32_t page, Content before, std::span<const int32_t> tokens);

  const int64_t page_size_;
  PageIndex index_;
  std::list<int32_t> idle_;                            // pages without a user, the first is taken next
  std::vector<int32_t> users_;                         // by page
  std::vector<std::list<int32_t>::iterator> idle_at_;  // by page, while it has no user
  int64_t available_;
  WindowPages windows_;
};

}  // namespace tessera
