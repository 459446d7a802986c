// MLP: L hidden layers of width F with relu, and a linear head.
//   x f32 [B, C] -> logits f32 [B, V]
#include "graph/base/text.h"
#include "graph/models/layer_builder.h"
#include "graph/models/model_family.h"

namespace tessera {
namespace {

Result<Graph> build_mlp(const ModelConfig& config) {
  LayerBuilder b;
  ConfigReader reader(config, b);
  const int64_t L = reader.size("L"), C = reader.size("C"), F = reader.size("F"), V = reader.size("V");
  if (!reader.done()) return b.finish();

  TensorId x = b.input("x", DType::kF32, {b.symbol("B"), C});
  for (int64_t i = 0; i < L; ++i) {
    b.scope(format("layer.{}", i));
    x = b.op("relu", {b.linear_with_bias(x, format("layer.{}", i), i == 0 ? C : F, F)});
  }
  b.scope("output");
  b.output("logits", b.linear_with_bias(x, "output", F, V));
  return b.finish();
}

const ModelFamily kMlpFamilies[] = {{.name = "mlp", .example = "mlp:L=2,C=784,F=256,V=10", .build = build_mlp}};

}  // namespace

std::span<const ModelFamily> mlp_families() { return kMlpFamilies; }

}  // namespace tessera
