#include "runtime/session_comms.h"

#include <algorithm>
#include <array>
#include <variant>

#include "graph/base/text.h"
#include "runtime/backend_collective.h"
#include "runtime/backend_comm.h"
#include "runtime/host_services.h"
#include "runtime/spanning_group.h"
#include "runtime/step_issue.h"

namespace tessera {

namespace {

constexpr const char* kP2pAxis = "p2p";  // no mesh axis has this name
constexpr std::string_view kNames[] = {
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "recv"};

}  // namespace

std::map<SessionComms::SetKey, SessionComms::Use> SessionComms::uses() const {
  std::map<SetKey, Use> uses;
  const Program& program = executable_.program;
  for (size_t at = 0; at < program.ranks.size(); ++at) {
    const RankProgram& part = program.ranks[at];
    const int32_t rank = program.rank_of(at);
    for (const Group& group : part.groups) uses.try_emplace({group.ranks, group.axis});
    for (const EntryPoint& entry : part.entries) {
      std::map<std::pair<int32_t, int32_t>, int32_t> messages;  // per run, by sender and receiver
      const auto add_message = [&](int32_t from, int32_t to, int64_t bytes) {
        Use& use = uses[{{from, to}, kP2pAxis}];
        use.messages = std::max(use.messages, ++messages[{from, to}]);
        use.message_bytes = std::max(use.message_bytes, bytes);
      };
      for (const Instruction& instruction : entry.code) {
        if (const auto* send = std::get_if<SendInst>(&instruction)) {
          add_message(rank, send->peer, send->bytes);
        } else if (const auto* receive = std::get_if<RecvInst>(&instruction)) {
          add_message(receive->peer, rank, receive->bytes);
        } else if (const auto* collective = std::get_if<CollectiveInst>(&instruction)) {
          const Group& group = part.groups[static_cast<size_t>(collective->group)];
          const tsr_abi_collective what =
              to_abi_collective(*collective, static_cast<int32_t>(group.ranks.size()));
          std::vector<tsr_abi_collective>& known = uses[{group.ranks, group.axis}].collectives;
          if (std::ranges::none_of(known, [&](const auto& other) { return same_collective(other, what); }))
            known.push_back(what);
        }
      }
    }
  }
  return uses;
}

Status SessionComms::add(const std::vector<int32_t>& ranks, const std::string& axis, const Use& use) {
  const DeviceSet::Impl& set = executable_.devices->impl();
  std::vector<tsr_abi_device*> devices;
  std::vector<int32_t> processes;
  for (const int32_t rank : ranks) {
    if (set.ranks.has(rank)) devices.push_back(set.devices[static_cast<size_t>(rank - set.ranks.first)]);
    processes.push_back(set.process_of(rank));
  }
  tsr_abi_comm_use abi{};
  abi.struct_size = sizeof(abi);
  abi.collectives = use.collectives.data();
  abi.collective_count = static_cast<int32_t>(use.collectives.size());
  abi.messages = use.messages;
  abi.message_bytes = use.message_bytes;
  auto made = devices.size() == ranks.size()
                  ? make_backend_comm(executable_.api(), devices, abi)
                  : join_spanning_group(*channel_, executable_.api(), *set.host, {processes, devices}, abi);
  if (!made.ok()) return made.status().with_context(format("communicator '{}'", axis));
  Set& added = sets_.emplace_back(Set{ranks, axis, std::vector<CommMember>(ranks.size())});
  auto end = made->begin();
  for (size_t position = 0; position < ranks.size(); ++position)
    if (set.ranks.has(ranks[position])) added.members[position].end = std::move(*end++);
  return {};
}

SessionComms::Set* SessionComms::find(const std::vector<int32_t>& ranks, const std::string& axis) {
  for (Set& set : sets_)
    if (set.ranks == ranks && set.axis == axis) return &set;
  return nullptr;
}

// Processes agree in the plan and in what their kernels are chosen from.
Status SessionComms::open_channel() {
  const std::shared_ptr<Transport>& transport = executable_.devices->impl().transport;
  if (transport == nullptr || executable_.program.rank_set().is_whole()) return {};
  TSR_ASSIGN_OR_RETURN(channel_, Channel::open(transport));
  const std::array<uint64_t, 2> mine = {executable_.program.plan_fingerprint, executable_.program.catalog_fingerprint};
  std::vector<std::array<uint64_t, 2>> all(static_cast<size_t>(transport->processes()));
  TSR_RETURN_IF_ERROR(channel_->gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all))));
  for (size_t process = 0; process < all.size(); ++process)
    if (all[process] != all[0])
      return Status(StatusCode::kFailedPrecondition,
                    format("process {} has the plan {} for kernels {}, process 0 the plan {} for kernels {}: start all with the same "
                           "library, model and options, on machines with the same instructions",
                           static_cast<int64_t>(process), all[process][0], all[process][1], all[0][0], all[0][1]));
  return {};
}

