#include "runtime/backends/cuda/kernels/attention_dnn_graph.h"

namespace tessera::cuda {

namespace {

constexpr cudnnDataType_t kF32 = CUDNN_DATA_FLOAT;

// Dims in cuDNN's order (heads before rows), strides from the op's layout.
struct Layouts {
  explicit Layouts(const DnnAttention& n)
      : query{{n.B, n.H, n.T, n.D}, {n.T * n.H * n.D, n.D, n.H * n.D, 1}},
        key{{n.B, n.KV, n.S, n.D}, {n.S * n.KV * n.D, n.D, n.KV * n.D, 1}},
        scores(packed({n.B, n.H, n.T, n.S})),
        row(packed({n.B, n.H, n.T, 1})),
        key_of_head(packed({n.B, n.H, n.S, n.D})) {}
  DnnLayout query, key, scores, row, key_of_head;
};

// Scores of keys after the query become minus infinity.
DnnTensor mask_later(DnnGraph& g, const Layouts& at, DnnTensor scores) {
  const DnnTensor masked = g.scalar(kDnnMasked);
  const DnnTensor query = g.index(scores, 2, g.inner(CUDNN_DATA_INT32, at.scores));
  const DnnTensor key = g.index(scores, 3, g.inner(CUDNN_DATA_INT32, at.scores));
  const DnnTensor sees =
      g.map(CUDNN_POINTWISE_CMP_GE, query, key, g.inner(CUDNN_DATA_BOOLEAN, at.scores), CUDNN_DATA_BOOLEAN);
  return g.select(sees, scores, masked, g.inner(kF32, at.scores));
}

void add_forward(DnnGraph& g, const DnnAttention& n) {
  const Layouts at(n);
  const cudnnDataType_t type = dnn_type(n.dtype);
  const auto scores = [&] { return g.inner(kF32, at.scores); };
  const auto row = [&] { return g.inner(kF32, at.row); };
  const DnnTensor q = g.operand(kDnnQ, type, at.query), k = g.operand(kDnnK, type, last_swapped(at.key)),
                  v = g.operand(kDnnV, type, at.key), out = g.operand(kDnnOut, type, at.query),
                  lse = g.operand(kDnnLse, kF32, at.row), scale = g.scalar(kDnnScale);

  DnnTensor s = g.map(CUDNN_POINTWISE_MUL, g.multiply(q, k, scores()), scale, scores());
  if (n.causal) s = mask_later(g, at, s);
  const DnnTensor top = g.reduce(CUDNN_REDUCE_TENSOR_MAX, s, row());
  const DnnTensor e = g.map(CUDNN_POINTWISE_EXP, g.map(CUDNN_POINTWISE_SUB, s, top, scores()), scores());
  const DnnTensor sum = g.reduce(CUDNN_REDUCE_TENSOR_ADD, e, row());
  g.map(CUDNN_POINTWISE_ADD, top, g.map(CUDNN_POINTWISE_LOG, sum, row()), lse);
  const DnnTensor p = g.map(CUDNN_POINTWISE_DIV, e, sum, g.inner(type, at.scores));
  g.multiply(p, v, out);
}

// Builds the gradient. ds, the gradient of scores, goes through memory on its way to dq: one block then sums
// all keys of a query. In the shorter pattern, blocks of keys add to dq in any order.
void add_gradient(DnnGraph& g, const DnnAttention& n) {
  const Layouts at(n);
  const cudnnDataType_t type = dnn_type(n.dtype);
  const auto scores = [&] { return g.inner(kF32, at.scores); };
  const DnnTensor q = g.operand(kDnnQ, type, at.query), k = g.operand(kDnnK, type, last_swapped(at.key)),
                  v = g.operand(kDnnV, type, last_swapped(at.key)), out = g.operand(kDnnOut, type, at.query),
                  dout = g.operand(kDnnDout, type, at.query), lse = g.operand(kDnnLse, kF32, at.row),
                  delta = g.operand(kDnnDelta, kF32, at.row), dq = g.operand(kDnnDq, type, at.query),
                  dk = g.operand(kDnnDk, type, at.key), dv = g.operand(kDnnDv, type, at.key),
                  scale = g.scalar(kDnnScale), one = g.scalar(kDnnOne);
  // dk or dv: left^T right, summed over the query heads of a group.
  const auto key_gradient = [&](DnnTensor left, DnnTensor right, DnnTensor result) {
    const DnnTensor turned = g.view(left, g.inner(type, last_swapped(at.scores)));
    if (n.H == n.KV) {
      g.multiply(turned, right, result);
    } else {
      g.reduce(CUDNN_REDUCE_TENSOR_ADD, g.multiply(turned, right, g.inner(type, at.key_of_head)), result);
    }
  };

  const DnnTensor products = g.map(CUDNN_POINTWISE_MUL, dout, out, g.inner(kF32, at.query));
  g.map(CUDNN_POINTWISE_MUL, g.reduce(CUDNN_REDUCE_TENSOR_ADD, products, g.inner(kF32, at.row)), one, delta);

  DnnTensor s = g.map(CUDNN_POINTWISE_MUL, g.multiply(q, k, scores()), scale, scores());
  s = g.map(CUDNN_POINTWISE_SUB, s, lse, scores());
  if (n.causal) s = mask_later(g, at, s);
  const DnnTensor p = g.map(CUDNN_POINTWISE_EXP, s, scores());
  key_gradient(p, dout, dv);

  DnnTensor ds = g.map(CUDNN_POINTWISE_SUB, g.multiply(dout, v, scores()), delta, scores());
  ds = g.map(CUDNN_POINTWISE_MUL, ds, p, scores());
  ds = g.map(CUDNN_POINTWISE_MUL, ds, scale, g.inner(type, at.scores));
  key_gradient(ds, q, dk);
  g.multiply(ds, g.view(k, g.inner(type, at.key)), dq);
}

}  // namespace

DnnGraph attention_dnn_graph(const Dnn& dnn, const DnnAttention& shape) {
  DnnGraph graph(dnn);
  shape.is_gradient ? add_gradient(graph, shape) : add_forward(graph, shape);
  return graph;
}

}  // namespace tessera::cuda
