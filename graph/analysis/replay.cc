#include "graph/analysis/replay.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "graph/analysis/instructions.h"
#include "graph/base/cancellation.h"
#include "graph/base/text.h"

namespace tessera {

namespace {

Status corrupt(std::string message) { return Status(StatusCode::kCorrupt, std::move(message)); }

bool same_exchange(const CollectiveInst& a, const CollectiveInst& b) {
  return a.kind == b.kind && a.reduce == b.reduce && a.dtype == b.dtype && a.outer == b.outer &&
         a.middle == b.middle && a.inner == b.inner && a.extents == b.extents && a.extents2 == b.extents2 &&
         a.in_split_first == b.in_split_first && a.root == b.root && a.elements == b.elements;
}

std::string describe(const CollectiveInst& it) {
  const auto list = [](const std::vector<int64_t>& extents) {
    std::string text;
    for (const int64_t extent : extents) text += format("{}{}", text.empty() ? "" : "+", extent);
    return text;
  };
  return format("{} elements as {} x {} x {}, shards {} / {}, root {}, for node {}", it.elements, it.outer,
                it.middle, it.inner, list(it.extents), list(it.extents2), it.root, index(it.node));
}

// An instruction that has been reached and waits for its peers.
struct Arrival {
  int32_t rank, instruction;
  int64_t at_ns;
};

class Player {
 public:
  Player(const Program& program, size_t entry, std::span<const Dependencies> ranks,
         const ReplayDuration& duration, std::span<const std::vector<int64_t>> issued)
      : program_(program), entry_(entry), dependencies_(ranks), duration_(duration), issued_(issued) {}

  Result<Replay> run() {
    const size_t count = program_.ranks.size();
    states_.resize(count);
    result_.ranks.resize(count);
    number_groups();
    for (size_t rank = 0; rank < count; ++rank) {
      states_[rank].streams.resize(dependencies_[rank].streams.size());
      result_.ranks[rank].resize(code(rank).size());
      wake(rank);
    }
    while (!runnable_.empty()) {
      const size_t rank = runnable_.front();
      runnable_.pop_front();
      states_[rank].is_runnable = false;
      TSR_RETURN_IF_ERROR(advance(rank));
    }
    TSR_RETURN_IF_ERROR(check_finished());
    return std::move(result_);
  }

 private:
  struct StreamState {
    int32_t next = 0;  // position
    bool has_arrived = false;
    int64_t free_ns = 0;
  };
  struct RankState {
    std::vector<StreamState> streams;
    std::vector<size_t> meeting_of_group;
    bool is_runnable = false;
  };
  struct Meeting {
    size_t members = 0;
    std::vector<Arrival> arrived;
  };
  struct Channel {  // from one rank to another
    std::deque<Arrival> sends, receives;
  };

  const std::vector<Instruction>& code(size_t rank) const {
    return program_.ranks[rank].entries[entry_].code;
  }

  // Numbers the groups. Groups with equal members are distinguished by their order in each rank's list.
  void number_groups() {
    std::map<std::pair<std::vector<int32_t>, int32_t>, size_t> numbers;
    for (size_t rank = 0; rank < states_.size(); ++rank) {
      std::map<std::vector<int32_t>, int32_t> seen;
      for (const Group& group : program_.ranks[rank].groups) {
        const auto [at, is_new] =
            numbers.emplace(std::pair(group.ranks, seen[group.ranks]++), meetings_.size());
        if (is_new) meetings_.push_back({group.ranks.size(), {}});
        states_[rank].meeting_of_group.push_back(at->second);
      }
    }
  }

  void wake(size_t rank) {
    if (std::exchange(states_[rank].is_runnable, true)) return;
    runnable_.push_back(rank);
  }

  // Advances every stream of the rank as far as possible.
  Status advance(size_t rank) {
    for (bool moved = true; moved;) {
      cancellation_point();
      moved = false;
      for (size_t stream = 0; stream < states_[rank].streams.size(); ++stream)
        while (true) {
          Result<bool> stepped = step(rank, stream);
          if (!stepped.ok()) return stepped.status();
          if (!*stepped) break;
          moved = true;
        }
    }
    return {};
  }

  // Runs the next instruction of a stream; false when it has to wait, or there is none.
  Result<bool> step(size_t rank, size_t stream) {
    StreamState& state = states_[rank].streams[stream];
    const Dependencies& dependencies = dependencies_[rank];
    const std::vector<int32_t>& order = dependencies.streams[stream].code;
    if (state.has_arrived || static_cast<size_t>(state.next) == order.size()) return false;
    const int32_t instruction = order[static_cast<size_t>(state.next)];
    int64_t ready_ns = state.free_ns;
    if (!issued_.empty()) ready_ns = std::max(ready_ns, issued_[rank][static_cast<size_t>(instruction)]);
    for (const StreamWait& wait : dependencies.waits_of(instruction)) {
      const auto other = static_cast<size_t>(wait.stream);
      if (states_[rank].streams[other].next <= wait.position) return false;
      const int32_t awaited = dependencies.streams[other].code[static_cast<size_t>(wait.position)];
      ready_ns = std::max(ready_ns, result_.ranks[rank][static_cast<size_t>(awaited)].end_ns);
    }
    const Instruction& what = code(rank)[static_cast<size_t>(instruction)];
    const Arrival arrival{static_cast<int32_t>(rank), instruction, ready_ns};
    if (const auto* collective = std::get_if<CollectiveInst>(&what)) {
      state.has_arrived = true;
      TSR_RETURN_IF_ERROR(arrive(*collective, arrival));
    } else if (const auto* send = std::get_if<SendInst>(&what)) {
      state.has_arrived = true;
      Channel& channel = channels_[{arrival.rank, send->peer}];
      channel.sends.push_back(arrival);
      TSR_RETURN_IF_ERROR(match(channel));
    } else if (const auto* recv = std::get_if<RecvInst>(&what)) {
      state.has_arrived = true;
      Channel& channel = channels_[{recv->peer, arrival.rank}];
      channel.receives.push_back(arrival);
      TSR_RETURN_IF_ERROR(match(channel));
    } else {
      finish(arrival, ready_ns, ready_ns + duration_(arrival.rank, instruction));
    }
    return true;
  }

