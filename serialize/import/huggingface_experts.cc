#include "graph/base/text.h"
#include "serialize/import/huggingface_classes.h"

namespace tessera {

void read_mixtral(HuggingfaceReader& r) {
  r.read_decoder("moe",
                 {.C = 4096,
                  .F = 14336,
                  .L = 32,
                  .H = 32,
                  .KV = 8,
                  .V = 32000,
                  .T = 131072,
                  .norm_eps = 1e-5,
                  .rope_theta = 1e6},
                 "hidden_act", "silu");
  r.read_rotation();
  r.read_window({});
  r.read_router(8, 2);
}

void read_qwen3_moe(HuggingfaceReader& r) {
  r.read_decoder("qwen3moe",
                 {.C = 2048, .F = 6144, .L = 24, .H = 32, .KV = 4, .V = 151936, .T = 32768, .norm_eps = 1e-6},
                 "hidden_act", "silu");
  r.read_rotation();
  const bool uses = r.fields.flag("use_sliding_window", false);
  if (uses) r.read_window(4096);
  r.read_biases();
  r.read_router(128, 8);
  r.size("F") = r.fields.size("moe_intermediate_size", 768);
  r.flag("normalize") = r.fields.flag("norm_topk_prob", false);
  r.fields.wants("decoder_sparse_step", 1, "every layer has experts");
  if (const Json* dense = r.fields.any("mlp_only_layers"); dense && !(dense->is_array() && dense->empty()))
    r.fields.fail(StatusCode::kUnsupported,
                  format("mlp_only_layers is {}; only models whose layers all have experts "
                         "can be imported",
                         quote_json(*dense, 60)));
}

}  // namespace tessera
