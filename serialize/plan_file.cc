#include "serialize/plan_file.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "graph/base/text.h"
#include "serialize/atomic_file.h"
#include "serialize/envelope.h"
#include "serialize/flatbuffer_reader.h"
#include "serialize/json.h"
#include "serialize/schema/plan_generated.h"

namespace tessera {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

constexpr std::string_view kWhat = "plan file";
constexpr uint32_t kFullPlanVersion = 2;   // of a plan with decisions that format 1 lacks
constexpr uint32_t kOwnerPlanVersion = 3;  // of one in which larger shards do not begin at part 0

Status wrong(std::string message) { return Status(StatusCode::kCorrupt, "plan: " + std::move(message)); }

Status check_mesh(const DeviceMesh& mesh, size_t stage) {
  std::set<std::string> names;
  int64_t size = 1;
  for (const MeshAxis& axis : mesh.axes) {
    if (axis.name.empty() || !names.insert(axis.name).second) {
      return wrong(format("stage {} has an axis '{}' twice or without a name", stage, axis.name));
    }
    size *= axis.size;
    if (axis.size < 1 || size > (1 << 24))
      return wrong(format("stage {}: axis '{}' has size {}", stage, axis.name, axis.size));
  }
  if (mesh.axes.size() > 255 || size != static_cast<int64_t>(mesh.devices.size())) {
    return wrong(format("stage {} has {} devices, its axes make {}", stage, mesh.devices.size(), size));
  }
  return {};
}

Status check_axes(std::span<const AxisId> axes, const DeviceMesh& mesh, std::string_view where) {
  for (AxisId axis : axes) {
    if (axis >= mesh.axes.size())
      return wrong(format("{} uses axis {}, the mesh has {}", where, axis, mesh.axes.size()));
  }
  return {};
}

Status check_node(const NodePlan& node, const Plan& plan, size_t id) {
  const std::string where = format("node {}", id);
  if (node.stage < 0 || static_cast<size_t>(node.stage) >= plan.stages.size()) {
    return wrong(format("{} is in stage {} of {}", where, node.stage, plan.stages.size()));
  }
  const DeviceMesh& mesh = plan.stages[static_cast<size_t>(node.stage)].mesh;
  for (const auto& [factor, axes] : node.factor_axes) {
    if (factor <= ' ' || factor > '~') return wrong(where + " has a factor without a name");
    TSR_RETURN_IF_ERROR(check_axes(axes, mesh, where));
  }
  for (const auto& [factor, unit] : node.factor_units) {
    if (factor <= ' ' || factor > '~' || unit < 1) return wrong(format("{} has a unit of {}", where, unit));
  }
  for (const auto& [factor, first] : node.factor_firsts) {
    if (factor <= ' ' || factor > '~' || first < 0)
      return wrong(format("{} has a first part of {}", where, first));
  }
  TSR_RETURN_IF_ERROR(check_axes(node.carried, mesh, where));
  if (node.carry_set < -1 || node.chunks < 1) {
    return wrong(format("{} has {} chunks and carry set {}", where, node.chunks, node.carry_set));
  }
  if (node.chunk_factor != 0 && (node.chunk_factor <= ' ' || node.chunk_factor > '~'))
    return wrong(where + " has chunks of a factor without a name");
  if (node.chunk_order > ChunkOrder::kRotating || node.tier > Tier::kFile) {
    return wrong(format("{} has chunk order {} and tier {}", where, static_cast<int>(node.chunk_order),
                        static_cast<int>(node.tier)));
  }
  return {};
}

Status check_placement(const Placement& placement, const Plan& plan, const std::string& where) {
  if (placement.mesh < 0 || static_cast<size_t>(placement.mesh) >= plan.stages.size()) {
    return wrong(format("{} lies on mesh {} of {}", where, placement.mesh, plan.stages.size()));
  }
  const DeviceMesh& mesh = plan.stages[static_cast<size_t>(placement.mesh)].mesh;
  if (placement.stored.dims.size() > kMaxRank)
    return wrong(format("{} has {} dims", where, placement.stored.dims.size()));
  for (const DimSharding& dim : placement.stored.dims) {
    TSR_RETURN_IF_ERROR(check_axes(dim.axes, mesh, where));
    if (dim.unit < 1) return wrong(format("{} has a unit of {}", where, dim.unit));
    if (dim.first < 0) return wrong(format("{} has a first part of {}", where, dim.first));
  }
  TSR_RETURN_IF_ERROR(check_axes(placement.stored.partial, mesh, where));
  if (placement.stored.reduce > ReduceKind::kMax || placement.tier > Tier::kFile) {
    return wrong(format("{} has reduction {} and tier {}", where, static_cast<int>(placement.stored.reduce),
                        static_cast<int>(placement.tier)));
  }
  return {};
}

// The bindings below name every member of a struct, so that a new one cannot be forgotten here.

Offset<flatbuffers::Vector<uint8_t>> write_axes(FlatBufferBuilder& builder, const std::vector<AxisId>& axes) {
  return builder.CreateVector(axes);
}

Offset<file::Stage> write_stage(FlatBufferBuilder& builder, const Stage& stage) {
  const auto& [mesh] = stage;
  std::vector<Offset<file::MeshAxis>> axes;
  for (const auto& [name, size] : mesh.axes) {
    axes.push_back(file::CreateMeshAxis(builder, builder.CreateString(name), size));
  }
  auto stored_axes = builder.CreateVector(axes);
  return file::CreateStage(builder, stored_axes, builder.CreateVector(mesh.devices));
}

Offset<file::NodePlan> write_node(FlatBufferBuilder& builder, const NodePlan& node) {
  const auto& [stage, factor_axes, carried, carry_set, chunk_factor, chunks, chunk_order, tier, factor_units,
               factor_firsts] = node;
  std::vector<Offset<file::FactorAxes>> factors;
  for (const auto& [factor, axes] : factor_axes) {
    factors.push_back(
        file::CreateFactorAxes(builder, static_cast<uint8_t>(factor), write_axes(builder, axes)));
  }
  std::vector<Offset<file::FactorUnit>> units;
  for (const auto& [factor, unit] : factor_units) {
    units.push_back(file::CreateFactorUnit(builder, static_cast<uint8_t>(factor), unit));
  }
  std::vector<Offset<file::FactorFirst>> firsts;
  for (const auto& [factor, first] : factor_firsts) {
    firsts.push_back(file::CreateFactorFirst(builder, static_cast<uint8_t>(factor), first));
  }
  auto stored_factors = factors.empty() ? 0 : builder.CreateVector(factors);
  auto stored_carried = carried.empty() ? 0 : write_axes(builder, carried);
  auto stored_units = units.empty() ? 0 : builder.CreateVector(units);
  auto stored_firsts = firsts.empty() ? 0 : builder.CreateVector(firsts);
  return file::CreateNodePlan(builder, stage, stored_factors, stored_carried, carry_set, chunks, stored_units,
                              static_cast<uint8_t>(chunk_factor), static_cast<uint8_t>(chunk_order),
                              static_cast<uint8_t>(tier), stored_firsts);
}

Offset<file::Placement> write_placement(FlatBufferBuilder& builder, const Placement& placement) {
  const auto& [mesh, spec, tier] = placement;
  const auto& [spec_dims, partial, reduce] = spec;
  std::vector<Offset<file::DimSharding>> dims;
  for (const auto& [axes, unit, first] : spec_dims) {
    dims.push_back(
        file::CreateDimSharding(builder, axes.empty() ? 0 : write_axes(builder, axes), unit, first));
  }
  auto stored_dims = builder.CreateVector(dims);
  auto stored_partial = partial.empty() ? 0 : write_axes(builder, partial);
  return file::CreatePlacement(builder, mesh, stored_dims, stored_partial, static_cast<uint8_t>(reduce),
                               static_cast<uint8_t>(tier));
}

Offset<file::StoredTensor> write_stored(FlatBufferBuilder& builder, const StoredTensor& stored) {
  const auto& [tensor, placements] = stored;
  std::vector<Offset<file::Placement>> entries;
  for (const Placement& placement : placements) entries.push_back(write_placement(builder, placement));
  return file::CreateStoredTensor(builder, static_cast<uint32_t>(tensor), builder.CreateVector(entries));
}

Offset<file::Estimate> write_estimate(FlatBufferBuilder& builder, const PlanEstimate& estimate) {
  const auto& [step, compute, communication, arena_bytes, gap, profile] = estimate;
  return file::CreateEstimate(builder, step, compute, communication, builder.CreateVector(arena_bytes), gap,
                              profile);
}

class PlanReader {
 public:
  explicit PlanReader(const IndexBytes& index) : reader_(index) {}

