// Texts are computed by an engine, which shares prefixes, where one serves their lengths; else sorted by the entry that
// holds their length and computed in batches.
#include "engine/inference/embedder.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "engine/base/host_view.h"
#include "engine/inference/kept_program.h"
#include "engine/sampling/pooling.h"
#include "graph/analysis/index_inputs.h"
#include "graph/base/status_codes.h"
#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "graph/transform/embedding.h"
#include "serialize/import/sentence_modules.h"

namespace tessera {
namespace {

using Output = EmbedderSettings::Output;

constexpr int64_t kMostTokens = int64_t{1} << 40;  // of a text that is not cut

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A classifier's labels, named by the model or numbered; empty for other models.
std::vector<std::string> labels_of(const SharedModel& model) {
  std::vector<std::string> labels = class_labels(model.metadata(kLabelsKey));
  if (!labels.empty()) return labels;
  const Result<ModelConfig> config = parse_shorthand(model.metadata("description"));
  if (!config.ok()) return labels;
  const ModelFamily* const family = find_model_family(config->family);
  const bool is_encoder = family != nullptr && family->encoder != nullptr;
  const auto count = config->sizes.find(is_encoder ? "N" : "classes");
  for (int64_t i = 0; count != config->sizes.end() && i < count->second; ++i)
    labels.push_back(format("LABEL_{}", i));
  return labels;
}

}  // namespace

Result<std::unique_ptr<Embedder>> Embedder::create(std::shared_ptr<Runtime> runtime,
                                                   std::shared_ptr<SharedModel> model,
                                                   const Options& options) {
  std::unique_ptr<Embedder> made(new Embedder);
  TSR_ASSIGN_OR_RETURN(made->settings_, read_embedder_settings(options));
  EmbedderSettings& settings = made->settings_;
  made->runtime_ = std::move(runtime);
  made->model_ = std::move(model);
  made->options_ = options;
  made->options_.erase("share_prefixes");  // the programs are the same
  made->tokenizer_ = made->model_->tokenizer();
  const Graph forward = made->model_->graph();
  TSR_RETURN_IF_ERROR(made->choose_output(*made->model_, forward));
  const Result<TensorId> hidden = find_hidden(forward);
  settings.share_prefixes &=
      may_share_prefixes(options) && settings.output == Output::kEmbedding && !settings.pairs && hidden.ok();
  if (settings.share_prefixes)
    made->report_.width = forward.type(*hidden).shape.dims().back();
  else
    TSR_RETURN_IF_ERROR(made->prepare_batches());
  return made;
}

// The program that computes batches.
Status Embedder::prepare_batches() {
  if (running_ != nullptr) return {};
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<DeviceSet> devices,
                       runtime_->open_devices(settings_.compute.devices, settings_.compute.profile));
  const int64_t wanted = parse_i64(model_->metadata(kEmbeddingTokensKey)).value_or(0);
  TSR_RETURN_IF_ERROR(finalize_texts(settings_, model_->context_length(), wanted, devices->size()));
  entries_ = embedding_entries(settings_);
  const auto compile = [&](const Graph& forward) { return compile_embedding(forward, settings_, devices); };
  TSR_ASSIGN_OR_RETURN(running_, run_kept_program(runtime_, model_, devices,
                                                  {.purpose = format("embedder {} {}", settings_.seq, settings_.batch),
                                                   .options = options_,
                                                   .compute = settings_.compute,
                                                   .inference = settings_.inference,
                                                   .measure_memory = settings_.measure_memory,
                                                   .compile = compile}));
  TSR_RETURN_IF_ERROR(feed_positions());
  report_.seq = settings_.seq;
  report_.batch = settings_.batch;
  running_now_ = running_.get();
  return {};
}

