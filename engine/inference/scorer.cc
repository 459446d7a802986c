// Windows are sorted by the entry that holds their length and computed in batches. Each gives the log probabilities of the
// tokens that are new in it.
#include "engine/inference/scorer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/base/host_view.h"
#include "engine/inference/kept_program.h"
#include "graph/base/status_codes.h"
#include "graph/base/text.h"

namespace tessera {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Result<int32_t> window_bos(const Tokenizer* tokenizer, WindowBos bos, std::string_view consumer) {
  if (bos == WindowBos::kNone) return -1;
  const int32_t token = tokenizer != nullptr ? tokenizer->data().bos : -1;
  if (bos == WindowBos::kAuto) return token >= 0 && tokenizer->data().add_bos ? token : -1;
  if (token < 0)
    return Status(StatusCode::kFailedPrecondition,
                  format("{}: option 'bos' is always, and the model has no {}: wanted none or auto", consumer,
                         tokenizer != nullptr ? "beginning-of-sequence token" : "tokenizer"));
  return token;
}

Result<std::unique_ptr<Scorer>> Scorer::create(std::shared_ptr<Runtime> runtime,
                                               std::shared_ptr<SharedModel> model, const Options& options) {
  std::unique_ptr<Scorer> scorer(new Scorer);
  TSR_ASSIGN_OR_RETURN(scorer->settings_, read_scorer_settings(options));
  TSR_ASSIGN_OR_RETURN(scorer->bos_, window_bos(model->tokenizer().get(), scorer->settings_.bos, "scorer"));
  scorer->runtime_ = std::move(runtime);
  scorer->model_ = std::move(model);
  scorer->options_ = options;
  scorer->options_.erase("share_prefixes");  // the programs are the same
  scorer->settings_.share_prefixes &= may_share_prefixes(options);
  if (!scorer->settings_.share_prefixes) TSR_RETURN_IF_ERROR(scorer->prepare_windows());
  return scorer;
}

// The program that computes windows.
Status Scorer::prepare_windows() {
  if (running_ != nullptr) return {};
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<DeviceSet> devices,
                       runtime_->open_devices(settings_.compute.devices, settings_.compute.profile));
  TSR_RETURN_IF_ERROR(finalize_windows(settings_, model_->context_length(), devices->size()));
  entries_ = score_entries(settings_);
  const auto compile = [&](const Graph& forward) { return compile_scoring(forward, settings_, devices); };
  TSR_ASSIGN_OR_RETURN(running_, run_kept_program(runtime_, model_, devices,
                                                  {.purpose = format("scorer {} {}", settings_.seq, settings_.batch),
                                                   .options = options_,
                                                   .compute = settings_.compute,
                                                   .inference = settings_.inference,
                                                   .measure_memory = settings_.measure_memory,
                                                   .compile = compile}));
  TSR_RETURN_IF_ERROR(feed_positions());
  const Graph forward = model_->graph();
  const Shape& logits = forward.type(*forward.find_output("logits")).shape;
  vocabulary_ = static_cast<int32_t>(logits[logits.rank() - 1]);
  report_.seq = settings_.seq;
  report_.stride = settings_.stride;
  report_.batch = settings_.batch;
  report_.bos = bos_;
  running_now_ = running_.get();
  return {};
}

Status Scorer::feed_positions() {
  for (const ScoreEntry& entry : entries_) {
    const TensorType wanted{DType::kI32, Shape{settings_.batch, entry.tokens}};
    const TensorType* const tokens = running_->find_input(entry.name, "tokens");
    if (tokens == nullptr || *tokens != wanted)
      return Status(
          StatusCode::kInvalidArgument,
          format("scoring needs an input 'tokens' i32[B, T] with the symbols B and T, the model's is {} for "
                 "{} windows of {} tokens",
                 tokens == nullptr ? "absent" : to_text(*tokens), settings_.batch, entry.tokens));
    if (!running_->has_input(entry.name, "positions")) continue;
    std::vector<int32_t> positions(static_cast<size_t>(settings_.batch * entry.tokens));
    for (size_t i = 0; i < positions.size(); ++i)
      positions[i] = static_cast<int32_t>(static_cast<int64_t>(i) % entry.tokens);
    TSR_RETURN_IF_ERROR(
        running_->feed(entry.name, "positions", view_of(positions, Shape{settings_.batch, entry.tokens})));
  }
  return {};
}

