// CachedPrefix: the first tokens of a text whose keys and values are in pages already. Layers with a window need only
// those that the next token sees; where these are missing, the prefix ends earlier.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/serving/pages/page_pool.h"

namespace tessera {

struct CachedPrefix {
  std::vector<int32_t>
      pages;  // full ones, in order; each has one user more, and its window page from `first_window` on
  std::vector<PagePool::Content> contents;  // of these pages
  std::optional<PagePool::Beginning> rest;  // of the page after them; it has no user more
  int64_t first_window = 0;                 // first page whose window page is held
  int64_t size = 0;                         // tokens in all
  int64_t known = 0;                        // tokens in pages whose window pages may be gone; `size` or more

  // The longest beginning that pages under `root` hold.
  static CachedPrefix find(PagePool& pool, PagePool::Content root, std::span<const int32_t> tokens);
  // Releases one user of each full page and its window page, the last ones first: beginnings of texts are kept for
  // longest.
  void give_back(PagePool& pool);
};

}  // namespace tessera