  Result<Plan> read(const file::Plan& stored) {
    Plan plan;
    plan.graph_fingerprint = stored.graph_fingerprint();
    TSR_ASSIGN_OR_RETURN(plan.strategy, reader_.text(stored.strategy()));
    TSR_RETURN_IF_ERROR(each(stored.stages(), plan.stages, &PlanReader::stage));
    TSR_RETURN_IF_ERROR(each(stored.nodes(), plan.nodes, &PlanReader::node));
    TSR_RETURN_IF_ERROR(each(stored.stored(), plan.stored, &PlanReader::stored_tensor));
    TSR_ASSIGN_OR_RETURN(std::vector<uint32_t> recompute, reader_.numbers<uint32_t>(stored.recompute()));
    for (uint32_t tensor : recompute) plan.recompute.push_back(TensorId{tensor});
    TSR_ASSIGN_OR_RETURN(std::vector<uint32_t> keep, reader_.numbers<uint32_t>(stored.keep_gathered()));
    for (uint32_t tensor : keep) plan.keep_gathered.push_back(TensorId{tensor});
    TSR_RETURN_IF_ERROR(each(stored.offload(), plan.offload, &PlanReader::offloaded));
    TSR_ASSIGN_OR_RETURN(plan.zigzag, reader_.numbers<AxisId>(stored.zigzag()));
    plan.prefetch = stored.prefetch();
    plan.schedule = static_cast<ScheduleKind>(stored.schedule());
    plan.global_batch = stored.global_batch();
    plan.micro_batches = stored.micro_batches();
    TSR_RETURN_IF_ERROR(each(stored.symbols(), plan.symbols, &PlanReader::symbol));
    if (const file::Estimate* estimate = stored.estimate()) {
      plan.estimate = {estimate->step_time_s(), estimate->compute_s(), estimate->communication_s(), {},
                       estimate->gap(),         estimate->profile()};
      TSR_ASSIGN_OR_RETURN(plan.estimate.arena_bytes, reader_.numbers<int64_t>(estimate->arena_bytes()));
    }
    return plan;
  }

