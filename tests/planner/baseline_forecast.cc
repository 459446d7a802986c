#include "baseline_forecast.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "parallel/composition/composed_time.h"
#include "parallel/composition/strategy_profile.h"
#include "parallel/pricing/absent_catalog.h"
#include "parallel/pricing/device_time.h"
#include "parallel/pricing/link_time.h"
#include "tests/parallel/step_graphs.h"

namespace tessera::planner_test {

namespace {

double size_of(DType dtype) {
  return static_cast<double>(info(dtype).block_bytes) / info(dtype).block_elements;
}

// Cost of attention with stored scores: seconds, and kernels that a host issues.
struct KernelCost {
  double seconds = 0, count = 0;
};

class UnfusedAttention {
 public:
  UnfusedAttention(const DeviceKind& kind, const OpView& view, bool is_grad)
      : kind_(kind), dtype_(view.inputs[0].dtype), bytes_(size_of(dtype_)) {
    const Shape &q = view.inputs[is_grad ? 1 : 0].shape, &k = view.inputs[is_grad ? 2 : 1].shape;
    count_ = static_cast<double>(q[0] * q[2]), rows_ = static_cast<double>(q[1]),
    columns_ = static_cast<double>(k[1]);
    width_ = static_cast<double>(q[3]);
    scores_ = count_ * rows_ * columns_, mixed_ = count_ * rows_ * width_;
    qkv_ = mixed_ + 2 * static_cast<double>(k[0] * k[2] * k[1] * k[3]);
  }

  // add_elementwise(elements read and written, kernels): the unfused kernels around the matmuls, in PyTorch's order.
  KernelCost forward(bool copies_heads = true) {
    if (copies_heads) {
      add_elementwise(2 * qkv_, 6);    // q, k and v into heads
      add_elementwise(2 * mixed_, 2);  // the result out of heads
    }
    add_matmul(columns_, width_);  // scores
    add_softmax(2, 1, 6, 11);
    add_elementwise((2 + kMask) * scores_, 3);  // dropout
    add_matmul(width_, columns_);               // result
    return all_;
  }
  KernelCost backward() {
    add_elementwise(2 * mixed_, 2);
    add_elementwise(3 * qkv_, 5);
    for (int i = 0; i < 2; ++i) add_matmul(width_, columns_), add_matmul(columns_, width_);
    add_elementwise((2 + kMask) * scores_, 2);  // dropout
    add_softmax(3, 2, 8, 12);
    return all_;
  }

 private:
  static constexpr double kMask = 0.5;  // dropout mask: 1 byte for each 2-byte score, so half an element

  // Scale, mask and softmax: one fused kernel where the number of score matrices is a multiple of four, else many.
  // Passes count reads and writes of all scores.
  void add_softmax(double fused_passes, double fused_kernels, double passes, double kernels) {
    const bool is_fused = static_cast<int64_t>(count_) % 4 == 0;
    add_elementwise((is_fused ? fused_passes : passes) * scores_, is_fused ? fused_kernels : kernels);
  }
  void add_matmul(double n, double k) {
    all_.seconds += batched_matmul_seconds(kind_, dtype_, count_, rows_, n, k);
    ++all_.count;
  }
  void add_elementwise(double elements, double kernels) {
    all_.seconds += streaming_seconds(kind_, elements * bytes_) + (kernels - 1) * kind_.launch_s;
    all_.count += kernels;
  }

  const DeviceKind& kind_;
  DType dtype_;
  double bytes_, count_, rows_, columns_, width_, scores_, mixed_, qkv_;
  KernelCost all_;
};

bool is_attention(const OpDef& op) { return op.name == "attention" || op.name == "attention_grad"; }

KernelCost unfused(const DeviceKind& kind, const OpDef& op, const OpView& view, bool selective) {
  const bool is_grad = op.name == "attention_grad";
  KernelCost all =
      is_grad ? UnfusedAttention(kind, view, true).backward() : UnfusedAttention(kind, view, false).forward();
  if (is_grad && selective) {
    const KernelCost again = UnfusedAttention(kind, view, true).forward(false);
    all.seconds += again.seconds, all.count += again.count;
  }
  return all;
}

class BaselineCatalog final : public AbsentCatalog {
 public:
  BaselineCatalog(const DeviceKind& kind, const BaselineStep& step)
      : AbsentCatalog(kind), kind_(kind), step_(step) {}
  Result<KernelChoice> query(const OpDef& op, const OpView& view) const override {
    if (step_.software.fused_attention || !is_attention(op)) return AbsentCatalog::query(op, view);
    return KernelChoice{"absent", 0, unfused(kind_, op, view, step_.selective).seconds};
  }

