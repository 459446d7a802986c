// verify_exchanges: the ranks of a Program agree. Every group is listed by all its members, every send has
// its receive, and no entry deadlocks.
#include <map>
#include <utility>
#include <vector>

#include "graph/analysis/replay.h"
#include "graph/base/text.h"
#include "graph/verify_program.h"

namespace tessera {

namespace {

Status corrupt(std::string message) { return Status(StatusCode::kCorrupt, std::move(message)); }

// Groups are identified by their ranks, and by their order among groups of the same ranks.
Status verify_groups(const Program& program) {
  std::map<std::pair<std::vector<int32_t>, int32_t>, size_t> members;
  for (const RankProgram& rank : program.ranks) {
    std::map<std::vector<int32_t>, int32_t> seen;
    for (const Group& group : rank.groups) ++members[{group.ranks, seen[group.ranks]++}];
  }
  for (const auto& [key, count] : members)
    if (count != key.first.size())
      return corrupt(format("a group of {} ranks is listed by {} of them", key.first.size(), count));
  return {};
}

Status verify_entry(const Program& program, size_t entry) {
  const StreamOptions one_stream{.inline_below_bytes = INT64_MAX};
  std::vector<Dependencies> dependencies;
  for (const RankProgram& rank : program.ranks)
    dependencies.push_back(find_dependencies(rank, rank.entries[entry], one_stream));
  return replay(program, entry, dependencies, [](int32_t, int32_t) { return 0; }).status();
}

}  // namespace

Status verify_exchanges(const Program& program) {
  TSR_RETURN_IF_ERROR(verify_groups(program));
  for (size_t entry = 0; entry < program.ranks[0].entries.size(); ++entry)
    TSR_RETURN_IF_ERROR(verify_entry(program, entry)
                            .with_context(format("entry '{}'", program.ranks[0].entries[entry].name)));
  return {};
}

}  // namespace tessera
