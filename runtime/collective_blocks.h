// CollectiveBlock: the bytes that one member of a collective needs of another, as strided runs in either's buffer. Layouts are those
// of CollectiveInst (graph/program.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/backend_abi.h"

namespace tessera {

struct CollectiveBlock {
  int64_t offset = 0;
  int64_t counts[3] = {1, 1, 1};   // from the outside in
  int64_t strides[3] = {0, 0, 0};  // bytes
  int64_t run = 0;                 // contiguous bytes

  int64_t bytes() const { return counts[0] * counts[1] * counts[2] * run; }
  bool is_contiguous() const;
};

// The block of `from`'s input that `to` needs, and its place in `to`'s output, with the same runs in the same order. A reduction
// has no place: `to` adds the blocks of all members.
CollectiveBlock sent_block(const tsr_abi_collective& what, int32_t from, int32_t to);
CollectiveBlock placed_block(const tsr_abi_collective& what, int32_t from, int32_t to);

void pack(const CollectiveBlock& block, const std::byte* from, std::byte* packed);
void unpack(const CollectiveBlock& block, const std::byte* packed, std::byte* to);
// Both have the same runs.
void copy_block(const CollectiveBlock& sent, const std::byte* from, const CollectiveBlock& placed, std::byte* to);

}  // namespace tessera