 private:
  const DeviceKind& kind_;
  const BaselineStep& step_;
};

// Prices this library's instructions as the baseline's kernels run them.
class BaselinePrices {
 public:
  BaselinePrices(const BaselineStep& step, const Graph& graph, const Cluster& cluster)
      : step_(step), graph_(graph), cluster_(cluster), kind_(cluster.kinds[0]) {}

  void operator()(const RankProgram& rank, const Instruction& instruction, InstructionPrice& price) const {
    if (const auto* collective = std::get_if<CollectiveInst>(&instruction))
      exchange(rank, *collective, price);
    if (const auto* kernel = std::get_if<KernelInst>(&instruction)) run(rank, *kernel, price);
  }

 private:
  // Fewer elements: a vector, fused with or bucketed into other work.
  static constexpr int64_t kSmallTensor = int64_t{1} << 17;

  void exchange(const RankProgram& rank, const CollectiveInst& collective, InstructionPrice& price) const {
    constexpr double kLate = 3;
    const Group& over = rank.groups[static_cast<size_t>(collective.group)];
    const bool is_gradient = collective.dtype == DType::kF32 && over.axis != "tp";
    price.issue_s *= 2;  // the collective's own launch, and the stream synchronization around it
    if (over.axis == "tp" && step_.software.late_ranks) price.alone_s *= kLate;
    if (collective.elements < kSmallTensor && (over.axis == "dp" || updates(collective.node)))
      price = {};  // bucketed with larger tensors: no cost of their own
    if (over.axis != "dp" || price.alone_s == 0) return;
    const double bytes = static_cast<double>(collective.elements) *
                         size_of(is_gradient ? step_.software.gradients : collective.dtype);
    RankGroup group = group_of(cluster_, over.ranks);
    group.one_ring = step_.software.one_ring;
    price.alone_s = collective.kind == CollectiveKind::kAllReduce ? all_reduce_seconds(cluster_, group, bytes)
                                                                  : gather_seconds(cluster_, group, bytes);
  }

  void run(const RankProgram& rank, const KernelInst& kernel, InstructionPrice& price) const {
    const KernelDesc& desc = rank.kernels[static_cast<size_t>(kernel.kernel)];
    const std::string_view op = desc.op->name;
    const OpView view{desc.attrs, desc.inputs, desc.outputs, desc.factors};
    const Node* node = node_of(kernel.node);
    const bool in_attention = node != nullptr && node->scope.ends_with("attention");
    if (!step_.software.fused_attention && is_attention(*desc.op))
      price.issue_s *= unfused(kind_, *desc.op, view, step_.selective).count;
    // Parameters are held in 16 bits, and few kernels update all of them.
    if (updates(kernel.node))
      price.alone_s = std::max(0.0, price.alone_s - kind_.launch_s), price.issue_s = 0;
    if (op == "cast" && (desc.inputs[0].dtype == DType::kF32 || desc.inputs[0].shape.elements() < kSmallTensor))
      price = {};
    // q, k and v are one matmul, three times as wide; each of our three pays a third.
    if (in_attention && op == "add" && node->phase != Phase::kForward) price = {};
    if (in_attention && op == "matmul") {
      const double m = static_cast<double>(desc.outputs[0].shape.elements() / last(desc.outputs[0])),
                   n = last(desc.outputs[0]), k = last(desc.inputs[0]);
      const bool widens = n < k || (n == k && node->phase == Phase::kForward);
      price.alone_s =
          batched_matmul_seconds(kind_, desc.inputs[0].dtype, 1, m, widens ? 3 * n : n, widens ? k : 3 * k) / 3;
      price.issue_s *= 2.0 / 3;
    }
    // Gradient accumulation is fused into the weight-gradient matmul: a third of the add's traffic, no launch.
    if (op == "add" && desc.inputs[0].dtype == DType::kF32)
      price.alone_s = (price.alone_s - kind_.launch_s) / 3, price.issue_s = 0;
    // Logits are turned to f32, and maximum, difference, exponential, sum and division are kernels of their own.
    if (op == "row_max" || op == "cross_entropy_grad") {
      const bool is_grad = op != "row_max";
      const double kernels = is_grad ? 8 : 18;
      price.alone_s = streaming_seconds(
                          kind_, static_cast<double>(desc.inputs[0].shape.elements()) * (is_grad ? 22 : 38)) +
                      (kernels - 1) * kind_.launch_s;
      price.issue_s *= kernels;
    }
    if (op == "row_sum_exp") price = {};
    // Sequence parallelism: dropout runs on the rank's shard of the reduced activation.
    if (op == "dropout" && step_.spec.sp && node != nullptr && node->phase == Phase::kForward)
      price.alone_s /= step_.spec.tp;
  }

