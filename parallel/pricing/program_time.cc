#include "parallel/pricing/program_time.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera {

namespace {

// Lower counts first.
int rank_of(const CauseOfTime& it, const Instruction& instruction) {
  if (std::holds_alternative<KernelInst>(instruction)) return 0;
  if (std::holds_alternative<CollectiveInst>(instruction)) return 1;
  if (it.cause == "offload") return 2;
  return std::holds_alternative<CopyInst>(instruction) ? 0 : 3;
}

std::string computing(StepPhase era) {
  if (era == StepPhase::kUpdate) return "update";
  return era == StepPhase::kRecompute ? "recompute" : "compute";
}

const DeviceMesh* place_of(const EntryLayout& layout, int32_t rank, int32_t& position) {
  for (const DeviceMesh& mesh : layout.places) {
    const auto at = std::ranges::find(mesh.devices, rank);
    if (at == mesh.devices.end()) continue;
    position = static_cast<int32_t>(at - mesh.devices.begin());
    return &mesh;
  }
  return nullptr;
}

std::string axis_to(const EntryLayout& layout, int32_t rank, int32_t peer) {
  int32_t mine = 0, theirs = 0;
  const DeviceMesh* place = place_of(layout, rank, mine);
  if (place == nullptr || place_of(layout, peer, theirs) != place) return "pp";
  const std::vector<int32_t> a = place->coordinates(mine), b = place->coordinates(theirs);
  std::vector<std::string> axes;
  for (size_t axis = 0; axis < a.size(); ++axis)
    if (a[axis] != b[axis]) axes.push_back(place->axes[axis].name);
  return join(axes, "+");
}

int place_in_list(const TimeShare& share) {
  constexpr std::string_view kOrder[] = {"compute", "recompute", "communication", "offload",
                                         "bubble",  "waiting",   "update"};
  return static_cast<int>(std::ranges::find(kOrder, share.cause) - std::begin(kOrder));
}

}  // namespace

CauseOfTime cause_of(const RankProgram& rank, int32_t rank_index, const Instruction& instruction,
                     StepPhase era, const EntryLayout& layout) {
  if (const auto* collective = std::get_if<CollectiveInst>(&instruction))
    return {"communication", rank.groups[static_cast<size_t>(collective->group)].axis};
  if (const auto* send = std::get_if<SendInst>(&instruction))
    return {"communication", axis_to(layout, rank_index, send->peer)};
  if (const auto* recv = std::get_if<RecvInst>(&instruction))
    return {"communication", axis_to(layout, rank_index, recv->peer)};
  if (const auto* copy = std::get_if<CopyInst>(&instruction)) {
    const auto tier = [&](const SlotRef& ref, Tier otherwise) {
      return ref.slot < 0 ? otherwise : rank.slots[static_cast<size_t>(ref.slot)].tier;
    };
    const Tier to = tier(copy->out, Tier::kDevice);
    if (tier(copy->in, to) != to) return {"offload", ""};
  }
  return {computing(era), ""};
}

TimeByCause time_by_cause(const Program& program, const Simulation& simulation, const EntryLayout& layout,
                          const std::vector<std::vector<StepPhase>>& phases) {
  TimeByCause result;
  for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
    const auto ends_last = [&](const ReplayedInterval& it) { return it.end_ns == simulation.run.end_ns; };
    if (std::ranges::any_of(simulation.run.ranks[rank], ends_last)) {
      result.rank = static_cast<int32_t>(rank);
      break;
    }
  }
  const auto critical = static_cast<size_t>(result.rank);
  const RankProgram& rank = program.ranks[critical];
  const std::vector<Instruction>& code = rank.entries[simulation.entry].code;

  struct Kind {
    CauseOfTime cause;
    int rank;
    int64_t exposed_ns = 0, whole_ns = 0;
    int running = 0;
  };
  struct Event {
    int64_t at_ns;
    size_t kind;
    int change;
  };
  std::vector<Kind> kinds;
  std::vector<Event> events;
  for (size_t at = 0; at < code.size(); ++at) {
    const ReplayedInterval& interval = simulation.run.ranks[critical][at];
    if (interval.begin_ns >= interval.end_ns) continue;
    const CauseOfTime cause = cause_of(rank, result.rank, code[at], phases[critical][at], layout);
    const int order = rank_of(cause, code[at]);
    auto kind =
        std::ranges::find_if(kinds, [&](const Kind& it) { return it.cause == cause && it.rank == order; });
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {cause, order});
    kind->whole_ns += interval.end_ns - interval.begin_ns;
    const auto index = static_cast<size_t>(kind - kinds.begin());
    events.push_back({interval.begin_ns, index, 1});
    events.push_back({interval.end_ns, index, -1});
  }
  std::ranges::stable_sort(events, {}, &Event::at_ns);

  int64_t idle_ns = 0, now_ns = 0;
  const auto pass_until = [&](int64_t then_ns) {
    Kind* best = nullptr;
    for (Kind& kind : kinds)
      if (kind.running > 0 && (best == nullptr || kind.rank < best->rank)) best = &kind;
    (best == nullptr ? idle_ns : best->exposed_ns) += then_ns - now_ns;
    now_ns = then_ns;
  };
  for (const Event& event : events) {
    pass_until(event.at_ns);
    kinds[event.kind].running += event.change;
  }
  pass_until(simulation.run.end_ns);

  constexpr double kSecond = 1e-9;
  for (const Kind& kind : kinds) {
    const auto same = [&](const TimeShare& it) {
      return it.cause == kind.cause.cause && it.axis == kind.cause.axis;
    };
    auto share = std::ranges::find_if(result.shares, same);
    if (share == result.shares.end())
      share = result.shares.insert(result.shares.end(), {kind.cause.cause, kind.cause.axis});
    share->seconds += static_cast<double>(kind.exposed_ns) * kSecond;
    share->hidden_s += static_cast<double>(kind.whole_ns - kind.exposed_ns) * kSecond;
  }
  const bool pipeline = layout.places.size() > 1;
  if (idle_ns > 0)
    result.shares.push_back({pipeline ? "bubble" : "waiting", "", static_cast<double>(idle_ns) * kSecond, 0});
  std::ranges::stable_sort(result.shares, {}, place_in_list);
  return result;
}

}  // namespace tessera
