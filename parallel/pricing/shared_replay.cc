#include "parallel/pricing/shared_replay.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <utility>

#include "graph/base/cancellation.h"
#include "graph/device_profile.h"

namespace tessera {

namespace {

struct Arrival {
  int32_t rank = 0, instruction = 0;
};

// Activity: a running kernel or copy, all members of a collective, or both ends of a message.
struct Activity {
  std::vector<Arrival> parts;
  InstructionPrice price;
  double begin_s = 0;
  double left = 1;  // remaining share
};

class SharedPlayer {
 public:
  SharedPlayer(const Program& program, size_t entry, std::span<const Dependencies> ranks,
               std::span<const std::vector<InstructionPrice>> prices, const Cluster& cluster)
      : program_(program),
        entry_(entry),
        dependencies_(ranks),
        prices_(prices),
        cluster_(cluster),
        working_ranks_(static_cast<int32_t>(working_ranks(program))) {}

  Result<Replay> run() {
    const size_t count = program_.ranks.size();
    streams_.resize(count);
    meeting_of_.resize(count);
    result_.ranks.resize(count);
    number_groups();
    for (size_t rank = 0; rank < count; ++rank) {
      streams_[rank].resize(dependencies_[rank].streams.size());
      result_.ranks[rank].resize(code(rank).size());
      woken_.push_back(rank);
    }
    for (;;) {
      cancellation_point();
      start_all();
      if (under_way_.empty() && switches_.empty()) break;
      pass_time();
    }
    for (const std::vector<ReplayedInterval>& rank : result_.ranks)
      if (std::ranges::find(rank, -1, &ReplayedInterval::end_ns) != rank.end())
        return Status(StatusCode::kCorrupt, "the ranks wait for each other for ever");
    return std::move(result_);
  }

 private:
  struct StreamState {
    int32_t next = 0;  // next instruction
    bool has_arrived = false;
    bool is_waiting = false;  // for another stream; the switch takes time
    double switched_s = -1;     // when that is done; before any switch negative
  };
  struct StreamSwitch {
    double end_s = 0;
    size_t rank = 0;
  };
  struct Meeting {
    size_t members = 0;
    std::vector<Arrival> arrived;
  };
  struct Channel {
    std::deque<Arrival> sends, receives;
  };

  const std::vector<Instruction>& code(size_t rank) const {
    return program_.ranks[rank].entries[entry_].code;
  }
  const InstructionPrice& price_of(const Arrival& at) const {
    return prices_[static_cast<size_t>(at.rank)][static_cast<size_t>(at.instruction)];
  }

  // Groups with equal member lists are distinguished by their order in each rank's list.
  void number_groups() {
    std::map<std::pair<std::vector<int32_t>, int32_t>, size_t> numbers;
    for (size_t rank = 0; rank < program_.ranks.size(); ++rank) {
      std::map<std::vector<int32_t>, int32_t> seen;
      for (const Group& group : program_.ranks[rank].groups) {
        const auto [at, is_new] =
            numbers.emplace(std::pair(group.ranks, seen[group.ranks]++), meetings_.size());
        if (is_new) meetings_.push_back({group.ranks.size(), {}});
        meeting_of_[rank].push_back(at->second);
      }
    }
  }

  void start_all() {
    while (!woken_.empty()) {
      const size_t rank = woken_.back();
      woken_.pop_back();
      for (size_t stream = 0; stream < streams_[rank].size(); ++stream) start(rank, stream);
    }
  }

  void start(size_t rank, size_t stream) {
    StreamState& state = streams_[rank][stream];
    const Dependencies& dependencies = dependencies_[rank];
    const std::vector<int32_t>& order = dependencies.streams[stream].code;
    if (state.has_arrived || static_cast<size_t>(state.next) == order.size()) return;
    const int32_t instruction = order[static_cast<size_t>(state.next)];
    for (const StreamWait& wait : dependencies.waits_of(instruction))
      if (streams_[rank][static_cast<size_t>(wait.stream)].next <= wait.position) {
        state.is_waiting = true;
        return;
      }
    if (is_being_handed_over(state, rank)) return;
    state.has_arrived = true;
    const Arrival arrival{static_cast<int32_t>(rank), instruction};
    const Instruction& what = code(rank)[static_cast<size_t>(instruction)];
    if (const auto* collective = std::get_if<CollectiveInst>(&what)) {
      Meeting& meeting = meetings_[meeting_of_[rank][static_cast<size_t>(collective->group)]];
      meeting.arrived.push_back(arrival);
      if (meeting.arrived.size() == meeting.members) begin(std::exchange(meeting.arrived, {}));
    } else if (const auto* send = std::get_if<SendInst>(&what)) {
      Channel& channel = channels_[{arrival.rank, send->peer}];
      channel.sends.push_back(arrival);
      match(channel);
    } else if (const auto* recv = std::get_if<RecvInst>(&what)) {
      Channel& channel = channels_[{recv->peer, arrival.rank}];
      channel.receives.push_back(arrival);
      match(channel);
    } else {
      begin({arrival});
    }
  }