 private:
  template <class Table, class Value>
  Status each(const flatbuffers::Vector<Offset<Table>>* tables, std::vector<Value>& values,
              Result<Value> (PlanReader::*read)(const Table&)) {
    for (size_t i = 0; i < size_of(tables); ++i) {
      TSR_RETURN_IF_ERROR(reader_.take_table());
      TSR_ASSIGN_OR_RETURN(Value value, (this->*read)(*tables->Get(static_cast<flatbuffers::uoffset_t>(i))));
      values.push_back(std::move(value));
    }
    return {};
  }

  Result<MeshAxis> axis(const file::MeshAxis& stored) {
    TSR_ASSIGN_OR_RETURN(std::string name, reader_.text(stored.name()));
    return MeshAxis{std::move(name), stored.size()};
  }
  Result<Stage> stage(const file::Stage& stored) {
    Stage stage;
    TSR_RETURN_IF_ERROR(each(stored.axes(), stage.mesh.axes, &PlanReader::axis));
    TSR_ASSIGN_OR_RETURN(stage.mesh.devices, reader_.numbers<int32_t>(stored.devices()));
    return stage;
  }
  Result<std::pair<char, std::vector<AxisId>>> factor_axes(const file::FactorAxes& stored) {
    TSR_ASSIGN_OR_RETURN(std::vector<AxisId> axes, reader_.numbers<AxisId>(stored.axes()));
    return std::pair(static_cast<char>(stored.factor()), std::move(axes));
  }
  Result<std::pair<char, int64_t>> factor_unit(const file::FactorUnit& stored) {
    return std::pair(static_cast<char>(stored.factor()), int64_t{stored.unit()});
  }
  Result<std::pair<char, int32_t>> factor_first(const file::FactorFirst& stored) {
    return std::pair(static_cast<char>(stored.factor()), int32_t{stored.first()});
  }
  Result<NodePlan> node(const file::NodePlan& stored) {
    NodePlan node;
    node.stage = stored.stage();
    TSR_RETURN_IF_ERROR(each(stored.factor_axes(), node.factor_axes, &PlanReader::factor_axes));
    TSR_ASSIGN_OR_RETURN(node.carried, reader_.numbers<AxisId>(stored.carried()));
    node.carry_set = stored.carry_set();
    node.chunks = stored.chunks();
    TSR_RETURN_IF_ERROR(each(stored.factor_units(), node.factor_units, &PlanReader::factor_unit));
    TSR_RETURN_IF_ERROR(each(stored.factor_firsts(), node.factor_firsts, &PlanReader::factor_first));
    node.chunk_factor = static_cast<char>(stored.chunk_factor());
    node.chunk_order = static_cast<ChunkOrder>(stored.chunk_order());
    node.tier = static_cast<Tier>(stored.tier());
    return node;
  }
  Result<DimSharding> dim(const file::DimSharding& stored) {
    TSR_ASSIGN_OR_RETURN(std::vector<AxisId> axes, reader_.numbers<AxisId>(stored.axes()));
    return DimSharding{std::move(axes), stored.unit(), stored.first()};
  }
  Result<Placement> placement(const file::Placement& stored) {
    Placement placement;
    placement.mesh = stored.mesh();
    TSR_RETURN_IF_ERROR(each(stored.dims(), placement.stored.dims, &PlanReader::dim));
    TSR_ASSIGN_OR_RETURN(placement.stored.partial, reader_.numbers<AxisId>(stored.partial()));
    placement.stored.reduce = static_cast<ReduceKind>(stored.reduce());
    placement.tier = static_cast<Tier>(stored.tier());
    return placement;
  }
  Result<StoredTensor> stored_tensor(const file::StoredTensor& stored) {
    StoredTensor result;
    result.tensor = TensorId{stored.tensor()};
    TSR_RETURN_IF_ERROR(each(stored.placements(), result.placements, &PlanReader::placement));
    return result;
  }
  Result<OffloadedTensor> offloaded(const file::OffloadedTensor& stored) {
    return OffloadedTensor{TensorId{stored.tensor()}, static_cast<Tier>(stored.tier())};
  }
  Result<std::pair<std::string, int64_t>> symbol(const file::SymbolValue& stored) {
    TSR_ASSIGN_OR_RETURN(std::string name, reader_.text(stored.name()));
    return std::pair(std::move(name), int64_t{stored.value()});
  }

