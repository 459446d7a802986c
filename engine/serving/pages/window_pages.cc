#include "engine/serving/pages/window_pages.h"

#include <algorithm>
#include <limits>

#include "graph/base/status.h"

namespace tessera {

WindowPages::WindowPages(WindowExtent extent, int64_t owners, int64_t page_size)
    : window_(std::max<int64_t>(extent.window, 2)),  // at least 2, so that a reused prefix keeps its last page
      page_size_(page_size),
      pages_(static_cast<size_t>(extent.pages > 0 ? owners : 0)),
      owners_(static_cast<size_t>(extent.pages), -1),
      users_(owners_.size(), 0),
      places_(owners_.size()) {
  for (std::atomic<int32_t>& page : pages_) page = -1;
  for (size_t page = 0; page < users_.size(); ++page) put(static_cast<int32_t>(page), Idle::kFree);
}

int64_t WindowPages::available() const {
  if (!is_used()) return std::numeric_limits<int64_t>::max();
  return std::ssize(idle_[0]) + std::ssize(idle_[1]) + std::ssize(idle_[2]);
}

int64_t WindowPages::first_page(int64_t position) const {
  return is_used() ? std::max<int64_t>(0, position - window_ + 1) / page_size_ : 0;
}

void WindowPages::put(int32_t page, Idle list) {
  places_[static_cast<size_t>(page)] = {list, idle(list).insert(idle(list).end(), page)};
}

bool WindowPages::take(int32_t owner) {
  if (!is_used()) return true;
  TSR_CHECK(page_of(owner) < 0, "a page that has a window page takes another");
  const auto list = std::ranges::find_if(idle_, [](const auto& it) { return !it.empty(); });
  if (list == std::end(idle_)) return false;
  const int32_t page = list->front();
  list->pop_front();
  const auto at = static_cast<size_t>(page);
  if (owners_[at] >= 0) pages_[static_cast<size_t>(owners_[at])] = -1;
  owners_[at] = owner;
  users_[at] = 1;
  pages_[static_cast<size_t>(owner)] = page;
  return true;
}

void WindowPages::hold(int32_t owner) {
  if (!is_used()) return;
  TSR_CHECK(page_of(owner) >= 0, "a window page that is not there is held");
  const auto at = static_cast<size_t>(page_of(owner));
  if (users_[at]++ == 0) idle(places_[at].list).erase(places_[at].at);
}

void WindowPages::give_back(int32_t owner, bool kept) {
  if (!is_used()) return;
  TSR_CHECK(page_of(owner) >= 0, "a window page that is not there is given back");
  const auto at = static_cast<size_t>(page_of(owner));
  TSR_CHECK(users_[at] > 0, "a window page without a user is given back");
  if (--users_[at] == 0) put(page_of(owner), kept ? Idle::kKept : Idle::kPassed);
}

void WindowPages::detach(int32_t owner) {
  if (!is_used() || page_of(owner) < 0) return;
  const int32_t page = page_of(owner);
  const auto at = static_cast<size_t>(page);
  TSR_CHECK(users_[at] == 0, "a window page in use is detached");
  idle(places_[at].list).erase(places_[at].at);
  pages_[static_cast<size_t>(owner)] = -1;
  owners_[at] = -1;
  put(page, Idle::kFree);
}

int64_t WindowPages::count_usable(std::span<const int32_t> full, int32_t rest, int64_t rest_tokens) const {
  const int64_t all = std::ssize(full) * page_size_;
  if (!is_used()) return all + rest_tokens;
  int64_t usable = 0, complete_from = 0;  // window pages are complete from `complete_from` on
  for (int64_t i = 0; i < std::ssize(full); ++i) {
    if (!has(full[static_cast<size_t>(i)])) complete_from = i + 1;
    if (complete_from <= first_page((i + 1) * page_size_)) usable = (i + 1) * page_size_;
  }
  if (rest_tokens > 0 && has(rest) && complete_from <= first_page(all + rest_tokens))
    usable = all + rest_tokens;
  return usable;
}

}  // namespace tessera
