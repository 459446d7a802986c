// Shapes of one micro-batch on one tensor-parallel rank: N = mb * T tokens, products divided by t = tp.
#include "parallel/analytic/block_time.h"

#include <algorithm>
#include <cmath>

#include "parallel/analytic/context_time.h"
#include "parallel/analytic/fp8_linears.h"
#include "parallel/analytic/grid_time.h"

namespace tessera {

namespace {

double bytes_of(DType dtype) {
  return static_cast<double>(info(dtype).block_bytes) / info(dtype).block_elements;
}

enum class Cut : uint8_t { kColumns, kRows };  // of a weight, over tp

// Adds kernels to a pass.
class Kernels {
 public:
  Kernels(const Cluster& cluster, const ForeignPlan& plan)
      : cluster_(cluster),
        kind_(cluster.kinds[0]),
        plan_(plan),
        group_(group_of(cluster, plan.tp, 1)),
        grid_(cluster, plan) {}

  bool on_grid() const { return plan_.form != TensorForm::k1d; }
  const GridProducts& grid() const { return grid_; }

  void product(Pass& pass, double m, double n, double k) const {
    pass.compute_s += product_seconds(kind_, plan_.compute_dtype, m, n, k);
    pass.kernels += 1;
  }
  // Several products side by side, each with a weight of its own: experts.
  void products(Pass& pass, double count, double m, double n, double k) const {
    if (count == 1) return product(pass, m, n, k);
    pass.compute_s +=
        std::max(0.0, count * (product_seconds(kind_, plan_.compute_dtype, m, n, k) - kind_.launch_s)) +
        kind_.launch_s;
    pass.kernels += 1;
  }
  // A product of the model, and the adapter beside it where there is one. Extents are of one rank, with its
  // columns of the weight or its rows. In 8 bits the operand is quantized here, once for all that read it;
  // the weight was, before the step's first pass.
  void linear(Pass& pass, double m, double n, double k, Cut cut, bool fp8) const {
    if (on_grid()) return grid_.forward(pass, m, n * whole(cut, true), k * whole(cut, false));
    if (fp8) {
      quantize(pass, m * k);
      fp8_product(pass, m, n, k, element_bytes());
    } else {
      product(pass, m, n, k);
    }
    if (plan_.lora == 0) return;
    const double rank = static_cast<double>(plan_.lora);
    product(pass, m, rank, k);
    product(pass, m, n, rank);
    stream(pass, 3 * m * n);
  }
  // Of codes; each number of the result has so many bytes.
  void fp8_product(Pass& pass, double m, double n, double k, double result_bytes) const {
    pass.compute_s += std::max(product_seconds(kind_, DType::kE4M3, m, n, k),
                               streaming_seconds(kind_, m * k + n * k + m * n * result_bytes));
    pass.kernels += 1;
  }
  // A tensor is read for its scale and again for its codes.
  void quantize(Pass& pass, double elements) const {
    stream(pass, elements);
    stream_bytes(pass, elements * (element_bytes() + 1));
  }
  // Of tensors whose parts lie on all replicas, and of some whose parts lie on tp's ranks too: ranks agree on
  // the largest of their scales, one number a tensor.
  void scales(Pass& pass, int32_t whole, int32_t over_tp) const {
    const auto reduce = [&](int32_t count, int32_t members, int32_t stride) {
      if (count == 0 || members < 2) return;
      pass.collective_s +=
          count * skew() * all_reduce_seconds(cluster_, group_of(cluster_, members, stride), kScaleBytes);
      pass.kernels += count * kIssuedByCollective;
    };
    reduce(whole, plan_.replicas(), plan_.tp);
    reduce(over_tp, plan_.replicas() * plan_.tp, 1);
  }
  // Products of codes read both operands along what is summed: those that lie otherwise are turned first.
  void turn(Pass& pass, double codes) const { stream_bytes(pass, 2 * codes); }
  void batched(Pass& pass, double count, double m, double n, double k) const {
    pass.compute_s += batched_product_seconds(kind_, plan_.compute_dtype, count, m, n, k);
    pass.kernels += 1;
  }
  // Products whose operands stay on chip: scores of fused attention.
  void fused(Pass& pass, double flops, double elements) const {
    const double rate = matrix_rate(kind_, plan_.compute_dtype) * kFusedShare;
    pass.compute_s +=
        std::max(rate > 0 ? flops / rate : 0, streaming_seconds(kind_, elements * element_bytes()));
    pass.kernels += 1;
  }
  // Elements read and written, in the compute type.
  void stream(Pass& pass, double elements, double kernels = 1) const {
    stream_bytes(pass, elements * element_bytes(), kernels);
  }
  void stream_bytes(Pass& pass, double bytes, double kernels = 1) const {
    pass.compute_s += streaming_seconds(kind_, bytes) + (kernels - 1) * kind_.launch_s;
    pass.kernels += kernels;
  }
  double whole(Cut cut, bool columns) const { return (cut == Cut::kColumns) == columns ? plan_.tp : 1; }
  // Around the products of one half of a block: all-reduce, or reduce-scatter and all-gather with sp. Grids
  // leave sums nowhere but in norms.
  void reduce(Pass& pass, double elements, double channels) const {
    if (plan_.tp < 2) return;
    if (on_grid()) return grid_.statistics(pass, elements / channels);
    pass.collective_s += skew() * all_reduce_seconds(cluster_, group_, elements * element_bytes());
    pass.kernels += kIssuedByCollective;
  }
  void gather(Pass& pass, double elements) const {
    if (plan_.tp < 2) return;
    pass.collective_s += skew() * gather_seconds(cluster_, group_, elements * element_bytes());
    pass.kernels += kIssuedByCollective;
  }
  // Slots to where their experts are, or back.
  void exchange(Pass& pass, double elements) const {
    if (plan_.ep < 2) return;
    const RankGroup group = group_of(cluster_, plan_.ep, plan_.tp * plan_.cp);
    pass.collective_s += all_to_all_seconds(cluster_, group, elements * element_bytes() * plan_.ep);
    pass.kernels += 1;
  }
  // What attention over a split sequence sends: `qkv` and `mixed` elements are this rank's, `beside_s` is the
  // computation that a ring's transfers run beside.
  void context(Pass& pass, double qkv, double mixed, double beside_s, bool backward) const {
    if (plan_.cp < 2) return;
    const ContextTime time =
        context_time(cluster_, plan_, qkv * element_bytes(), mixed * element_bytes(), beside_s, backward);
    pass.collective_s += time.exposed_s;
    pass.kernels += time.kernels;
  }
  double element_bytes() const { return bytes_of(plan_.compute_dtype); }