  FlatBufferReader reader_;
};

}  // namespace

Status check_plan(const Plan& plan) {
  for (size_t i = 0; i < plan.stages.size(); ++i) TSR_RETURN_IF_ERROR(check_mesh(plan.stages[i].mesh, i));
  for (size_t i = 0; i < plan.nodes.size(); ++i) TSR_RETURN_IF_ERROR(check_node(plan.nodes[i], plan, i));
  for (const StoredTensor& stored : plan.stored) {
    for (const Placement& placement : stored.placements) {
      TSR_RETURN_IF_ERROR(check_placement(placement, plan, format("tensor {}", index(stored.tensor))));
    }
  }
  if (plan.schedule > ScheduleKind::kZbV || plan.micro_batches < 1 || plan.global_batch < 0) {
    return wrong(format("schedule {}, {} micro-batches of a batch of {}", static_cast<int>(plan.schedule),
                        plan.micro_batches, plan.global_batch));
  }
  for (const auto& [tensor, tier] : plan.offload) {
    if (tier > Tier::kFile)
      return wrong(format("tensor {} is offloaded to tier {}", index(tensor), static_cast<int>(tier)));
  }
  for (const Stage& stage : plan.stages) TSR_RETURN_IF_ERROR(check_axes(plan.zigzag, stage.mesh, "zigzag"));
  if (plan.prefetch < 0 || (plan.stages.empty() && !plan.zigzag.empty()))
    return wrong(format("prefetch {}, {} zig-zag axes without a mesh", plan.prefetch, plan.zigzag.size()));
  std::set<std::string> names;
  for (const auto& [name, value] : plan.symbols) {
    if (name.empty() || value < 0 || !names.insert(name).second) {
      return wrong(format("symbol '{}' is {}, or given twice", name, value));
    }
  }
  const PlanEstimate& estimate = plan.estimate;
  for (double value : {estimate.step_time_s, estimate.compute_s, estimate.communication_s, estimate.gap}) {
    if (std::isnan(value)) return wrong("an estimate is not a number");
  }
  return {};
}

