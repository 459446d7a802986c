#include "engine/data/array_dataset.h"

#include <algorithm>
#include <cmath>

#include "graph/base/hash.h"
#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {
namespace {

Status fail(std::string message) {
  return Status(StatusCode::kInvalidArgument, "dataset: " + std::move(message));
}

}  // namespace

Status ArrayDataset::check(const RowArrays& arrays) const {
  if (arrays.rows < 1 || arrays.seq < 1 || arrays.seq > (1 << 24) ||
      arrays.rows > INT64_MAX / arrays.seq / 64)
    return fail(format("{} rows of {} tokens: wanted at least one row, and 1 to 2^24 tokens", arrays.rows,
                       arrays.seq));
  const auto at = [&](int64_t i) { return format("row {}, token {}", i / arrays.seq, i % arrays.seq); };
  for (int64_t i = 0; i < arrays.rows * arrays.seq; ++i) {
    if (arrays.ids[i] < 0) return fail(format("tokens: {} is {}, wanted 0 or more", at(i), arrays.ids[i]));
    if (arrays.labels != nullptr && arrays.labels[i] < -1)
      return fail(format("labels: {} is {}, wanted a token or -1", at(i), arrays.labels[i]));
    if (arrays.weights != nullptr && !(arrays.weights[i] >= 0 && std::isfinite(arrays.weights[i])))
      return fail(
          format("weights: {} is {}, wanted a finite number from 0 on", at(i), double{arrays.weights[i]}));
    if (arrays.positions != nullptr && (arrays.positions[i] < 0 || arrays.positions[i] >= arrays.seq))
      return fail(format("positions: {} is {}, wanted 0 to {}", at(i), arrays.positions[i], arrays.seq - 1));
  }
  return {};
}

// A document begins where the segment number changes.
void ArrayDataset::find_positions() {
  positions_.resize(ids_.size());
  for (int64_t i = 0; i < static_cast<int64_t>(ids_.size()); ++i) {
    const auto k = static_cast<size_t>(i);
    positions_[k] = i % seq_ == 0 || segments_[k] != segments_[k - 1] ? 0 : positions_[k - 1] + 1;
  }
}

Result<std::shared_ptr<const Dataset>> ArrayDataset::create(const RowArrays& arrays, const Options& options) {
  OptionReader reader(options, "dataset");
  std::shared_ptr<ArrayDataset> made(new ArrayDataset);
  const double eval_fraction = reader.f64("eval_fraction", 0, 0, 1);
  made->order_.shuffle = reader.flag("shuffle", true);
  made->order_.seed = static_cast<uint64_t>(reader.i64("seed", 0));
  TSR_RETURN_IF_ERROR(reader.finish());
  TSR_RETURN_IF_ERROR(made->check(arrays));
  const int64_t eval =
      eval_fraction > 0 ? std::max<int64_t>(1, std::llround(static_cast<double>(arrays.rows) * eval_fraction))
                        : 0;
  if (eval == arrays.rows && eval_fraction < 1)
    return fail(format("{} rows, {} of them for evaluation: none is left to train on", arrays.rows, eval));
  made->seq_ = arrays.seq;
  made->order_.count = arrays.rows - eval;
  made->eval_samples_ = eval;

  const auto count = static_cast<size_t>(arrays.rows * arrays.seq);
  made->ids_.assign(arrays.ids, arrays.ids + count);
  made->segments_.assign(count, 0);
  if (arrays.segments != nullptr) std::copy_n(arrays.segments, count, made->segments_.begin());
  made->layout_ = arrays.segments != nullptr ? Layout::kPacked : Layout::kWhole;
  made->find_positions();
  made->labels_.assign(count, -1);
  for (size_t i = 0; i < count; ++i) {
    const bool is_last = (i + 1) % static_cast<size_t>(arrays.seq) == 0;
    const bool goes_on = !is_last && made->segments_[i] == made->segments_[i + 1];
    if (arrays.labels != nullptr)
      made->labels_[i] = arrays.labels[i];
    else if (goes_on)
      made->labels_[i] = arrays.ids[i + 1];
    if (arrays.weights != nullptr && arrays.weights[i] == 0) made->labels_[i] = -1;
    made->trained_ += made->labels_[i] >= 0;
    if (made->labels_[i] >= 0 && arrays.weights != nullptr && arrays.weights[i] != 1 &&
        made->weights_.empty())
      made->weights_.assign(arrays.weights, arrays.weights + count);
    made->largest_token_ = std::max({made->largest_token_, made->ids_[i], made->labels_[i]});
  }
  if (arrays.positions != nullptr) {
    made->positions_.assign(arrays.positions, arrays.positions + count);
    made->layout_ = Layout::kPacked;
  }
  if (made->trained_ == 0) return fail("no label counts: there is nothing to learn");
  Hash hash;
  hash.add(made->seq_), hash.add(made->order_.count), hash.add(made->order_.shuffle),
      hash.add(made->order_.seed);
  for (const auto* values : {&made->ids_, &made->labels_, &made->segments_, &made->positions_})
    for (const int32_t value : *values) hash.add(value);
  for (const float value : made->weights_) hash.add(value);
  made->fingerprint_ = hash.value();
  return std::shared_ptr<const Dataset>(std::move(made));
}

Status ArrayDataset::fill(int64_t number, const DatasetRow& row) const {
  const auto copy = [&](const std::vector<int32_t>& from, std::span<int32_t> to) {
    std::copy_n(from.begin() + number * seq_, to.size(), to.begin());
  };
  copy(ids_, row.tokens), copy(labels_, row.labels), copy(positions_, row.positions),
      copy(segments_, row.segments);
  if (!row.weights.empty())
    std::copy_n(weights_.begin() + number * seq_, row.weights.size(), row.weights.begin());
  return {};
}

Result<int64_t> ArrayDataset::count_eval_labels(int64_t rows) const {
  const auto begin = labels_.begin() + order_.count * seq_;
  return std::count_if(begin, begin + rows * seq_, [](int32_t label) { return label >= 0; });
}

Result<std::string> ArrayDataset::info_json() const {
  return dump(Json{{"tokens", ids_.size()},
                   {"seq", seq_},
                   {"train_samples", order_.count},
                   {"eval_samples", eval_samples_},
                   {"trained_tokens", trained_},
                   {"seed", order_.seed},
                   {"shuffle", order_.shuffle}});
}

}  // namespace tessera
