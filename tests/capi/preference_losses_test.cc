// Preference losses by their formulas in f64, and their gradients by finite differences of those.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "preference_training.h"

using namespace capi_test;

namespace {

constexpr int64_t kRowsOfStep = 4;

// The batch that the first step is of, with `answers` answers a row.
struct FirstBatch {
  int64_t width;
  std::vector<int32_t> tokens, labels, positions, segments;

  FirstBatch(const Dataset& data, int64_t answers) : width(answers * kAnswerTokens) {
    const auto count = static_cast<size_t>(kRowsOfStep * width);
    tokens.resize(count), labels.resize(count), positions.resize(count), segments.resize(count);
    ok(tsr_dataset_rows(data.get(), 0, kRowsOfStep, tokens.data(), labels.data(), positions.data(),
                        segments.data(), count, nullptr));
  }
  // Labels of the prompt of each chosen answer, too.
  FirstBatch with_prompts() const {
    FirstBatch made = *this;
    for (size_t row = 0; row < kRowsOfStep; ++row)
      for (size_t t = row * static_cast<size_t>(width);
           segments[t + 1] == segments[row * static_cast<size_t>(width)]; ++t)
        made.labels[t] = tokens[t + 1];
    return made;
  }
  tsr_batch batch() const {
    tsr_batch made{};
    made.struct_size = sizeof made;
    made.rows = kRowsOfStep, made.seq = width;
    made.tokens = tokens.data(), made.labels = labels.data();
    made.positions = positions.data(), made.segments = segments.data();
    return made;
  }
};

// Any loss by its gradients: the primitives of steps in parts.
class Primitives {
 public:
  Primitives(const Runtime& rt, const Model& model, int64_t width) {
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(rt.get(), model.get(), nullptr,
                       options({{"losses", std::string("gradient")},
                                {"batch_segments", 1},
                                {"batch", kRowsOfStep},
                                {"seq", width},
                                {"optimizer", std::string("sgd")},
                                {"momentum", 0.0},
                                {"clip_norm", 0.0},
                                {"warmup", int64_t{0}},
                                {"lr", 0.5}})
                           .get(),
                       &made));
    trainer.reset(made);
  }
  std::vector<double> logprobs(const FirstBatch& rows) {
    const tsr_batch batch = rows.batch();
    std::vector<float> out(rows.tokens.size());
    size_t count = 0;
    ok(tsr_trainer_forward(trainer.get(), &batch, out.data(), out.size(), &count));
    return {out.begin(), out.end()};
  }
  void step(const FirstBatch& rows, const std::vector<double>& gradients) {
    const tsr_batch batch = rows.batch();
    const std::vector<float> as_f32(gradients.begin(), gradients.end());
    ok(tsr_trainer_backward(trainer.get(), &batch, as_f32.data(), as_f32.size()));
    ok(tsr_trainer_optimizer_step(trainer.get(), nullptr, nullptr));
  }
  Trainer trainer;
};

// The same run without logits.
PreferenceRun fused(PreferenceRun run) {
  run.more.emplace_back("fused_loss", std::string("on"));
  return run;
}

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

// The numbers of a batch that the formulas of docs/guides/training.md read.
struct Answers {
  std::vector<double> sums, counts;  // [batch, answers]
};
Answers answers_of(const std::vector<double>& p, const FirstBatch& rows) {
  Answers made;
  for (size_t first = 0; first < p.size(); first += kAnswerTokens) {
    double sum = 0, count = 0;
    for (size_t t = first; t < first + kAnswerTokens; ++t)
      if (rows.labels[t] >= 0) sum += p[t], ++count;
    made.sums.push_back(sum), made.counts.push_back(count);
  }
  return made;
}

