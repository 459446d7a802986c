// Kernels follow each other in one entry, with operands that rotate through a large slot, so that caches are as in a step.
// With several ranks, a collective of one element before each kernel aligns them.
#include "engine/program/probe_program.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "engine/model/initialize.h"
#include "engine/program/program_runner.h"
#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "graph/transform/training.h"
#include "parallel/lowering/lower.h"
#include "parallel/planner/planner.h"

namespace tessera {

namespace {

constexpr int64_t kAlign = 256;
// Operands rotate through this much memory, plus the needs of larger kernels, so that
// caches are as warm as in a step: not in L1, but where the last kernels left them.
constexpr int64_t kWindowBytes = int64_t{2} << 20;

int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

int64_t bytes_of(const TensorType& type) { return dtype_bytes(type.dtype, type.shape.elements()); }

void add_slot(RankProgram& rank, std::string name, SlotKind kind, int64_t bytes, Tier tier = Tier::kDevice) {
  int64_t& arena = tier == Tier::kDevice ? rank.arena_bytes
                   : tier == Tier::kHost ? rank.host_arena_bytes
                                         : rank.file_arena_bytes;
  rank.slots.push_back({std::move(name), kind, tier, aligned(bytes), arena});
  arena += aligned(bytes);
  rank.max_live_bytes = rank.arena_bytes;
}

// The group of all ranks, for rank `position`.
Group everybody(int32_t ranks, int32_t position) {
  Group group;
  group.ranks.resize(static_cast<size_t>(ranks));
  std::iota(group.ranks.begin(), group.ranks.end(), 0);
  group.position = position;
  group.axis = "all";
  return group;
}

Binding bind_whole(const std::string& name, int32_t slot, int64_t bytes) {
  const TensorType type{DType::kF32, Shape{bytes / 4}};
  return {name, type, {{SlotRef{slot, 0}, Box{Range{0, bytes / 4}}}}};
}

// Window: allocates operands from a slot one after another, and starts again at its beginning when it is full.
class Window {
 public:
  explicit Window(int32_t slot) : slot_(slot) {}
  // Makes room for all operands of the next kernel.
  void begin(int64_t bytes) {
    if (at_ + bytes > std::max(kWindowBytes, bytes)) at_ = 0;
  }
  SlotRef take(int64_t bytes) {
    const SlotRef ref{slot_, at_};
    at_ += aligned(bytes);
    return ref;
  }

 private:
  int32_t slot_;
  int64_t at_ = 0;
};

int64_t bytes_of(const std::vector<TensorType>& types) {
  int64_t bytes = 0;
  for (const TensorType& type : types) bytes += aligned(bytes_of(type));
  return bytes;
}

Result<KernelDesc> describe(const Probe& probe, const KernelCatalog& catalog) {
  KernelDesc kernel;
  Graph graph;  // adding the node fills in default attributes and infers output types
  std::vector<TensorId> inputs;
  for (const TensorType& type : probe.inputs) {
    TSR_ASSIGN_OR_RETURN(const TensorId id,
                         graph.add_tensor(format("in{}", inputs.size()), type, TensorKind::kInput));
    inputs.push_back(id);
  }
  TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> outputs, graph.add_node(probe.op, inputs, probe.attrs));
  const Node& node = graph.nodes()[0];
  kernel.op = node.op;
  kernel.attrs = node.attrs;
  kernel.inputs = probe.inputs;
  for (const TensorId id : outputs) kernel.outputs.push_back(graph.type(id));
  ShardingRule rule = node.op->sharding({kernel.attrs, kernel.inputs, kernel.outputs, {}});
  TSR_RETURN_IF_ERROR(bind_extents(rule, kernel.inputs, kernel.outputs));
  for (const Factor& factor : rule.factors)
    kernel.factors.push_back({factor.name, factor.extent, 1, 1, {0, 0}, {factor.extent, 0}});
  TSR_ASSIGN_OR_RETURN(
      const KernelChoice choice,
      catalog.query(*kernel.op, {kernel.attrs, kernel.inputs, kernel.outputs, kernel.factors}));
  kernel.variant = choice.variant;
  kernel.workspace_bytes = choice.workspace_bytes;
  kernel.seconds = choice.seconds;
  return kernel;
}

}  // namespace

