// Fuses launches. A fused launch runs block by block in no order, so every address is checked. No step may
// write what another block reads (except that the thread which reads an element may store the result there).
// No two steps may write to the same place, unless the later one overwrites all of the earlier one's result,
// which is then not stored at all.
#include "runtime/backends/cuda/kernels/gemv_plan.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace tessera::cuda {

namespace {

struct Range {
  uintptr_t begin = 0, end = 0;
  Range(const void* at, int64_t bytes)
      : begin(reinterpret_cast<uintptr_t>(at)), end(begin + static_cast<uintptr_t>(bytes)) {}
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
  bool covers(const Range& other) const { return begin <= other.begin && other.end <= end; }
  bool operator==(const Range&) const = default;
};

bool at_multiples_of_16(const LaunchArgs& args, int inputs, int outputs) {
  uintptr_t bits = 0;
  for (int i = 0; i < inputs; ++i) bits |= reinterpret_cast<uintptr_t>(args.inputs[i]);
  for (int i = 0; i < outputs; ++i) bits |= reinterpret_cast<uintptr_t>(args.outputs[i]);
  return bits % 16 == 0;
}

class Planner {
 public:
  // Adds `next` to the launch; false if it cannot, and this object is then of no more use.
  bool take(const ComingLaunch& next) {
    const DecodeStep* step = next.kernel->decode_step();
    if (step == nullptr || (!is_empty_ && step->dtype != plan_.dtype)) return false;
    plan_.dtype = step->dtype;
    const bool taken = std::visit([&](const auto& what) { return add(*step, what, next.args); }, step->what);
    is_empty_ = false;
    return taken;
  }
  const GemvPlan& plan() const { return plan_; }
  const ProductStep& product() const { return *product_; }

 private:
  enum class Target { kNormed, kMean, kRstd, kY, kSecondY, kPre, kMapped, kAdded, kPages };
  struct Write {
    Range range;
    Target target;
    int part;
    bool is_left_out = false;
  };
  // Stage of a part, in the order in which the kernel runs them.
  enum class Stage { kProduct, kMapped, kAdded, kStored };
  struct Result {
    const void* at;  // null once another value was stored there
    Stage stage;
  };

  bool add(const DecodeStep&, const NormStep& norm, const LaunchArgs& args) {
    const int64_t pack = 16 / element(), bytes = norm.rows * norm.cols * element();
    if (!is_empty_ || norm.cols % pack != 0 || norm.cols / pack > kMostNormPacks || bytes > kMostNormBytes ||
        !at_multiples_of_16(args, norm.is_layer_norm ? 3 : 2, norm.is_layer_norm ? 3 : 2))
      return false;
    GemvNorm& to = plan_.norm;
    to = {true,
          norm.is_layer_norm,
          args.inputs[0],
          args.inputs[1],
          norm.is_layer_norm ? args.inputs[2] : nullptr,
          args.outputs[0],
          norm.is_layer_norm ? args.outputs[1] : nullptr,
          args.outputs[norm.is_layer_norm ? 2 : 1],
          norm.eps,
          1 / double(norm.cols > 1 ? norm.cols : 1)};
    plan_.M = norm.rows;
    plan_.K = norm.cols;
    plan_.x = to.y;
    const int64_t statistics = norm.rows * (plan_.dtype == DType::kF64 ? 8 : 4);
    return read({to.x, bytes}) && read({to.w, norm.cols * element()}) &&
           (to.b == nullptr || read({to.b, norm.cols * element()})) &&
           write({to.y, bytes}, Target::kNormed, -1) &&
           (to.mean == nullptr || write({to.mean, statistics}, Target::kMean, -1)) &&
           write({to.rstd, statistics}, Target::kRstd, -1);
  }

  bool add(const DecodeStep& step, const ProductStep& product, const LaunchArgs& args) {
    if (plan_.parts == GemvPlan::kMostParts ||
        !at_multiples_of_16(args, product.operands, product.has_pre ? 2 : 1))
      return false;
    if (product_ == nullptr && !plan_.norm.is_there) {
      plan_.x = args.inputs[0];
      if (!read({plan_.x, product.M * product.K * element()})) return false;
    } else if (product.M != plan_.M || product.K != plan_.K || args.inputs[0] != plan_.x || x_is_gone_) {
      return false;
    }
    if (product_ != nullptr && product.kernel != product_->kernel) return false;
    product_ = &product;
    const GemvPlan single = plan_product(step, args);
    plan_.M = single.M;
    plan_.K = single.K;
    plan_.weight = single.weight;
    plan_.row_bytes = single.row_bytes;
    const int at = plan_.parts++;
    plan_.part[at] = single.part[0];
    const GemvPart& part = plan_.part[at];
    results_.push_back({part.y[0], Stage::kProduct});
    // The thread that reads an element stores its sum.
    const Range from(part.summand, part.summand == nullptr ? 0 : bytes(part)), to(part.y[0], bytes(part));
    if ((from.meets(to) && from != to) || meets_writes(from)) return false;
    return read({part.w[0], product.N * product.row_bytes}) &&
           (part.bias[0] == nullptr || read({part.bias[0], product.N * element()})) &&
           write({part.y[0], bytes(part)}, Target::kY, at) &&
           (part.pre == nullptr || write({part.pre, bytes(part)}, Target::kPre, at)) && remember(from);
  }