// The losses of pairs, in f64. p and q: log probabilities of the model and of the reference; e: label_smoothing 0.2.
double pair_loss(const std::string& loss, const std::vector<double>& p, const std::vector<double>& q,
                 const FirstBatch& rows, const FirstBatch& all) {
  constexpr double kBeta = 0.4, kSmoothing = 0.2, kGamma = 0.5, kAlpha = 1;
  const Answers own = answers_of(p, rows), reference = answers_of(q, rows);
  double total = 0, token_loss = 0, tokens = 0;
  const bool has_prompts = loss == "orpo";
  for (size_t row = 0; row < kRowsOfStep; ++row) {
    const size_t c = 2 * row, r = c + 1;
    const bool means = loss == "ipo" || loss == "orpo" || loss == "simpo";
    const double nc = means ? own.counts[c] : 1, nr = means ? own.counts[r] : 1;
    const double chosen = own.sums[c] / nc, rejected = own.sums[r] / nr;
    const double referred = reference.sums[c] / nc - reference.sums[r] / nr;
    const double x = kBeta * (chosen - rejected - (loss == "simpo" || loss == "cpo" ? 0 : referred)) -
                     (loss == "simpo" ? kGamma : 0);
    if (loss == "ipo") total += std::pow(chosen - rejected - referred - 1 / (2 * kBeta), 2);
    if (loss == "hinge") total += std::max(0.0, 1 - x);
    if (loss == "robust")
      total += ((1 - kSmoothing) * softplus(-x) - kSmoothing * softplus(x)) / (1 - 2 * kSmoothing);
    if (loss == "dpo" || loss == "simpo" || loss == "cpo")
      total += (1 - kSmoothing) * softplus(-x) + kSmoothing * softplus(x);
    if (loss == "orpo") {
      const auto odds = [](double mean) { return mean - std::log1p(-std::exp(mean)); };
      total += kBeta * softplus(-(odds(chosen) - odds(rejected)));
    }
    const FirstBatch& counted = has_prompts ? all : rows;
    for (size_t t = c * kAnswerTokens; t < r * kAnswerTokens; ++t)
      if (counted.labels[t] >= 0) token_loss -= p[t], ++tokens;
  }
  total /= kRowsOfStep;
  return loss == "orpo" || loss == "cpo" ? total + kAlpha * token_loss / tokens : total;
}

// Central differences of a function of p, at labels.
std::vector<double> central_differences(const std::function<double(const std::vector<double>&)>& loss,
                                        std::vector<double> p, const std::vector<int32_t>& labels) {
  constexpr double kStep = 1e-5;
  std::vector<double> gradients(p.size());
  for (size_t i = 0; i < p.size(); ++i) {
    if (labels[i] < 0) continue;
    const double at = p[i];
    p[i] = at + kStep;
    const double above = loss(p);
    p[i] = at - kStep;
    gradients[i] = (above - loss(p)) / (2 * kStep);
    p[i] = at;
  }
  return gradients;
}

}  // namespace

TEST_CASE("preference losses of pairs and their updates are those of the formulas in f64") {
  const Scratch scratch;
  const Runtime rt = runtime();
  const std::string pairs = write_pairs(scratch, "pairs.jsonl", 6);
  const std::string reference = saved_model(scratch, "r.tsr", kPreferenceModel, 9);
  for (const char* const loss : {"dpo", "ipo", "hinge", "robust", "orpo", "simpo", "cpo"}) {
    CAPTURE(loss);
    PreferenceRun run{.loss = loss, .path = pairs};
    const std::string name = loss;
    const bool refers = name == "dpo" || name == "ipo" || name == "hinge" || name == "robust";
    if (refers) run.reference = reference;
    if (name != "ipo" && name != "hinge" && name != "orpo") run.more = {{"label_smoothing", 0.2}};
    const FirstBatch rows(preference_data(run), 2);
    const FirstBatch all = name == "orpo" ? rows.with_prompts() : rows;
    const Model model = described_with_bytes(kPreferenceModel, 7),
                other = described_with_bytes(kPreferenceModel, 9);
    Primitives parts(rt, model, rows.width);
    const std::vector<double> p = parts.logprobs(all);
    const std::vector<double> q = Primitives(rt, other, rows.width).logprobs(all);
    const auto formula = [&](const std::vector<double>& at) { return pair_loss(name, at, q, rows, all); };
    const Trainer without_logits = preference_trainer(rt, fused(run));
    CHECK(preference_step(without_logits).loss == doctest::Approx(formula(p)).epsilon(3e-5));
    const Trainer trainer = preference_trainer(rt, run);
    const tsr_step step = preference_step(trainer);
    // Sums of some 60 log probabilities in f32, of about 300 in all, times beta: 2e-5 of a loss about 1.
    CHECK(step.loss == doctest::Approx(formula(p)).epsilon(3e-5));
    parts.step(all, central_differences(formula, p, all.labels));
    const auto found = preference_values(trainer, kPreferenceModel),
               wanted = preference_values(parts.trainer, kPreferenceModel);
    CHECK(preference_difference(found, wanted) < 2e-6);  // of updates up to 1e-2: gradients in f32
    CHECK(preference_difference(preference_values(without_logits, kPreferenceModel), wanted) < 2e-6);
    CHECK(preference_difference(found, preference_values(preference_trainer(rt, run), kPreferenceModel)) >
          1e-4);
    double chosen = 0, rejected = 0, right = 0;
    const Answers own = answers_of(p, rows), referred = answers_of(q, rows);
    for (size_t row = 0; row < kRowsOfStep; ++row) {
      const bool means = name == "orpo" || name == "simpo";
      const auto reward = [&](size_t at) {
        return 0.4 *
               (refers ? own.sums[at] - referred.sums[at] : own.sums[at] / (means ? own.counts[at] : 1));
      };
      chosen += reward(2 * row) / kRowsOfStep, rejected += reward(2 * row + 1) / kRowsOfStep;
      right += (reward(2 * row) > reward(2 * row + 1) ? 1.0 : 0.0) / kRowsOfStep;
    }
    CHECK(step.chosen_reward == doctest::Approx(chosen).epsilon(1e-4));
    CHECK(step.rejected_reward == doctest::Approx(rejected).epsilon(1e-4));
    CHECK(step.reward_margin == doctest::Approx(chosen - rejected).epsilon(1e-4));
    CHECK(step.reward_accuracy == doctest::Approx(right));
  }
}

