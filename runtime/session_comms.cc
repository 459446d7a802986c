#include "runtime/session_comms.h"

#include <algorithm>
#include <cstddef>
#include <variant>

#include "graph/base/text.h"
#include "runtime/backend_collective.h"
#include "runtime/host_services.h"
#include "runtime/step_issue.h"

namespace tessera {

namespace {

constexpr const char* kP2pAxis = "p2p";  // no mesh axis has this name
constexpr std::string_view kNames[] = {
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "recv"};

bool can_create_for_use(const tsr_backend_api& api) {
  return api.struct_size >= offsetof(tsr_backend_api, comm_create_for) + sizeof(api.comm_create_for) &&
         api.comm_create_for != nullptr;
}

}  // namespace

std::map<SessionComms::SetKey, SessionComms::Use> SessionComms::uses() const {
  std::map<SetKey, Use> uses;
  const std::vector<RankProgram>& ranks = executable_.program.ranks;
  for (int32_t rank = 0; rank < static_cast<int32_t>(ranks.size()); ++rank) {
    const RankProgram& part = ranks[static_cast<size_t>(rank)];
    for (const Group& group : part.groups) uses.try_emplace({group.ranks, group.axis});
    for (const EntryPoint& entry : part.entries) {
      std::map<int32_t, int32_t> messages;  // per run, by receiver
      for (const Instruction& instruction : entry.code) {
        if (const auto* send = std::get_if<SendInst>(&instruction)) {
          Use& use = uses[{{rank, send->peer}, kP2pAxis}];
          use.messages = std::max(use.messages, ++messages[send->peer]);
          use.message_bytes = std::max(use.message_bytes, send->bytes);
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
  const tsr_backend_api& api = executable_.api();
  std::vector<tsr_abi_device*> devices;
  for (const int32_t rank : ranks)
    devices.push_back(executable_.devices->impl().devices[static_cast<size_t>(rank)]);
  const auto count = static_cast<int32_t>(devices.size());
  std::vector<tsr_abi_comm*> comms(devices.size());
  tsr_abi_comm_use abi{};
  abi.struct_size = sizeof(abi);
  abi.collectives = use.collectives.data();
  abi.collective_count = static_cast<int32_t>(use.collectives.size());
  abi.messages = use.messages;
  abi.message_bytes = use.message_bytes;
  TSR_RETURN_IF_ERROR(take_error(can_create_for_use(api)
                                     ? api.comm_create_for(devices.data(), count, &abi, comms.data())
                                     : api.comm_create(devices.data(), count, comms.data()))
                          .with_context(format("communicator '{}'", axis)));
  Set& set = sets_.emplace_back(Set{ranks, axis, {}});
  for (tsr_abi_comm* comm : comms) set.members.push_back({comm, {}});
  return {};
}

SessionComms::Set* SessionComms::find(const std::vector<int32_t>& ranks, const std::string& axis) {
  for (Set& set : sets_)
    if (set.ranks == ranks && set.axis == axis) return &set;
  return nullptr;
}

Status SessionComms::create() {
  const std::lock_guard lock(mutex_);
  const Program& program = executable_.program;
  kept_.resize(program.ranks.size());
  taken_.resize(program.ranks.size());
  const std::vector<Counts> done = counts();
  for (size_t rank = 0; rank < done.size(); ++rank)
    for (const auto& [key, value] : done[rank]) {
      kept_[rank][key].first += value.first;
      kept_[rank][key].second += value.second;
    }
  destroy();
  for (const auto& [key, use] : uses()) TSR_RETURN_IF_ERROR(add(key.first, key.second, use));
  return perturb();
}

Status SessionComms::perturb() const {
  const tsr_backend_api& api = executable_.api();
  if (perturbation_seed_ == 0) return {};
  if (api.struct_size < offsetof(tsr_backend_api, comm_perturb) + sizeof(api.comm_perturb) ||
      api.comm_perturb == nullptr)
    return Status(StatusCode::kUnsupported, format("backend '{}' cannot be perturbed", api.name));
  uint64_t index = 1 << 20;  // distinct from those of streams
  for (const Set& set : sets_)
    for (const CommMember& member : set.members)
      api.comm_perturb(member.comm, Perturbation::part(perturbation_seed_, index++));
  return {};
}

void SessionComms::destroy() {
  for (const Set& set : sets_)
    for (const CommMember& member : set.members) executable_.api().comm_destroy(member.comm);
  sets_.clear();
}

void SessionComms::abort() {
  const std::lock_guard lock(mutex_);
  for (const Set& set : sets_) executable_.api().comm_abort(set.members[0].comm);
}

RankComms SessionComms::members_of(int32_t rank) {
  RankComms comms;
  const std::vector<RankProgram>& ranks = executable_.program.ranks;
  for (const Group& group : ranks[static_cast<size_t>(rank)].groups)
    comms.groups.push_back(&find(group.ranks, group.axis)->members[static_cast<size_t>(group.position)]);
  comms.sends.resize(ranks.size());
  comms.receives.resize(ranks.size());
  for (const Set& set : sets_) {
    if (set.axis != kP2pAxis) continue;
    if (set.ranks[0] == rank) comms.sends[static_cast<size_t>(set.ranks[1])] = set.members[0].comm;
    if (set.ranks[1] == rank) comms.receives[static_cast<size_t>(set.ranks[0])] = set.members[1].comm;
  }
  return comms;
}

std::vector<SessionComms::Counts> SessionComms::counts() const {
  std::vector<Counts> counts(executable_.program.ranks.size());
  for (const Set& set : sets_) {
    for (size_t position = 0; position < set.members.size(); ++position) {
      const CommMember& member = set.members[position];
      const tsr_abi_comm_counters counters = read_counters(executable_.api(), member.comm);
      Counts& mine = counts[static_cast<size_t>(set.ranks[position])];
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
