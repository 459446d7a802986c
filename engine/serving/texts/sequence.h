// Sequence: a text that a server computes: its tokens, how many of them have keys and values in pages, and which pages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/serving/adapters/adapter_registry.h"
#include "engine/serving/pages/page_pool.h"

namespace tessera {

// Pages of texts that are rotated by the second row of factors are no use to shorter ones. Roots of adapters are multiples of another
// number, which meet none of these.
inline constexpr uint64_t kLongRoot = 0xd1b54a32d192ed03;

struct Sequence {
  int64_t number = 0;                       // in the order of arrival
  int32_t priority = 0;                     // the higher, the earlier
  uint64_t root = 0;  // texts share pages where this is the same: model, adapter, versions
  std::shared_ptr<const LoadedAdapter> adapter = nullptr;  // null: none
  int32_t adapter_slot = -1;                               // of the adapter, while the sequence is scheduled
  std::vector<int32_t> tokens;              // prompt and text
  int64_t computed = 0;                     // tokens whose keys and values are in the pages
  std::vector<int32_t> pages;               // of the positions, in order
  int64_t first_window = 0;                 // of the pages: the first whose window page it holds
  std::vector<int64_t> branches;            // sizes at which other texts are likely to go on from it
  std::vector<PagePool::Content> contents;  // of the pages that are full and computed
  std::optional<int32_t> row;               // of the page table, while it runs
  int64_t logits_begin = 0,
          logits_end = 0;  // tokens still to compute after which logits are wanted, besides the last
  bool generates = true;   // logits behind the last token are wanted
  int64_t findable = INT64_MAX;              // first tokens whose pages later texts may find
  int32_t rope_row = 1;                      // of the factors that it is rotated by, from 1
  int64_t hidden_begin = 0, hidden_end = 0;  // tokens still to compute whose hidden states are wanted
  std::vector<int32_t> drafts;             // tokens that may come next, computed along in the next step
  int64_t reused = 0;                       // tokens that were in pages already when it began, the last time

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  // The root whatever row of factors it is rotated by.
  uint64_t short_root() const { return rope_row == 2 ? root ^ kLongRoot : root; }
  // Tokens that need not be computed where pages hold their keys and values.
  int64_t reusable() const {
    int64_t most = size() - 1;
    if (logits_begin < logits_end) most = std::min(most, logits_begin);
    if (hidden_begin < hidden_end) most = std::min(most, hidden_begin);
    return most;
  }
  // Whether what is left to compute is the last token: the next one follows from it.
  bool is_decoding() const { return computed + 1 == size(); }
  // What is before its first page that is not full, or not computed.
  PagePool::Content content() const { return contents.empty() ? PageIndex::root(root) : contents.back(); }
};

// Whether a sequence comes before another one, wherever they wait.
inline bool matters_more(const Sequence* a, const Sequence* b) {
  return a->priority != b->priority ? a->priority > b->priority : a->number < b->number;
}

}  // namespace tessera
