#include "capi/engine/serving/cached_prefix.h"

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
  return prefix;
}

void CachedPrefix::give_back(PagePool& pool) {
  for (; !pages.empty(); pages.pop_back()) pool.give_back(pages.back());
  contents.clear();
}

}  // namespace tessera