// The graph's output, how it is pooled, and the labels of a classifier.
Status Embedder::choose_output(const SharedModel& model, const Graph& forward) {
  const bool is_embedding = settings_.output == Output::kEmbedding;
  output_ = is_embedding ? "hidden" : class_output(forward);
  for (const Node& node : forward.nodes()) {
    const auto look_up = find_look_up(forward, node);
    if (!look_up) continue;
    const auto rows = static_cast<int32_t>(look_up->rows);
    if (forward.tensor(look_up->ids).name == "tokens") vocabulary_ = rows;
    if (forward.tensor(look_up->ids).name == "token_types") second_type_ = rows > 1 ? 1 : 0;
  }
  if (is_embedding) {
    const EmbeddingForm own = embedding_form(model, is_bidirectional(forward));
    if (settings_.pooling == Pooling::kAuto) settings_.pooling = own.pooling;
    TSR_RETURN_IF_ERROR(check_pools(settings_.pooling));
    if (!settings_.normalize) settings_.normalize = own.normalize;
    report_.pooling = name_of(settings_.pooling);
    report_.output = "embedding";
    report_.normalize = *settings_.normalize;
    return {};
  }
  report_.labels = labels_of(model);
  report_.output = settings_.output == Output::kLogits ? "logits" : "probabilities";
  const auto logits = forward.find_output(output_);
  const int64_t classes = logits ? forward.type(*logits).shape.dims().back() : 0;
  if (report_.labels.empty() || classes != std::ssize(report_.labels))
    return Status(
        StatusCode::kFailedPrecondition,
        format("embedder: option 'output' is {}, and the model has no classes: wanted one with a head "
               "for them (…ForSequenceClassification), or output embedding",
               report_.output));
  settings_.pooling = output_ == "class_logits" ? Pooling::kLast : Pooling::kCls;
  if (settings_.pooling == Pooling::kLast) padding_ = parse_i64(model.metadata(kPaddingKey)).value_or(-1);
  settings_.normalize = false;
  if (settings_.output == Output::kLogits) return {};
  TSR_ASSIGN_OR_RETURN(activation_, class_activation(model.metadata(kClassActivationKey),
                                                     model.metadata(kProblemTypeKey), classes));
  report_.activation = name_of(activation_);
  return {};
}

Status Embedder::feed_positions() {
  for (const ScoreEntry& entry : entries_) {
    const TensorType wanted{DType::kI32, Shape{settings_.batch, entry.tokens}};
    const TensorType* const tokens = running_->find_input(entry.name, "tokens");
    if (tokens == nullptr || *tokens != wanted)
      return Status(
          StatusCode::kInvalidArgument,
          format("an embedder needs an input 'tokens' i32[B, T] with the symbols B and T, the model's is {} "
                 "for {} texts of {} tokens",
                 tokens == nullptr ? "absent" : to_text(*tokens), settings_.batch, entry.tokens));
    if (!running_->has_input(entry.name, "positions")) continue;
    std::vector<int32_t> positions(static_cast<size_t>(settings_.batch * entry.tokens));
    for (size_t i = 0; i < positions.size(); ++i)
      positions[i] = static_cast<int32_t>(static_cast<int64_t>(i) % entry.tokens);
    TSR_RETURN_IF_ERROR(
        running_->feed(entry.name, "positions", view_of(positions, Shape{settings_.batch, entry.tokens})));
  }
  const PlannedEntry& first = running_->record().entries.front();
  report_.width = first.graph->type(*first.graph->find_output(output_)).shape.dims().back();
  return {};
}

Status Embedder::start(std::span<const std::string_view> texts) {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  prompts_.reset();
  started_ = false;
  if (tokenizer_ == nullptr)
    return Status(StatusCode::kFailedPrecondition,
                  "embedder: the model has no tokenizer: give token ids (tsr_embedder_start_ids)");
  if (settings_.pairs && texts.size() % 2 != 0)
    return Status(StatusCode::kInvalidArgument,
                  format("embedder: {} texts, and option 'pairs' wants two for each pair", texts.size()));
  if (settings_.share_prefixes) {
    TSR_ASSIGN_OR_RETURN(std::vector<TextIds> whole, read_texts(texts, kMostTokens));
    TSR_ASSIGN_OR_RETURN(const bool is_shared, share_prefixes(std::move(whole)));
    if (is_shared) return {};
  }
  TSR_RETURN_IF_ERROR(prepare_batches());
  TSR_ASSIGN_OR_RETURN(texts_, read_texts(texts, settings_.seq));
  begin();
  return {};
}

// The tokens of each text, at most `most`.
Result<std::vector<TextIds>> Embedder::read_texts(std::span<const std::string_view> texts,
                                                  int64_t most) const {
  std::vector<TextIds> read;
  const size_t step = settings_.pairs ? 2 : 1;
  for (size_t i = 0; i < texts.size(); i += step) {
    Result<TextIds> ids =
        text_ids(*tokenizer_, texts[i], settings_.pairs ? std::optional(texts[i + 1]) : std::nullopt, most);
    if (!ids.ok()) return ids.status().with_context(format("text {}", i));
    for (const int32_t id : ids->ids)
      if (id >= vocabulary_)
        return Status(StatusCode::kFailedPrecondition,
                      format("the tokenizer makes token {} of text {}, the model has tokens 0 to {}", id, i,
                             vocabulary_ - 1));
    if (ids->ids.empty())
      return Status(StatusCode::kInvalidArgument, format("text {} has no tokens, wanted at least one", i));
    read.push_back(std::move(*ids));
  }
  return read;
}

