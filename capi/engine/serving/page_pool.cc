#include "capi/engine/serving/page_pool.h"

#include <utility>

#include "graph/base/status.h"

namespace tessera {

PagePool::PagePool(int64_t pages, int64_t page_size)
    : page_size_(page_size),
      users_(static_cast<size_t>(pages), 0),
      known_as_(users_.size(), known_.end()),
      idle_at_(users_.size()),
      available_(pages) {
  for (size_t page = 0; page < users_.size(); ++page)
    idle_at_[page] = idle_.insert(idle_.end(), static_cast<int32_t>(page));
}

void PagePool::forget(int32_t page) {
  auto& known = known_as_[static_cast<size_t>(page)];
  if (known == known_.end()) return;
  known_.erase(known);
  known = known_.end();
}

void PagePool::forget_all() {
  for (size_t page = 0; page < users_.size(); ++page) forget(static_cast<int32_t>(page));
}

std::optional<int32_t> PagePool::take() {
  if (idle_.empty()) return std::nullopt;
  const int32_t page = idle_.front();
  idle_.pop_front();
  forget(page);
  users_[static_cast<size_t>(page)] = 1;
  --available_;
  return page;
}

void PagePool::give_back(int32_t page) {
  const auto at = static_cast<size_t>(page);
  TSR_CHECK(users_[at] > 0, "a page without a user is given back");
  if (--users_[at] > 0) return;
  // A page that holds nothing known is taken before those that do.
  const bool is_known = known_as_[at] != known_.end();
  idle_at_[at] = idle_.insert(is_known ? idle_.end() : idle_.begin(), page);
  ++available_;
}

std::optional<PagePool::Found> PagePool::find(Content before, std::span<const int32_t> tokens) {
  const auto known = known_.find(Key(before, std::vector<int32_t>(tokens.begin(), tokens.end())));
  if (known == known_.end()) return std::nullopt;
  const auto at = static_cast<size_t>(known->second.page);
  if (users_[at]++ == 0) {
    idle_.erase(idle_at_[at]);
    --available_;
  }
  return Found{known->second.page, known->second.content};
}

PagePool::Content PagePool::remember(int32_t page, Content before, std::span<const int32_t> tokens) {
  TSR_CHECK(static_cast<int64_t>(tokens.size()) == page_size_, "a page is remembered when it is full");
  const auto [known, is_new] =
      known_.try_emplace(Key(before, std::vector<int32_t>(tokens.begin(), tokens.end())), Known{next_, page});
  if (is_new) {
    ++next_;
    known_as_[static_cast<size_t>(page)] = known;
  }
  return known->second.content;
}

}  // namespace tessera
