#include "parallel/pricing/simulator.h"

#include <algorithm>
#include <cmath>

#include "graph/analysis/instructions.h"
#include "graph/base/text.h"
#include "parallel/pricing/cost_model.h"
#include "parallel/pricing/shared_replay.h"

namespace tessera {

namespace {

// By rank and instruction: nanoseconds until a never-waiting host has issued it.
std::vector<std::vector<int64_t>> issue_times(const std::vector<std::vector<InstructionPrice>>& prices) {
  std::vector<std::vector<int64_t>> issued;
  for (const std::vector<InstructionPrice>& rank : prices) {
    double seconds = 0;
    std::vector<int64_t>& times = issued.emplace_back();
    for (const InstructionPrice& price : rank)
      times.push_back(static_cast<int64_t>(std::llround((seconds += price.issue_s) * 1e9)));
  }
  return issued;
}

}  // namespace

Result<Simulation> simulate(const Program& program, std::string_view entry, const Cluster& cluster,
                            const SimulatorOptions& options) {
  TSR_CHECK(!program.ranks.empty(), "a program without ranks");
  const std::vector<EntryPoint>& entries = program.ranks[0].entries;
  const auto found = std::ranges::find(entries, entry, &EntryPoint::name);
  if (found == entries.end())
    return Status(StatusCode::kNotFound, format("the program has no entry '{}'", entry));
  Simulation simulation;
  simulation.entry = static_cast<size_t>(found - entries.begin());
  const StreamOptions streams =
      options.streams.value_or(usual_streams(working_ranks(program), cluster.shared_cores));
  for (const RankProgram& rank : program.ranks)
    simulation.dependencies.push_back(find_dependencies(rank, rank.entries[simulation.entry], streams));

  std::vector<std::vector<InstructionPrice>> prices;
  for (size_t rank = 0; rank < program.ranks.size(); ++rank)
    prices.push_back(prices_of(program.ranks[rank], program.ranks[rank].entries[simulation.entry], cluster,
                               static_cast<int32_t>(rank)));
  if (cluster.shared_cores > 0 && options.busy_ranks == 0) {
    TSR_ASSIGN_OR_RETURN(simulation.run,
                         replay_shared(program, simulation.entry, simulation.dependencies, prices, cluster));
    return simulation;
  }
  const auto duration = [&](int32_t rank, int32_t at) {
    const InstructionPrice& price = prices[static_cast<size_t>(rank)][static_cast<size_t>(at)];
    return static_cast<int64_t>(
        std::llround(seconds_at(price, cluster, std::max(1, options.busy_ranks)) * 1e9));
  };
  TSR_ASSIGN_OR_RETURN(simulation.run, replay(program, simulation.entry, simulation.dependencies, duration,
                                              issue_times(prices)));
  return simulation;
}

std::vector<TraceEvent> trace_of(const Program& program, const Simulation& simulation) {
  std::vector<TraceEvent> events;
  for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
    const RankProgram& part = program.ranks[rank];
    const std::vector<Instruction>& code = part.entries[simulation.entry].code;
    for (const Stream& stream : simulation.dependencies[rank].streams)
      for (const int32_t at : stream.code) {
        const Instruction& instruction = code[static_cast<size_t>(at)];
        const ReplayedInterval& interval = simulation.run.ranks[rank][static_cast<size_t>(at)];
        TraceEvent& event = events.emplace_back(traced(part, part.entries[simulation.entry], instruction));
        event.rank = static_cast<int32_t>(rank);
        event.track = track_of(stream.id);
        event.stream = to_text(stream.id);
        event.begin_ns = interval.begin_ns;
        event.end_ns = interval.end_ns;
      }
  }
  return events;
}

}  // namespace tessera