  static double last(const TensorType& type) {
    return static_cast<double>(type.shape[type.shape.rank() - 1]);
  }
  const Node* node_of(NodeId id) const {
    return id == kNoNode || index(id) >= graph_.nodes().size() ? nullptr : &graph_.node(id);
  }
  bool updates(NodeId id) const {
    const Node* node = node_of(id);
    return node != nullptr && node->phase == Phase::kUpdate;
  }

  const BaselineStep& step_;
  const Graph& graph_;
  const Cluster& cluster_;
  const DeviceKind& kind_;
};

constexpr int64_t kProfiledBlocks = 3;  // the first, one like all others, and the last

// Variants of a block's profile (with_sends), as bits: the block ends a stage and sends forward; it begins one and sends
// backward.
constexpr int32_t kEndsStage = 1, kBeginsStage = 2;

ComposedStages stages_of(const BaselineStep& step) {
  ComposedStages stages;
  stages.shape = {step.spec.schedule, step.spec.pp, step.spec.virtual_stages,
                  static_cast<int32_t>(step.micro_batches())};
  const auto count = static_cast<size_t>(stages.shape.stages());
  const int64_t L = step.model.sizes.at("L");
  const size_t ends = step.ends_are_blocks ? 2 : 0, all = static_cast<size_t>(L) + ends;
  int64_t next = 0;
  for (size_t s = 0; s < count; ++s) {
    size_t blocks = all / count + (s < all % count ? 1 : 0);
    if (ends > 0) blocks -= static_cast<size_t>(s == 0) + static_cast<size_t>(s + 1 == count);
    std::vector<StageBlock>& stage = stages.blocks.emplace_back();
    if (s == 0) stage.push_back({});
    for (size_t i = 0; i < blocks; ++i, ++next) stage.push_back({next == 0 ? 1 : next + 1 == L ? 3 : 2, 0});
    if (s + 1 == count) stage.push_back({kProfiledBlocks + 1, 0});
    if (s > 0) stage.front().variant += kBeginsStage;
    if (s + 1 < count) stage.back().variant += kEndsStage;
  }
  return stages;
}

// Full recomputation repeats a block's whole forward pass. (Ours skips its last matmul and all_reduce.)
void add_full_recomputation(StepProfile& profile) {
  for (int32_t b = 1; b < profile.map.after(); ++b) {
    auto& turns = profile.passes[static_cast<size_t>(b)];
    // The minimum over turns: the first micro-batch's forward includes parameter gathers, which are not repeated.
    double forward = INFINITY;
    for (const auto& turn : turns)
      if (turn[0].seconds > 0) forward = std::min(forward, turn[0].seconds);
    for (auto& turn : turns) turn[static_cast<size_t>(BlockPass::kBackward)].seconds += forward;
  }
}

// Sends block the sender: after a stage's last block in forward, after its first block in backward.
std::vector<StepProfile> with_sends(const BaselineStep& step, StepProfile profile, const Cluster& cluster) {
  const double bytes = static_cast<double>(profile.forward_message);
  const bool scatters = step.software.scatters_sends && !step.spec.sp;
  double seconds = 0;
  if (step.spec.pp > 1)
    seconds = send_seconds(cluster, profile.devices, scatters ? bytes / step.spec.tp : bytes) +
              (scatters ? gather_seconds(cluster, group_of(cluster, step.spec.tp, 1), bytes) : 0);
  profile.forward_message = profile.backward_message = 0;
  // Scales the persistent bytes that price the tied embedding's all_reduce: element size of their gradients, and one
  // exchange instead of two.
  for (PersistentBytes& it : profile.persistent)
    it.bytes = static_cast<int64_t>(static_cast<double>(it.bytes) * size_of(step.software.gradients) /
                                    size_of(DType::kF32) / 2);
  std::vector<StepProfile> variants(4, profile);
  for (const int32_t v : {kEndsStage, kBeginsStage, kEndsStage + kBeginsStage})
    for (auto& block : variants[static_cast<size_t>(v)].passes)
      for (auto& turn : block) {
        if (v & kEndsStage) turn[static_cast<size_t>(BlockPass::kForward)].seconds += seconds;
        if (v & kBeginsStage) turn[static_cast<size_t>(BlockPass::kBackward)].seconds += seconds;
      }
  return variants;
}

// A sharded vocabulary is padded so that shards are equal and aligned.
ModelConfig profiled_model(const BaselineStep& step) {
  ModelConfig model = step.model;
  model.sizes["L"] = kProfiledBlocks;
  int64_t& vocabulary = model.sizes["V"];
  const int64_t piece = int64_t{128} * step.spec.tp;
  if (step.spec.tp > 1) vocabulary = (vocabulary + piece - 1) / piece * piece;
  if (model.family == "gpt2") model.reals["dropout"] = 0.1;
  return model;
}

}  // namespace

Result<BaselineStep> parse_baseline_step(std::string_view model, std::string_view parallel, int64_t batch,
                             const BaselineSoftware& software) {
  BaselineStep step;
  TSR_ASSIGN_OR_RETURN(step.model, parse_shorthand(model));
  constexpr std::string_view kSelective = ",recompute=selective";
  step.selective = parallel.ends_with(kSelective);
  if (step.selective) parallel.remove_suffix(kSelective.size());
  TSR_ASSIGN_OR_RETURN(const StrategyPins pins, parse_parallel(parallel));
  step.spec = pins.spec;
  step.batch = batch, step.software = software;
  return step;
}

Result<std::vector<StepProfile>> profile_baseline(const BaselineStep& step, const Cluster& cluster) {
  constexpr double kClipNorm = 1;
  const ModelConfig model = profiled_model(step);
  TSR_ASSIGN_OR_RETURN(Graph forward, build_model(model));
  TSR_ASSIGN_OR_RETURN(const Graph graph,
                       training_step_of(std::move(forward), kClipNorm, step.software.compute));
  const SoftwareTraits traits{.one_stream = !step.software.overlaps,
                              .reprice = BaselinePrices(step, graph, cluster)};
  StrategySpec spec = step.spec;
  spec.recompute = RecomputeForm::kNone;
  TSR_ASSIGN_OR_RETURN(StepProfile profile,
                       profile_strategy(graph, spec, step.batch, {{"T", model.sizes.at("T")}}, cluster,
                                        BaselineCatalog(cluster.kinds[0], step), false, traits));
  if (step.spec.recompute == RecomputeForm::kFull) add_full_recomputation(profile);
  return with_sends(step, std::move(profile), cluster);
}

Result<double> composed_seconds(const BaselineStep& step, const std::vector<StepProfile>& profiles,
                                const Cluster& cluster) {
  TSR_ASSIGN_OR_RETURN(const ComposedTime time, composed_time(profiles, stages_of(step), cluster));
  return time.step_s;
}

}  // namespace tessera::planner_test