Status Scorer::check_ids(std::span<const int32_t> ids, std::span<const size_t> lengths) const {
  size_t rest = ids.size();
  for (size_t text = 0; text < lengths.size(); ++text) {
    if (lengths[text] > rest)
      return Status(StatusCode::kInvalidArgument, format("lengths[{}] is {}, {} of {} ids are left", text,
                                                         lengths[text], rest, ids.size()));
    if (bos_ >= 0 && lengths[text] > 0 && ids[ids.size() - rest] == bos_)
      return Status(
          StatusCode::kInvalidArgument,
          format("text {} begins with token {}, which option 'bos' puts in front of it: leave one of the two "
                 "out",
                 text, bos_));
    rest -= lengths[text];
  }
  if (rest > 0)
    return Status(StatusCode::kInvalidArgument,
                  format("there are {} ids, the lengths are of {}", ids.size(), ids.size() - rest));
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= vocabulary_)
      return Status(StatusCode::kInvalidArgument,
                    format("ids[{}] is {}, the model has tokens 0 to {}", i, ids[i], vocabulary_ - 1));
  return {};
}

Status Scorer::start(std::span<const int32_t> ids, std::span<const size_t> lengths) {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  started_ = false;
  shared_.reset();
  ids_.assign(ids.begin(), ids.end());
  const bool adds_up = std::accumulate(lengths.begin(), lengths.end(), size_t{0}) == ids.size();
  if (settings_.share_prefixes && adds_up) {
    TSR_ASSIGN_OR_RETURN(shared_, PrefixScores::start(runtime_, model_, options_, ids_, lengths, bos_));
    if (shared_ != nullptr) return {};
  }
  TSR_RETURN_IF_ERROR(prepare_windows());
  TSR_RETURN_IF_ERROR(check_ids(ids, lengths));
  windows_ = make_windows(lengths, {settings_.seq, settings_.stride, bos_ >= 0});
  logprobs_.assign(ids.size(), std::numeric_limits<float>::quiet_NaN());
  greedy_.assign(ids.size(), 0);
  make_batches();
  report_.sequences = static_cast<int64_t>(lengths.size());
  report_.tokens = static_cast<int64_t>(ids.size());
  report_.windows = static_cast<int64_t>(windows_.size());
  report_.scored_tokens = report_.positions = 0;
  report_.seconds = 0;
  next_batch_ = 0;
  started_ = true;
  cancelled_ = false;
  return {};
}

// A window's length alone chooses its entry, so its results have the same bits in any batch.
void Scorer::make_batches() {
  const auto entry_of = [this](const ScoreWindow& window) {
    size_t entry = entries_.size() - 1;
    while (entries_[entry].tokens < window.positions) --entry;
    return entry;
  };
  std::ranges::stable_sort(windows_, {}, entry_of);
  batches_.clear();
  all_positions_ = 0;
  for (size_t i = 0; i < windows_.size(); ++i) {
    const size_t entry = entry_of(windows_[i]);
    if (batches_.empty() || batches_.back().entry != entry ||
        batches_.back().windows == static_cast<size_t>(settings_.batch)) {
      batches_.push_back({entry, i, 0});
      all_positions_ += settings_.batch * entries_[entry].tokens;
    }
    ++batches_.back().windows;
  }
}

// Surplus rows of the batch, and positions after a window's end, have no label.
Status Scorer::feed(const Batch& batch) {
  const ScoreEntry& entry = entries_[batch.entry];
  const auto columns = static_cast<size_t>(entry.tokens);
  const size_t count = static_cast<size_t>(settings_.batch) * columns;
  tokens_.assign(count, 0);
  labels_.assign(count, -1);
  for (size_t row = 0; row < batch.windows; ++row) {
    const ScoreWindow& window = windows_[batch.first_window + row];
    for (size_t i = 0; i < static_cast<size_t>(window.positions); ++i) {
      tokens_[row * columns + i] = i == 0 && bos_ >= 0 ? bos_ : ids_[window.label + i - 1];
      labels_[row * columns + i] = ids_[window.label + i];
    }
  }
  TSR_RETURN_IF_ERROR(
      running_->feed(entry.name, "tokens", view_of(tokens_, Shape{settings_.batch, entry.tokens})));
  return running_->feed(entry.name, "labels", view_of(labels_, Shape{settings_.batch, entry.tokens}));
}

