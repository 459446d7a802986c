// Keys and values by way of a latent vector in GGUF files: newer ones hold the matrix that makes them as two, a head
// after the other, of which that of keys is transposed.
#pragma once

#include "graph/models/model_family.h"
#include "serialize/import/foreign_file.h"

namespace tessera {

// Where `file` has blk.I.attn_k_b [H, KA, N] and blk.I.attn_v_b [H, VD, KA]: parameters block.I.kv_b [H (N + VD), KA] of
// them, f32, each head decoded as it is read. Sizes are those of `config`. kCorrupt for other shapes.
Status read_latent_products(const ForeignFile& file, const ModelConfig& config, ForeignPlaces& places);

}  // namespace tessera
