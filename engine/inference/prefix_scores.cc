#include "engine/inference/prefix_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace tessera {

namespace {
constexpr int64_t kStepTokens = 256;
}

PrefixScores::PrefixScores(std::span<const int32_t> ids, std::span<const size_t> lengths, int32_t bos)
    : bos_(bos), logprobs_(ids.size(), std::numeric_limits<float>::quiet_NaN()), greedy_(ids.size()) {
  size_t begin = 0;
  for (const size_t length : lengths) {
    tokens_.push_back(ids.subspan(begin, length));
    begins_.push_back(begin);
    begin += length;
  }
  order_.resize(tokens_.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::ranges::stable_sort(order_, [this](size_t a, size_t b) {
    return std::ranges::lexicographical_compare(tokens_[a], tokens_[b]);
  });
  shared_.resize(order_.size());
  for (size_t i = 1; i < order_.size(); ++i) {
    const auto both = std::ranges::mismatch(tokens(i), tokens(i - 1));
    shared_[i] = static_cast<size_t>(both.in1 - tokens(i).begin());
  }
}

Result<std::unique_ptr<PrefixScores>> PrefixScores::start(std::shared_ptr<Runtime> runtime,
                                                          std::shared_ptr<SharedModel> model,
                                                          const Options& options,
                                                          std::span<const int32_t> ids,
                                                          std::span<const size_t> lengths, int32_t bos) {
  std::unique_ptr<PrefixScores> made;
  if (lengths.empty()) return made;
  // The last token of a text is scored, but not read.
  const int64_t longest = static_cast<int64_t>(std::ranges::max(lengths)) - (bos >= 0 ? 0 : 1);
  const auto seq = options.find("seq");
  const int64_t* const most = seq == options.end() ? nullptr : std::get_if<int64_t>(&seq->second);
  if (longest < 1 || (most != nullptr && *most > 0 && longest > *most)) return made;
  made.reset(new PrefixScores(ids, lengths, bos));
  const bool begins_twice = std::ranges::any_of(made->tokens_, [&](std::span<const int32_t> text) {
    return bos >= 0 && !text.empty() && text[0] == bos;
  });
  const Options more = {{"step_tokens", kStepTokens}, {"scored_tokens", kStepTokens}};
  if (!begins_twice) {
    TSR_ASSIGN_OR_RETURN(made->engine_,
                         PromptEngine::create(std::move(runtime), std::move(model), options, more, longest));
  }
  if (made->engine_ == nullptr) return std::unique_ptr<PrefixScores>();
  PrefixScores& scores = *made;
  made->engine_->start(
      made->order_.size(), [&scores](size_t place) { return scores.submit(place); },
      [&scores](size_t place, int64_t request) { return scores.take(place, request); });
  return made;
}

// Returns the first token of the text at this place that its own request scores.
size_t PrefixScores::first_scored(size_t place) const { return std::max(shared_[place], 1 - before()); }

Result<std::optional<int64_t>> PrefixScores::submit(size_t place) {
  const size_t first = first_scored(place);
  // The previous text has all its tokens, or its only token has none before it.
  if (first >= tokens(place).size()) return std::optional<int64_t>();
  std::vector<int32_t> prompt(before(), bos_);
  prompt.insert(prompt.end(), tokens(place).begin(), tokens(place).end());
  TSR_ASSIGN_OR_RETURN(const int64_t request,
                       engine_->engine().submit_tokens(
                           std::move(prompt), {{"score_from", static_cast<int64_t>(before() + first)}}));
  return std::optional(request);
}

Status PrefixScores::take(size_t place, int64_t request) {
  const size_t first = first_scored(place), count = tokens(place).size() - first;
  const size_t at = begins_[order_[place]] + first;
  return engine_->engine()
      .take_scores(request, std::span(logprobs_).subspan(at, count), std::span(greedy_).subspan(at, count))
      .status();
}

Result<double> PrefixScores::step() {
  if (is_done_) return 1.0;
  TSR_ASSIGN_OR_RETURN(const double done, engine_->step());
  if (done < 1) return done;
  for (size_t place = 1; place < order_.size(); ++place) {
    const size_t from = begins_[order_[place - 1]], to = begins_[order_[place]];
    std::copy_n(logprobs_.data() + from, shared_[place], logprobs_.data() + to);
    std::copy_n(greedy_.data() + from, shared_[place], greedy_.data() + to);
  }
  is_done_ = true;
  return 1.0;
}

// In the form of a scorer's report; a text is a window.
Result<std::string> PrefixScores::report_json() {
  Json report = {
      {"sequences", tokens_.size()},
      {"tokens", logprobs_.size()},
      {"scored_tokens", std::ranges::count_if(logprobs_, [](float it) { return !std::isnan(it); })},
      {"windows", tokens_.size()},
      {"bos", bos_}};
  TSR_ASSIGN_OR_RETURN(const Json computed, engine_->report());
  report.update(computed);
  report["stride"] = report["seq"];
  return dump(report);
}

}  // namespace tessera
