#include "engine/serving/pages/cached_prefix.h"

#include <algorithm>

namespace tessera {

CachedPrefix CachedPrefix::find(PagePool& pool, PagePool::Content root, std::span<const int32_t> tokens, bool needs_state) {
  CachedPrefix prefix;
  const auto size = static_cast<size_t>(pool.page_size());
  std::span<const int32_t> left = tokens;
  PagePool::Content before = root;
  while (left.size() >= size) {
    const auto found = pool.find(before, left.first(size));
    if (!found) break;
    before = found->content;
    prefix.pages.push_back(found->page);
    prefix.contents.push_back(before);
    left = left.subspan(size);
  }
  prefix.rest = pool.find_beginning(before, left.first(std::min(left.size(), size)));
  prefix.known = std::ssize(prefix.pages) * pool.page_size() + (prefix.rest ? prefix.rest->common : 0);
  prefix.size = prefix.count_usable(pool, root, tokens.first(static_cast<size_t>(prefix.known)), needs_state);
  prefix.shorten(pool);
  const WindowPages& windows = pool.windows();
  prefix.first_window = windows.first_page(prefix.size);
  for (auto i = static_cast<size_t>(prefix.first_window); i < prefix.pages.size(); ++i)
    pool.windows().hold(prefix.pages[i]);
  return prefix;
}

int64_t CachedPrefix::count_usable(PagePool& pool, PagePool::Content root, std::span<const int32_t> tokens, bool needs_state) {
  const WindowPages& windows = pool.windows();
  const auto usable = windows.count_usable(pages, rest ? rest->page : -1, rest ? rest->common : 0);
  if (!needs_state) return usable;
  const auto found = pool.snapshots().find(root, contents, tokens.first(static_cast<size_t>(usable)));
  if (!found) return 0;
  if (windows.is_used() && found->size < usable) {  // windows may be missing where it ends
    const auto full = static_cast<size_t>(found->size / pool.page_size());
    const int32_t last = full < pages.size() ? pages[full] : rest ? rest->page : -1;
    if (windows.count_usable(std::span(pages).first(full), last, found->size % pool.page_size()) != found->size) return 0;
  }
  snapshot = found->row;
  return found->size;
}

void CachedPrefix::shorten(PagePool& pool) {
  const int64_t page_size = pool.page_size();
  if (size >= known) return;
  const int64_t full = size / page_size, common = size % page_size;
  if (full < std::ssize(pages))
    rest = PagePool::Beginning{pages[static_cast<size_t>(full)], common, page_size};
  else if (rest)
    rest->common = common;
  if (common == 0) rest.reset();
  for (; std::ssize(pages) > full; pages.pop_back()) {
    pool.give_back(pages.back());
    contents.pop_back();
  }
}

void CachedPrefix::give_back(PagePool& pool) {
  for (; !pages.empty(); pages.pop_back()) {
    if (std::ssize(pages) > first_window) pool.windows().give_back(pages.back(), true);
    pool.give_back(pages.back());
  }
  contents.clear();
}

}  // namespace tessera
