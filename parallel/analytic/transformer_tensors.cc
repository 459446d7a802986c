#include "parallel/analytic/transformer_tensors.h"

#include <string>

#include "graph/base/text.h"

namespace tessera {

namespace {

enum class Split : uint8_t {
  kNone,
  kRows,
  kColumns
};  // by tp: the first dim (results), the second (contracted)

int64_t bytes_of(DType dtype, int64_t elements) {
  const int64_t each = info(dtype).block_elements;
  return (elements + each - 1) / each * info(dtype).block_bytes;
}

class TensorLister {
 public:
  TensorLister(const TransformerShape& model, const ForeignPlan& plan) : model_(model), plan_(plan) {}

  std::vector<ExplainedTensor> run() {
    const int64_t C = model_.C, F = model_.F, V = model_.V, L = model_.L;
    const int64_t kv = model_.KV * model_.head_size(), mixed = model_.mixed_width();
    const int32_t last = plan_.pp - 1;
    add("token_embedding", {V, C}, Split::kRows, 1, 0);
    if (model_.positions) add("position_embedding", {model_.T, C}, Split::kNone, 1, 0);
    const auto linear = [&](const std::string& name, int64_t out, int64_t in, Split split) {
      add("block.*." + name + (model_.biases ? ".weight" : ""), {out, in}, split, L, -1);
      if (model_.biases)
        add("block.*." + name + ".bias", {out}, split == Split::kRows ? Split::kRows : Split::kNone, L, -1);
    };
    norm(model_.biases ? "block.*.norm1" : "block.*.attention_norm", L, -1);
    linear("q", mixed, C, Split::kRows);
    linear("k", kv, C, Split::kRows);
    linear("v", kv, C, Split::kRows);
    linear("o", C, mixed, Split::kColumns);
    norm(model_.biases ? "block.*.norm2" : "block.*.ffn_norm", L, -1);
    if (model_.gated) linear("gate", F, C, Split::kRows);
    linear(model_.gated ? "up" : "fc", F, C, Split::kRows);
    linear(model_.gated ? "down" : "proj", C, F, Split::kColumns);
    norm("final_norm", 1, last);
    if (!model_.tied || plan_.pp > 1)
      add("output", {V, C}, Split::kRows, 1, last, model_.tied ? "a copy of token_embedding" : "");
    return std::move(all_);
  }

 private:
  void norm(const std::string& name, int64_t count, int32_t stage) {
    add(model_.biases ? name + ".weight" : name, {model_.C}, Split::kNone, count, stage);
    if (model_.biases) add(name + ".bias", {model_.C}, Split::kNone, count, stage);
  }

  void add(const std::string& name, std::vector<int64_t> dims, Split split, int64_t count, int32_t stage,
           const std::string& note = "") {
    int64_t elements = 1;
    for (const int64_t extent : dims) elements *= extent;
    const bool divided = split != Split::kNone && plan_.tp > 1;
    const int64_t local = divided ? (elements + plan_.tp - 1) / plan_.tp : elements;
    const auto emit = [&](std::string kind, std::string full, DType dtype, int32_t from_stage) {
      const bool sharded = plan_.dp > 1 && plan_.zero >= from_stage;
      std::vector<std::string> parts;
      for (size_t d = 0; d < dims.size(); ++d) {
        std::vector<std::string> axes;
        if (divided && d == (split == Split::kRows ? 0u : 1u)) axes.emplace_back("tp");
        if (sharded && d == 0) axes.emplace_back("dp");
        parts.push_back("[" + join(axes, ", ") + "]");
      }
      ExplainedTensor& it = all_.emplace_back();
      it.name = std::move(full);
      it.kind = std::move(kind);
      std::vector<std::string> extents;
      for (const int64_t extent : dims) extents.push_back(to_text(extent));
      it.type = format("{}[{}]", to_text(dtype), join(extents, ", "));
      it.sharding = "{" + join(parts, ", ") + "}";
      it.tier = "device";
      it.stage = stage;
      it.count = count;
      it.note = note;
      it.bytes = bytes_of(dtype, sharded ? (local + plan_.dp - 1) / plan_.dp : local);
    };
    emit("parameter", name, plan_.compute_dtype, 3);
    emit("gradient", name + " (gradient)", plan_.grad_dtype, 2);
    if (plan_.compute_dtype != DType::kF32) emit("optimizer", name + " (master)", DType::kF32, 1);
    emit("optimizer", name + " (first moment)", DType::kF32, 1);
    emit("optimizer", name + " (second moment)", DType::kF32, 1);
  }

  const TransformerShape& model_;
  const ForeignPlan& plan_;
  std::vector<ExplainedTensor> all_;
};

}  // namespace

std::vector<ExplainedTensor> transformer_tensors(const TransformerShape& model, const ForeignPlan& plan) {
  return TensorLister(model, plan).run();
}

}  // namespace tessera
