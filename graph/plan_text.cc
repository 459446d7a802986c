// The text form of a Plan, exact both ways: decisions by the names and ids of the graph, so that a plan can
// be read, edited by hand and compared.
//
//   plan {
//     graph 0x5c1e…                                      fingerprint of its graph
//     strategy "dp=2,tp=2"
//     symbol T = 128
//     global_batch 8; micro_batches 2; schedule none
//     estimate {step_time_s 0.5, compute_s 0.4, communication_s 0.1, gap -1, arena_bytes [4096, 4096]}
//     mesh 0: dp=2, tp=2                                 one line a stage
//     stored 5 block.0.q: mesh 0 {[tp unit 8], []} device
//     recompute 9 %9
//     keep_gathered 5 block.0.q
//     offload 9 %9 host
//     zigzag [cp]; prefetch 2                            only if not empty; only if not 1
//     node 3 %8 matmul: {a: [dp], n: [tp]} units {n: 8} chunks k 4
//     node 6 %11 orthogonalize: {m: [dp]} units {m: 64} firsts {m: 1}   its owner
//     node 4 %9 add: {} stage 1 carried [tp] carry_set 0 tier host
//     node 5 %9 attention: {b: [dp]} chunks s 4 rotating
//   }
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <vector>

#include "graph/base/text.h"
#include "graph/graph_text.h"
#include "graph/plan.h"

namespace tessera {

namespace {

constexpr std::string_view kTiers[] = {"device", "host", "file"};
constexpr std::string_view kOrders[] = {"broadcast", "rotating"};
constexpr std::string_view kSchedules[] = {"none", "gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2", "zb_v"};

bool is_factor(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }  // one letter each

class PlanPrinter {
 public:
  PlanPrinter(const Plan& plan, const Graph& graph) : plan_(plan), graph_(graph) {}

  std::string print() {
    char fingerprint[24];
    std::snprintf(fingerprint, sizeof fingerprint, "0x%016llx",
                  static_cast<unsigned long long>(plan_.graph_fingerprint));
    text_ = "plan {\n";
    line(std::string("graph ") + fingerprint);
    line("strategy " + to_text(AttrValue(plan_.strategy)));
    for (const auto& [name, value] : plan_.symbols) line(format("symbol {} = {}", quoted_name(name), value));
    line(format("global_batch {}", plan_.global_batch));
    line(format("micro_batches {}", plan_.micro_batches));
    line(format("schedule {}", kSchedules[static_cast<size_t>(plan_.schedule)]));
    const PlanEstimate& e = plan_.estimate;
    line("estimate {" +
         format("step_time_s {}, compute_s {}, communication_s {}, gap {}, arena_bytes {}", e.step_time_s,
                e.compute_s, e.communication_s, e.gap, to_text(AttrValue(e.arena_bytes))) +
         "}");
    if (e.profile != 0) {
      std::snprintf(fingerprint, sizeof fingerprint, "0x%016llx", static_cast<unsigned long long>(e.profile));
      line(std::string("profile ") + fingerprint);
    }
    for (size_t i = 0; i < plan_.stages.size(); ++i) {
      const std::string mesh = to_text(plan_.stages[i].mesh);
      line(format("mesh {}:", i) + (mesh.empty() ? "" : " " + mesh));
    }
    for (const StoredTensor& stored : plan_.stored) print_stored(stored);
    for (TensorId tensor : plan_.recompute) line("recompute " + label(tensor));
    for (TensorId tensor : plan_.keep_gathered) line("keep_gathered " + label(tensor));
    for (const auto& [tensor, tier] : plan_.offload)
      line("offload " + label(tensor) + " " + std::string(kTiers[static_cast<size_t>(tier)]));
    if (!plan_.zigzag.empty()) line("zigzag " + axes_text(plan_.zigzag, 0));
    if (plan_.prefetch != 1) line(format("prefetch {}", plan_.prefetch));
    for (size_t i = 0; i < plan_.nodes.size() && i < graph_.nodes().size(); ++i) print_node(i);
    return text_ + "}\n";
  }

 private:
  void line(const std::string& content) { text_ += "  " + content + "\n"; }

  std::string label(TensorId tensor) const {
    return format("{} {}", index(tensor),
                  index(tensor) < graph_.tensors().size() ? quoted_name(graph_.tensor(tensor).name) : "?");
  }

  // The mesh of a stage; an empty one where a plan under construction names a missing stage.
  const DeviceMesh& mesh(int32_t stage) const {
    static const DeviceMesh kNone;
    return stage >= 0 && static_cast<size_t>(stage) < plan_.stages.size()
               ? plan_.stages[static_cast<size_t>(stage)].mesh
               : kNone;
  }

