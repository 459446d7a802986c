#include "capi/engine/serving/page_pool.h"

#include "graph/base/status.h"

namespace tessera {

PagePool::PagePool(int64_t pages, int64_t page_size)
    : page_size_(page_size),
      index_(pages),
      users_(static_cast<size_t>(pages), 0),
      idle_at_(users_.size()),
      available_(pages) {
  for (size_t page = 0; page < users_.size(); ++page)
    idle_at_[page] = idle_.insert(idle_.end(), static_cast<int32_t>(page));
}

void PagePool::forget_all() {
  for (int32_t page = 0; page < pages(); ++page) index_.erase(page);
}

std::optional<int32_t> PagePool::take() {
  if (idle_.empty()) return std::nullopt;
  const int32_t page = idle_.front();
  index_.erase(page);
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
  index_.cut(page, count);
  hold(page);
}

void PagePool::give_back(int32_t page) {
  const auto at = static_cast<size_t>(page);
  TSR_CHECK(users_[at] > 0, "a page without a user is given back");
  if (--users_[at] > 0) return;
  // A page that holds nothing known is taken before those that do.
  idle_at_[at] = idle_.insert(index_.contains(page) ? idle_.end() : idle_.begin(), page);
  ++available_;
}

std::optional<PagePool::Found> PagePool::find(Content before, std::span<const int32_t> tokens) {
  const auto found = index_.find(before, tokens);
  if (found) hold(found->page);
  return found;
}

PagePool::Content PagePool::remember(int32_t page, Content before, std::span<const int32_t> tokens) {
  TSR_CHECK(static_cast<int64_t>(tokens.size()) == page_size_, "a page is remembered when it is full");
  return index_.insert(page, before, tokens);
}

void PagePool::remember_beginning(int32_t page, Content before, std::span<const int32_t> tokens) {
  const auto known = index_.find_beginning(before, tokens);
  if (known && known->common == static_cast<int64_t>(tokens.size())) return;
  index_.insert(page, before, tokens);
}

}  // namespace tessera
