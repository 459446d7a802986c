// CachedPrefix: the first tokens of a text, whose keys and values are cached in pages. Window
// layers need only the pages that the next token sees; the prefix ends where these are missing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/serving/pages/page_pool.h"

namespace tessera {

struct CachedPrefix {
  std::vector<int32_t>
      pages;  // full pages, in order, retained once each, with their window pages from `first_window` on
  std::vector<PagePool::Content> contents;  // of these pages
  std::optional<PagePool::Beginning> rest;  // the next page, partly filled; not retained
  int64_t first_window = 0;                 // first page whose window page is retained
  int64_t size = 0;                         // tokens in all
  int64_t known = 0;                        // cached tokens, including those without window pages; >= `size`

  std::optional<int32_t> snapshot = {};  // the row of state after these tokens
  // Finds the longest cached prefix under `root`; with `needs_state` the longest that ends at a snapshot.
  static CachedPrefix find(PagePool& pool, PagePool::Content root, std::span<const int32_t> tokens, bool needs_state = false);
  // Releases each full page and its window page, last
  // first, so that beginnings of texts stay cached longest.
  void give_back(PagePool& pool);

 private:
  // The number of first tokens that can be reused.
  int64_t count_usable(PagePool& pool, PagePool::Content root, std::span<const int32_t> tokens, bool needs_state);
  // Releases the pages behind `size`, all retained, and with them the prefix's last page if it is left in part.
  void shorten(PagePool& pool);
};

}  // namespace tessera
