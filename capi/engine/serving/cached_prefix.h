// CachedPrefix: how much of a text has its keys and values in pages already, to the token.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "capi/engine/serving/page_pool.h"

namespace tessera {

struct CachedPrefix {
  std::vector<int32_t> pages;               // full ones, in order; each has one user more
  std::vector<PagePool::Content> contents;  // of these pages
  std::optional<PagePool::Beginning> rest;  // of the page after them; it has no user more

  // The longest beginning that pages under `root` hold.
  static CachedPrefix find(PagePool& pool, PagePool::Content root, std::span<const int32_t> tokens);
  // The full pages have one user fewer, the last ones first: what begins texts is kept for longest.
  void give_back(PagePool& pool);
};

}  // namespace tessera
