#include "graph/models/draft_block.h"

#include "graph/models/decoder_attention.h"
#include "graph/models/feed_forward.h"
#include "graph/models/residual.h"
#include "graph/transform/draft_block.h"

namespace tessera {
namespace {

// The sizes with the block as layer L.
DecoderSizes with_draft_layer(DecoderSizes m) {
  if (!m.recurrent.layers.empty()) m.recurrent.layers.push_back(0);
  if (!m.experts.layers.empty()) m.experts.layers.push_back(1);
  m.experts.aux = m.experts.z = 0;  // it is not trained
  return m;
}

}  // namespace

void add_draft_block(LayerBuilder& b, const DecoderSizes& model, const DraftOperands& operands) {
  const DecoderSizes m = with_draft_layer(model);
  const auto layer = static_cast<size_t>(m.L);
  b.scope("draft.embedding");
  const TensorId hidden = b.input(std::string(kDraftHidden), DType::kF32, {b.symbol("B"), b.symbol("T"), m.C});
  const TensorId table = m.draft_tables ? b.parameter("draft.token_embedding", {m.V, m.C}) : operands.table;
  const TensorId embedded = residual_norm(b, m, "draft.embedding_norm", embed_tokens(b, m, table, operands.tokens));
  const TensorId normed = residual_norm(b, m, "draft.hidden_norm", hidden);
  const TensorId both = b.op("concat", {embedded, normed}, {{"dim", int64_t{2}}});
  TensorId x = b.linear(both, "draft.projection", 2 * m.C, m.C);
  DecoderAttention attention(b, m, operands.positions, operands.factors);
  AuxiliaryLoss none(b, m.experts);
  x = attention.add(layer, x);
  x = add_feed_forward(b, m, layer, x, none);
  b.scope("draft.output");
  x = residual_norm(b, m, "draft.final_norm", x);
  const TensorId head = m.draft_tables ? b.parameter("draft.output", {m.V, m.C}) : operands.head;
  b.output(std::string(kDraftLogits), project_logits(b, m, x, head));
}

}  // namespace tessera