Status Scorer::keep_results(const Batch& batch) {
  const ScoreEntry& entry = entries_[batch.entry];
  const auto columns = static_cast<size_t>(entry.tokens);
  nll_.resize(static_cast<size_t>(settings_.batch) * columns);
  margin_.resize(nll_.size());
  TSR_RETURN_IF_ERROR(
      running_->session().fetch_into(entry.name, "nll", std::as_writable_bytes(std::span(nll_))));
  TSR_RETURN_IF_ERROR(
      running_->session().fetch_into(entry.name, "margin", std::as_writable_bytes(std::span(margin_))));
  for (size_t row = 0; row < batch.windows; ++row) {
    const ScoreWindow& window = windows_[batch.first_window + row];
    for (size_t i = static_cast<size_t>(window.known); i < static_cast<size_t>(window.positions); ++i) {
      const float nll = nll_[row * columns + i];
      const size_t token = window.label + i;
      if (std::isnan(nll))
        return Status(
            kNotFinite,
            format("the log probability of ids[{}] is not a number: the model's weights or logits are not "
                   "finite",
                   token));
      logprobs_[token] = 0 - nll;  // avoids -0
      greedy_[token] = margin_[row * columns + i] == 0;
    }
  }
  return {};
}

Result<double> Scorer::step() {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  if (shared_ != nullptr) return shared_->step();
  if (!started_)
    return Status(StatusCode::kFailedPrecondition, "nothing was started: call tsr_scorer_start first");
  if (next_batch_ == batches_.size()) return 1.0;
  const auto begin = std::chrono::steady_clock::now();
  const Batch& batch = batches_[next_batch_];
  if (running_->failed()) TSR_RETURN_IF_ERROR(running_->restore());
  TSR_RETURN_IF_ERROR(feed(batch));
  TSR_RETURN_IF_ERROR(running_->run(entries_[batch.entry].name));
  TSR_RETURN_IF_ERROR(keep_results(batch));
  ++next_batch_;
  for (size_t row = 0; row < batch.windows; ++row) {
    const ScoreWindow& window = windows_[batch.first_window + row];
    report_.scored_tokens += window.positions - window.known;
  }
  report_.positions += settings_.batch * entries_[batch.entry].tokens;
  report_.seconds += seconds_since(begin);
  if (next_batch_ == batches_.size()) return 1.0;
  return static_cast<double>(report_.positions) / static_cast<double>(all_positions_);
}

Status Scorer::finish() {
  cancelled_ = false;
  for (;;) {
    TSR_ASSIGN_OR_RETURN(const double done, step());
    if (done >= 1) return {};
    if (cancelled_) return Status(StatusCode::kCancelled, "scoring was cancelled");
  }
}

Status Scorer::check_done() const {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  if (shared_ != nullptr ? shared_->is_done() : started_ && next_batch_ == batches_.size()) return {};
  return Status(StatusCode::kFailedPrecondition,
                started_ || shared_ != nullptr
                    ? "not all tokens are scored yet: call tsr_scorer_step until it says 1"
                    : "nothing was started: call tsr_scorer_start first");
}

Result<std::span<const float>> Scorer::logprobs() const {
  TSR_RETURN_IF_ERROR(check_done());
  return shared_ != nullptr ? shared_->logprobs() : std::span<const float>(logprobs_);
}

Result<std::span<const uint8_t>> Scorer::greedy() const {
  TSR_RETURN_IF_ERROR(check_done());
  return shared_ != nullptr ? shared_->greedy() : std::span<const uint8_t>(greedy_);
}

void Scorer::cancel() {
  cancelled_ = true;
  if (ProgramRunner* const running = running_now_) running->cancel();
}

Result<std::string> Scorer::report_json() {
  TSR_RETURN_IF_ERROR(runtime().check_process());
  if (shared_ != nullptr) return shared_->report_json();
  TSR_RETURN_IF_ERROR(prepare_windows());
  ScorerReport report = report_;
  report.memory = running_->session().memory();
  return scorer_json(report, running_->record());
}

}  // namespace tessera