 private:
  double skew() const { return plan_.skewed_ranks ? 3 : 1; }

  static constexpr double kFusedShare = 0.6;  // online softmax beside the products
  static constexpr double kScaleBytes = 4;
  static constexpr double kIssuedByCollective = 2;  // itself, and streams that wait for each other

  const Cluster& cluster_;
  const DeviceKind& kind_;
  const ForeignPlan& plan_;
  RankGroup group_;
  GridProducts grid_;
};

constexpr double kMask = 0.5;  // a byte of dropout mask beside two of value

// Elements moved per attention score where scores are stored: by softmax and by dropout, one way and back.
constexpr double kSoftmax = 2, kSoftmaxBack = 3, kDropout = 2 + kMask, kDropoutBack = 2 + kMask;
// Without the kernel that does it all.
constexpr double kApart = 6, kApartBack = 8, kApartKernels = 10;

// What is common to forward and recomputation.
struct Sizes {
  Sizes(const TransformerShape& model, const ForeignPlan& plan)
      : mb(static_cast<double>(plan.micro_batch)),
        T(static_cast<double>(model.T)),
        N(mb * T / plan.cp),
        cp(plan.cp),
        C(static_cast<double>(model.C)),
        t(plan.tp),
        heads(static_cast<double>(model.H) / t),
        D(static_cast<double>(model.head_size())),
        mixed(static_cast<double>(model.mixed_width()) / t),
        qkv((static_cast<double>(model.mixed_width()) + 2 * static_cast<double>(model.KV) * D) / t),
        F(static_cast<double>(model.F) / t),
        V(vocabulary(model, plan)),
        own(plan.splits_activations() ? N / t : N),
        fp8(fp8_linears(model, plan)) {}
  // A vocabulary in parts is padded so that parts are equal and aligned.
  static double vocabulary(const TransformerShape& model, const ForeignPlan& plan) {
    if (plan.tp == 1) return static_cast<double>(model.V);
    const int64_t piece = int64_t{128} * plan.tp;
    return static_cast<double>((model.V + piece - 1) / piece * 128);
  }
  // Whether the kernel that scales, masks and softmaxes at once takes these scores: it works on four matrices
  // at a time. Otherwise each of the three, and conversions to f32 and back, are kernels of their own.
  bool one_softmax() const { return std::fmod(mb * heads, 4) == 0; }
  double mb, T, N, cp, C, t, heads, D;
  double mixed, qkv, F, V;  // this rank's
  double own;               // tokens whose norms and residuals this rank computes
  Fp8Linears fp8;
};

void scores_forward(Pass& pass, const Kernels& k, const Sizes& s, const ForeignPlan& plan, double dropout) {
  const double count = s.mb * s.heads, own = s.T / s.cp, scores = count * own * s.T;
  if (plan.fused_attention) return k.fused(pass, 4 * scores * s.D / 2, s.N * (s.qkv + s.mixed));
  k.batched(pass, count, own, s.T, s.D);
  s.one_softmax() ? k.stream(pass, kSoftmax * scores) : k.stream(pass, kApart * scores, 1 + kApartKernels);
  if (dropout > 0) k.stream(pass, kDropout * scores, 3);
  k.batched(pass, count, own, s.D, s.T);
}

void scores_backward(Pass& pass, const Kernels& k, const Sizes& s, const ForeignPlan& plan, double dropout) {
  const double count = s.mb * s.heads, own = s.T / s.cp, scores = count * own * s.T;
  if (plan.fused_attention) return k.fused(pass, 10 * scores * s.D / 2, 2 * s.N * (s.qkv + s.mixed));
  for (int i = 0; i < 2; ++i) {
    k.batched(pass, count, own, s.D, s.T);
    k.batched(pass, count, own, s.T, s.D);
  }
  if (dropout > 0) k.stream(pass, kDropoutBack * scores, 2);
  s.one_softmax() ? k.stream(pass, kSoftmaxBack * scores, 2)
                  : k.stream(pass, kApartBack * scores, 2 + kApartKernels);
}

void attention_forward(Pass& pass, const Kernels& k, const Sizes& s, const ForeignPlan& plan,
                       double dropout) {
  k.stream(pass, 2 * s.own * s.C);
  if (plan.sequence_parallel) k.gather(pass, s.N * s.C);
  k.linear(pass, s.N, s.qkv, s.C, Cut::kColumns, s.fp8.qkv);
  k.stream(pass, 2 * s.N * s.qkv, 6);  // heads forward
  Pass scores;
  scores_forward(scores, k, s, plan, dropout);
  pass += scores;
  k.context(pass, s.N * s.qkv, s.N * s.mixed, scores.compute_s, false);
  k.stream(pass, 2 * s.N * s.mixed, 2);
  k.linear(pass, s.N, s.C, s.mixed, Cut::kRows, s.fp8.o);
  plan.sequence_parallel ? k.gather(pass, s.N * s.C) : k.reduce(pass, s.N * s.C, s.C);
  k.stream(pass, (3 + kMask) * s.own * s.C, 2);  // bias, dropout, residual
}

// Slots of one rank, after tokens went to their experts: as many as it sends out, shared out among the
// experts it holds.
struct Slots {
  Slots(const Sizes& s, const ForeignPlan& plan, const TransformerShape& model)
      : count(s.N * static_cast<double>(model.K) * model.capacity),
        experts(static_cast<double>(model.E) / plan.ep),
        each(count / experts) {}
  double count, experts, each;
};

// Router, tokens to slots, the experts' products, and back; both ways by all-to-all over ep.
void experts_forward(Pass& pass, const Kernels& k, const Sizes& s, const ForeignPlan& plan,
                     const TransformerShape& model) {
  const Slots slots(s, plan, model);
  const double E = static_cast<double>(model.E);
  k.product(pass, s.N, E, s.C);
  k.stream(pass, 4 * s.N * E, 6);  // softmax, choice, positions
  k.stream(pass, 2 * slots.count * s.C);
  k.exchange(pass, slots.count * s.C);
  k.products(pass, slots.experts, slots.each, model.gated ? 2 * s.F : s.F, s.C);
  k.stream(pass, (model.gated ? 3 : 2) * slots.count * s.F);
  k.products(pass, slots.experts, slots.each, s.C, s.F);
  k.exchange(pass, slots.count * s.C);
  k.stream(pass, (slots.count + s.N) * s.C);
}

void feed_forward(Pass& pass, const Kernels& k, const Sizes& s, const ForeignPlan& plan,
                  const TransformerShape& model) {
  k.stream(pass, 2 * s.own * s.C);
  if (plan.sequence_parallel) k.gather(pass, s.N * s.C);
  if (model.E > 0) {
    experts_forward(pass, k, s, plan, model);
  } else {
    k.linear(pass, s.N, model.gated ? 2 * s.F : s.F, s.C, Cut::kColumns, s.fp8.up);
    k.stream(pass, (model.gated ? 3 : 2) * s.N * s.F);
    k.linear(pass, s.N, s.C, s.F, Cut::kRows, s.fp8.down);
  }
  plan.sequence_parallel ? k.gather(pass, s.N * s.C) : k.reduce(pass, s.N * s.C, s.C);
  k.stream(pass, (3 + kMask) * s.own * s.C, 2);
}

// dX and dW of `count` products [N, k] x [k, n], and dW joining the gradients of earlier micro-batches. Of a
// frozen product dX alone, and both gradients of the adapter beside it where there is one.
void product_backward(BlockTime& time, const Kernels& k, const ForeignPlan& plan, double N, double n,
                      double inner, Cut cut, double count = 1, bool adapted = true, bool fp8 = false) {
  Pass weight;
  if (k.on_grid()) {
    k.grid().backward(time.backward, weight, N, n * k.whole(cut, true), inner * k.whole(cut, false));
  } else if (fp8) {
    k.quantize(time.backward, N * n);  // dY, for both gradients
    k.turn(time.backward, inner * n);
    k.fp8_product(time.backward, N, inner, n, k.element_bytes());
  } else {
    k.products(time.backward, count, N, inner, n);
  }
  const double grad = bytes_of(plan.grad_dtype), rank = static_cast<double>(plan.lora);
  if (plan.lora == 0) {
    if (fp8) {
      k.turn(weight, N * inner);
      k.turn(weight, N * n);
      k.fp8_product(weight, inner, n, N, bytes_of(DType::kF32));
    } else if (!k.on_grid()) {
      k.products(weight, count, inner, n, N);
    }
    k.stream_bytes(weight, count * n * inner * (k.element_bytes() + 2 * grad));
  } else if (adapted) {
    k.product(time.backward, N, rank, n);
    k.product(time.backward, N, inner, rank);
    k.stream(time.backward, 2 * N * inner);
    k.product(weight, rank, n, N);
    k.product(weight, inner, rank, N);
    k.stream_bytes(weight, rank * (n + inner) * (k.element_bytes() + 2 * grad), 2);
  }
  time.weight += weight;
  time.backward += weight;
}

void experts_backward(BlockTime& time, const Kernels& k, const Sizes& s, const ForeignPlan& plan,
                      const TransformerShape& model) {
  const Slots slots(s, plan, model);
  const double E = static_cast<double>(model.E);
  Pass& b = time.backward;
  k.stream(b, 2 * (slots.count + s.N) * s.C);
  k.exchange(b, slots.count * s.C);
  product_backward(time, k, plan, slots.each, s.C, s.F, Cut::kRows, slots.experts, false);
  k.stream(b, (model.gated ? 5 : 4) * slots.count * s.F, 3);
  product_backward(time, k, plan, slots.each, model.gated ? 2 * s.F : s.F, s.C, Cut::kColumns, slots.experts,
                   false);
  k.exchange(b, slots.count * s.C);
  k.stream(b, (slots.count + s.N) * s.C);
  k.stream(b, 4 * s.N * E, 6);
  product_backward(time, k, plan, s.N, E, s.C, Cut::kColumns, 1, false);
}

}  // namespace

double Pass::seconds(const DeviceKind& kind) const {
  return std::max(compute_s + collective_s, kernels * kind.issue_s);
}

Pass& Pass::operator+=(const Pass& other) {
  compute_s += other.compute_s;
  collective_s += other.collective_s;
  kernels += other.kernels;
  return *this;
}

Pass operator*(double times, Pass pass) {
  return {times * pass.compute_s, times * pass.collective_s, times * pass.kernels};
}

BlockTime block_time(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster) {
  const Kernels k(cluster, plan);
  const Sizes s(model, plan);
  BlockTime time;
  attention_forward(time.forward, k, s, plan, model.dropout);
  feed_forward(time.forward, k, s, plan, model);

  if (plan.recompute == Recompute::kFull) time.recompute = time.forward;
  if (plan.recompute == Recompute::kSelective && !plan.fused_attention)
    scores_forward(time.recompute, k, s, plan, model.dropout);

  Pass& b = time.backward;
  const double wide = model.gated ? 2 * s.F : s.F;
  k.stream(b, (2 + kMask) * s.own * s.C, 3);  // dropout, bias gradient
  if (plan.sequence_parallel) k.gather(b, s.N * s.C);
  if (model.E > 0) {
    experts_backward(time, k, s, plan, model);
  } else {
    product_backward(time, k, plan, s.N, s.C, s.F, Cut::kRows, 1, true, s.fp8.down);
    k.stream(b, (model.gated ? 5 : 4) * s.N * s.F, 3);
    if (plan.sequence_parallel) k.gather(b, s.N * s.C);  // the operand again, for dW
    product_backward(time, k, plan, s.N, wide, s.C, Cut::kColumns, 1, true, s.fp8.up);
  }
  plan.sequence_parallel ? k.gather(b, s.N * s.C) : k.reduce(b, s.N * s.C, s.C);
  k.stream(b, 8 * s.own * s.C, 4);  // norm, residual
  k.stream(b, (2 + kMask) * s.own * s.C, 3);
  if (plan.sequence_parallel) k.gather(b, s.N * s.C);
  product_backward(time, k, plan, s.N, s.C, s.mixed, Cut::kRows, 1, true, s.fp8.o);
  k.stream(b, 2 * s.N * s.mixed, 2);
  Pass scores;
  scores_backward(scores, k, s, plan, model.dropout);
  b += scores;
  k.context(b, s.N * s.qkv, s.N * s.mixed, scores.compute_s, true);
  k.stream(b, 3 * s.N * s.qkv, 5);
  if (plan.sequence_parallel) k.gather(b, s.N * s.C);
  product_backward(time, k, plan, s.N, s.qkv, s.C, Cut::kColumns, 1, true, s.fp8.qkv);
  plan.sequence_parallel ? k.gather(b, s.N * s.C) : k.reduce(b, s.N * s.C, s.C);
  k.stream(b, 8 * s.own * s.C, 4);
  return time;
}

BlockTime scale_time(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster) {
  const Kernels k(cluster, plan);
  const Fp8Linears fp8 = fp8_linears(model, plan);
  BlockTime time;
  // What tp's ranks have parts of: operands of the layers whose rows are cut, and what comes back to those
  // whose columns are, of each weight by itself.
  k.scales(time.forward, fp8.qkv + fp8.up, fp8.rows());
  k.scales(time.backward, fp8.rows(), fp8.columns());
  return time;
}

BlockTime embedding_time(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster) {
  const Kernels k(cluster, plan);
  const Sizes s(model, plan);
  BlockTime time;
  k.stream(time.forward, 4 * s.N * s.C, 10);
  k.reduce(time.forward, s.N * s.C, s.C);
  if (plan.lora > 0) return time;  // frozen, with nothing before it
  k.stream(time.backward, 4 * s.N * s.C, 8);
  k.stream_bytes(time.backward, static_cast<double>(model.V) / s.t * s.C *
                                    (k.element_bytes() + 2 * bytes_of(plan.grad_dtype)));
  return time;
}

BlockTime head_time(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster) {
  const Kernels k(cluster, plan);
  const Sizes s(model, plan);
  BlockTime time;
  k.stream(time.forward, 2 * s.own * s.C);
  if (plan.sequence_parallel) k.gather(time.forward, s.N * s.C);
  k.on_grid() ? k.grid().forward(time.forward, s.N, s.V * s.t, s.C) : k.product(time.forward, s.N, s.V, s.C);
  // Logits in f32: converted, maximum, difference, exponential, sum, division.
  k.stream_bytes(time.forward, s.N * s.V * (k.element_bytes() + 4 + 4 + 8 + 8 + 4 + 8), 18);
  for (int i = 0; i < 3; ++i) k.reduce(time.forward, 2 * s.N, 2);
  k.stream_bytes(time.backward, s.N * s.V * (8 + 8 + 4 + k.element_bytes()), 8);
  product_backward(time, k, plan, s.N, s.V, s.C, Cut::kColumns, 1, false);
  plan.sequence_parallel ? k.gather(time.backward, s.N * s.C) : k.reduce(time.backward, s.N * s.C, s.C);
  k.stream(time.backward, 6 * s.own * s.C, 3);
  return time;
}

}  // namespace tessera
