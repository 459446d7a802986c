#include "runtime/session_comms.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <variant>

#include "graph/base/text.h"
#include "runtime/host_services.h"

namespace tessera {

namespace {

constexpr const char* kP2pAxis = "p2p";  // no mesh axis is called so
constexpr std::string_view kNames[] = {
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "recv"};

// (from, to), each once.
std::set<std::pair<int32_t, int32_t>> message_pairs(const Program& program) {
  std::set<std::pair<int32_t, int32_t>> pairs;
  for (size_t rank = 0; rank < program.ranks.size(); ++rank)
    for (const EntryPoint& entry : program.ranks[rank].entries)
      for (const Instruction& instruction : entry.code)
        if (const auto* send = std::get_if<SendInst>(&instruction))
          pairs.emplace(static_cast<int32_t>(rank), send->peer);
  return pairs;
}

}  // namespace

Status SessionComms::add(std::vector<int32_t> ranks, std::string axis) {
  if (find(ranks, axis) != nullptr) return {};
  std::vector<tsr_abi_device*> devices;
  for (const int32_t rank : ranks)
    devices.push_back(executable_.devices->impl().devices[static_cast<size_t>(rank)]);
  std::vector<tsr_abi_comm*> comms(devices.size());
  TSR_RETURN_IF_ERROR(take_error(executable_.api().comm_create(
                                     devices.data(), static_cast<int32_t>(devices.size()), comms.data()))
                          .with_context(format("communicator '{}'", axis)));
  Set& set = sets_.emplace_back(Set{std::move(ranks), std::move(axis), {}});
  for (tsr_abi_comm* comm : comms) set.ends.push_back({comm, {}});
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
  for (const RankProgram& rank : program.ranks)
    for (const Group& group : rank.groups) TSR_RETURN_IF_ERROR(add(group.ranks, group.axis));
  for (const auto& [from, to] : message_pairs(program)) TSR_RETURN_IF_ERROR(add({from, to}, kP2pAxis));
  return perturb();
}

Status SessionComms::perturb() const {
  const tsr_backend_api& api = executable_.api();
  if (perturbation_seed_ == 0) return {};
  if (api.struct_size < offsetof(tsr_backend_api, comm_perturb) + sizeof(api.comm_perturb) ||
      api.comm_perturb == nullptr)
    return Status(StatusCode::kUnsupported, format("backend '{}' cannot be perturbed", api.name));
  uint64_t index = 1 << 20;  // apart from those of streams
  for (const Set& set : sets_)
    for (const CommEnd& end : set.ends)
      api.comm_perturb(end.comm, Perturbation::part(perturbation_seed_, index++));
  return {};
}

void SessionComms::destroy() {
  for (const Set& set : sets_)
    for (const CommEnd& end : set.ends) executable_.api().comm_destroy(end.comm);
  sets_.clear();
}

void SessionComms::abort() {
  const std::lock_guard lock(mutex_);
  for (const Set& set : sets_) executable_.api().comm_abort(set.ends[0].comm);
}

RankComms SessionComms::ends_of(int32_t rank) {
  RankComms ends;
  const std::vector<RankProgram>& ranks = executable_.program.ranks;
  for (const Group& group : ranks[static_cast<size_t>(rank)].groups)
    ends.groups.push_back(&find(group.ranks, group.axis)->ends[static_cast<size_t>(group.position)]);
  ends.sends.resize(ranks.size());
  ends.receives.resize(ranks.size());
  for (const Set& set : sets_) {
    if (set.axis != kP2pAxis) continue;
    if (set.ranks[0] == rank) ends.sends[static_cast<size_t>(set.ranks[1])] = set.ends[0].comm;
    if (set.ranks[1] == rank) ends.receives[static_cast<size_t>(set.ranks[0])] = set.ends[1].comm;
  }
  return ends;
}

std::vector<SessionComms::Counts> SessionComms::counts() const {
  std::vector<Counts> counts(executable_.program.ranks.size());
  for (const Set& set : sets_) {
    for (size_t position = 0; position < set.ends.size(); ++position) {
      const CommEnd& end = set.ends[position];
      const tsr_abi_comm_counters counters = counted(executable_.api(), end.comm);
      Counts& mine = counts[static_cast<size_t>(set.ranks[position])];
      for (int32_t kind = 0; kind < static_cast<int32_t>(std::size(kNames)); ++kind) {
        const int64_t of_all = counters.calls[kind] + end.replayed.calls[kind];
        if (of_all == 0) continue;
        auto& [calls, bytes] = mine[{kind, set.axis}];
        calls += of_all;
        bytes += counters.bytes[kind] + end.replayed.bytes[kind];
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

void SessionComms::reset_report() {
  taken_ = counts();
  for (size_t rank = 0; rank < taken_.size(); ++rank)
    for (const auto& [key, value] : kept_[rank]) {
      taken_[rank][key].first += value.first;
      taken_[rank][key].second += value.second;
    }
}

}  // namespace tessera
