// PagePool: which pages of keys and values are whose. Pages are shared by content: a full page is known by its tokens and
// by what is before them, so that texts with a common beginning have its pages in common. One thread at a time.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace tessera {

class PagePool {
 public:
  // The content of a full page after all that is before it: two pages have the same number only where all tokens up to
  // their ends are the same. kNothing: before the first page.
  using Content = uint64_t;
  static constexpr Content kNothing = 0;
  struct Found {
    int32_t page;
    Content content;
  };

  PagePool(int64_t pages, int64_t page_size);

  int64_t page_size() const { return page_size_; }
  int64_t pages() const { return static_cast<int64_t>(users_.size()); }
  // Pages that `take` can give: those without a user, whatever they hold.
  int64_t available() const { return available_; }

  // A page for one user, of any content; nothing where all have users. Of pages that hold something those without a user
  // for longest go first.
  std::optional<int32_t> take();
  // One user fewer. What it holds stays known until the page is taken.
  void give_back(int32_t page);

  // The page that holds `tokens`, page_size of them, after `before`; it has one user more.
  std::optional<Found> find(Content before, std::span<const int32_t> tokens);
  // Says that `page`, of one user, holds that. Where another page is known for it already, that one stays known.
  Content remember(int32_t page, Content before, std::span<const int32_t> tokens);

  // No page is known for anything from here on.
  void forget_all();

 private:
  struct Known {
    Content content;
    int32_t page;
  };
  using Key = std::pair<Content, std::vector<int32_t>>;
  void forget(int32_t page);

  const int64_t page_size_;
  std::map<Key, Known> known_;
  std::list<int32_t> idle_;     // pages without a user, the first is taken next
  std::vector<int32_t> users_;  // by page
  std::vector<std::map<Key, Known>::iterator>
      known_as_;                                       // by page; known_.end() where it holds nothing known
  std::vector<std::list<int32_t>::iterator> idle_at_;  // by page, while it has no user
  Content next_ = kNothing + 1;
  int64_t available_;
};

}  // namespace tessera