  bool add(const DecodeStep&, const RopeStep& rope, const LaunchArgs& args) {
    const int at = part_of(args.inputs[0], rope.rows * rope.H * rope.D, Stage::kMapped);
    if (at < 0 || rope.rows != plan_.M) return false;
    GemvPart& part = plan_.part[at];
    part.pairing = Pairing::kRope;
    part.positions = args.in<int32_t>(1);
    part.D = rope.D;
    part.log_theta = rope.log_theta;
    part.sign = rope.sign;
    part.is_interleaved = rope.is_interleaved;
    part.mapped = args.outputs[0];
    return read({part.positions, rope.rows * 4}) && write({part.mapped, bytes(part)}, Target::kMapped, at) &&
           moves_on(at, part.mapped, Stage::kMapped);
  }

  bool add(const DecodeStep&, const PageStep& page, const LaunchArgs& args) {
    const int at = part_of(args.inputs[1], page.rows * page.cols, Stage::kStored);
    if (at < 0 || plan_.part[at].N != page.cols || args.inputs[0] != args.outputs[0]) return false;
    const auto* slot = args.in<int32_t>(2);
    if (plan_.slot != nullptr && plan_.slot != slot) return false;
    plan_.slot = slot;
    GemvPart& part = plan_.part[at];
    part.pages = args.outputs[0];
    part.slots = page.slots;
    return read({slot, page.rows * 4}) &&
           write({part.pages, page.slots * page.cols * element()}, Target::kPages, at) &&
           moves_on(at, args.inputs[1], Stage::kStored);
  }

  bool add(const DecodeStep&, const MapStep& map, const LaunchArgs& args) {
    switch (map.kind) {
      case MapKind::kAdd: return add_to_result(map, args);
      case MapKind::kSwiglu: return gate(map, args);
      default: break;
    }
    const int at = part_of(args.inputs[0], map.count, Stage::kMapped);
    if (at < 0) return false;
    GemvPart& part = plan_.part[at];
    part.has_map = true;
    part.map = map.kind;
    part.mapped = args.outputs[0];
    return write({part.mapped, bytes(part)}, Target::kMapped, at) &&
           moves_on(at, part.mapped, Stage::kMapped);
  }

  // Either operand may be the result.
  bool add_to_result(const MapStep& map, const LaunchArgs& args) {
    const int left = part_of(args.inputs[0], map.count, Stage::kAdded),
              right = part_of(args.inputs[1], map.count, Stage::kAdded);
    if ((left < 0) == (right < 0)) return false;
    const int at = left < 0 ? right : left;
    GemvPart& part = plan_.part[at];
    part.addend = args.inputs[left < 0 ? 0 : 1];
    part.added = args.outputs[0];
    const Range from(part.addend, bytes(part)), to(part.added, bytes(part));
    // The thread that reads an element stores its sum.
    if ((from.meets(to) && from != to) || meets_writes(from)) return false;
    return write(to, Target::kAdded, at) && moves_on(at, part.added, Stage::kAdded) && remember(from);
  }

  // The second matrix joins the part of the first.
  bool gate(const MapStep& map, const LaunchArgs& args) {
    const int first = part_of(args.inputs[0], map.count, Stage::kMapped),
              second = part_of(args.inputs[1], map.count, Stage::kMapped);
    if (first != plan_.parts - 2 || second != plan_.parts - 1 || first < 0) return false;
    GemvPart &part = plan_.part[first], &other = plan_.part[second];
    if (part.N != other.N || part.pre != nullptr || other.pre != nullptr || part.summand != nullptr ||
        other.summand != nullptr || part.activation != MatmulActivation::kNone ||
        other.activation != MatmulActivation::kNone)
      return false;
    part.pairing = Pairing::kGated;
    part.w[1] = other.w[0];
    part.bias[1] = other.bias[0];
    part.y[1] = other.y[0];
    part.mapped = args.outputs[0];
    for (Write& each : writes_)
      if (each.part == second) each = {each.range, Target::kSecondY, first, each.is_left_out};
    other = {};
    --plan_.parts;
    results_.pop_back();
    return write({part.mapped, bytes(part)}, Target::kMapped, first) &&
           moves_on(first, part.mapped, Stage::kMapped);
  }

  int64_t element() const { return dtype_bytes(plan_.dtype, 1); }
  int64_t bytes(const GemvPart& part) const { return plan_.M * part.N * element(); }

  // The part whose whole result is the operand `at`, where `stage` can still follow; -1 for none.
  int part_of(const void* at, int64_t count, Stage stage) const {
    for (int i = 0; i < plan_.parts; ++i)
      if (const Result& result = results_[static_cast<size_t>(i)];
          result.at == at && at != nullptr && result.stage < stage && plan_.M * plan_.part[i].N == count)
        return i;
    return -1;
  }
  bool moves_on(int part, const void* at, Stage stage) {
    results_[static_cast<size_t>(part)] = {at, stage};
    return true;
  }

