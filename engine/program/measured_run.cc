#include "engine/program/measured_run.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "engine/program/compile.h"
#include "engine/program/probe_program.h"
#include "graph/analysis/dependencies.h"
#include "graph/base/cancellation.h"

namespace tessera {

namespace {

struct Interval {
  int64_t begin_ns = 0, end_ns = 0;
};
using Intervals = std::vector<std::vector<Interval>>;  // [rank][instruction]

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Events carry no instruction: the n-th of a track is the n-th of its stream.
Result<Intervals> intervals_of(std::vector<TraceEvent> events, const Program& program) {
  std::ranges::stable_sort(events, {}, &TraceEvent::begin_ns);
  Intervals intervals;
  std::vector<std::map<int32_t, std::vector<int32_t>>> code;  // [rank] track -> instructions
  for (const RankProgram& rank : program.ranks) {
    intervals.emplace_back(rank.entries[0].code.size());
    std::map<int32_t, std::vector<int32_t>>& tracks = code.emplace_back();
    for (const Stream& stream : find_dependencies(rank, rank.entries[0]).streams)
      tracks[track_of(stream.id)] = stream.code;
  }
  std::map<std::pair<int32_t, int32_t>, size_t> next;
  for (const TraceEvent& event : events) {
    const std::vector<int32_t>& order = code[static_cast<size_t>(event.rank)][event.track];
    const size_t at = next[{event.rank, event.track}]++;
    if (at >= order.size()) return Status(StatusCode::kInternal, "the trace holds more than the program");
    intervals[static_cast<size_t>(event.rank)][static_cast<size_t>(order[at])] = {event.begin_ns,
                                                                                  event.end_ns};
  }
  return intervals;
}

// Seconds from the begin of the last participant. All ranks have equal
// instructions here, except the two ends of a message, which share an index.
std::vector<std::vector<double>> seconds_of(const Intervals& intervals, const Program& program) {
  std::vector<std::vector<double>> seconds(intervals.size());
  for (size_t rank = 0; rank < intervals.size(); ++rank) {
    const std::vector<Instruction>& code = program.ranks[rank].entries[0].code;
    for (size_t i = 0; i < code.size(); ++i) {
      int64_t begin_ns = intervals[rank][i].begin_ns;
      if (!std::holds_alternative<KernelInst>(code[i]) && !std::holds_alternative<CopyInst>(code[i]))
        for (const auto& other : intervals) begin_ns = std::max(begin_ns, other[i].begin_ns);
      seconds[rank].push_back(1e-9 * static_cast<double>(intervals[rank][i].end_ns - begin_ns));
    }
  }
  return seconds;
}

// Collects the delay between an instruction and one that waited for it on another stream.
void add_stream_switches(const Intervals& intervals, const Program& program, std::vector<double>& switches) {
  for (size_t rank = 0; rank < intervals.size(); ++rank) {
    const RankProgram& part = program.ranks[rank];
    const Dependencies dependencies = find_dependencies(part, part.entries[0]);
    for (const Stream& stream : dependencies.streams)
      for (size_t at = 0; at < stream.code.size(); ++at) {
        const auto end_of = [&](int32_t instruction) {
          return intervals[rank][static_cast<size_t>(instruction)].end_ns;
        };
        const int64_t own_ns = at == 0 ? 0 : end_of(stream.code[at - 1]);
        int64_t others_ns = 0;
        for (const StreamWait& wait : dependencies.waits_of(stream.code[at]))
          others_ns = std::max(others_ns, end_of(dependencies.streams[static_cast<size_t>(wait.stream)]
                                                     .code[static_cast<size_t>(wait.position)]));
        if (others_ns <= own_ns) continue;
        const int64_t begin_ns = intervals[rank][static_cast<size_t>(stream.code[at])].begin_ns;
        switches.push_back(1e-9 * static_cast<double>(std::max<int64_t>(0, begin_ns - others_ns)));
      }
  }
}

double mean_but_longest(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  values.resize(values.size() - values.size() / 50);
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double span_s(const Intervals& intervals) {
  int64_t begin_ns = INT64_MAX, end_ns = 0;
  for (const auto& rank : intervals)
    for (const Interval& interval : rank) {
      begin_ns = std::min(begin_ns, interval.begin_ns);
      end_ns = std::max(end_ns, interval.end_ns);
    }
  return 1e-9 * static_cast<double>(end_ns - begin_ns);
}

}  // namespace

double lower_quartile(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[(values.size() - 1) / 4];
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

Result<MeasuredRun> measure_run(std::shared_ptr<DeviceSet> devices, Program program,
                                const MeasureOptions& options,
                                const std::function<Status(Session&, const std::string& entry)>& fill) {
  TSR_ASSIGN_OR_RETURN(const auto executable, Executable::prepare(std::move(devices), std::move(program)));
  const Program& made = executable->program();
  const std::string entry = made.ranks[0].entries[0].name;
  SessionOptions session_options;
  session_options.trace = options.traces;
  session_options.fuse_launches = !options.traces;                // prices are of single kernels
  if (options.traces) session_options.streams = StreamOptions{};  // as `intervals_of` expects
  TSR_ASSIGN_OR_RETURN(const auto session, Session::create(executable, session_options));
  TSR_RETURN_IF_ERROR(fill(*session, entry));
  std::vector<std::vector<std::vector<double>>> rounds;
  std::vector<double> outside, runs, switches;
  const double begun_s = now_s();
  for (int32_t round = 0; round <= options.rounds; ++round) {
    cancellation_point();
    if (round > 3 && now_s() - begun_s > options.budget_s) break;
    const double before_s = now_s();
    TSR_RETURN_IF_ERROR(session->run(entry));
    const double run_s = now_s() - before_s;
    if (round > 0) runs.push_back(run_s);
    if (!options.traces) continue;
    TSR_ASSIGN_OR_RETURN(const Intervals intervals, intervals_of(session->take_trace(), made));
    if (round == 0) continue;
    rounds.push_back(seconds_of(intervals, made));
    outside.push_back(std::max(0.0, run_s - span_s(intervals)));
    add_stream_switches(intervals, made, switches);
  }
  MeasuredRun measured;
  measured.outside_s = lower_quartile(outside);
  measured.run_s = median(std::move(runs));
  measured.stream_switch_s = mean_but_longest(std::move(switches));
  if (!options.traces) return measured;
  for (size_t rank = 0; rank < made.ranks.size(); ++rank) {
    std::vector<double>& seconds = measured.seconds.emplace_back();
    for (size_t i = 0; i < made.ranks[rank].entries[0].code.size(); ++i) {
      std::vector<double> each;
      for (const auto& round : rounds) each.push_back(round[rank][i]);
      seconds.push_back(lower_quartile(std::move(each)));
    }
  }
  return measured;
}

namespace {

constexpr std::string_view kEntry = "step";
// A turn has as many steps as fit its budget, at least four; each plan gets `rounds` turns.
constexpr MeasureOptions kTurn{.budget_s = 0.06, .rounds = 20, .traces = false};
constexpr int kTurns = 6;

Result<double> turn_of(const std::shared_ptr<DeviceSet>& devices, const std::shared_ptr<const Graph>& graph,
                       const Plan& plan) {
  TSR_ASSIGN_OR_RETURN(CompiledProgram compiled,
                       compile_entries({{std::string(kEntry), graph, plan}}, *devices));
  const Program program = compiled.program;
  const auto fill = [&](Session& session, const std::string& entry) {
    return fill_step(session, entry, program, *graph);
  };
  TSR_ASSIGN_OR_RETURN(const MeasuredRun run, measure_run(devices, std::move(compiled.program), kTurn, fill));
  return run.run_s;
}

}  // namespace

MeasurePlans measured_steps(std::shared_ptr<DeviceSet> devices, std::shared_ptr<const Graph> graph) {
  return [devices, graph](std::span<const Plan* const> plans) -> Result<std::vector<double>> {
    std::vector<double> seconds(plans.size(), std::numeric_limits<double>::infinity());
    for (int turn = 0; turn < kTurns; ++turn)
      for (size_t i = 0; i < plans.size(); ++i) {
        const size_t at = turn % 2 == 0 ? i : plans.size() - 1 - i;
        TSR_ASSIGN_OR_RETURN(const double taken, turn_of(devices, graph, *plans[at]));
        seconds[at] = std::min(seconds[at], taken);
      }
    return seconds;
  };
}

}  // namespace tessera