// Whether the plan has decisions that the first format cannot express: its readers must not take it for
// another one.
static bool decides_more(const Plan& plan) {
  const auto node_does = [](const NodePlan& node) {
    return node.chunk_factor != 0 || node.chunk_order != ChunkOrder::kBroadcast || node.tier != Tier::kDevice;
  };
  return std::ranges::any_of(plan.nodes, node_does) || !plan.keep_gathered.empty() || !plan.offload.empty() ||
         !plan.zigzag.empty() || plan.prefetch != 1;
}

static bool has_first_parts(const Plan& plan) {
  const auto is_placed_so = [](const Placement& placement) {
    return std::ranges::any_of(placement.stored.dims, [](const DimSharding& dim) { return dim.first != 0; });
  };
  return std::ranges::any_of(plan.nodes, [](const NodePlan& node) { return !node.factor_firsts.empty(); }) ||
         std::ranges::any_of(plan.stored, [&](const StoredTensor& stored) {
           return std::ranges::any_of(stored.placements, is_placed_so);
         });
}

Result<std::vector<std::byte>> plan_to_bytes(const Plan& plan) {
  TSR_RETURN_IF_ERROR(check_plan(plan));
  const auto& [fingerprint, strategy, stages, nodes, stored, recompute, keep_gathered, offload, zigzag,
               prefetch, schedule, global_batch, micro_batches, symbols, estimate] = plan;
  FlatBufferBuilder builder;
  builder.ForceDefaults(true);  // -0.0 is not the default 0.0
  std::vector<Offset<file::Stage>> stored_stages;
  for (const Stage& stage : stages) stored_stages.push_back(write_stage(builder, stage));
  std::vector<Offset<file::NodePlan>> stored_nodes;
  for (const NodePlan& node : nodes) stored_nodes.push_back(write_node(builder, node));
  std::vector<Offset<file::StoredTensor>> stored_tensors;
  for (const StoredTensor& tensor : stored) stored_tensors.push_back(write_stored(builder, tensor));
  std::vector<uint32_t> recomputed;
  for (TensorId tensor : recompute) recomputed.push_back(static_cast<uint32_t>(tensor));
  std::vector<uint32_t> kept;
  for (TensorId tensor : keep_gathered) kept.push_back(static_cast<uint32_t>(tensor));
  std::vector<Offset<file::OffloadedTensor>> offloaded;
  for (const auto& [tensor, tier] : offload) {
    offloaded.push_back(
        file::CreateOffloadedTensor(builder, static_cast<uint32_t>(tensor), static_cast<uint8_t>(tier)));
  }
  std::vector<Offset<file::SymbolValue>> stored_symbols;
  for (const auto& [name, value] : symbols) {
    stored_symbols.push_back(file::CreateSymbolValue(builder, builder.CreateString(name), value));
  }
  auto strategy_offset = builder.CreateString(strategy);
  auto stages_offset = builder.CreateVector(stored_stages);
  auto nodes_offset = builder.CreateVector(stored_nodes);
  auto tensors_offset = builder.CreateVector(stored_tensors);
  auto recompute_offset = builder.CreateVector(recomputed);
  auto symbols_offset = builder.CreateVector(stored_symbols);
  auto estimate_offset = write_estimate(builder, estimate);
  auto kept_offset = builder.CreateVector(kept);
  auto offload_offset = builder.CreateVector(offloaded);
  auto zigzag_offset = write_axes(builder, zigzag);
  file::FinishPlanBuffer(
      builder, file::CreatePlan(builder, fingerprint, strategy_offset, stages_offset, nodes_offset,
                                tensors_offset, recompute_offset, static_cast<uint8_t>(schedule),
                                global_batch, micro_batches, symbols_offset, estimate_offset, kept_offset,
                                offload_offset, zigzag_offset, prefetch));
  const std::span<const std::byte> index = finished_bytes(builder);
  const uint32_t version = has_first_parts(plan) ? kOwnerPlanVersion
                           : decides_more(plan)  ? kFullPlanVersion
                                                 : 1;
  const Envelope envelope =
      make_envelope(kPlanMagic, sizeof(Envelope) + index.size(), sizeof(Envelope), index, version);
  const auto header = std::as_bytes(std::span(&envelope, 1));
  std::vector<std::byte> bytes(header.begin(), header.end());
  bytes.insert(bytes.end(), index.begin(), index.end());
  return bytes;
}

