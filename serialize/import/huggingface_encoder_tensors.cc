#include "serialize/import/huggingface_encoder_tensors.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/models/encoder.h"
#include "serialize/import/huggingface_tensor_names.h"

namespace tessera {
namespace {

struct Prefix {
  std::string_view model_type, prefix;
};
constexpr Prefix kPrefixes[] = {
    {"bert", "bert."},          {"camembert", "roberta."},     {"distilbert", "distilbert."},
    {"modernbert", "model."},   {"nomic_bert", "nomic_bert."}, {"roberta", "roberta."},
    {"xlm-roberta", "roberta."}};

// Buffers, copies of tied tensors, and tensors of other heads.
constexpr std::string_view kCopies[] = {"embeddings.position_ids",      "embeddings.token_type_ids",
                                        "cls.predictions.decoder.bias", "lm_head.decoder.bias",
                                        "cls.seq_relationship.weight",  "cls.seq_relationship.bias"};
struct DecoderBias {
  std::string_view family, name;
};
constexpr DecoderBias kDecoderBiases[] = {{"bert", "cls.predictions.decoder.bias"},
                                          {"nomic-bert", "cls.predictions.decoder.bias"},
                                          {"roberta", "lm_head.decoder.bias"}};
constexpr std::string_view kTiedHeads[] = {"cls.predictions.decoder.weight", "lm_head.decoder.weight",
                                           "vocab_projector.weight", "decoder.weight"};
constexpr std::string_view kPooler[] = {"pooler.dense.weight", "pooler.dense.bias"};

// The token table, without the prefix of the saving class.
constexpr std::string_view kTables[] = {"embeddings.word_embeddings.weight", "embeddings.tok_embeddings.weight"};

// The prefix before it; nullopt for none or several.
std::optional<std::string> find_prefix(const ForeignTensors& tensors) {
  std::optional<std::string> found;
  for (const auto& [name, tensor] : tensors)
    for (const std::string_view table : kTables) {
      if (!name.ends_with(table)) continue;
      std::string prefix = name.substr(0, name.size() - table.size());
      if (!prefix.empty() && !prefix.ends_with('.')) continue;
      if (found) return std::nullopt;
      found = std::move(prefix);
    }
  return found;
}

std::string replaced_end(std::string name, std::string_view end, std::string_view by) {
  if (name.ends_with(end)) name.replace(name.size() - end.size(), end.size(), by);
  return name;
}

}  // namespace

std::string_view encoder_prefix(std::string_view model_type) {
  const auto found = std::ranges::find(kPrefixes, model_type, &Prefix::model_type);
  return found == std::end(kPrefixes) ? std::string_view() : found->prefix;
}

void rename_encoder_tensors(ForeignTensors& tensors, std::string_view model_type) {
  const std::string_view usual = encoder_prefix(model_type);
  const std::string prefix = find_prefix(tensors).value_or(std::string(usual));
  // Heads keep an outer prefix: "module." of "module.bert.".
  std::string outer = prefix.ends_with(usual) ? prefix.substr(0, prefix.size() - usual.size()) : std::string();
  if (!outer.ends_with('.')) outer.clear();
  ForeignTensors renamed;
  for (auto& [name, tensor] : tensors) {
    std::string now = name.starts_with(prefix)  ? name.substr(prefix.size())
                      : name.starts_with(outer) ? name.substr(outer.size())
                                                : name;
    now = replaced_end(replaced_end(std::move(now), ".gamma", ".weight"), ".beta", ".bias");
    renamed.emplace(std::move(now), std::move(tensor));
  }
  tensors = std::move(renamed);
}

std::string_view decoder_bias(std::string_view family) {
  const auto found = std::ranges::find(kDecoderBiases, family, &DecoderBias::family);
  return found == std::end(kDecoderBiases) ? std::string_view() : found->name;
}

Status place_encoder_tensors(ForeignFile& file, HuggingfaceConfig& read, ForeignPlaces& places) {
  ModelConfig& config = read.config;
  const auto flag = [&](const char* name) {
    const auto found = config.flags.find(name);
    return found != config.flags.end() && found->second;
  };
  const bool has_head = flag("mlm") || config.sizes.contains("N");
  if (!has_head && file.tensors.contains(kPooler[0])) config.flags["pooler"] = true;
  const bool reads_pooler = flag("pooler") || (config.sizes.contains("N") &&
                                               (config.family == "bert" || config.family == "nomic-bert"));
  places.used.insert(std::begin(kCopies), std::end(kCopies));
  if (!reads_pooler) places.used.insert(std::begin(kPooler), std::end(kPooler));
  if (flag("mlm")) {
    // The projection adds its own bias; the other is a copy or stale.
    const auto bias = file.tensors.find(decoder_bias(config.family));
    if (bias != file.tensors.end())
      file.tensors.insert_or_assign(places.names.find("output.bias")->tensor, ForeignTensor(bias->second));
    TSR_RETURN_IF_ERROR(choose_head(file, places.names, read, places));
  } else {
    places.used.insert(std::begin(kTiedHeads), std::end(kTiedHeads));
  }
  if (config.family == "modernbert")
    places.computed.emplace(
        kZeroBias, source_in_memory(std::string(kZeroBias),
                                    HostTensor::copy_of<float>(
                                        {DType::kF32, {config.sizes["C"]}},
                                        std::vector<float>(static_cast<size_t>(config.sizes["C"])))));
  return {};
}

}  // namespace tessera