  Status arrive(const CollectiveInst& collective, const Arrival& arrival) {
    const RankState& mine = states_[static_cast<size_t>(arrival.rank)];
    Meeting& meeting = meetings_[mine.meeting_of_group[static_cast<size_t>(collective.group)]];
    if (!meeting.arrived.empty()) {
      const Arrival& first = meeting.arrived[0];
      if (!same_exchange(std::get<CollectiveInst>(instruction_of(first)), collective))
        return corrupt(format("ranks {} and {} meet in different collectives: {}; {}", first.rank,
                              arrival.rank, describe(std::get<CollectiveInst>(instruction_of(first))),
                              describe(collective)));
    }
    meeting.arrived.push_back(arrival);
    if (meeting.arrived.size() < meeting.members) return {};
    int64_t begin_ns = 0, longest_ns = 0;
    for (const Arrival& member : meeting.arrived) {
      begin_ns = std::max(begin_ns, member.at_ns);
      longest_ns = std::max(longest_ns, duration_(member.rank, member.instruction));
    }
    const std::vector<Arrival> members = std::exchange(meeting.arrived, {});
    for (const Arrival& member : members) finish(member, begin_ns, begin_ns + longest_ns);
    return {};
  }

  Status match(Channel& channel) {
    if (channel.sends.empty() || channel.receives.empty()) return {};
    const Arrival send = channel.sends.front(), receive = channel.receives.front();
    channel.sends.pop_front();
    channel.receives.pop_front();
    const int64_t sent = std::get<SendInst>(instruction_of(send)).bytes;
    const int64_t wanted = std::get<RecvInst>(instruction_of(receive)).bytes;
    if (sent != wanted)
      return corrupt(
          format("rank {} sends {} bytes where rank {} receives {}", send.rank, sent, receive.rank, wanted));
    const int64_t begin_ns = std::max(send.at_ns, receive.at_ns);
    const int64_t end_ns = begin_ns + duration_(send.rank, send.instruction);
    finish(send, begin_ns, end_ns);
    finish(receive, begin_ns, end_ns);
    return {};
  }

  const Instruction& instruction_of(const Arrival& arrival) const {
    return code(static_cast<size_t>(arrival.rank))[static_cast<size_t>(arrival.instruction)];
  }

  void finish(const Arrival& arrival, int64_t begin_ns, int64_t end_ns) {
    const auto rank = static_cast<size_t>(arrival.rank), at = static_cast<size_t>(arrival.instruction);
    result_.ranks[rank][at] = {begin_ns, end_ns};
    result_.end_ns = std::max(result_.end_ns, end_ns);
    StreamState& stream = states_[rank].streams[static_cast<size_t>(dependencies_[rank].stream[at])];
    ++stream.next;
    stream.has_arrived = false;
    stream.free_ns = end_ns;
    wake(rank);
  }

  // Reports, for a rank that cannot go on, the first instruction in program order that has not run.
  Status check_finished() const {
    std::vector<std::string> waiting;
    for (size_t rank = 0; rank < states_.size(); ++rank) {
      const std::vector<ReplayedInterval>& done = result_.ranks[rank];
      const auto first = std::ranges::find(done, -1, &ReplayedInterval::end_ns);
      if (first != done.end())
        waiting.push_back(waiting_text(program_.ranks[rank], static_cast<int32_t>(rank),
                                       program_.ranks[rank].entries[entry_],
                                       static_cast<int32_t>(first - done.begin())));
    }
    if (waiting.empty()) return {};
    constexpr size_t kMost = 8;
    const size_t left = waiting.size() - std::min(waiting.size(), kMost);
    waiting.resize(waiting.size() - left);
    return corrupt(format("the ranks wait for each other for ever: {}{}", join(waiting, "; "),
                          left > 0 ? format("; and {} more", left) : std::string()));
  }

  const Program& program_;
  const size_t entry_;
  const std::span<const Dependencies> dependencies_;
  const ReplayDuration& duration_;
  const std::span<const std::vector<int64_t>> issued_;
  std::vector<RankState> states_;
  std::vector<Meeting> meetings_;
  std::map<std::pair<int32_t, int32_t>, Channel> channels_;  // (from, to)
  std::deque<size_t> runnable_;
  Replay result_;
};

}  // namespace

Result<Replay> replay(const Program& program, size_t entry, std::span<const Dependencies> ranks,
                      const ReplayDuration& duration, std::span<const std::vector<int64_t>> issued) {
  return Player(program, entry, ranks, duration, issued).run();
}

}  // namespace tessera