TEST_CASE(
    "kto and its update are those of the formula in f64, with a reference point of mismatched answers") {
  const Scratch scratch;
  const Runtime rt = runtime();
  PreferenceRun run{.loss = "kto", .path = write_labelled(scratch, "l.jsonl", 8)};
  run.reference = saved_model(scratch, "r.tsr", kPreferenceModel, 9);
  run.more = {{"desirable_weight", 1.5}, {"undesirable_weight", 0.5}};
  const FirstBatch rows(preference_data(run), 1);
  // The answer of the row before, of the first row the last one's.
  FirstBatch mismatched = rows;
  for (size_t row = 0; row < kRowsOfStep; ++row) {
    const auto at = [&](size_t of, size_t t) { return of * kAnswerTokens + t; };
    const size_t other = (row + kRowsOfStep - 1) % kRowsOfStep;
    const auto prompt = [&](size_t of) {  // its tokens: the first label is that of its last one
      size_t t = 0;
      while (rows.labels[at(of, t)] < 0) ++t;
      return t + 1;
    };
    std::vector<int32_t> ids(rows.tokens.begin() + static_cast<ptrdiff_t>(at(row, 0)),
                             rows.tokens.begin() + static_cast<ptrdiff_t>(at(row, prompt(row))));
    const size_t own = ids.size();
    for (size_t t = prompt(other); t < kAnswerTokens && rows.segments[at(other, t)] == 0; ++t)
      ids.push_back(rows.tokens[at(other, t)]);
    ids.resize(std::min<size_t>(ids.size(), kAnswerTokens));
    for (size_t t = 0; t < kAnswerTokens; ++t) {
      mismatched.tokens[at(row, t)] = t < ids.size() ? ids[t] : 0;
      mismatched.labels[at(row, t)] = t + 1 >= own && t + 1 < ids.size() ? ids[t + 1] : -1;
      mismatched.segments[at(row, t)] = t < ids.size() ? 0 : 1;
      mismatched.positions[at(row, t)] = static_cast<int32_t>(t);
    }
  }
  const Model model = described_with_bytes(kPreferenceModel, 7),
              other = described_with_bytes(kPreferenceModel, 9);
  Primitives parts(rt, model, rows.width), reference(rt, other, rows.width);
  const std::vector<double> p = parts.logprobs(rows), q = reference.logprobs(rows);
  const Answers there = answers_of(reference.logprobs(mismatched), mismatched),
                here = answers_of(parts.logprobs(mismatched), mismatched), referred = answers_of(q, rows);
  double point = 0;
  for (size_t row = 0; row < kRowsOfStep; ++row) point += (here.sums[row] - there.sums[row]) / kRowsOfStep;
  point = std::max(0.0, point);
  const auto formula = [&](const std::vector<double>& at) {
    const Answers own = answers_of(at, rows);
    double total = 0;
    for (size_t row = 0; row < kRowsOfStep; ++row) {
      const double x = 0.4 * (own.sums[row] - referred.sums[row] - point);
      total += row % 3 == 0 ? 0.5 / (1 + std::exp(-x)) : 1.5 / (1 + std::exp(x));
    }
    return total / kRowsOfStep;
  };
  const Trainer trainer = preference_trainer(rt, run);
  CHECK(preference_step(trainer).loss == doctest::Approx(formula(p)).epsilon(3e-5));
  parts.step(rows, central_differences(formula, p, rows.labels));
  CHECK(preference_difference(preference_values(trainer, kPreferenceModel),
                              preference_values(parts.trainer, kPreferenceModel)) < 2e-6);
}