// By an engine, where one serves texts of this length; false: batches have to do it.
Result<bool> Embedder::share_prefixes(std::vector<TextIds> texts) {
  int64_t longest = 0, count = 0;
  for (const TextIds& text : texts) {
    longest = std::max(longest, std::ssize(text.ids));
    count += std::ssize(text.ids);
  }
  const int64_t usual = parse_i64(model_->metadata(kEmbeddingTokensKey)).value_or(0);
  const int64_t most = settings_.seq > 0 ? settings_.seq : usual > 0 ? usual : kMostTokens;
  if (texts.empty() || longest > most) return false;
  TSR_ASSIGN_OR_RETURN(
      prompts_, PromptEngine::create(runtime_, model_, options_, {{"embeddings", int64_t{1}}}, longest));
  if (prompts_ == nullptr) return false;
  texts_ = std::move(texts);
  rows_.assign(texts_.size() * width(), 0);
  report_.texts = std::ssize(texts_);
  report_.tokens = count;
  report_.truncated = 0;
  cancelled_ = false;
  prompts_->start(
      texts_.size(), [this](size_t text) { return submit(text); },
      [this](size_t text, int64_t request) {
        return prompts_->engine()
            .take_embedding(request, std::span(rows_).subspan(text * width(), width()))
            .status();
      });
  return true;
}

Result<std::optional<int64_t>> Embedder::submit(size_t text) {
  const Options request = {{"embed", int64_t{1}},
                           {"pooling", std::string(name_of(settings_.pooling))},
                           {"normalize", int64_t{*settings_.normalize ? 1 : 0}}};
  TSR_ASSIGN_OR_RETURN(const int64_t number, prompts_->engine().submit_tokens(texts_[text].ids, request));
  return std::optional(number);
}

Status Embedder::start_ids(std::span<const int32_t> ids, std::span<const size_t> lengths) {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  if (settings_.pairs)
    return Status(StatusCode::kInvalidArgument, "embedder: option 'pairs' is of texts, not of token ids");
  prompts_.reset();
  TSR_RETURN_IF_ERROR(prepare_batches());
  std::vector<TextIds> read;
  size_t at = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 1 || lengths[i] > static_cast<size_t>(settings_.seq) || lengths[i] > ids.size() - at)
      return Status(StatusCode::kInvalidArgument,
                    format("lengths[{}] is {}, wanted 1 to {} (option 'seq'), and {} of {} ids are left", i,
                           lengths[i], settings_.seq, ids.size() - at, ids.size()));
    TextIds text;
    text.ids.assign(ids.begin() + static_cast<ptrdiff_t>(at),
                    ids.begin() + static_cast<ptrdiff_t>(at + lengths[i]));
    text.second = lengths[i];
    read.push_back(std::move(text));
    at += lengths[i];
  }
  if (at != ids.size())
    return Status(StatusCode::kInvalidArgument,
                  format("there are {} ids, the lengths are of {}", ids.size(), at));
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= vocabulary_)
      return Status(StatusCode::kInvalidArgument,
                    format("ids[{}] is {}, the model has tokens 0 to {}", i, ids[i], vocabulary_ - 1));
  texts_ = std::move(read);
  begin();
  return {};
}

