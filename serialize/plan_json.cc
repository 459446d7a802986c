// The JSON form of a plan. Axes appear by name and defaults are left out, so that it can be read and edited.
// The graph's fingerprint is hexadecimal text, since many readers of JSON lose integers above 2^53.
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/json.h"
#include "serialize/plan_file.h"

namespace tessera {
namespace {

constexpr std::string_view kFormat = "tessera-plan";
constexpr int64_t kVersion = 1;
constexpr std::string_view kSchedules[] = {"none", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"};
constexpr std::string_view kTiers[] = {"device", "host", "file"};
constexpr std::string_view kOrders[] = {"broadcast", "rotating"};
constexpr std::string_view kReduces[] = {"sum", "max"};

Status wrong(std::string message) { return Status(StatusCode::kCorrupt, "plan: " + std::move(message)); }

// JSON has no infinities.
Json number(double value) {
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json axis_names(const std::vector<AxisId>& axes, const DeviceMesh& mesh) {
  Json names = Json::array();
  for (AxisId axis : axes) names.push_back(mesh.axes[axis].name);
  return names;
}

Json to_json(const Stage& stage) {
  Json axes = Json::array();
  for (const auto& [name, size] : stage.mesh.axes) axes.push_back(Json{{"name", name}, {"size", size}});
  return Json{{"axes", axes}, {"devices", stage.mesh.devices}};
}

Json to_json(const NodePlan& node, const Plan& plan) {
  const auto& [stage, factor_axes, carried, carry_set, chunk_factor, chunks, chunk_order, tier, factor_units,
               factor_firsts] = node;
  const DeviceMesh& mesh = plan.stages[static_cast<size_t>(stage)].mesh;
  Json json = Json::object();
  if (stage != 0) json["stage"] = stage;
  if (!factor_axes.empty()) {
    Json factors = Json::array();
    for (const auto& [factor, axes] : factor_axes) {
      factors.push_back(Json{{"factor", std::string(1, factor)}, {"axes", axis_names(axes, mesh)}});
    }
    json["factors"] = factors;
  }
  if (!carried.empty()) json["carried"] = axis_names(carried, mesh);
  if (carry_set != -1) json["carry_set"] = carry_set;
  if (chunk_factor != 0) json["chunk_factor"] = std::string(1, chunk_factor);
  if (chunks != 1) json["chunks"] = chunks;
  if (chunk_order != ChunkOrder::kBroadcast) json["chunk_order"] = kOrders[static_cast<size_t>(chunk_order)];
  if (tier != Tier::kDevice) json["tier"] = kTiers[static_cast<size_t>(tier)];
  if (!factor_units.empty()) {
    Json units = Json::array();
    for (const auto& [factor, unit] : factor_units) {
      units.push_back(Json{{"factor", std::string(1, factor)}, {"unit", unit}});
    }
    json["units"] = units;
  }
  if (!factor_firsts.empty()) {
    Json firsts = Json::array();
    for (const auto& [factor, first] : factor_firsts) {
      firsts.push_back(Json{{"factor", std::string(1, factor)}, {"first", first}});
    }
    json["firsts"] = firsts;
  }
  return json;
}

Json to_json(const Placement& placement, const Plan& plan) {
  const auto& [mesh_index, spec, tier] = placement;
  const DeviceMesh& mesh = plan.stages[static_cast<size_t>(mesh_index)].mesh;
  Json dims = Json::array();
  for (const auto& [axes, unit, first] : spec.dims) {
    Json dim{{"axes", axis_names(axes, mesh)}};
    if (unit != 1) dim["unit"] = unit;
    if (first != 0) dim["first"] = first;
    dims.push_back(dim);
  }
  Json json{{"dims", dims}};
  if (mesh_index != 0) json["mesh"] = mesh_index;
  if (!spec.partial.empty()) json["partial"] = axis_names(spec.partial, mesh);
  if (spec.reduce != ReduceKind::kSum) json["reduce"] = kReduces[static_cast<size_t>(spec.reduce)];
  if (tier != Tier::kDevice) json["tier"] = kTiers[static_cast<size_t>(tier)];
  return json;
}

// Members: one JSON object, read by name; unread members are an error.
class Members {
 public:
  Members(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) fail(format("{} is not an object", where_));
  }

  int64_t integer(std::string_view name, std::optional<int64_t> fallback, int64_t least, int64_t most) {
    const Json* value = find(name, fallback.has_value());
    if (value == nullptr) return fallback.value_or(0);
    if (value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT64_MAX})
      return out_of_range(name, least, most);
    if (!value->is_number_integer()) return fail(format("{}: '{}' is not an integer", where_, name)), 0;
    const auto result = value->get<int64_t>();
    return result < least || result > most ? out_of_range(name, least, most) : result;
  }
  int32_t int32(std::string_view name, std::optional<int64_t> fallback) {
    return static_cast<int32_t>(integer(name, fallback, INT32_MIN, INT32_MAX));
  }
  double real(std::string_view name, double fallback) {
    const Json* value = find(name, true);
    if (value == nullptr) return fallback;
    if (value->is_number()) return value->get<double>();
    if (*value == "inf" || *value == "-inf") {
      return *value == "inf" ? std::numeric_limits<double>::infinity()
                             : -std::numeric_limits<double>::infinity();
    }
    return fail(format("{}: '{}' is not a number", where_, name)), 0;
  }
  std::string text(std::string_view name, std::optional<std::string> fallback) {
    const Json* value = find(name, fallback.has_value());
    if (value == nullptr) return fallback.value_or("");
    if (!value->is_string()) return fail(format("{}: '{}' is not a string", where_, name)), "";
    return value->get<std::string>();
  }
  // Index of a word among `words`; 0 when absent.
  size_t word(std::string_view name, std::span<const std::string_view> words) {
    const std::string found = text(name, std::string(words[0]));
    for (size_t i = 0; i < words.size(); ++i) {
      if (words[i] == found) return i;
    }
    std::vector<std::string> known(words.begin(), words.end());
    return fail(format("{}: '{}' is '{}'; known: {}", where_, name, found, join(known, ", "))), 0;
  }
  // Empty when absent.
  const Json& array(std::string_view name) {
    static const Json kEmpty = Json::array();
    const Json* value = find(name, true);
    if (value == nullptr) return kEmpty;
    if (!value->is_array()) return fail(format("{}: '{}' is not an array", where_, name)), kEmpty;
    return *value;
  }
  const Json& object(std::string_view name) {
    static const Json kEmpty = Json::object();
    const Json* value = find(name, true);
    return value == nullptr ? kEmpty : *value;
  }
  std::vector<AxisId> axes(std::string_view name, const DeviceMesh& mesh) {
    std::vector<AxisId> axes;
    for (const Json& axis : array(name)) {
      const auto id = axis.is_string() ? mesh.find_axis(axis.get<std::string>()) : std::nullopt;
      if (!id)
        return fail(format("{}: '{}' has {}, which is no axis of its mesh", where_, name, quote_json(axis))),
               axes;
      axes.push_back(*id);
    }
    return axes;
  }
  char factor(std::string_view member = "factor", std::optional<std::string> fallback = {}) {
    const std::string name = text(member, fallback);
    if (name.size() == 1) return name[0];
    if (fallback && name.empty()) return 0;
    return fail(format("{}: a factor has one letter, not '{}'", where_, name)), '?';
  }
  template <class Int>
  std::vector<Int> integers(std::string_view name) {
    std::vector<Int> values;
    for (const Json& value : array(name)) {
      if (!value.is_number_integer() ||
          (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) ||
          !std::in_range<Int>(value.get<int64_t>())) {
        return fail(format("{}: '{}' has {}", where_, name, quote_json(value))), values;
      }
      values.push_back(static_cast<Int>(value.get<int64_t>()));
    }
    return values;
  }

  Status finish() {
    if (!status_.ok()) return status_;
    std::vector<std::string> known(asked_.begin(), asked_.end());
    for (const auto& [name, value] : json_.items()) {
      if (!asked_.contains(name)) {
        return wrong(format("{}: unknown member '{}'; nearest: {}", where_, name,
                            join(nearest_names(name, known), ", ")));
      }
    }
    return {};
  }

 private:
  const Json* find(std::string_view name, bool optional) {
    asked_.emplace(name);
    if (!status_.ok()) return nullptr;
    auto found = json_.find(std::string(name));
    if (found != json_.end()) return &*found;
    if (!optional) fail(format("{}: '{}' is missing", where_, name));
    return nullptr;
  }
  int64_t out_of_range(std::string_view name, int64_t least, int64_t most) {
    fail(format("{}: '{}' is outside {} to {}", where_, name, least, most));
    return least;
  }
  void fail(std::string message) {
    if (status_.ok()) status_ = wrong(std::move(message));
  }

  const Json& json_;
  std::string where_;
  std::set<std::string, std::less<>> asked_;
  Status status_;
};

Result<Stage> stage_from(const Json& json, size_t id) {
  Stage stage;
  Members members(json, format("stage {}", id));
  for (const Json& axis : members.array("axes")) {
    Members axis_members(axis, format("an axis of stage {}", id));
    stage.mesh.axes.push_back({axis_members.text("name", {}), axis_members.int32("size", {})});
    TSR_RETURN_IF_ERROR(axis_members.finish());
  }
  stage.mesh.devices = members.integers<int32_t>("devices");
  TSR_RETURN_IF_ERROR(members.finish());
  return stage;
}

// The mesh whose axes an entry names.
Result<const DeviceMesh*> mesh_of(const Plan& plan, int32_t stage, std::string_view where) {
  if (stage < 0 || static_cast<size_t>(stage) >= plan.stages.size()) {
    return wrong(format("{} names stage {}, there are {}", where, stage, plan.stages.size()));
  }
  return &plan.stages[static_cast<size_t>(stage)].mesh;
}

Result<NodePlan> node_from(const Json& json, const Plan& plan, size_t id) {
  NodePlan node;
  const std::string where = format("node {}", id);
  Members members(json, where);
  node.stage = members.int32("stage", 0);
  TSR_ASSIGN_OR_RETURN(const DeviceMesh* mesh, mesh_of(plan, node.stage, where));
  for (const Json& factor : members.array("factors")) {
    Members factor_members(factor, where);
    const char name = factor_members.factor();
    node.factor_axes.emplace_back(name, factor_members.axes("axes", *mesh));
    TSR_RETURN_IF_ERROR(factor_members.finish());
  }
  node.carried = members.axes("carried", *mesh);
  node.carry_set = members.int32("carry_set", -1);
  node.chunk_factor = members.factor("chunk_factor", "");
  node.chunks = members.int32("chunks", 1);
  node.chunk_order = static_cast<ChunkOrder>(members.word("chunk_order", kOrders));
  node.tier = static_cast<Tier>(members.word("tier", kTiers));
  for (const Json& unit : members.array("units")) {
    Members unit_members(unit, where);
    const char name = unit_members.factor();
    node.factor_units.emplace_back(name, unit_members.integer("unit", {}, 1, INT64_MAX));
    TSR_RETURN_IF_ERROR(unit_members.finish());
  }
  for (const Json& first : members.array("firsts")) {
    Members first_members(first, where);
    const char name = first_members.factor();
    node.factor_firsts.emplace_back(name, first_members.int32("first", 0));
    TSR_RETURN_IF_ERROR(first_members.finish());
  }
  TSR_RETURN_IF_ERROR(members.finish());
  return node;
}

Result<Placement> placement_from(const Json& json, const Plan& plan, const std::string& where) {
  Placement placement;
  Members members(json, where);
  placement.mesh = members.int32("mesh", 0);
  TSR_ASSIGN_OR_RETURN(const DeviceMesh* mesh, mesh_of(plan, placement.mesh, where));
  for (const Json& dim : members.array("dims")) {
    Members dim_members(dim, where);
    std::vector<AxisId> axes = dim_members.axes("axes", *mesh);
    const int64_t unit = dim_members.integer("unit", 1, 1, INT64_MAX);
    placement.stored.dims.push_back({std::move(axes), unit, dim_members.int32("first", 0)});
    TSR_RETURN_IF_ERROR(dim_members.finish());
  }
  placement.stored.partial = members.axes("partial", *mesh);
  placement.stored.reduce = static_cast<ReduceKind>(members.word("reduce", kReduces));
  placement.tier = static_cast<Tier>(members.word("tier", kTiers));
  TSR_RETURN_IF_ERROR(members.finish());
  return placement;
}

Result<StoredTensor> stored_from(const Json& json, const Plan& plan) {
  StoredTensor stored;
  Members members(json, "a stored tensor");
  stored.tensor = TensorId{static_cast<uint32_t>(members.integer("tensor", {}, 0, UINT32_MAX))};
  const std::string where = format("tensor {}", index(stored.tensor));
  for (const Json& entry : members.array("placements")) {
    TSR_ASSIGN_OR_RETURN(Placement placement, placement_from(entry, plan, where));
    stored.placements.push_back(std::move(placement));
  }
  TSR_RETURN_IF_ERROR(members.finish());
  return stored;
}

Result<uint64_t> fingerprint_from(const std::string& text);

Result<PlanEstimate> estimate_from(const Json& json) {
  PlanEstimate estimate;
  Members members(json, "the estimate");
  estimate.step_time_s = members.real("step_time_s", estimate.step_time_s);
  estimate.compute_s = members.real("compute_s", estimate.compute_s);
  estimate.communication_s = members.real("communication_s", estimate.communication_s);
  estimate.arena_bytes = members.integers<int64_t>("arena_bytes");
  estimate.gap = members.real("gap", estimate.gap);
  const std::string profile = members.text("profile", "0x0");
  TSR_RETURN_IF_ERROR(members.finish());
  TSR_ASSIGN_OR_RETURN(estimate.profile, fingerprint_from(profile));
  return estimate;
}

Result<uint64_t> fingerprint_from(const std::string& text) {
  uint64_t value = 0;
  if (text.starts_with("0x") && text.size() > 2) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + 2, end, value, 16);
    if (error == std::errc() && stop == end) return value;
  }
  return wrong(format("a fingerprint is '{}'; wanted 0x and up to 16 digits", quote(text)));
}

