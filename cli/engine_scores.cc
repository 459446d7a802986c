#include "engine_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "prompt_requests.h"

namespace cli {

namespace {

constexpr int64_t kStepTokens = 256;

// SharedTexts: texts in the order of their tokens, so that each follows the one with which it has most in common.
struct SharedTexts {
  explicit SharedTexts(const TokenTexts& texts) {
    size_t begin = 0;
    for (const size_t length : texts.lengths) {
      tokens.push_back(std::span(texts.ids).subspan(begin, length));
      begins.push_back(begin);
      begin += length;
    }
    order.resize(tokens.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [this](size_t a, size_t b) {
      return std::ranges::lexicographical_compare(tokens[a], tokens[b]);
    });
    shared.resize(order.size());
    for (size_t i = 1; i < order.size(); ++i) {
      const auto both = std::ranges::mismatch(tokens[order[i]], tokens[order[i - 1]]);
      shared[i] = static_cast<size_t>(both.in1 - tokens[order[i]].begin());
    }
  }

  std::vector<std::span<const int32_t>> tokens;  // of each text
  std::vector<size_t> begins;                    // of each text among all tokens
  std::vector<size_t> order;                     // of the texts
  std::vector<size_t> shared;                    // in that order: tokens that the text before has, too
};

class EngineScorer {
 public:
  EngineScorer(const Engine& engine, const SharedTexts& texts, int32_t bos, TokenScores& scores)
      : engine_(engine), texts_(texts), bos_(bos), scores_(scores) {}

  void run(const Common& common) {
    run_requests(common, engine_,
                 {texts_.order.size(), "scored", [this](size_t place) { return submit(place); },
                  [this](size_t place, int64_t request) { take(place, request); }});
    for (size_t place = 1; place < texts_.order.size(); ++place) copy_shared(place);
  }

 private:
  size_t before() const { return bos_ >= 0 ? 1 : 0; }
  std::span<const int32_t> tokens(size_t place) const { return texts_.tokens[texts_.order[place]]; }
  // The first token of the text at this place that is scored for it.
  size_t first_scored(size_t place) const { return std::max(texts_.shared[place], 1 - before()); }

  std::optional<int64_t> submit(size_t place) const {
    const size_t first = first_scored(place);
    if (first >= tokens(place).size())
      return {};  // the one before has all its tokens, or nothing is before its only one
    std::vector<int32_t> prompt(before(), bos_);
    prompt.insert(prompt.end(), tokens(place).begin(), tokens(place).end());
    const Options options = make<Options>(tsr_options_new);
    set(options, "score_from", static_cast<int64_t>(before() + first));
    int64_t request = 0;
    check(tsr_engine_submit_tokens(engine_.get(), options.get(), prompt.data(), prompt.size(), &request));
    return request;
  }

  void take(size_t place, int64_t request) {
    const size_t first = first_scored(place), at = texts_.begins[texts_.order[place]] + first;
    check(tsr_engine_scores(engine_.get(), request, scores_.logprobs.data() + at,
                            tokens(place).size() - first, scores_.greedy.data() + at, nullptr));
  }

  void copy_shared(size_t place) {
    const size_t from = texts_.begins[texts_.order[place - 1]], to = texts_.begins[texts_.order[place]];
    std::copy_n(scores_.logprobs.data() + from, texts_.shared[place], scores_.logprobs.data() + to);
    std::copy_n(scores_.greedy.data() + from, texts_.shared[place], scores_.greedy.data() + to);
  }

  const Engine& engine_;
  const SharedTexts& texts_;
  const int32_t bos_;
  TokenScores& scores_;
};

// What a scorer's report says: a text is a window.
Json report_of(const Engine& engine, const TokenTexts& texts, const TokenScores& scores, int32_t bos) {
  Json report = {
      {"sequences", texts.lengths.size()},
      {"tokens", texts.ids.size()},
      {"scored_tokens", std::ranges::count_if(scores.logprobs, [](float it) { return !std::isnan(it); })},
      {"windows", texts.lengths.size()},
      {"bos", bos}};
  report.update(computed_report(engine));
  report["stride"] = report["seq"];
  return report;
}

}  // namespace

std::optional<TokenScores> score_by_engine(const Common& common, const Inference& inference,
                                           const Runtime& runtime, const Model& model,
                                           const TokenTexts& texts, const EngineScoring& scoring) {
  if (texts.lengths.empty()) return {};
  const SharedTexts sorted(texts);
  // The last token of a text is scored and not read.
  const auto longest = static_cast<int64_t>(std::ranges::max(texts.lengths)) - (scoring.bos >= 0 ? 0 : 1);
  const bool begins_twice = std::ranges::any_of(sorted.tokens, [&](std::span<const int32_t> tokens) {
    return scoring.bos >= 0 && !tokens.empty() && tokens[0] == scoring.bos;
  });
  if (longest < 1 || begins_twice || (scoring.context && longest > *scoring.context)) return {};
  const Options options = make<Options>(tsr_options_new);
  set(options, "context", scoring.context);
  set(options, "step_tokens", kStepTokens);
  set(options, "scored_tokens", kStepTokens);
  const std::optional<Engine> engine = prompt_engine(common, inference, runtime, model, options, longest);
  if (!engine) return {};
  TokenScores scores{std::vector<float>(texts.ids.size(), std::numeric_limits<float>::quiet_NaN()),
                     std::vector<uint8_t>(texts.ids.size()),
                     {}};
  EngineScorer(*engine, sorted, scoring.bos, scores).run(common);
  scores.report = report_of(*engine, texts, scores, scoring.bos);
  return scores;
}

}  // namespace cli