  std::string axes_text(std::span<const AxisId> axes, int32_t stage) const {
    std::vector<std::string> names;
    for (AxisId axis : axes)
      names.push_back(axis < mesh(stage).axes.size() ? mesh(stage).axes[axis].name : format("?{}", axis));
    return "[" + join(names, ", ") + "]";
  }

  void print_stored(const StoredTensor& stored) {
    std::vector<std::string> placements;
    for (const Placement& placement : stored.placements)
      placements.push_back(format("mesh {} {} {}", placement.mesh,
                                  to_text(placement.stored, mesh(placement.mesh)),
                                  kTiers[static_cast<size_t>(placement.tier)]));
    line("stored " + label(stored.tensor) + ": " + join(placements, ", "));
  }

  void print_node(size_t i) {
    const NodePlan& node = plan_.nodes[i];
    std::vector<std::string> factors, units, firsts;
    for (const auto& [name, axes] : node.factor_axes)
      factors.push_back(format("{}: {}", name, axes_text(axes, node.stage)));
    for (const auto& [name, unit] : node.factor_units) units.push_back(format("{}: {}", name, unit));
    for (const auto& [name, first] : node.factor_firsts) firsts.push_back(format("{}: {}", name, first));
    std::string content =
        format("node {} {} {}: ", i, quoted_name(graph_.tensor(graph_.nodes()[i].outputs[0]).name),
               graph_.nodes()[i].op->name) +
        "{" + join(factors, ", ") + "}";
    if (!units.empty()) content += " units {" + join(units, ", ") + "}";
    if (!firsts.empty()) content += " firsts {" + join(firsts, ", ") + "}";
    if (node.stage != 0) content += format(" stage {}", node.stage);
    if (!node.carried.empty()) content += " carried " + axes_text(node.carried, node.stage);
    if (node.carry_set != -1) content += format(" carry_set {}", node.carry_set);
    if (node.chunks != 1 || node.chunk_factor != 0)
      content += " chunks " + (node.chunk_factor != 0 ? std::string(1, node.chunk_factor) + " " : "") +
                 format("{}", node.chunks);
    if (node.chunk_order != ChunkOrder::kBroadcast)
      content += format(" {}", kOrders[static_cast<size_t>(node.chunk_order)]);
    if (node.tier != Tier::kDevice) content += format(" tier {}", kTiers[static_cast<size_t>(node.tier)]);
    line(content);
  }

  const Plan& plan_;
  const Graph& graph_;
  std::string text_;
};

class PlanReader {
 public:
  PlanReader(std::string_view text, const Graph& graph) : in_(text), graph_(graph) {
    plan_.nodes.resize(graph.nodes().size());
  }

  Result<Plan> read() {
    in_.skip_lines();
    TSR_RETURN_IF_ERROR(in_.expect("plan"));
    TSR_RETURN_IF_ERROR(in_.expect("{"));
    for (in_.skip_lines(); !in_.accept("}"); in_.skip_lines()) {
      if (in_.peek().kind == TextReader::Kind::kEnd) return in_.wrong("a closing '}'");
      TSR_RETURN_IF_ERROR(statement());
      TSR_RETURN_IF_ERROR(in_.end_of_line());
    }
    in_.skip_lines();
    if (in_.peek().kind != TextReader::Kind::kEnd) return in_.wrong("the end of the text");
    std::ranges::sort(plan_.stored, {}, &StoredTensor::tensor);
    std::ranges::sort(plan_.recompute);
    std::ranges::sort(plan_.keep_gathered);
    std::ranges::sort(plan_.offload, {}, &OffloadedTensor::tensor);
    return std::move(plan_);
  }

