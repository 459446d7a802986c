#include <algorithm>

#include "engine/program/report.h"
#include "graph/analysis/graph_profile.h"
#include "text/json.h"

namespace tessera {

namespace {

constexpr const char* kPhases[] = {"forward", "backward", "update"};

Json object_of(const WorkTotals& work) {
  return {{"flops", work.flops},
          {"bytes_read", work.bytes_read},
          {"bytes_written", work.bytes_written},
          {"saved_bytes", work.saved_bytes},
          {"transient_bytes", work.transient_bytes},
          {"nodes", work.nodes}};
}

// Grouped: totals by name, in order of first appearance, in all and by phase.
class Grouped {
 public:
  void add(const std::string& name, WorkPhase phase, const WorkTotals& work) {
    auto at = std::ranges::find(names_, name);
    if (at == names_.end()) {
      names_.push_back(name);
      totals_.push_back({});
      at = names_.end() - 1;
    }
    totals_[static_cast<size_t>(at - names_.begin())].phases[static_cast<size_t>(phase)].add(work);
  }
  Json list(const char* key) const {
    Json all = Json::array();
    for (size_t i = 0; i < names_.size(); ++i) {
      WorkTotals sum;
      Json phases = Json::object();
      for (size_t phase = 0; phase < 3; ++phase) {
        const WorkTotals& one = totals_[i].phases[phase];
        sum.add(one);
        if (one.nodes > 0) phases[kPhases[phase]] = object_of(one);
      }
      Json entry = {{key, names_[i]}};
      entry.update(object_of(sum));
      entry["phases"] = std::move(phases);
      all.push_back(std::move(entry));
    }
    return all;
  }

 private:
  struct ByPhase {
    WorkTotals phases[3];
  };
  std::vector<std::string> names_;
  std::vector<ByPhase> totals_;
};

}  // namespace

Result<std::string> graph_profile_json(const Graph& graph, const Options& options) {
  OptionReader reader(options, "profile");
  const int64_t batch = reader.i64("batch", 1, 1, 1 << 24);
  const std::string symbols = reader.text("symbols");
  const bool with_nodes = reader.flag("nodes", false);
  TSR_RETURN_IF_ERROR(reader.finish());
  TSR_ASSIGN_OR_RETURN(auto values, parse_symbol_values(symbols));
  values.emplace_back("B", batch);
  std::erase_if(values, [&](const auto& value) {
    return std::ranges::find(graph.symbols(), value.first, &Symbol::name) == graph.symbols().end();
  });
  TSR_ASSIGN_OR_RETURN(const Graph bound, graph.bind(values));
  TSR_ASSIGN_OR_RETURN(const GraphProfile profile, profile_graph(bound));
  Grouped ops, blocks;
  Json nodes = Json::array();
  for (size_t n = 0; n < bound.nodes().size(); ++n) {
    const Node& node = bound.nodes()[n];
    const WorkPhase phase = work_phase(node.phase);
    ops.add(std::string(node.op->name), phase, profile.nodes[n]);
    blocks.add(block_of(node), phase, profile.nodes[n]);
    if (!with_nodes) continue;
    Json one = {{"op", node.op->name}, {"scope", node.scope}, {"phase", kPhases[static_cast<size_t>(phase)]}};
    one.update(object_of(profile.nodes[n]));
    nodes.push_back(std::move(one));
  }
  Json phases = Json::object();
  for (size_t phase = 0; phase < 3; ++phase)
    if (profile.phases[phase].nodes > 0) phases[kPhases[phase]] = object_of(profile.phases[phase]);
  Json report = {{"batch", batch},
                 {"parameter_bytes", profile.parameter_bytes},
                 {"state_bytes", profile.state_bytes},
                 {"total", object_of(profile.total())},
                 {"phases", phases},
                 {"ops", ops.list("op")},
                 {"blocks", blocks.list("block")}};
  if (with_nodes) report["nodes"] = std::move(nodes);
  return dump(report);
}

}  // namespace tessera