Status SessionComms::create() {
  const std::lock_guard lock(mutex_);
  const Program& program = executable_.program;
  kept_.resize(program.ranks.size());
  taken_.resize(program.ranks.size());
  const std::vector<Counts> done = counts();
  for (size_t at = 0; at < done.size(); ++at)
    for (const auto& [key, value] : done[at]) {
      kept_[at][key].first += value.first;
      kept_[at][key].second += value.second;
    }
  destroy();
  TSR_RETURN_IF_ERROR(open_channel());
  for (const auto& [key, use] : uses()) TSR_RETURN_IF_ERROR(add(key.first, key.second, use));
  return perturb();
}

Status SessionComms::perturb() const {
  if (perturbation_seed_ == 0) return {};
  uint64_t index = 1 << 20;  // distinct from those of streams
  for (const Set& set : sets_)
    for (const CommMember& member : set.members) {
      const uint64_t part = Perturbation::part(perturbation_seed_, index++);
      if (member.end != nullptr) TSR_RETURN_IF_ERROR(member.end->perturb(part));
    }
  return {};
}

void SessionComms::destroy() {
  sets_.clear();
  channel_.reset();
}

void SessionComms::abort(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (channel_ != nullptr) channel_->abort(why);
  for (const Set& set : sets_) {
    const auto here = std::ranges::find_if(set.members, [](const CommMember& member) { return member.end != nullptr; });
    here->end->abort();
  }
}

Status SessionComms::failure_elsewhere() const {
  const std::lock_guard lock(mutex_);
  return channel_ != nullptr ? channel_->failure() : Status();
}

void SessionComms::note_activity() const {
  const std::lock_guard lock(mutex_);
  if (channel_ != nullptr) channel_->transport().note_activity();
}

bool SessionComms::is_active_elsewhere() const {
  constexpr double kLate = 5;  // what others do is heard of so late
  const std::lock_guard lock(mutex_);
  return channel_ != nullptr && channel_->transport().idle_s() < std::min(kLate, watchdog_s_);
}

RankComms SessionComms::members_of(size_t index) {
  RankComms comms;
  const Program& program = executable_.program;
  const int32_t rank = program.rank_of(index);
  for (const Group& group : program.ranks[index].groups)
    comms.groups.push_back(&find(group.ranks, group.axis)->members[static_cast<size_t>(group.position)]);
  for (Set& set : sets_) {
    if (set.axis != kP2pAxis) continue;
    if (set.ranks[0] == rank) comms.sends[set.ranks[1]] = set.members[0].end.get();
    if (set.ranks[1] == rank) comms.receives[set.ranks[0]] = set.members[1].end.get();
  }
  return comms;
}

std::vector<SessionComms::Counts> SessionComms::counts() const {
  std::vector<Counts> counts(executable_.program.ranks.size());
  for (const Set& set : sets_) {
    for (size_t position = 0; position < set.members.size(); ++position) {
      const CommMember& member = set.members[position];
      if (member.end == nullptr) continue;
      const tsr_abi_comm_counters counters = member.end->counters();
      Counts& mine = counts[static_cast<size_t>(set.ranks[position] - executable_.program.first)];
      for (int32_t kind = 0; kind < static_cast<int32_t>(std::size(kNames)); ++kind) {
        const int64_t of_all = counters.calls[kind] + member.replayed.calls[kind];
        if (of_all == 0) continue;
        auto& [calls, bytes] = mine[{kind, set.axis}];
        calls += of_all;
        bytes += counters.bytes[kind] + member.replayed.bytes[kind];
      }
    }
  }
  return counts;
}

std::vector<CommReport> SessionComms::report() const {
  Counts all;
  const std::vector<Counts> current = counts();
  for (size_t rank = 0; rank < current.size(); ++rank) {
    Counts mine = current[rank];
    for (const auto& [key, value] : kept_[rank]) {
      mine[key].first += value.first;
      mine[key].second += value.second;
    }
    for (const auto& [key, value] : taken_[rank]) {
      mine[key].first -= value.first;
      mine[key].second -= value.second;
    }
    for (const auto& [key, value] : mine) {
      all[key].first = std::max(all[key].first, value.first);
      all[key].second += value.second;
    }
  }
  std::vector<CommReport> reports;
  for (const auto& [key, value] : all)
    if (value.first > 0)
      reports.push_back(CommReport{std::string(kNames[static_cast<size_t>(key.first)]), key.second,
                                   value.first, value.second});
  return reports;
}

}  // namespace tessera