Result<Plan> plan_from(const Json& json) {
  Plan plan;
  Members members(json, "the plan");
  const std::string kind = members.text("format", {});
  const int64_t version = members.integer("version", {}, 0, INT64_MAX);
  if (kind == kFormat && version > kVersion) {
    return Status(StatusCode::kUnsupported,
                  format("plan: written in format {}, this version reads up to {}: use a newer one", version,
                         kVersion));
  }
  if (kind != kFormat || version < 1) return wrong(format("no \"format\": \"{}\" and \"version\"", kFormat));
  TSR_ASSIGN_OR_RETURN(plan.graph_fingerprint, fingerprint_from(members.text("graph_fingerprint", {})));
  plan.strategy = members.text("strategy", "");
  for (const Json& entry : members.array("stages")) {
    TSR_ASSIGN_OR_RETURN(Stage stage, stage_from(entry, plan.stages.size()));
    plan.stages.push_back(std::move(stage));
  }
  for (const Json& entry : members.array("nodes")) {
    TSR_ASSIGN_OR_RETURN(NodePlan node, node_from(entry, plan, plan.nodes.size()));
    plan.nodes.push_back(std::move(node));
  }
  for (const Json& entry : members.array("stored")) {
    TSR_ASSIGN_OR_RETURN(StoredTensor stored, stored_from(entry, plan));
    plan.stored.push_back(std::move(stored));
  }
  for (uint32_t tensor : members.integers<uint32_t>("recompute")) plan.recompute.push_back(TensorId{tensor});
  for (uint32_t tensor : members.integers<uint32_t>("keep_gathered"))
    plan.keep_gathered.push_back(TensorId{tensor});
  for (const Json& entry : members.array("offload")) {
    Members offloaded(entry, "an offloaded tensor");
    const auto tensor = static_cast<uint32_t>(offloaded.integer("tensor", {}, 0, UINT32_MAX));
    plan.offload.push_back({TensorId{tensor}, static_cast<Tier>(offloaded.word("tier", kTiers))});
    TSR_RETURN_IF_ERROR(offloaded.finish());
  }
  if (!plan.stages.empty()) plan.zigzag = members.axes("zigzag", plan.stages[0].mesh);
  plan.prefetch = members.int32("prefetch", 1);
  plan.schedule = static_cast<ScheduleKind>(members.word("schedule", kSchedules));
  plan.global_batch = members.integer("global_batch", 0, 0, INT64_MAX);
  plan.micro_batches = members.int32("micro_batches", 1);
  for (const Json& entry : members.array("symbols")) {
    Members symbol(entry, "a symbol");
    std::string name = symbol.text("name", {});
    plan.symbols.emplace_back(std::move(name), symbol.integer("value", {}, 0, INT64_MAX));
    TSR_RETURN_IF_ERROR(symbol.finish());
  }
  TSR_ASSIGN_OR_RETURN(plan.estimate, estimate_from(members.object("estimate")));
  TSR_RETURN_IF_ERROR(members.finish());
  return plan;
}