Result<ProbeProgram> probe_program(const std::vector<Probe>& probes, const KernelCatalog& catalog,
                                   int32_t ranks) {
  ProbeProgram made;
  RankProgram rank;
  int64_t read = kWindowBytes, written = kWindowBytes, workspace = 0;
  for (size_t i = 0; i < probes.size(); ++i) {
    Result<KernelDesc> kernel = describe(probes[i], catalog);
    if (!kernel.ok() && kernel.status().code() == StatusCode::kUnsupported) continue;
    if (!kernel.ok()) return kernel.status().with_context(format("probe of '{}'", probes[i].op));
    read = std::max(read, bytes_of(kernel->inputs)), written = std::max(written, bytes_of(kernel->outputs));
    workspace = std::max(workspace, kernel->workspace_bytes);
    rank.kernels.push_back(std::move(*kernel));
    made.kept.push_back(i);
  }
  add_slot(rank, "read", SlotKind::kParameter, read);
  add_slot(rank, "written", SlotKind::kState, written);
  add_slot(rank, "workspace", SlotKind::kState, workspace);
  add_slot(rank, "meet", SlotKind::kState, kAlign);
  rank.parameters.push_back(bind_whole("read", 0, aligned(read)));
  EntryPoint entry;
  entry.name = "probes";
  Window reads(0), writes(1);
  for (size_t k = 0; k < rank.kernels.size(); ++k) {
    const KernelDesc& kernel = rank.kernels[k];
    if (ranks > 1) {
      CollectiveInst meet;
      meet.group = 0;
      meet.elements = 1;
      meet.in = meet.out = SlotRef{3, 0};
      entry.code.push_back(std::move(meet));
    }
    KernelInst inst;
    inst.kernel = static_cast<int32_t>(k);
    reads.begin(bytes_of(kernel.inputs));
    writes.begin(bytes_of(kernel.outputs));
    for (const TensorType& type : kernel.inputs) inst.inputs.push_back(reads.take(bytes_of(type)));
    for (const TensorType& type : kernel.outputs) inst.outputs.push_back(writes.take(bytes_of(type)));
    if (kernel.workspace_bytes > 0) inst.workspace = SlotRef{2, 0};
    entry.code.push_back(std::move(inst));
  }
  rank.entries.push_back(std::move(entry));
  for (int32_t position = 0; position < ranks; ++position) {
    RankProgram& mine = made.program.ranks.emplace_back(rank);
    if (ranks > 1) mine.groups.push_back(everybody(ranks, position));
  }
  return made;
}

