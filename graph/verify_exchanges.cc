#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "graph/base/text.h"
#include "graph/verify_program.h"

namespace tessera {

namespace {

Status corrupt(std::string message) { return Status(StatusCode::kCorrupt, std::move(message)); }

// A communicator as all its members know it: the member list, and which of the groups with that very list it
// is.
using GroupKey = std::pair<std::vector<int32_t>, int32_t>;

bool same_exchange(const CollectiveInst& a, const CollectiveInst& b) {
  return a.kind == b.kind && a.reduce == b.reduce && a.dtype == b.dtype && a.outer == b.outer &&
         a.middle == b.middle && a.inner == b.inner && a.extents == b.extents && a.extents2 == b.extents2 &&
         a.in_split_first == b.in_split_first && a.root == b.root && a.elements == b.elements;
}

// Runs one entry on all ranks at once, exchanges only. A send does not wait; a receive waits for its send, a
// collective for all members of its group.
class Rehearsal {
 public:
  Rehearsal(const Program& program, const std::vector<std::vector<GroupKey>>& keys, size_t entry)
      : program_(program), keys_(keys), entry_(entry), at_(program.ranks.size()) {}

  Status run() {
    std::deque<size_t> runnable;
    for (size_t rank = 0; rank < at_.size(); ++rank) runnable.push_back(rank);
    while (!runnable.empty()) {
      const size_t rank = runnable.front();
      runnable.pop_front();
      TSR_RETURN_IF_ERROR(advance(rank, runnable));
    }
    for (size_t rank = 0; rank < at_.size(); ++rank)
      if (at_[rank] != code(rank).size())
        return corrupt(format("rank {} waits for ever at instruction {}", rank, at_[rank]));
    for (const auto& [ends, sizes] : sent_)
      if (!sizes.empty())
        return corrupt(format("rank {} sends what rank {} never receives", ends.first, ends.second));
    return {};
  }

 private:
  const std::vector<Instruction>& code(size_t rank) const {
    return program_.ranks[rank].entries[entry_].code;
  }

  // Until `rank` has to wait; ranks that it sets free become runnable.
  Status advance(size_t rank, std::deque<size_t>& runnable) {
    for (; at_[rank] < code(rank).size(); ++at_[rank]) {
      const Instruction& instruction = code(rank)[at_[rank]];
      if (const auto* send = std::get_if<SendInst>(&instruction)) {
        const auto peer = static_cast<size_t>(send->peer);
        sent_[{rank, peer}].push_back(send->bytes);
        runnable.push_back(peer);
      } else if (const auto* recv = std::get_if<RecvInst>(&instruction)) {
        std::deque<int64_t>& sizes = sent_[{static_cast<size_t>(recv->peer), rank}];
        if (sizes.empty()) return {};
        if (sizes.front() != recv->bytes)
          return corrupt(format("rank {} sends {} bytes where rank {} receives {}", recv->peer, sizes.front(),
                                rank, recv->bytes));
        sizes.pop_front();
      } else if (const auto* collective = std::get_if<CollectiveInst>(&instruction)) {
        Result<bool> complete = arrive(rank, *collective, runnable);
        if (!complete.ok()) return complete.status();
        if (!*complete) return {};
      }
    }
    return {};
  }

  // True when all members are there; the others then go on past theirs.
  Result<bool> arrive(size_t rank, const CollectiveInst& collective, std::deque<size_t>& runnable) {
    const GroupKey& key = keys_[rank][static_cast<size_t>(collective.group)];
    Meeting& meeting = meetings_[key];
    if (!meeting.arrived.empty() && !same_exchange(*meeting.first, collective))
      return corrupt(format("ranks {} and {} meet in different collectives", meeting.arrived[0], rank));
    for (size_t member : meeting.arrived)
      if (member == rank) return false;  // woken for another reason; still waiting
    if (meeting.arrived.empty()) meeting.first = &collective;
    meeting.arrived.push_back(rank);
    if (meeting.arrived.size() < key.first.size()) return false;
    for (size_t member : meeting.arrived)
      if (member != rank) {
        ++at_[member];
        runnable.push_back(member);
      }
    meeting.arrived.clear();
    return true;
  }

  struct Meeting {
    const CollectiveInst* first = nullptr;
    std::vector<size_t> arrived;
  };

  const Program& program_;
  const std::vector<std::vector<GroupKey>>& keys_;
  const size_t entry_;
  std::vector<size_t> at_;  // by rank: the next instruction
  std::map<GroupKey, Meeting> meetings_;
  std::map<std::pair<size_t, size_t>, std::deque<int64_t>>
      sent_;  // (from, to) -> bytes of sends not yet received
};

}  // namespace

Status verify_exchanges(const Program& program) {
  std::vector<std::vector<GroupKey>> keys(program.ranks.size());
  std::map<GroupKey, size_t> members;
  for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
    std::map<std::vector<int32_t>, int32_t> seen;
    for (const Group& group : program.ranks[rank].groups) {
      keys[rank].emplace_back(group.ranks, seen[group.ranks]++);
      ++members[keys[rank].back()];
    }
  }
  for (const auto& [key, count] : members)
    if (count != key.first.size())
      return corrupt(format("a group of {} ranks is listed by {} of them", key.first.size(), count));

  for (size_t entry = 0; entry < program.ranks[0].entries.size(); ++entry)
    TSR_RETURN_IF_ERROR(Rehearsal(program, keys, entry)
                            .run()
                            .with_context(format("entry '{}'", program.ranks[0].entries[entry].name)));
  return {};
}

}  // namespace tessera
