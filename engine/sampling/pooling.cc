#include "engine/sampling/pooling.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "serialize/import/sentence_modules.h"

namespace tessera {
namespace {

constexpr std::string_view kNames[] = {"auto", "mean", "cls", "last", "none", "rank"};  // by Pooling

}  // namespace

std::string_view name_of(Pooling pooling) { return kNames[static_cast<size_t>(pooling)]; }

EmbeddingForm embedding_form(const SharedModel& model, bool is_bidirectional) {
  const auto own = std::ranges::find(kNames, model.metadata(kPoolingKey));
  const bool is_known = own != std::end(kNames) && own != std::begin(kNames);
  return {is_known           ? static_cast<Pooling>(own - std::begin(kNames))
          : is_bidirectional ? Pooling::kMean
                             : Pooling::kLast,
          model.metadata(kNormalizeKey) == "1"};
}

Status check_pools(Pooling pooling) {
  if (pooling == Pooling::kNone)
    return Status(StatusCode::kFailedPrecondition,
                  "the model's file says pooling 'none', a vector for each token: wanted option pooling mean, cls "
                  "or last for one of a text, or pooling none of an engine's request");
  if (pooling == Pooling::kRank)
    return Status(StatusCode::kFailedPrecondition,
                  "the model's file says pooling 'rank', which scores pairs of texts: wanted option pooling mean, "
                  "cls or last for vectors");
  return {};
}

void scale_to_length_1(std::span<float> row) {
  double squares = 0;
  for (const float value : row) squares += static_cast<double>(value) * static_cast<double>(value);
  const double factor = 1 / std::max(std::sqrt(squares), 1e-12);
  for (float& value : row) value = static_cast<float>(static_cast<double>(value) * factor);
}

PooledVector::PooledVector(Pooling pooling, size_t width) : pooling_(pooling), values_(width) {}

void PooledVector::add(std::span<const float> rows) {
  const size_t width = values_.size();
  for (; !rows.empty(); rows = rows.subspan(width), ++tokens_) {
    if (pooling_ == Pooling::kCls && tokens_ > 0) continue;
    for (size_t c = 0; c < width; ++c) {
      const auto value = static_cast<double>(rows[c]);
      values_[c] = pooling_ == Pooling::kMean ? values_[c] + value : value;
    }
  }
}

bool PooledVector::write(std::span<float> row) const {
  const double divisor = pooling_ == Pooling::kMean ? static_cast<double>(tokens_) : 1;
  for (size_t c = 0; c < row.size(); ++c) row[c] = static_cast<float>(values_[c] / divisor);
  return std::ranges::all_of(row, [](float value) { return std::isfinite(value); });
}

}  // namespace tessera
