#include "runtime/collective_blocks.h"

#include <cstring>

#include "graph/base/dtype.h"
#include "runtime/backend_collective.h"

namespace tessera {

namespace {

int64_t bytes_of(const tsr_abi_collective& what, int64_t elements) {
  return dtype_bytes(static_cast<DType>(what.dtype), elements);
}

CollectiveBlock contiguous(int64_t offset, int64_t bytes) { return {.offset = offset, .run = bytes}; }

// Rows of `part` of a tensor [outer, whole, inner], from element `at` of the split dim on.
CollectiveBlock rows_of_whole(const tsr_abi_collective& what, int64_t at, int64_t part) {
  const int64_t whole = sum_of_extents(what.extents, what.member_count);
  return {.offset = bytes_of(what, at * what.inner),
          .counts = {what.outer, 1, 1},
          .strides = {bytes_of(what, whole * what.inner), 0, 0},
          .run = bytes_of(what, part * what.inner)};
}

// A block of an all_to_all within a tensor [outer, first, middle, second, inner], of which it has `firsts` from `first` on and
// `seconds` from `second` on.
CollectiveBlock block_of_two(const tsr_abi_collective& what, int64_t first_extent, int64_t first, int64_t firsts,
                             int64_t second_extent, int64_t second, int64_t seconds) {
  const int64_t row = second_extent * what.inner;
  return {.offset = bytes_of(what, first * what.middle * row + second * what.inner),
          .counts = {what.outer, firsts, what.middle},
          .strides = {bytes_of(what, first_extent * what.middle * row), bytes_of(what, what.middle * row), bytes_of(what, row)},
          .run = bytes_of(what, seconds * what.inner)};
}

// The dim that `in` splits has extents[from] of `from`; the one that `out` splits has extents2[to] of `to`.
CollectiveBlock exchanged(const tsr_abi_collective& what, int32_t from, int32_t to, bool is_sent) {
  const int64_t in_part = what.extents[from], out_part = what.extents2[to];
  const int64_t in_whole = sum_of_extents(what.extents, what.member_count),
                out_whole = sum_of_extents(what.extents2, what.member_count);
  // In the sender's buffer the dim split in `in` is the part alone, in the receiver's it is whole.
  const int64_t in_extent = is_sent ? in_part : in_whole, in_at = is_sent ? 0 : sum_of_extents(what.extents, from);
  const int64_t out_extent = is_sent ? out_whole : out_part, out_at = is_sent ? sum_of_extents(what.extents2, to) : 0;
  return what.in_split_first ? block_of_two(what, in_extent, in_at, in_part, out_extent, out_at, out_part)
                             : block_of_two(what, out_extent, out_at, out_part, in_extent, in_at, in_part);
}

template <class Each>
void for_each_run(const CollectiveBlock& block, const Each& each) {
  if (block.run == 0) return;
  for (int64_t a = 0; a < block.counts[0]; ++a)
    for (int64_t b = 0; b < block.counts[1]; ++b)
      for (int64_t c = 0; c < block.counts[2]; ++c)
        each(block.offset + a * block.strides[0] + b * block.strides[1] + c * block.strides[2], a, b, c);
}

}  // namespace

bool CollectiveBlock::is_contiguous() const {
  int64_t extent = run;
  for (int level = 2; level >= 0; --level) {
    if (counts[level] > 1 && strides[level] != extent) return false;
    extent *= counts[level];
  }
  return true;
}

CollectiveBlock sent_block(const tsr_abi_collective& what, int32_t from, int32_t to) {
  switch (what.kind) {
    case kAllReduce: {
      const MemberShare share = all_reduce_share(what.elements, what.member_count, to);
      return contiguous(bytes_of(what, share.begin), bytes_of(what, share.count));
    }
    case kAllGather: return contiguous(0, bytes_of(what, what.outer * what.extents[from] * what.inner));
    case kReduceScatter: return rows_of_whole(what, sum_of_extents(what.extents, to), what.extents[to]);
    case kAllToAll: return exchanged(what, from, to, true);
    default: return contiguous(0, from == what.root ? bytes_of(what, what.elements) : 0);
  }
}

CollectiveBlock placed_block(const tsr_abi_collective& what, int32_t from, int32_t to) {
  switch (what.kind) {
    case kAllGather: return rows_of_whole(what, sum_of_extents(what.extents, from), what.extents[from]);
    case kAllToAll: return exchanged(what, from, to, false);
    default: return sent_block(what, from, to);
  }
}

void pack(const CollectiveBlock& block, const std::byte* from, std::byte* packed) {
  for_each_run(block, [&](int64_t at, int64_t, int64_t, int64_t) {
    std::memcpy(packed, from + at, static_cast<size_t>(block.run));
    packed += block.run;
  });
}

void unpack(const CollectiveBlock& block, const std::byte* packed, std::byte* to) {
  for_each_run(block, [&](int64_t at, int64_t, int64_t, int64_t) {
    if (to + at != packed) std::memcpy(to + at, packed, static_cast<size_t>(block.run));
    packed += block.run;
  });
}

void copy_block(const CollectiveBlock& sent, const std::byte* from, const CollectiveBlock& placed, std::byte* to) {
  if (sent.is_contiguous()) return unpack(placed, from + sent.offset, to);
  for_each_run(sent, [&](int64_t at, int64_t a, int64_t b, int64_t c) {
    const int64_t target = placed.offset + a * placed.strides[0] + b * placed.strides[1] + c * placed.strides[2];
    std::memcpy(to + target, from + at, static_cast<size_t>(sent.run));
  });
}

}  // namespace tessera
