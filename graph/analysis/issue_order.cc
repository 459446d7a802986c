#include "graph/analysis/issue_order.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "graph/analysis/instructions.h"
#include "graph/base/text.h"

namespace tessera {

namespace {

class Issue {
 public:
  Issue(const Program& program, std::string_view entry, int32_t messages_under_way)
      : program_(program), messages_under_way_(messages_under_way) {
    for (size_t rank = 0; rank < program.ranks.size(); ++rank)
      ranks_.push_back({program.find_entry(static_cast<int32_t>(rank), entry), 0, false});
  }

  Status run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < ranks_.size(); ++rank) moved |= advance(static_cast<int32_t>(rank));
    }
    std::vector<std::string> waiting;
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      if (!is_done(ranks_[rank]))
        waiting.push_back(waiting_text(program_.ranks[rank], static_cast<int32_t>(rank), *ranks_[rank].entry,
                                       static_cast<int32_t>(ranks_[rank].next)));
    if (waiting.empty()) return {};
    return Status(StatusCode::kFailedPrecondition,
                  format("issued in program order by one thread a rank, the program stands still: {}",
                         join(waiting, "; ")));
  }

 private:
  struct Rank {
    const EntryPoint* entry;  // null where the rank has no instructions
    size_t next;
    bool has_entered;  // true after it entered the collective at `next`
  };
  using GroupKey = std::pair<std::vector<int32_t>, std::string>;

  static bool is_done(const Rank& rank) {
    return rank.entry == nullptr || rank.next == rank.entry->code.size();
  }

  bool advance(int32_t index) {
    Rank& rank = ranks_[static_cast<size_t>(index)];
    bool moved = false;
    while (!is_done(rank)) {
      const bool had_entered = rank.has_entered;
      if (!passes(index, rank)) return moved || had_entered != rank.has_entered;
      ++rank.next;
      rank.has_entered = false;
      moved = true;
    }
    return moved;
  }

  bool passes(int32_t index, Rank& rank) {
    const Instruction& what = rank.entry->code[rank.next];
    if (const auto* send = std::get_if<SendInst>(&what)) {
      int32_t& under_way = messages_[{index, send->peer}];
      if (under_way >= messages_under_way_) return false;
      ++under_way;
    } else if (const auto* receive = std::get_if<RecvInst>(&what)) {
      int32_t& under_way = messages_[{receive->peer, index}];
      if (under_way == 0) return false;
      --under_way;
    } else if (const auto* collective = std::get_if<CollectiveInst>(&what)) {
      const Group& group =
          program_.ranks[static_cast<size_t>(index)].groups[static_cast<size_t>(collective->group)];
      std::map<int32_t, int64_t>& calls = calls_[GroupKey(group.ranks, group.axis)];
      if (!std::exchange(rank.has_entered, true)) ++calls[index];
      return std::ranges::all_of(group.ranks, [&](int32_t member) { return calls[member] >= calls[index]; });
    }
    return true;
  }

  const Program& program_;
  const int32_t messages_under_way_;
  std::vector<Rank> ranks_;
  std::map<std::pair<int32_t, int32_t>, int32_t> messages_;  // (from, to): sent, not yet received
  std::map<GroupKey, std::map<int32_t, int64_t>> calls_;     // collectives that each member has begun
};

}  // namespace

Status check_issue_order(const Program& program, std::string_view entry, int32_t messages_under_way) {
  return Issue(program, entry, messages_under_way).run();
}

}  // namespace tessera