// A text's length alone chooses its entry, so its result has the same bits in any batch.
void Embedder::begin() {
  const auto entry_of = [this](size_t text) {
    size_t entry = entries_.size() - 1;
    while (entries_[entry].tokens < std::ssize(texts_[text].ids)) --entry;
    return entry;
  };
  order_.resize(texts_.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::ranges::stable_sort(order_, {}, entry_of);
  batches_.clear();
  all_positions_ = 0;
  for (size_t i = 0; i < order_.size(); ++i) {
    const size_t entry = entry_of(order_[i]);
    if (batches_.empty() || batches_.back().entry != entry ||
        batches_.back().count == static_cast<size_t>(settings_.batch)) {
      batches_.push_back({entry, i, 0});
      all_positions_ += settings_.batch * entries_[entry].tokens;
    }
    ++batches_.back().count;
  }
  rows_.assign(texts_.size() * width(), 0);
  report_.texts = std::ssize(texts_);
  report_.tokens = report_.truncated = report_.positions = 0;
  for (const TextIds& text : texts_) {
    report_.tokens += std::ssize(text.ids);
    report_.truncated += text.is_truncated ? 1 : 0;
  }
  report_.seconds = 0;
  next_batch_ = 0;
  started_ = true;
  cancelled_ = false;
}

// Padding and empty rows are separate segments.
Status Embedder::feed(const Batch& batch) {
  const ScoreEntry& entry = entries_[batch.entry];
  const auto columns = static_cast<size_t>(entry.tokens);
  const size_t count = static_cast<size_t>(settings_.batch) * columns;
  tokens_.assign(count, 0);
  segments_.assign(count, 0);
  types_.assign(count, 0);
  for (size_t row = 0; row < batch.count; ++row) {
    const TextIds& text = texts_[order_[batch.first + row]];
    std::ranges::copy(text.ids, tokens_.begin() + static_cast<ptrdiff_t>(row * columns));
    std::fill_n(segments_.begin() + static_cast<ptrdiff_t>(row * columns), text.ids.size(), 1);
    std::fill_n(types_.begin() + static_cast<ptrdiff_t>(row * columns + text.second),
                text.ids.size() - text.second, second_type_);
  }
  for (const auto& [name, values] :
       {std::pair{"tokens", &tokens_}, {"segments", &segments_}, {"token_types", &types_}})
    if (running_->has_input(entry.name, name))
      TSR_RETURN_IF_ERROR(
          running_->feed(entry.name, name, view_of(*values, Shape{settings_.batch, entry.tokens})));
  return {};
}

// Number of tokens to pool. A classifier that reads the last token skips trailing padding
// tokens, as its class does, even if the text contains them; of padding alone the first is read.
size_t Embedder::read_tokens(std::span<const int32_t> ids) const {
  size_t count = ids.size();
  while (count > 0 && padding_ >= 0 && ids[count - 1] == padding_) --count;
  return count == 0 ? 1 : count;
}

Status Embedder::keep_rows(const Batch& batch) {
  const ScoreEntry& entry = entries_[batch.entry];
  const auto columns = static_cast<size_t>(entry.tokens);
  values_.resize(static_cast<size_t>(settings_.batch) * columns * width());
  TSR_RETURN_IF_ERROR(
      running_->session().fetch_into(entry.name, output_, std::as_writable_bytes(std::span(values_))));
  for (size_t i = 0; i < batch.count; ++i) {
    const size_t text = order_[batch.first + i];
    const std::span<const float> values =
        std::span(values_).subspan(i * columns * width(), read_tokens(texts_[text].ids) * width());
    const std::span<float> row = std::span(rows_).subspan(text * width(), width());
    PooledVector pooled(settings_.pooling, width());
    pooled.add(values);
    if (!pooled.write(row))
      return Status(kNotFinite,
                    format("the numbers of text {} are not finite: the model's weights are not", text));
    if (*settings_.normalize) scale_to_length_1(row);
    apply(activation_, row);
  }
  return {};
}

Result<double> Embedder::step() {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  if (prompts_ != nullptr) return prompts_->step();
  if (!started_)
    return Status(StatusCode::kFailedPrecondition, "nothing was started: call tsr_embedder_start first");
  if (next_batch_ == batches_.size()) return 1.0;
  const auto begin = std::chrono::steady_clock::now();
  const Batch& batch = batches_[next_batch_];
  if (running_->failed()) TSR_RETURN_IF_ERROR(running_->restore());
  TSR_RETURN_IF_ERROR(feed(batch));
  TSR_RETURN_IF_ERROR(running_->run(entries_[batch.entry].name));
  TSR_RETURN_IF_ERROR(keep_rows(batch));
  ++next_batch_;
  report_.positions += settings_.batch * entries_[batch.entry].tokens;
  report_.seconds += seconds_since(begin);
  if (next_batch_ == batches_.size()) return 1.0;
  return static_cast<double>(report_.positions) / static_cast<double>(all_positions_);
}

Status Embedder::finish() {
  cancelled_ = false;
  for (;;) {
    TSR_ASSIGN_OR_RETURN(const double done, step());
    if (done >= 1) return {};
    if (cancelled_) return Status(StatusCode::kCancelled, "embedding was cancelled");
  }
}

Status Embedder::check_done() const {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  if (prompts_ != nullptr ? prompts_->is_done() : started_ && next_batch_ == batches_.size()) return {};
  return Status(StatusCode::kFailedPrecondition,
                started_ || prompts_ != nullptr
                    ? "not all texts are computed yet: call tsr_embedder_step until it says 1"
                    : "nothing was started: call tsr_embedder_start first");
}

Result<std::span<const float>> Embedder::rows() const {
  TSR_RETURN_IF_ERROR(check_done());
  return std::span<const float>(rows_);
}

void Embedder::cancel() {
  cancelled_ = true;
  if (ProgramRunner* const running = running_now_) running->cancel();
}

Result<std::string> Embedder::report_json() {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  if (prompts_ != nullptr) {
    Json json = {{"texts", report_.texts}, {"tokens", report_.tokens}, {"truncated", 0}};
    TSR_ASSIGN_OR_RETURN(const Json computed, prompts_->report());
    json.update(computed);
    json["width"] = report_.width;
    json["output"] = report_.output;
    json["normalize"] = report_.normalize;
    json["pooling"] = report_.pooling;
    return dump(json);
  }
  TSR_RETURN_IF_ERROR(prepare_batches());
  EmbedderReport report = report_;
  report.memory = running_->session().memory();
  return embedder_json(report, running_->record());
}

}  // namespace tessera
