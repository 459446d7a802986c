// The draft block of a decoder: a block after the last that predicts the token after the next from the hidden state of a token and
// the next token ("multi-token prediction", DeepSeek-V3, section 2.2).
#pragma once

#include "graph/models/decoder.h"

namespace tessera {

struct DraftOperands {
  TensorId tokens, positions;  // i32 [B, T]
  TensorId factors;            // "rope_factors", or kNoTensor
  TensorId table, head;        // of the model [V, C]; not read with tables of the block's own (draft_tables)
};

// Adds the input "draft_hidden" f32 [B, T, C], of each token the hidden state of the token before it after the final norm, and the
// output "draft_logits" f32 [B, T, V], of the token after it:
//   x = block(projection [norm(embedding of the token), norm(draft_hidden)]),  draft_logits = head norm(x)
// The block has full attention, and experts where the model has. Its parameters are "draft.*".
void add_draft_block(LayerBuilder& b, const DecoderSizes& m, const DraftOperands& operands);

}  // namespace tessera