 private:
  Status statement() {
    if (in_.accept("graph")) return fingerprint(plan_.graph_fingerprint);
    if (in_.accept("profile")) return fingerprint(plan_.estimate.profile);
    if (in_.accept("strategy")) {
      TSR_ASSIGN_OR_RETURN(plan_.strategy, in_.name());
      return {};
    }
    if (in_.accept("symbol")) {
      TSR_ASSIGN_OR_RETURN(std::string name, in_.name());
      TSR_RETURN_IF_ERROR(in_.expect("="));
      TSR_ASSIGN_OR_RETURN(const int64_t value, in_.integer());
      plan_.symbols.emplace_back(std::move(name), value);
      return {};
    }
    if (in_.accept("global_batch")) {
      TSR_ASSIGN_OR_RETURN(plan_.global_batch, in_.integer());
      return {};
    }
    if (in_.accept("micro_batches")) {
      TSR_ASSIGN_OR_RETURN(plan_.micro_batches, count("micro_batches", 1));
      return {};
    }
    if (in_.accept("schedule")) {
      TSR_ASSIGN_OR_RETURN(const size_t which, one_of(kSchedules));
      plan_.schedule = static_cast<ScheduleKind>(which);
      return {};
    }
    if (in_.accept("estimate")) return estimate();
    if (in_.accept("mesh")) return mesh();
    if (in_.accept("stored")) return stored();
    if (in_.accept("recompute")) {
      TSR_ASSIGN_OR_RETURN(const TensorId id, tensor());
      plan_.recompute.push_back(id);
      return {};
    }
    if (in_.accept("keep_gathered")) {
      TSR_ASSIGN_OR_RETURN(const TensorId id, tensor());
      plan_.keep_gathered.push_back(id);
      return {};
    }
    if (in_.accept("offload")) {
      TSR_ASSIGN_OR_RETURN(const TensorId id, tensor());
      TSR_ASSIGN_OR_RETURN(const size_t tier, one_of(kTiers));
      plan_.offload.push_back({id, static_cast<Tier>(tier)});
      return {};
    }
    if (in_.accept("zigzag")) {
      std::vector<std::string> axes;
      TSR_RETURN_IF_ERROR(names(axes));
      TSR_ASSIGN_OR_RETURN(plan_.zigzag, axis_ids(axes, 0));
      return {};
    }
    if (in_.accept("prefetch")) {
      TSR_ASSIGN_OR_RETURN(plan_.prefetch, count("prefetch", 0));
      return {};
    }
    if (in_.accept("node")) return node();
    return in_.wrong(
        "graph, profile, strategy, symbol, global_batch, micro_batches, schedule, estimate, mesh, stored, recompute, "
        "keep_gathered, offload, zigzag, prefetch or node");
  }

  Status fingerprint(uint64_t& value) {
    const std::string word = in_.peek().text;
    const auto [end, error] =
        word.starts_with("0x")
            ? std::from_chars(word.data() + 2, word.data() + word.size(), value, 16)
            : std::from_chars_result{word.data(), std::errc::invalid_argument};
    if (error != std::errc() || end != word.data() + word.size())
      return in_.wrong("a fingerprint such as 0x5c1e");
    in_.take();
    return {};
  }

  Result<int32_t> count(std::string_view what, int64_t least, int64_t most = INT32_MAX) {
    TSR_ASSIGN_OR_RETURN(const int64_t value, in_.integer());
    if (value < least || value > most)
      return in_.error(format("{} is {}, wanted {} to {}", what, value, least, most));
    return static_cast<int32_t>(value);
  }

  Result<size_t> one_of(std::span<const std::string_view> words) {
    const auto at = std::ranges::find(words, in_.peek().text);
    if (at == words.end()) return in_.wrong(join(std::vector<std::string>(words.begin(), words.end()), ", "));
    in_.take();
    return static_cast<size_t>(at - words.begin());
  }

  Status estimate() {
    PlanEstimate& e = plan_.estimate;
    TSR_RETURN_IF_ERROR(in_.expect("{"));
    while (!in_.accept("}")) {
      if (in_.accept("arena_bytes")) {
        TSR_RETURN_IF_ERROR(in_.expect("["));
        e.arena_bytes.clear();
        while (!in_.accept("]")) {
          TSR_ASSIGN_OR_RETURN(const int64_t bytes, in_.integer());
          e.arena_bytes.push_back(bytes);
          if (!in_.at("]")) TSR_RETURN_IF_ERROR(in_.expect(","));
        }
      } else {
        double* const field = in_.at("step_time_s")       ? &e.step_time_s
                              : in_.at("compute_s")       ? &e.compute_s
                              : in_.at("communication_s") ? &e.communication_s
                              : in_.at("gap")             ? &e.gap
                                                          : nullptr;
        if (field == nullptr) return in_.wrong("step_time_s, compute_s, communication_s, gap or arena_bytes");
        in_.take();
        TSR_ASSIGN_OR_RETURN(*field, in_.real());
      }
      if (!in_.at("}")) TSR_RETURN_IF_ERROR(in_.expect(","));
    }
    return {};
  }

  // Reads the meshes, which come in order, before the lines that name them.
  Status mesh() {
    TSR_ASSIGN_OR_RETURN(const int32_t stage, count("mesh", 0));
    if (static_cast<size_t>(stage) != plan_.stages.size())
      return in_.error(format("mesh {} where mesh {} is next", stage, plan_.stages.size()));
    TSR_RETURN_IF_ERROR(in_.expect(":"));
    std::string text;
    while (in_.peek().kind != TextReader::Kind::kLine && in_.peek().kind != TextReader::Kind::kEnd)
      text += in_.take().text + " ";
    Result<DeviceMesh> parsed = parse_mesh(text);
    if (!parsed.ok()) return in_.error(parsed.status().message());
    plan_.stages.push_back({std::move(*parsed)});
    return {};
  }