Result<Plan> plan_from_bytes(std::shared_ptr<const ByteSource> source) {
  TSR_ASSIGN_OR_RETURN(IndexBytes index, read_index(std::move(source), kPlanMagic, kWhat));
  TSR_ASSIGN_OR_RETURN(const file::Plan* stored,
                       FlatBufferReader::root<file::Plan>(index, file::PlanIdentifier(), kWhat));
  TSR_ASSIGN_OR_RETURN(Plan plan, PlanReader(index).read(*stored));
  TSR_RETURN_IF_ERROR(check_plan(plan));
  return plan;
}

Status save_plan(const Plan& plan, const std::string& path) {
  std::vector<std::byte> bytes;
  if (path.ends_with(".json")) {
    TSR_ASSIGN_OR_RETURN(std::string text, plan_to_json(plan));
    const auto text_bytes = std::as_bytes(std::span(text));
    bytes.assign(text_bytes.begin(), text_bytes.end());
  } else {
    TSR_ASSIGN_OR_RETURN(bytes, plan_to_bytes(plan));
  }
  TSR_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  TSR_RETURN_IF_ERROR(file.append(bytes));
  return file.commit();
}

Result<Plan> load_plan(const std::string& path) {
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<const ByteSource> source, open_file(path));
  Result<Plan> plan = wrong("not read");
  if (!path.ends_with(".json")) {
    plan = plan_from_bytes(std::move(source));
  } else if (source->size() > static_cast<int64_t>(kMostJsonBytes)) {
    plan = wrong(format("{} bytes of JSON are more than any plan has", source->size()));
  } else {
    std::string text(static_cast<size_t>(source->size()), '\0');
    TSR_RETURN_IF_ERROR(source->read_at(0, std::as_writable_bytes(std::span(text))));
    plan = plan_from_json(text);
  }
  if (!plan.ok()) return plan.status().with_context(path);
  return plan;
}

}  // namespace tessera
