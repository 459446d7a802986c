// Experts in config.json: routers, widths, and the layers that have them.
#include "serialize/import/huggingface_reader.h"

#include <algorithm>
#include <vector>

#include "graph/base/quote.h"
#include "graph/base/text.h"

namespace tessera {

void HuggingfaceReader::router(std::string_view key, int64_t experts, int64_t used, double balance) {
  // Newer files use num_local_experts, older ones of some classes num_experts.
  size_("E") = fields.size("num_local_experts", fields.size("num_experts", experts));
  if (fields.has(key)) size_("E") = fields.size(key, experts);
  size("num_experts_per_tok", "K", used);
  real_("capacity") = 0;  // no token is dropped
  real_("aux") = fields.real("router_aux_loss_coef", balance);
}

bool HuggingfaceReader::has_expert_layers() const {
  const auto layers = out.config.lists.find("expert_layers");
  return layers != out.config.lists.end() && std::ranges::find(layers->second, 1) != layers->second.end();
}

void HuggingfaceReader::optional_experts(const OptionalExpertKeys& keys) {
  if (!fields.flag(keys.enabled, false)) return;
  size(keys.count, "E", {});
  size(keys.used, "K", {});
  size_("FD") = size_("F");
  size(keys.width, "F", {});
}

void HuggingfaceReader::expert_width(std::string_view key, int64_t otherwise) {
  size_("FD") = size_("F");
  size(key, "F", otherwise);
  real_("capacity") = 0;
}

void HuggingfaceReader::sparse_layers(int64_t width) {
  expert_width("moe_intermediate_size", width);
  const int64_t step = fields.integer("decoder_sparse_step", 1, 1, int64_t{1} << 31);
  const std::vector<double> dense = fields.reals("mlp_only_layers", static_cast<size_t>(kMostLayers));
  if (!fields.status().ok()) return;
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < L(); ++i)
    layers.push_back((i + 1) % step == 0 && std::ranges::find(dense, static_cast<double>(i)) == dense.end());
  if (std::ranges::find(layers, 0) != layers.end()) out.config.lists["expert_layers"] = layers;
}

void HuggingfaceReader::shared_experts(std::string_view key, int64_t otherwise) {
  const int64_t shared = fields.integer(key, otherwise, 0, 1024);
  if (shared > 0) size_("FS") = shared * size_("F");
}

void HuggingfaceReader::dense_first(std::string_view key, int64_t otherwise) {
  const int64_t dense = fields.integer(key, otherwise, 0, kMostLayers);
  if (dense == 0 || !fields.status().ok()) return;
  std::vector<int64_t>& layers = out.config.lists["expert_layers"];
  for (int64_t i = 0; i < L(); ++i) layers.push_back(i >= dense);
}

void HuggingfaceReader::expert_layer_types(std::string_view key) {
  const std::vector<std::string> types = fields.texts(key, static_cast<size_t>(kMostLayers));
  if (!types.empty() && std::ssize(types) != L())
    fields.fail(StatusCode::kCorrupt, format("{} has {} names, the model has {} layers", key, types.size(), L()));
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < L() && fields.status().ok(); ++i) {
    const std::string type = !types.empty() ? types[static_cast<size_t>(i)] : i == 0 ? "dense" : "sparse";
    if (type != "dense" && type != "sparse")
      fields.fail(StatusCode::kUnsupported, format("{} has '{}'; known: dense, sparse", key, quote(type, 60)));
    layers.push_back(type == "sparse");
  }
  if (std::ranges::find(layers, 0) != layers.end()) out.config.lists["expert_layers"] = std::move(layers);
}

void HuggingfaceReader::draft_blocks(const DraftBlockKeys& keys) {
  constexpr int64_t kMost = 64;
  const int64_t count = fields.integer(keys.key, keys.otherwise, 0, kMost);
  if (!keys.tables_key.empty()) (void)fields.flag(keys.tables_key, false);  // their tensors say so
  if (!fields.status().ok()) return;
  const auto beginning = [&](int64_t i) {
    return keys.beginning.empty() ? format("model.layers.{}.", L() + i) : std::string(keys.beginning);
  };
  if (count == 1) {
    out.draft_beginning = beginning(0);
    return;
  }
  for (int64_t i = 0; i < (keys.beginning.empty() ? count : 1); ++i) out.ignored.push_back(beginning(i));
}

}  // namespace tessera