  // A stream that waited for another wakes up some time after that one is ready.
  bool is_being_handed_over(StreamState& state, size_t rank) {
    if (!state.is_waiting || cluster_.profile == nullptr) return false;
    if (state.switched_s < 0) {
      const DeviceProfile& profile = *cluster_.profile;
      state.switched_s =
          now_s_ + (busy_ >= cluster_.shared_cores ? profile.busy_stream_switch_s : profile.stream_switch_s);
      const auto later = [&](const StreamSwitch& other) { return other.end_s > state.switched_s; };
      switches_.insert(std::ranges::find_if(switches_, later), {state.switched_s, rank});
    }
    if (now_s_ < state.switched_s) return true;
    state.is_waiting = false;
    state.switched_s = -1;
    return false;
  }

  void match(Channel& channel) {
    if (channel.sends.empty() || channel.receives.empty()) return;
    begin({channel.sends.front(), channel.receives.front()});
    channel.sends.pop_front();
    channel.receives.pop_front();
  }

  void begin(std::vector<Arrival> parts) {
    Activity activity{std::move(parts), {}, now_s_, 1};
    activity.price = price_of(activity.parts[0]);
    for (const Arrival& part : activity.parts)
      if (price_of(part).alone_s > activity.price.alone_s) activity.price = price_of(part);
    busy_ += activity.price.threads;
    under_way_.push_back(std::move(activity));
  }

  // Advances to the next event.
  void pass_time() {
    double step_s = INFINITY;
    seconds_.clear();
    for (const Activity& activity : under_way_) {
      seconds_.push_back(seconds_at(activity.price, cluster_, busy_, working_ranks_));
      step_s = std::min(step_s, activity.left * seconds_.back());
    }
    if (!switches_.empty() && switches_.front().end_s - now_s_ <= step_s) {
      step_s = switches_.front().end_s - now_s_;
      now_s_ = switches_.front().end_s;
      woken_.push_back(switches_.front().rank);
      switches_.pop_front();
    } else {
      now_s_ += step_s;
    }
    size_t kept = 0;
    for (size_t i = 0; i < under_way_.size(); ++i) {
      Activity& activity = under_way_[i];
      const double left_s = activity.left * seconds_[i] - step_s;
      if (left_s <= 1e-12) {
        finish(activity);
        continue;
      }
      activity.left = left_s / seconds_[i];
      if (kept != i) under_way_[kept] = std::move(activity);
      ++kept;
    }
    under_way_.resize(kept);
  }

  void finish(const Activity& activity) {
    busy_ -= activity.price.threads;
    const int64_t begin_ns = std::llround(activity.begin_s * 1e9), end_ns = std::llround(now_s_ * 1e9);
    result_.end_ns = std::max(result_.end_ns, end_ns);
    for (const Arrival& part : activity.parts) {
      const auto rank = static_cast<size_t>(part.rank), at = static_cast<size_t>(part.instruction);
      result_.ranks[rank][at] = {begin_ns, end_ns};
      StreamState& stream = streams_[rank][static_cast<size_t>(dependencies_[rank].stream[at])];
      ++stream.next;
      stream.has_arrived = false;
      woken_.push_back(rank);
    }
  }

  const Program& program_;
  const size_t entry_;
  const std::span<const Dependencies> dependencies_;
  const std::span<const std::vector<InstructionPrice>> prices_;
  const Cluster& cluster_;
  const int32_t working_ranks_;
  std::vector<std::vector<StreamState>> streams_;  // [rank][stream]
  std::vector<std::vector<size_t>> meeting_of_;    // [rank][group]
  std::vector<Meeting> meetings_;
  std::map<std::pair<int32_t, int32_t>, Channel> channels_;  // (from, to)
  std::vector<size_t> woken_;                                // ranks that may begin something
  std::vector<Activity> under_way_;
  std::deque<StreamSwitch> switches_;  // by end
  std::vector<double> seconds_;     // per instruction, at the present load
  double now_s_ = 0;
  int32_t busy_ = 0;
  Replay result_;
};

}  // namespace

Result<Replay> replay_shared(const Program& program, size_t entry, std::span<const Dependencies> ranks,
                             std::span<const std::vector<InstructionPrice>> prices, const Cluster& cluster) {
  return SharedPlayer(program, entry, ranks, prices, cluster).run();
}

}  // namespace tessera