Status fill_probes(Session& session) {
  const Program& program = session.executable().program();
  const Binding& binding = program.ranks[0].parameters[0];
  const TensorType& type = binding.global;
  // Multiples of 1/64 below 1: neither half of the bits is a NaN in any 16-bit type.
  std::vector<float> values(static_cast<size_t>(type.shape.elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(i * 37 % 127) - 63) / 64.0f;
  return session.write(binding.name, HostTensor::copy_of<float>(type, values));
}

Result<StepProgram> step_on_all(const StepProbe& probe, const Cluster& cluster,
                                const KernelCatalog& catalog) {
  TSR_ASSIGN_OR_RETURN(const ModelConfig config, parse_shorthand(probe.model));
  TSR_ASSIGN_OR_RETURN(Graph forward, build_model(config));
  TSR_RETURN_IF_ERROR(add_token_loss(forward));
  TrainingOptions training;
  training.optimizer.name = probe.optimizer;
  training.clip_norm = 1;
  StepProgram made;
  TSR_ASSIGN_OR_RETURN(made.step, make_training_step(forward, training));
  PlanOptions options;
  options.global_batch = probe.batch;
  options.symbols = {{"T", probe.seq}};
  options.parallel = std::string(probe.parallel);
  TSR_ASSIGN_OR_RETURN(const PlanResult planned, make_plan(made.step, cluster, catalog, options));
  const EntrySpec entry{"step", &made.step, &planned.plan};
  TSR_ASSIGN_OR_RETURN(made.program, lower(std::span(&entry, 1), catalog));
  return made;
}

Result<StepProgram> step_program(const StepProbe& probe, const Cluster& one_device,
                                 const KernelCatalog& catalog, int32_t ranks) {
  TSR_ASSIGN_OR_RETURN(StepProgram made, step_on_all(probe, one_device, catalog));
  made.program.ranks.resize(static_cast<size_t>(ranks), made.program.ranks[0]);
  return made;
}

namespace {

// Bound of an integer input: the rows of the smallest table that it indexes.
int64_t rows_looked_up(const Graph& step, std::string_view input) {
  int64_t rows = 251;
  for (const Node& node : step.nodes()) {
    const bool reads =
        std::ranges::any_of(node.inputs, [&](TensorId id) { return step.tensor(id).name == input; });
    if (!reads) continue;
    for (const TensorId id : node.inputs) {
      const Shape& shape = step.type(id).shape;
      if (shape.rank() < 2) continue;
      const bool is_table = step.tensor(id).kind == TensorKind::kParameter;
      const int64_t extent = shape[is_table ? 0 : shape.rank() - 1];
      if (step.tensor(id).kind != TensorKind::kInput && extent > 0) rows = std::min(rows, extent);
    }
  }
  return rows;
}

}  // namespace

Status fill_step(Session& session, const std::string& entry, const Program& program, const Graph& step) {
  // Stages of a pipeline have different parameters and inputs.
  std::map<std::string, const Binding*> parameters, inputs;
  for (const RankProgram& rank : program.ranks) {
    for (const Binding& binding : rank.parameters) parameters.emplace(binding.name, &binding);
    for (const Binding& input : rank.entries[0].inputs) inputs.emplace(input.name, &input);
  }
  for (const auto& [name, at] : parameters) {
    const Binding& binding = *at;
    const auto id = step.find_tensor(binding.name);
    if (!id) return Status(StatusCode::kInternal, format("no parameter '{}'", binding.name));
    TSR_ASSIGN_OR_RETURN(const HostTensor value,
                         draw(initializer_for(step, *id), binding.global, 1, binding.name));
    TSR_RETURN_IF_ERROR(session.write(binding.name, value));
  }
  for (const auto& [name, at] : inputs) {
    const Binding& input = *at;
    if (input.global.shape.rank() == 0) {
      const bool is_step = input.name == "step";
      TSR_ASSIGN_OR_RETURN(const HostTensor value, scalar_tensor(input.global, is_step ? 1 : 1e-3));
      TSR_RETURN_IF_ERROR(session.feed(entry, input.name, value));
    } else if (input.global.dtype == DType::kI32) {
      const int64_t below = rows_looked_up(step, input.name);
      std::vector<int32_t> ids(static_cast<size_t>(input.global.shape.elements()));
      const int64_t row = input.global.shape[input.global.shape.rank() - 1];
      for (size_t i = 0; i < ids.size(); ++i)
        ids[i] = static_cast<int32_t>(input.name == "positions" ? static_cast<int64_t>(i) % row
                                                                : static_cast<int64_t>(i) * 7 % below);
      TSR_RETURN_IF_ERROR(session.feed(entry, input.name, HostTensor::copy_of<int32_t>(input.global, ids)));
    }
  }
  return {};
}

Program collectives_program(int32_t ranks, const std::vector<int64_t>& sizes) {
  constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                                       CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll,
                                       CollectiveKind::kBroadcast};
  const int64_t most = *std::ranges::max_element(sizes);
  Program program;
  for (int32_t position = 0; position < ranks; ++position) {
    RankProgram& rank = program.ranks.emplace_back();
    rank.groups.push_back(everybody(ranks, position));
    add_slot(rank, "in", SlotKind::kParameter, most);
    add_slot(rank, "out", SlotKind::kState, most);
    rank.parameters.push_back(bind_whole("in", 0, aligned(most)));
    EntryPoint entry;
    entry.name = "collectives";
    for (const CollectiveKind kind : kKinds)
      for (const int64_t bytes : sizes) {
        CollectiveInst inst;
        inst.kind = kind;
        inst.group = 0;
        inst.in = {0, 0};
        inst.out = {1, 0};
        // Each of n members owns 1 / n of the split dims.
        const int64_t n = ranks, part = std::max<int64_t>(1, bytes / 4 / n / n);
        inst.elements = part * n * n;
        if (kind == CollectiveKind::kAllToAll) {
          inst.extents.assign(static_cast<size_t>(n), 1);
          inst.extents2.assign(static_cast<size_t>(n), part);
        } else if (kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter) {
          inst.extents.assign(static_cast<size_t>(n), part * n);
        }
        entry.code.push_back(std::move(inst));
      }
    rank.entries.push_back(std::move(entry));
  }
  return program;
}

Program messages_program(const std::vector<int64_t>& sizes) {
  const int64_t most = *std::ranges::max_element(sizes);
  Program program;
  for (int32_t position = 0; position < 2; ++position) {
    RankProgram& rank = program.ranks.emplace_back();
    add_slot(rank, "in", SlotKind::kParameter, most);
    add_slot(rank, "out", SlotKind::kState, most);
    rank.parameters.push_back(bind_whole("in", 0, aligned(most)));
    EntryPoint entry;
    entry.name = "messages";
    for (const int64_t bytes : sizes) {
      if (position == 0)
        entry.code.push_back(SendInst{1, bytes, {0, 0}, kNoNode, 0});
      else
        entry.code.push_back(RecvInst{0, bytes, {1, 0}, kNoNode, 0});
    }
    rank.entries.push_back(std::move(entry));
  }
  return program;
}

Program copies_program(Tier from, Tier to, const std::vector<int64_t>& sizes) {
  const int64_t most = *std::ranges::max_element(sizes);
  Program program;
  RankProgram& rank = program.ranks.emplace_back();
  add_slot(rank, "in", SlotKind::kParameter, most, from);
  add_slot(rank, "out", SlotKind::kState, most, to);
  rank.parameters.push_back(bind_whole("in", 0, aligned(most)));
  EntryPoint entry;
  entry.name = "copies";
  for (const int64_t bytes : sizes) {
    CopyInst copy;
    copy.in = {0, 0};
    copy.out = {1, 0};
    copy.row_bytes = copy.in_stride_bytes = copy.out_stride_bytes = bytes;
    entry.code.push_back(copy);
  }
  rank.entries.push_back(std::move(entry));
  return program;
}

}  // namespace tessera
