#include "parallel/composition/serving_profile.h"

#include <algorithm>
#include <map>
#include <utility>

#include "graph/analysis/instructions.h"
#include "graph/transform/serving.h"
#include "graph/transform/weight_storage.h"
#include "parallel/pricing/cost_model.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

namespace {

int32_t block_at(const ServingProgram& program, const BlockMap& map, NodeId node) {
  return node == kNoNode || index(node) >= program.layout.graph.nodes().size() ? 0 : map.of_node[index(node)];
}

// Attention to pages of keys and values: what is read of the text so far.
bool reads_pages(const OpDef& op) { return op.pages.first >= 0 && !op.pages.is_written; }

// Instructions between two kernels belong to the earlier one's block, as in StepProfile.
std::vector<ServingSeconds> find_seconds(const ServingProgram& program, const StepProfile& profile,
                                         const Cluster& cluster) {
  const EntryPoint& entry = program.rank.entries[0];
  const std::vector<InstructionPrice> prices = prices_of(program.rank, entry, cluster);
  std::vector<ServingSeconds> seconds(profile.copies.size());
  int32_t now = 0;
  for (size_t i = 0; i < entry.code.size(); ++i) {
    const auto* kernel = std::get_if<KernelInst>(&entry.code[i]);
    if (kernel != nullptr) now = block_at(program, profile.map, kernel->node);
    ServingSeconds& of = seconds[static_cast<size_t>(now)];
    const double price = seconds_at(prices[i], cluster, 1);
    if (kernel == nullptr)
      of.collectives += price;
    else if (reads_pages(*program.rank.kernels[static_cast<size_t>(kernel->kernel)].op))
      of.attention += price;
  }
  for (size_t b = 0; b < seconds.size(); ++b) {
    ServingSeconds& of = seconds[b];
    const double all = profile.cost(static_cast<int32_t>(b), Turn::kLast, BlockPass::kForward).seconds +
                       profile.copying_s[b];
    of.attention = std::min(of.attention, all);
    of.collectives = std::min(of.collectives, all - of.attention);
    of.compute = all - of.attention - of.collectives;
  }
  return seconds;
}

std::vector<std::vector<PositionBytes>> find_pages(const ServingProgram& program, const BlockMap& map,
                                                   const ServedStep& step) {
  const Graph& graph = program.layout.graph;
  std::map<std::string_view, int64_t> held;
  for (const Slot& slot : program.rank.slots)
    if (slot.kind == SlotKind::kState) held.emplace(slot.name, slot.bytes);
  std::vector<std::vector<PositionBytes>> pages(static_cast<size_t>(map.after()) + 1);
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (!reads_pages(*node.op)) continue;
    PositionBytes it{.window = attr_i64(node.attrs, "window")};
    for (size_t i = 1; i + 3 < node.inputs.size(); ++i) {  // the inputs behind them are places in pages
      const NodeId writer = graph.tensor(node.inputs[i]).producer;
      const TensorId state = writer == kNoNode ? node.inputs[i] : graph.node(writer).inputs[0];
      it.states.push_back(state);
      it.bytes += held[graph.tensor(state).name] / (step.sequences * step.text);
    }
    pages[static_cast<size_t>(map.of_node[n])].push_back(it);
  }
  return pages;
}

}  // namespace

Result<ServingProgram> lower_serving(const Graph& forward, DType dtype, const ServedStep& step, int32_t tp,
                                     const KernelCatalog& catalog) {
  // One page per sequence, filled by its text.
  ServingOptions options;
  options.pages = options.rows = step.sequences;
  options.page_size = options.context = step.text;
  TSR_ASSIGN_OR_RETURN(Graph graph, make_serving(forward, options));
  WeightStorage storage;
  if (dtype != DType::kF32) storage.matrices = dtype;
  TSR_ASSIGN_OR_RETURN(graph, with_stored_weights(graph, storage));
  const std::vector<std::pair<std::string, int64_t>> symbols = {{"N", step.sequences * step.tokens},
                                                                {"W", step.sequences}};
  TSR_ASSIGN_OR_RETURN(const Graph bound, graph.bind_partly(symbols));
  StrategySpec spec;
  spec.tp = tp;
  ServingProgram program;
  TSR_ASSIGN_OR_RETURN(Plan plan, apply_strategy(bound, spec, 1));
  plan.symbols = symbols;
  program.plan = std::make_unique<Plan>(std::move(plan));
  TSR_ASSIGN_OR_RETURN(program.layout, make_layout({"serve", &graph, program.plan.get()}));
  TSR_ASSIGN_OR_RETURN(program.rank, lower_place(program.layout, catalog, 0));
  return program;
}

Result<ServingProfile> profile_serving(const ServingProgram& program, const ServedStep& step,
                                       const Cluster& cluster) {
  ServingProfile profile;
  // Repeated steps are launched as one recorded graph, so the host does not limit their rate.
  const SoftwareTraits recorded{
      .reprice = [](const RankProgram&, const Instruction&, InstructionPrice& price) { price.issue_s = 0; }};
  TSR_ASSIGN_OR_RETURN(profile.step,
                       profile_step(program.layout, program.rank, cluster, false, false, false, recorded));
  profile.seconds = find_seconds(program, profile.step, cluster);
  profile.pages = find_pages(program, profile.step.map, step);
  return profile;
}

ServingSeconds composed_seconds(const ServingProfile& profile, std::span<const int32_t> blocks) {
  ServingSeconds sum;
  for (const int32_t block : blocks) {
    const ServingSeconds& of = profile.seconds[static_cast<size_t>(block)];
    sum.compute += of.compute, sum.attention += of.attention, sum.collectives += of.collectives;
  }
  return sum;
}

ServingBytes composed_bytes(const ServingProfile& profile, std::span<const int32_t> blocks) {
  const StepProfile& step = profile.step;
  std::vector<int64_t> counts(step.copies.size(), 0);
  ServingBytes bytes;
  // Values shared by all blocks, and the previous block's output, exist when a stage begins.
  int64_t live = blocks.front() == 0 ? 0 : step.cost(0, Turn::kLast, BlockPass::kForward).left;
  for (size_t i = 0; i < blocks.size(); ++i) {
    ++counts[static_cast<size_t>(blocks[i])];
    live += step.copies[static_cast<size_t>(blocks[i])];
    const PassCost& pass = step.cost(blocks[i], Turn::kLast, BlockPass::kForward);
    bytes.run = std::max(bytes.run,
                         live + (i + 1 < blocks.size() ? std::max(pass.peak, pass.peak_ahead) : pass.peak));
    live += pass.left;
  }
  for (const PersistentBytes& it : step.persistent) {
    int64_t count = 0;
    for (const int32_t block : it.blocks) count += counts[static_cast<size_t>(block)];
    if (it.blocks.size() > 1) count = std::min<int64_t>(count, 1);  // shared
    if (it.kind == SlotKind::kParameter || it.kind == SlotKind::kConstant)
      bytes.parameters += count * it.bytes;
    else if (it.kind == SlotKind::kOutput)
      bytes.logits += count * it.bytes;
    else if (it.kind == SlotKind::kInput)
      bytes.inputs += count * it.bytes;
  }
  return bytes;
}

}  // namespace tessera
