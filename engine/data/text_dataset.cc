#include "engine/data/text_dataset.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "engine/model/initialize.h"
#include "graph/base/text.h"
#include "serialize/training_data/data_content.h"
#include "text/json.h"

namespace tessera {

namespace {

// Options of rows only.
constexpr std::string_view kRowOptions[] = {"mask",     "packing",    "max_length", "truncation", "untrained",
                                            "skip_bad", "append_end", "eval_file",  "cache",      "now"};

// Strips the UTF-8 byte-order mark that some editors write; models should not learn it.
Result<std::string_view> plain_text(std::string_view text, const std::string& name) {
  TSR_RETURN_IF_ERROR(check_no_binary(text.substr(0, kContentHead), name));
  TSR_RETURN_IF_ERROR(check_utf8(text, name));
  if (constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf"; text.starts_with(kUtf8Mark))
    text.remove_prefix(kUtf8Mark.size());
  return text;
}

}  // namespace

Result<TextDataset::SampleSettings> TextDataset::read_sample_settings(const Options& options, bool of_text) {
  OptionReader reader(options, "dataset");
  SampleSettings settings{};
  settings.seq = reader.i64("seq", 128, 1, 1 << 24);
  settings.eval_fraction = reader.f64("eval_fraction", 0, 0, 1);
  settings.shuffle = reader.flag("shuffle", true);
  settings.seed = static_cast<uint64_t>(reader.i64("seed", 0));
  if (of_text) {
    settings.special = reader.flag("special", false);
    reader.accept({"kind", "template"});  // a template applies to messages, which texts lack
    for (const std::string_view key : kRowOptions)
      if (reader.has(key))
        return Status(
            StatusCode::kInvalidArgument,
            format("dataset: option '{}' is of rows of JSON, and the data is a plain text: wanted rows "
                   "(docs/guides/training-data.md), or no such option",
                   key));
  }
  TSR_RETURN_IF_ERROR(reader.finish());
  return settings;
}

Result<std::shared_ptr<const TextDataset>> TextDataset::create(std::vector<int32_t> tokens,
                                                               const Options& options) {
  TSR_ASSIGN_OR_RETURN(const SampleSettings settings, read_sample_settings(options, false));
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<TextDataset> made, split_into_samples(std::move(tokens), settings));
  return std::shared_ptr<const TextDataset>(std::move(made));
}

Result<std::shared_ptr<TextDataset>> TextDataset::split_into_samples(std::vector<int32_t> tokens, const SampleSettings& settings) {
  std::shared_ptr<TextDataset> dataset(new TextDataset);
  dataset->seq_ = settings.seq;
  const double eval_fraction = settings.eval_fraction;
  const int64_t count = static_cast<int64_t>(tokens.size());
  const int64_t samples = std::max<int64_t>(0, (count - 1) / dataset->seq_);
  // At least one sample if a fraction is requested.
  const int64_t eval = eval_fraction > 0 ? std::max<int64_t>(1, std::llround(samples * eval_fraction)) : 0;
  if (samples < 1)
    return Status(StatusCode::kInvalidArgument,
                  format("dataset: {} tokens make 0 samples of seq {} + 1; give more text, or a smaller seq",
                         count, dataset->seq_));
  if (samples == eval && eval_fraction < 1)
    return Status(
        StatusCode::kInvalidArgument,
        format("dataset: {} tokens make {} samples of seq {} + 1, {} of them for evaluation: none is left to "
               "train on; give more text, or a smaller seq or eval_fraction",
               count, samples, dataset->seq_, eval));
  for (const int32_t token : tokens) {
    if (token < 0)
      return Status(StatusCode::kInvalidArgument, format("dataset: token id {} is negative", token));
    dataset->largest_token_ = std::max(dataset->largest_token_, token);
  }
  dataset->order_ = {samples - eval, settings.shuffle, settings.seed};
  dataset->eval_samples_ = eval;
  dataset->tokens_ = std::move(tokens);
  return dataset;
}

Result<std::shared_ptr<const TextDataset>> TextDataset::from_text(std::string_view text,
                                                                  const std::string& name,
                                                                  const Tokenizer& tokenizer,
                                                                  const Options& options) {
  TSR_ASSIGN_OR_RETURN(const SampleSettings settings, read_sample_settings(options, true));
  TSR_ASSIGN_OR_RETURN(const std::string_view plain, plain_text(text, name));
  TSR_ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer.encode(plain, {.parse_special = settings.special}));
  TSR_ASSIGN_OR_RETURN(const std::shared_ptr<TextDataset> made, split_into_samples(std::move(ids), settings));
  if (!settings.special) made->written_control_ = WrittenControlTokens(tokenizer.data()).count(plain);
  return std::shared_ptr<const TextDataset>(made);
}

std::span<const int32_t> TextDataset::sample(int64_t number) const {
  return std::span(tokens_).subspan(static_cast<size_t>(number * seq_), static_cast<size_t>(seq_) + 1);
}

Status TextDataset::fill(int64_t number, const DatasetRow& row) const {
  const std::span<const int32_t> ids = sample(number);
  std::copy(ids.begin(), ids.end() - 1, row.tokens.begin());
  std::copy(ids.begin() + 1, ids.end(), row.labels.begin());
  std::iota(row.positions.begin(), row.positions.end(), 0);
  std::ranges::fill(row.segments, 0);
  return {};
}

uint64_t TextDataset::fingerprint() const {
  uint64_t hash = random_bits(order_.seed * 2 + order_.shuffle, static_cast<uint64_t>(seq_));
  hash = random_bits(hash, static_cast<uint64_t>(order_.count));
  for (const int32_t token : tokens_) hash = (hash ^ static_cast<uint32_t>(token)) * 0x100000001b3u;
  return hash;
}

double TextDataset::unigram_entropy() const {
  std::unordered_map<int32_t, int64_t> counted;  // a map, since ids may be arbitrarily large
  for (const int32_t token : tokens_) ++counted[token];
  const std::map<int32_t, int64_t> counts(counted.begin(), counted.end());  // fixes the order of addends
  double entropy = 0;
  for (const auto& [token, count] : counts) {
    const double share = static_cast<double>(count) / static_cast<double>(tokens_.size());
    entropy -= share * std::log(share);
  }
  return entropy;
}

std::string TextDataset::note() const {
  return written_control_note(written_control_, "the text holds", "they are learnt as letters");
}

Result<std::string> TextDataset::info_json() const {
  return dump(Json{{"tokens", tokens_.size()},
                   {"seq", seq_},
                   {"train_samples", order_.count},
                   {"eval_samples", eval_samples_},
                   {"unigram_entropy", unigram_entropy()},
                   {"seed", order_.seed},
                   {"shuffle", order_.shuffle},
                   {"written_control", written_control_},
                   {"note", note()}});
}

}  // namespace tessera
