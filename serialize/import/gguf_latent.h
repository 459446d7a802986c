// Latent attention in GGUF files: newer files split the matrix for
// keys and values in two, head by head, with that of keys transposed.
#pragma once

#include "graph/models/model_family.h"
#include "serialize/import/foreign_file.h"

namespace tessera {

// If `file` has blk.I.attn_k_b [H, KA, N] and blk.I.attn_v_b [H, VD, KA]: combines them to parameters block.I.kv_b
// [H (N + VD), KA], f32, decoded per head on reading. Sizes are those of `config`. kCorrupt for other shapes.
Status read_latent_products(const ForeignFile& file, const ModelConfig& config, ForeignPlaces& places);

}  // namespace tessera
