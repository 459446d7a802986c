#include "engine/settings/embedder_settings.h"

#include <algorithm>
#include <string>

#include "graph/base/text.h"

namespace tessera {

Result<EmbedderSettings> read_embedder_settings(const Options& options) {
  constexpr int64_t kMostTextTokens = 1 << 24;
  using Output = EmbedderSettings::Output;
  OptionReader reader(options, "embedder");
  EmbedderSettings settings;
  settings.compute = read_compute(reader);
  settings.seq = reader.i64("seq", 0, 0, kMostTextTokens);
  settings.batch = reader.i64("batch", 0, 0, kMostTextTokens);
  const std::string pooling = reader.choice("pooling", "auto", {"auto", "mean", "cls", "last"});
  settings.pooling = pooling == "mean"   ? Pooling::kMean
                     : pooling == "cls"  ? Pooling::kCls
                     : pooling == "last" ? Pooling::kLast
                                         : Pooling::kAuto;
  const bool normalize = reader.flag("normalize", false);
  if (reader.has("normalize")) settings.normalize = normalize;
  const std::string output = reader.choice("output", "embedding", {"embedding", "logits", "probabilities"});
  settings.output = output == "logits"          ? Output::kLogits
                    : output == "probabilities" ? Output::kProbabilities
                                                : Output::kEmbedding;
  settings.pairs = reader.flag("pairs", false);
  settings.inference = read_inference(reader, "embedder");
  settings.share_prefixes = reader.flag("share_prefixes", false);
  settings.measure_memory = reader.flag("measure_memory", false);
  TSR_RETURN_IF_ERROR(reader.finish());
  if (settings.output != Output::kEmbedding && (reader.has("pooling") || reader.has("normalize")))
    return Status(
        StatusCode::kInvalidArgument,
        format("embedder: options 'pooling' and 'normalize' are of embeddings, option 'output' is {}",
               output));
  return settings;
}

Status finalize_texts(EmbedderSettings& settings, int64_t longest, int64_t wanted, int32_t devices) {
  constexpr int64_t kTextsOfDevice = 8;
  TSR_ASSIGN_OR_RETURN(const int64_t tokens, tokens_at_once(settings.seq, longest, "embedder: option 'seq'"));
  settings.seq = settings.seq == 0 && wanted > 0 ? std::min(wanted, tokens) : tokens;
  if (settings.batch == 0) settings.batch = kTextsOfDevice * devices;
  return {};
}

}  // namespace tessera
