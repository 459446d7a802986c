// Sequence: the tokens of a served text, and the pages with their keys and values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/serving/adapters/adapter_registry.h"
#include "engine/serving/pages/page_pool.h"

namespace tessera {

// Separates the pages of texts rotated by the second row of RoPE factors from those of
// shorter texts. Roots of adapters are multiples of another number and never collide.
inline constexpr uint64_t kLongRoot = 0xd1b54a32d192ed03;

struct Sequence {
  int64_t number = 0;                       // order of arrival
  int32_t priority = 0;                     // higher runs earlier
  uint64_t root = 0;  // texts with equal roots share pages: model, adapter, versions
  std::shared_ptr<const LoadedAdapter> adapter = nullptr;  // null: none
  int32_t adapter_slot = -1;                               // slot of the adapter, while the sequence is scheduled
  std::vector<int32_t> tokens;              // prompt and text
  int64_t computed = 0;                     // tokens whose keys and values are in the pages
  std::vector<int32_t> pages;               // in order of position
  int64_t first_window = 0;                 // first page whose window page it retains
  std::vector<int64_t> branches;            // sizes at which other texts are likely to branch off
  std::vector<PagePool::Content> contents;  // of the full computed pages
  std::optional<int32_t> row;               // row of the page table, while it runs
  int64_t logits_begin = 0,
          logits_end = 0;  // tokens to compute whose logits are requested, in addition to the last
  bool generates = true;   // the last token's logits are requested
  int64_t findable = INT64_MAX;              // number of first tokens whose pages later texts may reuse
  int32_t rope_row = 1;                      // row of RoPE factors, from 1
  int64_t hidden_begin = 0, hidden_end = 0;  // tokens to compute whose hidden states are requested
  std::vector<int32_t> drafts;             // proposed next tokens, verified in the next step
  int64_t reused = 0;                       // cached tokens when it last started
  std::vector<int64_t> snapshots;           // numbers of first tokens after which its state is copied, ascending

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  // The root without the mark of long texts.
  uint64_t short_root() const { return rope_row == 2 ? root ^ kLongRoot : root; }
  // Number of tokens whose cached keys and values can replace computing them.
  int64_t reusable() const {
    int64_t most = size() - 1;
    if (logits_begin < logits_end) most = std::min(most, logits_begin);
    if (hidden_begin < hidden_end) most = std::min(most, hidden_begin);
    return most;
  }
  // Whether only the last token is left to compute.
  bool is_decoding() const { return computed + 1 == size(); }
  // Content up to the first page that is not full or not computed.
  PagePool::Content content() const { return contents.empty() ? PageIndex::root(root) : contents.back(); }
};

// Whether sequence `a` precedes `b` in every queue.
inline bool matters_more(const Sequence* a, const Sequence* b) {
  return a->priority != b->priority ? a->priority > b->priority : a->number < b->number;
}

}  // namespace tessera
