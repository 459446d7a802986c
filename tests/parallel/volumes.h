// Counting what a program sends: ring bytes by mesh axis, as the algebra counts them.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "graph/program.h"

namespace tessera {

struct Sent {
  double bytes = 0;   // totals over all ranks
  int64_t calls = 0;  // on rank 0
};

inline double ring_share(const CollectiveInst& c, const Group& group) {
  const double n = static_cast<double>(group.ranks.size()),
               whole = static_cast<double>(dtype_bytes(c.dtype, c.elements));
  if (c.kind == CollectiveKind::kAllReduce) return 2 * (n - 1) / n * whole;
  if (c.kind == CollectiveKind::kAllToAll) {  // all of my piece but what stays with me
    const auto mine = static_cast<size_t>(group.position);
    int64_t all = 0;
    for (const int64_t extent : c.extents2) all += extent;
    return static_cast<double>(
        dtype_bytes(c.dtype, c.outer * c.extents[mine] * c.middle * (all - c.extents2[mine]) * c.inner));
  }
  return (n - 1) / n * whole;
}

// Volumes of one entry, or of all; by "all_reduce dp".
inline std::map<std::string, Sent> count_sent(const Program& program, std::string_view only = {}) {
  constexpr std::string_view kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                         "broadcast"};
  std::map<std::string, Sent> sent;
  for (size_t r = 0; r < program.ranks.size(); ++r)
    for (const EntryPoint& entry : program.ranks[r].entries) {
      if (!only.empty() && entry.name != only) continue;
      for (const Instruction& instruction : entry.code)
        if (const auto* c = std::get_if<CollectiveInst>(&instruction)) {
          const Group& group = program.ranks[r].groups[static_cast<size_t>(c->group)];
          Sent& into = sent[std::string(kNames[static_cast<size_t>(c->kind)]) + " " + group.axis];
          into.bytes += ring_share(*c, group);
          into.calls += r == 0;
        }
    }
  return sent;
}

inline double total_bytes(const std::map<std::string, Sent>& sent) {
  double bytes = 0;
  for (const auto& [name, it] : sent) bytes += it.bytes;
  return bytes;
}

}  // namespace tessera
