#include "engine/serving/pages/cached_prefix.h"

#include <algorithm>

namespace tessera {

CachedPrefix CachedPrefix::find(PagePool& pool, PagePool::Content root, std::span<const int32_t> tokens) {
  CachedPrefix prefix;
  const auto size = static_cast<size_t>(pool.page_size());
  PagePool::Content before = root;
  while (tokens.size() >= size) {
    const auto found = pool.find(before, tokens.first(size));
    if (!found) break;
    before = found->content;
    prefix.pages.push_back(found->page);
    prefix.contents.push_back(before);
    tokens = tokens.subspan(size);
  }
  prefix.rest = pool.find_beginning(before, tokens.first(std::min(tokens.size(), size)));
  const int64_t rest_tokens = prefix.rest ? prefix.rest->common : 0;
  WindowPages& windows = pool.windows();
  prefix.size = windows.count_usable(prefix.pages, prefix.rest ? prefix.rest->page : -1, rest_tokens);
  prefix.known = std::ssize(prefix.pages) * pool.page_size() + rest_tokens;
  if (prefix.size < prefix.known) prefix.rest.reset();
  for (; std::ssize(prefix.pages) * pool.page_size() > prefix.size; prefix.pages.pop_back()) {
    pool.give_back(prefix.pages.back());
    prefix.contents.pop_back();
  }
  prefix.first_window = windows.first_page(prefix.size);
  for (auto i = static_cast<size_t>(prefix.first_window); i < prefix.pages.size(); ++i)
    windows.hold(prefix.pages[i]);
  return prefix;
}

void CachedPrefix::give_back(PagePool& pool) {
  for (; !pages.empty(); pages.pop_back()) {
    if (std::ssize(pages) > first_window) pool.windows().give_back(pages.back(), true);
    pool.give_back(pages.back());
  }
  contents.clear();
}

}  // namespace tessera