std::string hex(uint64_t value) {
  char digits[16];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, value, 16);
  return "0x" + std::string(digits, end);
}

}  // namespace

Result<std::string> plan_to_json(const Plan& plan) {
  TSR_RETURN_IF_ERROR(check_plan(plan));
  Json json{{"format", kFormat},
            {"version", kVersion},
            {"graph_fingerprint", hex(plan.graph_fingerprint)},
            {"strategy", plan.strategy}};
  for (const char* name : {"stages", "nodes", "stored"}) json[name] = Json::array();
  for (const Stage& stage : plan.stages) json["stages"].push_back(to_json(stage));
  for (const NodePlan& node : plan.nodes) json["nodes"].push_back(to_json(node, plan));
  for (const StoredTensor& stored : plan.stored) {
    Json placements = Json::array();
    for (const Placement& placement : stored.placements) placements.push_back(to_json(placement, plan));
    json["stored"].push_back(
        Json{{"tensor", static_cast<uint32_t>(stored.tensor)}, {"placements", placements}});
  }
  json["recompute"] = Json::array();
  for (TensorId tensor : plan.recompute) json["recompute"].push_back(static_cast<uint32_t>(tensor));
  // Left out when empty, so that the first version can read the plans that it can execute.
  if (!plan.keep_gathered.empty()) {
    json["keep_gathered"] = Json::array();
    for (TensorId tensor : plan.keep_gathered) json["keep_gathered"].push_back(static_cast<uint32_t>(tensor));
  }
  if (!plan.offload.empty()) {
    json["offload"] = Json::array();
    for (const auto& [tensor, tier] : plan.offload)
      json["offload"].push_back(
          Json{{"tensor", static_cast<uint32_t>(tensor)}, {"tier", kTiers[static_cast<size_t>(tier)]}});
  }
  if (!plan.zigzag.empty()) json["zigzag"] = axis_names(plan.zigzag, plan.stages[0].mesh);
  if (plan.prefetch != 1) json["prefetch"] = plan.prefetch;
  json["schedule"] = kSchedules[static_cast<size_t>(plan.schedule)];
  json["global_batch"] = plan.global_batch;
  json["micro_batches"] = plan.micro_batches;
  json["symbols"] = Json::array();
  for (const auto& [name, value] : plan.symbols)
    json["symbols"].push_back(Json{{"name", name}, {"value", value}});
  const auto& [step, compute, communication, arena_bytes, gap, profile] = plan.estimate;
  json["estimate"] = Json{{"step_time_s", number(step)},
                          {"compute_s", number(compute)},
                          {"communication_s", number(communication)},
                          {"arena_bytes", arena_bytes},
                          {"gap", number(gap)}};
  if (profile != 0) json["estimate"]["profile"] = hex(profile);
  try {
    return json.dump(1) + "\n";
  } catch (const Json::exception& error) {  // text that is not UTF-8
    return Status(StatusCode::kInvalidArgument,
                  format("the plan cannot be written as JSON: {}", error.what()));
  }
}

Result<Plan> plan_from_json(std::string_view text) {
  try {
    TSR_ASSIGN_OR_RETURN(const Json json, parse_json(text, "plan"));
    TSR_ASSIGN_OR_RETURN(Plan plan, plan_from(json));
    TSR_RETURN_IF_ERROR(check_plan(plan));
    return plan;
  } catch (const Json::exception& error) {
    return wrong(error.what());
  }
}

}  // namespace tessera
