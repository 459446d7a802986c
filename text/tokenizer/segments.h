// Segments: matches in a text and the parts
// between them, and their conversion to pieces.
#pragma once

#include <utility>

#include "text/tokenizer/pre_tokenizers.h"

namespace tessera {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

inline PreToken part_of(const PreToken& piece, size_t begin, size_t end) {
  return {piece.text.substr(begin, end - begin), piece.origins ? piece.origins + begin : nullptr,
          piece.first && begin == 0};
}

// SegmentSplitter: receives the contiguous segments of a piece in order.
class SegmentSplitter {
 public:
  SegmentSplitter(const PreToken& piece, SplitBehavior behavior, PreTokenSink next)
      : piece_(piece), behavior_(behavior), next_(next) {}

  Status add(size_t begin, size_t end, bool is_match) {
    const bool after_match = std::exchange(after_match_, is_match);
    switch (behavior_) {
      case SplitBehavior::kRemoved: return is_match ? Status() : put(begin, end);
      case SplitBehavior::kIsolated: return put(begin, end);
      case SplitBehavior::kContiguous: return hold(begin, end, is_match == after_match);
      case SplitBehavior::kMergedWithPrevious: return hold(begin, end, is_match && !after_match);
      case SplitBehavior::kMergedWithNext: return hold(begin, end, !is_match && after_match);
    }
    return {};
  }
  Status finish() {
    if (!held_) return {};
    held_ = false;
    return put(held_begin_, held_end_);
  }

 private:
  // Joins the segment to the held one, or holds it instead.
  Status hold(size_t begin, size_t end, bool joins) {
    if (held_ && joins) {
      held_end_ = end;
      return {};
    }
    TSR_RETURN_IF_ERROR(finish());
    held_ = true;
    held_begin_ = begin;
    held_end_ = end;
    return {};
  }
  Status put(size_t begin, size_t end) { return end > begin ? next_(part_of(piece_, begin, end)) : Status(); }

  const PreToken& piece_;
  const SplitBehavior behavior_;
  const PreTokenSink next_;
  bool after_match_ = false, held_ = false;
  size_t held_begin_ = 0, held_end_ = 0;
};

}  // namespace tessera
