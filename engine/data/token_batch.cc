#include "engine/data/token_batch.h"

#include <map>
#include <utility>

#include "graph/base/text.h"

namespace tessera {

Result<LossOptions> read_loss_options(TokenLoss loss, const Options& options) {
  OptionReader reader(options, format("loss '{}'", name_of(loss)));
  LossOptions read;
  read.scale = reader.f64("scale", read.scale);
  read.aux_scale = reader.f64("aux_scale", read.aux_scale);
  if (has_clipping(loss)) {
    // Ratios of whole sequences stay closer to 1: the ranges of GSPO's paper, section 5.1.
    const bool of_sequences = loss == TokenLoss::kGspo;
    read.clip_low = 1 - reader.f64("eps_low", of_sequences ? 3e-4 : 0.2, 0, 1);
    read.clip_high = 1 + reader.f64("eps_high", of_sequences ? 4e-4 : 0.2, 0, 1e6);
  }
  if (loss == TokenLoss::kDro) read.beta = reader.f64("beta", 0.05, 0, 1e6);
  TSR_RETURN_IF_ERROR(reader.finish());
  return read;
}

Status check_arrays(const TokenBatch& batch, TokenLoss loss) {
  for (const auto& [name, values] :
       {std::pair("sampler_logprobs", batch.sampler_logprobs), {"advantages", batch.advantages}})
    if (has_ratio(loss) && values == nullptr)
      return Status(StatusCode::kInvalidArgument,
                    format("loss '{}' needs the batch's {}, found none", name_of(loss), name));
  if (batch.weights != nullptr && loss != TokenLoss::kCrossEntropy && loss != TokenLoss::kGspo)
    return Status(
        StatusCode::kInvalidArgument,
        format("weights mean nothing to loss '{}': multiply what it is given by them", name_of(loss)));
  return {};
}

Result<std::vector<float>> mean_weights(const TokenBatch& batch) {
  std::vector<float> shares(elements(batch), 0);
  for (int64_t row = 0; row < batch.rows; ++row) {
    const auto first = static_cast<size_t>(row * batch.seq), end = first + static_cast<size_t>(batch.seq);
    const auto document = [&](size_t at) { return batch.segments == nullptr ? 0 : batch.segments[at]; };
    const auto weight = [&](size_t at) { return batch.weights == nullptr ? 1.0 : double{batch.weights[at]}; };
    std::map<int32_t, double> sums;
    for (size_t at = first; at < end; ++at) {
      if (batch.labels[at] < 0) continue;
      if (!(weight(at) >= 0))
        return Status(
            StatusCode::kInvalidArgument,
            format("the batch's weights has {} in row {}, token {}: wanted 0 or more, the token's part in "
                   "the mean of its sequence's ratio",
                   weight(at), row, at - first));
      sums[document(at)] += weight(at);
    }
    for (const auto& [number, sum] : sums)
      if (sum == 0)
        return Status(
            StatusCode::kInvalidArgument,
            format("the batch's weights are 0 for all labels of row {}, document {}: wanted at least one "
                   "that is in the mean of the ratio, or negative labels",
                   row, number));
    for (size_t at = first; at < end; ++at)
      if (batch.labels[at] >= 0) shares[at] = static_cast<float>(weight(at) / sums[document(at)]);
  }
  return shares;
}

int64_t count_weighted_labels(const TokenBatch& batch) {
  int64_t labels = 0;
  for (size_t i = 0; i < elements(batch); ++i)
    labels += batch.labels[i] >= 0 && (batch.weights == nullptr || batch.weights[i] != 0);
  return labels;
}

}  // namespace tessera
