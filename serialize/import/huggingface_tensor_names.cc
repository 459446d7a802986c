#include "serialize/import/huggingface_tensor_names.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/text.h"

namespace tessera {
namespace {

// Layout: blocks and last norm of a decoder without prefix, and the prefix in the family's table.
struct Layout {
  std::string_view block, norm, prefix;
};
constexpr Layout kLlamaLayout = {"layers.0.", "norm.weight", "model."}, kGpt2Layout = {"h.0.", "ln_f.weight", ""};

// Tensors outside the decoder; their prefix is part of the decoder's.
constexpr std::string_view kHeads[] = {"lm_head.", "score."};

// The prefix P with tensors P + norm and P + block; nullopt for none or several.
std::optional<std::string> find_prefix(const ForeignTensors& tensors, const Layout& layout, const HuggingfaceConfig& config) {
  std::optional<std::string> found;
  for (const auto& [name, tensor] : tensors) {
    if (!name.ends_with(layout.norm)) continue;
    const std::string prefix = name.substr(0, name.size() - layout.norm.size());
    const bool is_ignored = prefix == config.draft_beginning || std::ranges::find(config.ignored, prefix) != config.ignored.end();
    if (!prefix.empty() && (!prefix.ends_with('.') || is_ignored)) continue;
    const auto block = tensors.lower_bound(prefix + std::string(layout.block));
    if (block == tensors.end() || !block->first.starts_with(prefix + std::string(layout.block))) continue;
    if (found) return std::nullopt;
    found = prefix;
  }
  return found;
}

// "language_model.lm_head.weight" -> "lm_head.weight", in a decoder with the prefix "language_model.model."
std::string renamed(const std::string& name, std::string_view prefix, const Layout& layout) {
  for (const std::string_view head : kHeads)
    if (const size_t at = name.find(head);
        at != name.npos && (at == 0 || name[at - 1] == '.') && prefix.starts_with(name.substr(0, at)))
      return name.substr(at);
  return name.starts_with(prefix) ? std::string(layout.prefix) + name.substr(prefix.size()) : name;
}

void note_key(HuggingfaceConfig& config, std::string_view key, std::string text) {
  const auto found = std::ranges::find(config.used, key, &std::pair<std::string, std::string>::first);
  if (found == config.used.end())
    config.used.emplace_back(key, std::move(text));
  else
    found->second = std::move(text);
}

}  // namespace

void rename_decoder_tensors(ForeignTensors& tensors, const HuggingfaceConfig& config) {
  const Layout& layout = config.model_type == "gpt2" ? kGpt2Layout : kLlamaLayout;
  const std::optional<std::string> prefix = find_prefix(tensors, layout, config);
  if (!prefix) return;
  ForeignTensors ours;
  for (auto& [name, tensor] : tensors) ours.emplace(renamed(name, *prefix, layout), std::move(tensor));
  tensors = std::move(ours);
}

void read_draft_block(const ForeignFile& file, const ForeignNames& names, HuggingfaceConfig& config) {
  if (config.draft_beginning.empty()) return;
  const auto first = file.tensors.lower_bound(config.draft_beginning);
  if (first == file.tensors.end() || !first->first.starts_with(config.draft_beginning)) return;
  ModelConfig& model = config.config;
  const auto head = model.flags.find("head");
  if (model.sizes.contains("classes") || (head != model.flags.end() && !head->second)) {
    config.ignored.push_back(config.draft_beginning);
    return;
  }
  model.sizes["MTP"] = 1;
  for (const char* const table : {"draft.token_embedding", "draft.output"})
    if (const auto name = names.find(table); name && file.tensors.contains(name->tensor)) model.flags["draft_tables"] = true;
}

Status choose_head(ForeignFile& file, const ForeignNames& names, HuggingfaceConfig& config,
                   ForeignPlaces& places) {
  ModelConfig& model = config.config;
  const auto name_of = [&](const char* parameter) {
    const std::optional<ForeignName> name = names.find(parameter);
    return name ? name->tensor : std::string();
  };
  const bool is_encoder = !names.find("output");
  const std::string table = name_of("token_embedding"), head = name_of(is_encoder ? "output.weight" : "output");
  if (model.sizes.contains("classes")) {  // its class has another head
    places.used.insert(head);
    return {};
  }
  const auto is_off = [&](const char* flag) { return model.flags.contains(flag) && !model.flags[flag]; };
  if (is_off("head")) {  // the model's vectors pass through Dense modules
    places.used.insert(head);
    return {};
  }
  bool& tied = model.flags["tied"];
  const auto stored = file.tensors.find(head);
  if (stored == file.tensors.end()) {
    const bool is_of_vectors = config.is_base && is_off("causal");
    if ((tied && !is_of_vectors) || is_encoder) return {};
    model.flags["head"] = false;
    config.used.emplace_back(head, "missing: the model has no output projection, and computes hidden states alone");
    return {};
  }
  if (!tied) return {};
  const auto embedding = file.tensors.find(table);
  if (embedding == file.tensors.end()) {
    file.tensors.emplace(table, stored->second);
    places.used.insert(head);
    return {};
  }
  TSR_ASSIGN_OR_RETURN(tied, same_contents(file, embedding->second, stored->second));
  if (tied)
    places.used.insert(head);
  else
    note_key(config, "tie_word_embeddings",
             format("true; {} differs from the embedding, so that the model has both, as in transformers", head));
  return {};
}

}  // namespace tessera
