#include "engine/serving/pages/page_pool.h"

#include "graph/base/status.h"

namespace tessera {

PagePool::PagePool(int64_t pages, int64_t page_size, WindowExtent windows, SnapshotRows snapshots)
    : page_size_(page_size),
      index_(pages),
      users_(static_cast<size_t>(pages), 0),
      idle_at_(users_.size()),
      available_(pages),
      windows_(windows, pages, page_size),
      snapshots_(snapshots.first, snapshots.count, page_size) {
  for (size_t page = 0; page < users_.size(); ++page)
    idle_at_[page] = idle_.insert(idle_.end(), static_cast<int32_t>(page));
}

void PagePool::forget_all() {
  for (int32_t page = 0; page < pages(); ++page) {
    index_.erase(page);
    if (!has_user(page)) windows_.detach(page);
  }
  snapshots_.forget_all();
}

std::optional<int32_t> PagePool::take() {
  if (idle_.empty()) return std::nullopt;
  const int32_t page = idle_.front();
  index_.erase(page);
  windows_.detach(page);
  hold(page);
  return page;
}

void PagePool::hold(int32_t page) {
  const auto at = static_cast<size_t>(page);
  if (users_[at]++ > 0) return;
  idle_.erase(idle_at_[at]);
  --available_;
}

void PagePool::take_over(int32_t page, int64_t count) {
  TSR_CHECK(!has_user(page), "a page in use is taken over");
  index_.truncate(page, count);
  hold(page);
}

void PagePool::give_back(int32_t page) {
  const auto at = static_cast<size_t>(page);
  TSR_CHECK(users_[at] > 0, "a page without a user is given back");
  if (--users_[at] > 0) return;
  // Pages without a record are taken before cached pages.
  idle_at_[at] = idle_.insert(is_known(page) ? idle_.end() : idle_.begin(), page);
  if (!is_known(page)) windows_.detach(page);
  ++available_;
}

std::optional<PagePool::Found> PagePool::find(Content before, std::span<const int32_t> tokens) {
  const auto found = index_.find(before, tokens);
  if (found) hold(found->page);
  return found;
}

int64_t PagePool::count_known(Content before, std::span<const int32_t> tokens) const {
  const PageIndex::Chain chain = index_.find_chain(before, tokens, page_size_);
  return windows_.count_usable(chain.pages, chain.rest ? chain.rest->page : -1,
                               chain.rest ? chain.rest->common : 0);
}

void PagePool::replace(int32_t page, Content before, std::span<const int32_t> tokens) {
  const std::optional<int32_t> other = index_.replace(page, before, tokens);
  if (!other || has_user(*other)) return;
  const auto at = static_cast<size_t>(*other);
  idle_.splice(idle_.begin(), idle_, idle_at_[at]);  // its record is gone
}

PagePool::Content PagePool::remember(int32_t page, Content before, std::span<const int32_t> tokens) {
  TSR_CHECK(static_cast<int64_t>(tokens.size()) == page_size_, "a page is remembered when it is full");
  if (const auto known = index_.find(before, tokens); known && takes_place_of(known->page, page)) {
    replace(page, before, tokens);
    return known->content;
  }
  return index_.insert(page, before, tokens);
}

void PagePool::remember_beginning(int32_t page, Content before, std::span<const int32_t> tokens) {
  const auto known = index_.find_beginning(before, tokens);
  const bool has_all = known && known->common == static_cast<int64_t>(tokens.size());
  if (has_all && !takes_place_of(known->page, page)) return;
  if (has_all && known->known == known->common)
    replace(page, before, tokens);
  else
    index_.insert(page, before, tokens);
}

}  // namespace tessera
