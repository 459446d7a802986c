// PageIndex: finds pages by their tokens and the tokens before them. A radix tree whose edges are
// pages; the children of a node are in lexicographic order, so the page with the longest common prefix
// is next to the place of the searched tokens. A lookup costs the logarithm of the number of children.
// Hashes depend on numbers alone; tokens are compared. One thread at a time, except `count_known`.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace tessera {

class PageIndex {
 public:
  // Content: identifies all tokens up to the end of a full page, and the root.
  // The root is the caller's number for a model, its adapter and their versions.
  struct Content {
    uint64_t number = 0;
    bool is_root = true;
    friend auto operator<=>(const Content&, const Content&) = default;
  };
  static Content root(uint64_t number) { return {number, true}; }
  struct Found {
    int32_t page;
    Content content;
  };
  // Beginning: a page whose first `common` tokens match; `known` of its tokens are recorded.
  struct Beginning {
    int32_t page;
    int64_t common, known;
  };

  explicit PageIndex(int64_t pages) : known_as_(static_cast<size_t>(pages)) {}

  // Finds the page with exactly these tokens.
  std::optional<Found> find(Content before, std::span<const int32_t> tokens) const;
  // Finds the child page of `before` with the longest common prefix; nullopt without children.
  std::optional<Beginning> find_beginning(Content before, std::span<const int32_t> tokens) const;

  // Chain: the full pages of `page_size` tokens that hold the first tokens after `root`,
  // and the partly matching next page. Any thread; the pages may be evicted at any time.
  struct Chain {
    std::vector<int32_t> pages;
    std::optional<Beginning> rest;
  };
  Chain find_chain(Content root, std::span<const int32_t> tokens, int64_t page_size) const;

  // Records the page's tokens, replacing older ones. A page already recorded for the same tokens stays.
  Content insert(int32_t page, Content before, std::span<const int32_t> tokens);
  // Records the page instead of the one with the same tokens, which is returned.
  std::optional<int32_t> replace(int32_t page, Content before, std::span<const int32_t> tokens);
  void erase(int32_t page);
  // Keeps only the first `count` tokens of the page's record.
  void truncate(int32_t page, int64_t count);
  bool contains(int32_t page) const { return known_as_[static_cast<size_t>(page)].has_value(); }

 private:
  struct Lexicographic {
    using is_transparent = void;
    bool operator()(std::span<const int32_t> a, std::span<const int32_t> b) const;
  };
  struct ContentHash {
    size_t operator()(const Content& content) const;
  };
  struct Known {
    int32_t page;
    Content content;
  };
  using Following = std::map<std::vector<int32_t>, Known, Lexicographic>;  // keyed by the tokens of a page
  struct Place {
    Content before;
    Following::iterator at;
  };

  void erase_known(int32_t page);  // requires changing_

  // Guards changes of the index against `count_known`; the owning thread reads without it.
  mutable std::mutex changing_;
  std::unordered_map<Content, Following, ContentHash> following_;
  std::vector<std::optional<Place>> known_as_;  // by page
  uint64_t next_ = 0;
};

}  // namespace tessera
