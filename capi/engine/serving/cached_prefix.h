// CachedPrefix: how much of a text has its keys and values in pages already, to the token. Of layers with a window only
// what the next token sees has to be there; where it is not, the prefix ends earlier.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "capi/engine/serving/page_pool.h"

namespace tessera {

struct CachedPrefix {
  std::vector<int32_t>
      pages;  // full ones, in order; each has one user more, and its window page from `first_window` on
  std::vector<PagePool::Content> contents;  // of these pages
  std::optional<PagePool::Beginning> rest;  // of the page after them; it has no user more
  int64_t first_window = 0;                 // of the pages
  int64_t size = 0;                         // tokens in all
  int64_t known = 0;                        // tokens in pages whose window pages may be gone; `size` or more

  // The longest beginning that pages under `root` hold.
  static CachedPrefix find(PagePool& pool, PagePool::Content root, std::span<const int32_t> tokens);
  // The full pages and their window pages have one user fewer, the last ones first: what begins texts is kept for longest.
  void give_back(PagePool& pool);
};

}  // namespace tessera
