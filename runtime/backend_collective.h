// Code that backends share for collectives: checks of a description by one member and
// between members, and the bytes a member counts. Header-only, like backend_table.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string_view>

#include "graph/base/dtype.h"
#include "graph/base/reduce.h"
#include "graph/base/result.h"
#include "graph/base/text.h"
#include "runtime/backend_abi.h"

namespace tessera {

// Counter indices after those of CollectiveKind (graph/program.h):
// messages, and calls that a capture may replay.
enum MessageKind : int32_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kSend,
  kReceive,
  kCapturable
};

// Sum of the first `count` members' extents, which is the offset of the next member's part.
inline int64_t sum_of_extents(const int64_t* extents, int32_t count) {
  return std::accumulate(extents, extents + count, int64_t{0});
}

struct MemberShare {
  int64_t begin, count;
};

// The elements of an all_reduce that a member reduces, in whole cache lines of f32.
inline MemberShare all_reduce_share(int64_t elements, int32_t members, int32_t member) {
  constexpr int64_t kUnit = 16;
  const int64_t units = (elements + kUnit - 1) / kUnit;
  const int64_t begin = std::min(elements, units * member / members * kUnit);
  const int64_t end = std::min(elements, units * (member + 1) / members * kUnit);
  return {begin, end - begin};
}

// Checks that the member at `position` of a group of `members` can make alone; kInvalidArgument.
// `can_reduce(dtype, reduce)`: whether the backend has the reduction, else kUnsupported.
template <class CanReduce>
Status check_collective(const tsr_abi_collective& what, int32_t position, int32_t members, const void* in,
                        const void* out, CanReduce&& can_reduce) {
  const auto wrong = [](std::string_view problem) {
    return Status(StatusCode::kInvalidArgument, format("collective: {}", problem));
  };
  if (what.member_count != members)
    return wrong(format("described for {} members, the group has {}", what.member_count, members));
  if (what.dtype < 0 || what.dtype >= kDTypeCount)
    return wrong(format("dtype {} does not exist", what.dtype));
  if (what.elements < 0 || what.outer < 0 || what.middle < 0 || what.inner < 0)
    return wrong("a negative extent");
  if (what.kind < kAllReduce || what.kind > kBroadcast)
    return wrong(format("kind {} does not exist", what.kind));
  if ((what.kind == kAllReduce || what.kind == kReduceScatter) && !can_reduce(what.dtype, what.reduce))
    return Status(StatusCode::kUnsupported, format("collective: no reduction {} of {}", what.reduce,
                                                   to_text(static_cast<DType>(what.dtype))));
  if (what.kind == kBroadcast && (what.root < 0 || what.root >= members))
    return wrong(format("root {} is outside the group of {}", what.root, members));
  if (what.kind == kAllReduce || what.kind == kBroadcast) return {};
  const bool two_dims = what.kind == kAllToAll;
  if (what.extents == nullptr || (two_dims && what.extents2 == nullptr)) return wrong("no extents");
  for (int32_t i = 0; i < members; ++i)
    if (what.extents[i] < 0 || (two_dims && what.extents2[i] < 0)) return wrong("a negative extent");
  int64_t whole = what.outer * sum_of_extents(what.extents, members) * what.inner;
  if (two_dims) whole *= what.middle * sum_of_extents(what.extents2, members);
  if (whole != what.elements)
    return wrong(format("extents make {} elements, the whole tensor has {}", whole, what.elements));
  // A member without a part of a split dim passes an empty buffer at any address.
  const bool empty = what.extents[position] == 0 || (two_dims && what.extents2[position] == 0);
  if (what.elements > 0 && !empty && in == out && in != nullptr && members > 1)
    return wrong("in and out are one buffer");
  return {};
}

// Elements of the buffer that the member at `position` passes in.
inline int64_t input_elements(const tsr_abi_collective& what, int32_t position) {
  switch (what.kind) {
    case kAllGather: return what.outer * what.extents[position] * what.inner;
    case kAllToAll:
      return what.outer * what.extents[position] * what.middle *
             sum_of_extents(what.extents2, what.member_count) * what.inner;
    case kBroadcast: return position == what.root ? what.elements : 0;
    default: return what.elements;
  }
}

// Whether two descriptions are equivalent.
inline bool same_collective(const tsr_abi_collective& a, const tsr_abi_collective& b) {
  const auto same = [&](const int64_t* left, const int64_t* right) {
    if ((left == nullptr) != (right == nullptr)) return false;
    return left == nullptr || std::equal(left, left + a.member_count, right);
  };
  return a.member_count == b.member_count && a.kind == b.kind && a.reduce == b.reduce && a.dtype == b.dtype &&
         a.outer == b.outer && a.middle == b.middle && a.inner == b.inner && a.elements == b.elements &&
         a.root == b.root && a.in_split_first == b.in_split_first && same(a.extents, b.extents) &&
         same(a.extents2, b.extents2);
}

// kInternal unless all members describe the same collective; `what_of(i)`: the description of member i.
template <class WhatOf>
Status check_agreement(int32_t position, int32_t members, WhatOf&& what_of) {
  const tsr_abi_collective& mine = what_of(position);
  for (int32_t i = 0; i < members; ++i) {
    const tsr_abi_collective& other = what_of(i);
    if (!same_collective(mine, other))
      return Status(
          StatusCode::kInternal,
          format("collective: members 0..{} disagree: position {} has kind {} of {} elements, position {} "
                 "has kind {} of {} elements",
                 members - 1, position, mine.kind, mine.elements, i, other.kind, other.elements));
  }
  return {};
}

// The member's share of the bytes that a ring would
// move; the shares add up to the total exactly.
inline int64_t ring_bytes(const tsr_abi_collective& what, int32_t position) {
  const int64_t others = what.member_count - 1;
  const auto bytes = [&](int64_t elements) { return dtype_bytes(static_cast<DType>(what.dtype), elements); };
  switch (what.kind) {
    case kAllReduce:
      return 2 * others * bytes(all_reduce_share(what.elements, what.member_count, position).count);
    case kAllGather:
    case kReduceScatter: return others * bytes(what.outer * what.extents[position] * what.inner);
    case kAllToAll: {
      const int64_t leaving = sum_of_extents(what.extents2, what.member_count) - what.extents2[position];
      return bytes(what.outer * what.extents[position] * what.middle * leaving * what.inner);
    }
    case kBroadcast: return position == what.root ? 0 : bytes(what.elements);
    default: return 0;
  }
}

// Reduces; in pieces on the pool where the `members` that do so at once leave it idle threads. The result is computed
// element by element, so the partition does not change it.
inline void reduce_on_pool(const tsr_host_api& host, ReduceFn reduce, const ReduceArgs& args, int32_t members) {
  static constexpr int64_t kPiece = int64_t{1} << 16;
  struct Context {
    ReduceFn reduce;
    const ReduceArgs& args;
  } context{reduce, args};
  if (args.count <= kPiece || members >= host.thread_count(host.host)) return reduce(args);
  host.parallel_for(
      host.host, (args.count + kPiece - 1) / kPiece,
      [](void* opaque, int64_t task) {
        const Context& context = *static_cast<Context*>(opaque);
        ReduceArgs piece = context.args;
        piece.in_begin += task * kPiece;
        piece.out_begin += task * kPiece;
        piece.count = std::min(kPiece, context.args.count - task * kPiece);
        context.reduce(piece);
      },
      &context);
}

inline void count_message(tsr_abi_comm_counters& counters, int32_t kind, int64_t bytes) {
  counters.calls[kind] += 1;
  counters.bytes[kind] += bytes;
}

}  // namespace tessera