  Result<const DeviceMesh*> mesh_of(int32_t stage) {
    if (static_cast<size_t>(stage) >= plan_.stages.size())
      return in_.error(format("mesh {} is not declared above", stage));
    return &plan_.stages[static_cast<size_t>(stage)].mesh;
  }

  // Reads "<id> <name>", which must agree, so that an edit cannot change another tensor by mistake.
  Result<TensorId> tensor() {
    TSR_ASSIGN_OR_RETURN(const int64_t id, in_.integer());
    TSR_ASSIGN_OR_RETURN(const std::string name, in_.name());
    if (id < 0 || static_cast<size_t>(id) >= graph_.tensors().size())
      return in_.error(format("tensor {} '{}': the graph has {} tensors", id, name, graph_.tensors().size()));
    const TensorId tensor{static_cast<uint32_t>(id)};
    if (graph_.tensor(tensor).name != name)
      return in_.error(
          format("tensor {} is '{}' in the graph, not '{}'", id, graph_.tensor(tensor).name, name));
    return tensor;
  }

  Result<ShardingSpec> spec(const DeviceMesh& on) {
    std::string text;
    const auto copy_to = [&](std::string_view last) {
      while (!in_.at(last) && in_.peek().kind != TextReader::Kind::kLine &&
             in_.peek().kind != TextReader::Kind::kEnd)
        text += in_.take().text + " ";
      if (in_.at(last)) text += in_.take().text + " ";
    };
    copy_to("}");
    if (in_.at("partial")) copy_to(")");
    Result<ShardingSpec> parsed = parse_spec(text, on);
    if (!parsed.ok()) return in_.error(parsed.status().message());
    return parsed;
  }

  Status stored() {
    StoredTensor stored;
    TSR_ASSIGN_OR_RETURN(stored.tensor, tensor());
    if (std::ranges::find(plan_.stored, stored.tensor, &StoredTensor::tensor) != plan_.stored.end())
      return in_.error(format("tensor {} is stored twice", index(stored.tensor)));
    TSR_RETURN_IF_ERROR(in_.expect(":"));
    do {
      Placement placement;
      TSR_RETURN_IF_ERROR(in_.expect("mesh"));
      TSR_ASSIGN_OR_RETURN(placement.mesh, count("mesh", 0));
      TSR_ASSIGN_OR_RETURN(const DeviceMesh* on, mesh_of(placement.mesh));
      TSR_ASSIGN_OR_RETURN(placement.stored, spec(*on));
      if (const Status valid = validate(placement.stored, graph_.type(stored.tensor).shape, *on); !valid.ok())
        return in_.error(valid.message());
      TSR_ASSIGN_OR_RETURN(const size_t tier, one_of(kTiers));
      placement.tier = static_cast<Tier>(tier);
      stored.placements.push_back(std::move(placement));
    } while (in_.accept(","));
    plan_.stored.push_back(std::move(stored));
    return {};
  }

  // Reads "[dp, tp]".
  Status names(std::vector<std::string>& into) {
    TSR_RETURN_IF_ERROR(in_.expect("["));
    while (!in_.accept("]")) {
      TSR_ASSIGN_OR_RETURN(std::string name, in_.name());
      into.push_back(std::move(name));
      if (!in_.at("]")) TSR_RETURN_IF_ERROR(in_.expect(","));
    }
    return {};
  }

  Result<char> factor() {
    TSR_ASSIGN_OR_RETURN(const std::string name, in_.name());
    if (name.size() != 1) return in_.error(format("'{}' is not a factor; factors are single letters", name));
    TSR_RETURN_IF_ERROR(in_.expect(":"));
    return name[0];
  }