  bool meets_writes(const Range& range) const {
    return std::ranges::any_of(writes_, [&](const Write& each) { return each.range.meets(range); });
  }
  bool remember(const Range& range) {
    reads_.push_back(range);
    return true;
  }
  bool read(const Range& range) { return !meets_writes(range) && remember(range); }

  bool write(const Range& range, Target target, int part) {
    for (const Range& each : reads_)
      if (each.meets(range)) return false;
    for (Write& each : writes_) {
      if (!each.range.meets(range)) continue;
      if (!range.covers(each.range) || target == Target::kPages || each.target == Target::kPages)
        return false;
      each.is_left_out = true;
      leave_out(each);
      if (each.target == Target::kNormed) x_is_gone_ = true;
    }
    for (int i = 0; i < static_cast<int>(results_.size()); ++i)
      if (Result& result = results_[static_cast<size_t>(i)];
          i != part && Range(result.at, bytes(plan_.part[i])).meets(range))
        result.at = nullptr;
    writes_.push_back({range, target, part});
    return true;
  }
  void leave_out(const Write& write) {
    GemvPart* part = write.part < 0 ? nullptr : &plan_.part[write.part];
    switch (write.target) {
      case Target::kNormed: plan_.norm.y = nullptr; break;
      case Target::kMean: plan_.norm.mean = nullptr; break;
      case Target::kRstd: plan_.norm.rstd = nullptr; break;
      case Target::kY: part->y[0] = nullptr; break;
      case Target::kSecondY: part->y[1] = nullptr; break;
      case Target::kPre: part->pre = nullptr; break;
      case Target::kMapped: part->mapped = nullptr; break;
      case Target::kAdded: part->added = nullptr; break;
      case Target::kPages: break;
    }
  }

  bool is_empty_ = true, x_is_gone_ = false;
  GemvPlan plan_{};
  const ProductStep* product_ = nullptr;
  std::vector<Result> results_;  // by part
  std::vector<Range> reads_;
  std::vector<Write> writes_;
};

class DecodeStepKernel final : public Kernel {
 public:
  DecodeStepKernel(std::unique_ptr<Kernel> kernel, const DecodeStep& step)
      : kernel_(std::move(kernel)), step_(step) {}
  Status launch(const LaunchArgs& args) const override { return kernel_->launch(args); }
  bool fuses() const override {
    return std::holds_alternative<NormStep>(step_.what) || std::holds_alternative<ProductStep>(step_.what);
  }
  double launch_share() const override { return 1.0 / 3; }  // 16 of a Llama layer's become 5
  Fused fuse(std::span<const ComingLaunch> coming) const override { return fuse_decode_steps(coming); }
  const DecodeStep* decode_step() const override { return &step_; }

 private:
  std::unique_ptr<Kernel> kernel_;
  DecodeStep step_;
};

}  // namespace

std::unique_ptr<Kernel> as_decode_step(std::unique_ptr<Kernel> kernel, const DecodeStep& step) {
  return std::make_unique<DecodeStepKernel>(std::move(kernel), step);
}

GemvPlan plan_product(const DecodeStep& step, const LaunchArgs& args) {
  const auto& product = std::get<ProductStep>(step.what);
  GemvPlan plan{};
  plan.dtype = step.dtype;
  plan.weight = product.weight;
  plan.M = product.M;
  plan.K = product.K;
  plan.row_bytes = product.row_bytes;
  plan.x = args.inputs[0];
  plan.parts = 1;
  GemvPart& part = plan.part[0];
  part.N = product.N;
  part.w[0] = args.inputs[1];
  part.bias[0] = product.bias < 0 ? nullptr : args.inputs[product.bias];
  part.summand = product.addend < 0 ? nullptr : args.inputs[product.addend];
  part.y[0] = args.outputs[0];
  part.pre = product.has_pre ? args.outputs[1] : nullptr;
  part.activation = product.activation;
  return plan;
}

Fused fuse_decode_steps(std::span<const ComingLaunch> coming) {
  Planner planner;
  int32_t taken = 0;
  for (const ComingLaunch& next : coming) {
    Planner longer = planner;
    if (!longer.take(next)) break;
    planner = std::move(longer);
    ++taken;
  }
  if (taken < 2 || planner.plan().parts == 0) return {};
  GemvPlan plan = planner.plan();
  for (const ComingLaunch& next : coming.subspan(static_cast<size_t>(taken))) {
    const DecodeStep* step = next.kernel->decode_step();
    const auto* product = step == nullptr ? nullptr : std::get_if<ProductStep>(&step->what);
    if (product == nullptr) continue;
    plan.next = next.args.inputs[1];
    plan.next_bytes = product->N * product->row_bytes;
    break;
  }
  return {planner.product().kernel(plan), taken};
}

}  // namespace tessera::cuda
