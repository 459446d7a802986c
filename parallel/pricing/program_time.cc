#include "parallel/pricing/program_time.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera {

namespace {

std::string computing(StepPhase phase) {
  if (phase == StepPhase::kUpdate) return "update";
  return phase == StepPhase::kRecompute ? "recompute" : "compute";
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
                     StepPhase phase, const EntryLayout& layout) {
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
  return {computing(phase), ""};
}

int priority_of(const CauseOfTime& cause, const Instruction& instruction) {
  if (std::holds_alternative<KernelInst>(instruction)) return 0;
  if (std::holds_alternative<CollectiveInst>(instruction)) return 1;
  if (cause.cause == "offload") return 2;
  return std::holds_alternative<CopyInst>(instruction) ? 0 : 3;
}

void add_share(std::vector<TimeShare>& shares, const TimeShare& share, double times) {
  const auto same = [&](const TimeShare& it) { return it.cause == share.cause && it.axis == share.axis; };
  auto at = std::ranges::find_if(shares, same);
  if (at == shares.end()) at = shares.insert(shares.end(), {share.cause, share.axis});
  at->seconds += times * share.seconds;
  at->hidden_s += times * share.hidden_s;
}

void sort_shares(std::vector<TimeShare>& shares) { std::ranges::stable_sort(shares, {}, place_in_list); }

std::vector<TimeShare> time_shares(std::span<const CausedInterval> intervals, int64_t begin, int64_t end,
                                   double tick_s) {
  struct Kind {
    CauseOfTime cause;
    int priority;
    int64_t exposed = 0, whole = 0;
    int running = 0;
  };
  struct Event {
    int64_t at;
    size_t kind;
    int change;
  };
  std::vector<Kind> kinds;
  std::vector<Event> events;
  for (const CausedInterval& it : intervals) {
    const int64_t from = std::max(it.begin, begin), to = std::min(it.end, end);
    if (from >= to) continue;
    auto kind = std::ranges::find_if(
        kinds, [&](const Kind& known) { return known.cause == it.cause && known.priority == it.priority; });
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {it.cause, it.priority});
    kind->whole += to - from;
    const auto index = static_cast<size_t>(kind - kinds.begin());
    events.push_back({from, index, 1});
    events.push_back({to, index, -1});
  }
  std::ranges::stable_sort(events, {}, &Event::at);

  int64_t idle = 0, now = begin;
  const auto pass_until = [&](int64_t then) {
    Kind* best = nullptr;
    for (Kind& kind : kinds)
      if (kind.running > 0 && (best == nullptr || kind.priority < best->priority)) best = &kind;
    (best == nullptr ? idle : best->exposed) += then - now;
    now = then;
  };
  for (const Event& event : events) {
    pass_until(event.at);
    kinds[event.kind].running += event.change;
  }
  pass_until(end);

  std::vector<TimeShare> shares;
  for (const Kind& kind : kinds)
    add_share(shares,
              {kind.cause.cause, kind.cause.axis, static_cast<double>(kind.exposed) * tick_s,
               static_cast<double>(kind.whole - kind.exposed) * tick_s},
              1);
  if (idle > 0) shares.push_back({"waiting", "", static_cast<double>(idle) * tick_s, 0});
  sort_shares(shares);
  return shares;
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
  std::vector<CausedInterval> intervals;
  for (size_t at = 0; at < code.size(); ++at) {
    const ReplayedInterval& interval = simulation.run.ranks[critical][at];
    CauseOfTime cause = cause_of(rank, result.rank, code[at], phases[critical][at], layout);
    const int priority = priority_of(cause, code[at]);
    intervals.push_back({interval.begin_ns, interval.end_ns, std::move(cause), priority});
  }
  constexpr double kNanosecond = 1e-9;
  result.shares = time_shares(intervals, 0, simulation.run.end_ns, kNanosecond);
  if (layout.places.size() > 1)
    for (TimeShare& share : result.shares)
      if (share.cause == "waiting") share.cause = "bubble";
  sort_shares(result.shares);
  return result;
}

}  // namespace tessera