  Status node() {
    TSR_ASSIGN_OR_RETURN(const int64_t id, in_.integer());
    TSR_ASSIGN_OR_RETURN(const std::string result, in_.name());
    TSR_ASSIGN_OR_RETURN(const std::string op, in_.name());
    if (id < 0 || static_cast<size_t>(id) >= graph_.nodes().size())
      return in_.error(format("node {}: the graph has {} nodes", id, graph_.nodes().size()));
    const Node& of = graph_.nodes()[static_cast<size_t>(id)];
    if (const std::string& name = graph_.tensor(of.outputs[0]).name; name != result || of.op != find_op(op))
      return in_.error(
          format("node {} is '{}' {} in the graph, not '{}' {}", id, name, of.op->name, result, op));
    TSR_RETURN_IF_ERROR(in_.expect(":"));

    // Axes are resolved at the end: the stage, which names their mesh, comes after them.
    NodePlan node;
    std::vector<std::pair<char, std::vector<std::string>>> factor_axes;
    std::vector<std::string> carried;
    TSR_RETURN_IF_ERROR(in_.expect("{"));
    while (!in_.accept("}")) {
      TSR_ASSIGN_OR_RETURN(const char name, factor());
      factor_axes.emplace_back(name, std::vector<std::string>());
      TSR_RETURN_IF_ERROR(names(factor_axes.back().second));
      if (!in_.at("}")) TSR_RETURN_IF_ERROR(in_.expect(","));
    }
    for (;;) {
      if (in_.accept("units")) {
        TSR_RETURN_IF_ERROR(in_.expect("{"));
        while (!in_.accept("}")) {
          TSR_ASSIGN_OR_RETURN(const char name, factor());
          TSR_ASSIGN_OR_RETURN(const int64_t unit, in_.integer());
          if (unit < 1) return in_.error(format("unit {} of factor {}, wanted at least 1", unit, name));
          node.factor_units.emplace_back(name, unit);
          if (!in_.at("}")) TSR_RETURN_IF_ERROR(in_.expect(","));
        }
      } else if (in_.accept("firsts")) {
        TSR_RETURN_IF_ERROR(in_.expect("{"));
        while (!in_.accept("}")) {
          TSR_ASSIGN_OR_RETURN(const char name, factor());
          TSR_ASSIGN_OR_RETURN(const int32_t first, count("first", 0));
          node.factor_firsts.emplace_back(name, first);
          if (!in_.at("}")) TSR_RETURN_IF_ERROR(in_.expect(","));
        }
      } else if (in_.accept("stage")) {
        TSR_ASSIGN_OR_RETURN(node.stage, count("stage", 0));
      } else if (in_.accept("carried")) {
        TSR_RETURN_IF_ERROR(names(carried));
      } else if (in_.accept("carry_set")) {
        TSR_ASSIGN_OR_RETURN(node.carry_set, count("carry_set", -1));
      } else if (in_.accept("chunks")) {
        if (in_.peek().text.size() == 1 && is_factor(in_.peek().text[0]))
          node.chunk_factor = in_.take().text[0];
        TSR_ASSIGN_OR_RETURN(node.chunks, count("chunks", 1));
      } else if (in_.accept("rotating")) {
        node.chunk_order = ChunkOrder::kRotating;
      } else if (in_.accept("tier")) {
        TSR_ASSIGN_OR_RETURN(const size_t tier, one_of(kTiers));
        node.tier = static_cast<Tier>(tier);
      } else {
        break;
      }
    }
    for (const auto& [name, on_axes] : factor_axes) {
      TSR_ASSIGN_OR_RETURN(std::vector<AxisId> ids, axis_ids(on_axes, node.stage));
      node.factor_axes.emplace_back(name, std::move(ids));
    }
    TSR_ASSIGN_OR_RETURN(node.carried, axis_ids(carried, node.stage));
    std::ranges::sort(node.factor_axes);
    std::ranges::sort(node.factor_units);
    std::ranges::sort(node.factor_firsts);
    plan_.nodes[static_cast<size_t>(id)] = std::move(node);
    return {};
  }

  Result<std::vector<AxisId>> axis_ids(std::span<const std::string> names, int32_t stage) {
    std::vector<AxisId> ids;
    if (names.empty()) return ids;
    TSR_ASSIGN_OR_RETURN(const DeviceMesh* on, mesh_of(stage));
    for (const std::string& name : names) {
      const auto axis = on->find_axis(name);
      if (!axis) return in_.error(format("the mesh '{}' has no axis '{}'", to_text(*on), name));
      ids.push_back(*axis);
    }
    return ids;
  }

  TextReader in_;
  const Graph& graph_;
  Plan plan_;
};

}  // namespace

std::string print(const Plan& plan, const Graph& graph) { return PlanPrinter(plan, graph).print(); }

Result<Plan> parse_plan(std::string_view text, const Graph& graph) { return PlanReader(text, graph).read(); }

const StoredTensor* Plan::find_stored(TensorId tensor) const {
  const auto at = std::ranges::lower_bound(stored, tensor, {}, &StoredTensor::tensor);
  return at != stored.end() && at->tensor == tensor ? &*at : nullptr;
}

}  // namespace tessera
