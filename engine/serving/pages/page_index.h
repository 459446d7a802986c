// PageIndex: which page holds which tokens, and after what. A radix tree whose edges are pages: what follows a content is in
// lexicographic order, so that the page that begins most like given tokens is next to where they would be. Looking up
// costs the logarithm of what follows one content, whatever else is known. Hashes are of numbers alone; tokens are
// compared. One thread at a time, except for `count_known`.
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
  // All tokens up to the end of a full page: two have the same number only where all these are the same, and the root,
  // which is what the caller says it is (a model, its adapter, their versions).
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
  // A page that begins with `common` of the tokens looked for; it is known to hold `known` tokens.
  struct Beginning {
    int32_t page;
    int64_t common, known;
  };

  explicit PageIndex(int64_t pages) : known_as_(static_cast<size_t>(pages)) {}

  // The page of exactly these tokens.
  std::optional<Found> find(Content before, std::span<const int32_t> tokens) const;
  // Of the pages after `before` one with the longest common beginning; nothing where that is empty.
  std::optional<Beginning> find_beginning(Content before, std::span<const int32_t> tokens) const;

  // Chain: full pages of `page_size` tokens that hold the first tokens after `root`, and one more. Any thread; the
  // pages may be gone when they are wanted.
  struct Chain {
    std::vector<int32_t> pages;
    std::optional<Beginning> rest;
  };
  Chain find_chain(Content root, std::span<const int32_t> tokens, int64_t page_size) const;

  // The page holds these tokens from here on, and nothing else. Where another page is known for them, that one stays.
  Content insert(int32_t page, Content before, std::span<const int32_t> tokens);
  // Adds the page in place of the other one, which is returned.
  std::optional<int32_t> replace(int32_t page, Content before, std::span<const int32_t> tokens);
  void erase(int32_t page);
  // The page holds only the first `count` of its tokens from here on.
  void cut(int32_t page, int64_t count);
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
  using Following = std::map<std::vector<int32_t>, Known, Lexicographic>;  // by the tokens of a page
  struct Place {
    Content before;
    Following::iterator at;
  };

  void erase_known(int32_t page);  // with changing_ held

  // Held by changes to known pages, and by `count_known`; the one thread that makes changes reads without it.
  mutable std::mutex changing_;
  std::unordered_map<Content, Following, ContentHash> following_;
  std::vector<std::optional<Place>> known_as_;  // by page
  uint64_t next_ = 0;
};

}  // namespace tessera
