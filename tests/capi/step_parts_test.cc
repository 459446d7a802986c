// Steps in parts: accumulations and updates are the whole steps of the same trainer, on any devices; losses by
// their formulas, gradients by finite differences; what is refused.
#include <bit>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/capi/largest_difference.h"
#include "tests/capi/step_parts.h"
#include "tests/number_after.h"

namespace capi_test::step_parts {

TEST_CASE("a step in parts is the whole step, on any devices") {
  const Rows rows(4);
  for (const Layout& layout :
       {Layout{}, Layout{"cpu:2", "dp=2,zero=1"}, Layout{"cpu:2", "dp=2,zero=2"},
        Layout{"cpu:2", "dp=2,zero=3"}, Layout{"cpu:2", "tp=2"}, Layout{"cpu:2", "pp=2"},
        Layout{"cpu:2", "dp=2,mb=1"}, Layout{"cpu:2", "pp=2", kTied}, Layout{"cpu:2", "cp=ring:2"},
        Layout{"cpu:2", "cp=ulysses:2"}}) {
    INFO(layout.parallel);
    Parts whole(layout), parts(layout);
    for (int i = 0; i < 3; ++i) {
      const tsr_step expected = whole.whole(rows);
      std::vector<float> logprobs;
      const double loss = parts.accumulate(rows, "cross_entropy", scale_of(rows), &logprobs);
      double sum = 0;
      for (size_t t = 0; t < logprobs.size(); ++t) {
        sum -= logprobs[t];
        if (rows.labels[t] < 0) CHECK(std::bit_cast<uint32_t>(logprobs[t]) == 0);
      }
      CHECK(std::fabs(sum * scale_of(rows) - loss) < 1e-5);
      const tsr_step found = parts.update();
      CHECK(found.step == expected.step);
      CHECK(found.lr == expected.lr);
      CHECK(std::fabs(loss - expected.loss) < 1e-6);
      CHECK(std::fabs(found.grad_norm - expected.grad_norm) < 1e-5);
    }
    for (const char* name : kSome) {
      if (layout.model == kTied && name != std::string("token_embedding")) continue;
      if (layout.parallel.empty())
        CHECK(whole.read(name) == parts.read(name));
      else
        CHECK(largest_difference(whole.read(name), parts.read(name)) < 1e-6);
    }
    CHECK(largest_difference(parts.forward(rows), whole.forward(rows)) < 1e-5);
  }
}

TEST_CASE("a step in parts is the whole step where both are fused, to the bit") {
  const Rows rows(4);
  Parts whole({}, 4, "cross_entropy", "f32", "on"), parts({}, 4, "cross_entropy", "f32", "on");
  for (int i = 0; i < 2; ++i) {
    const double loss = whole.whole(rows).loss;
    CHECK(std::fabs(parts.accumulate(rows, "cross_entropy", scale_of(rows)) - loss) < 1e-6);
    parts.update();
  }
  for (const char* name : kSome) CHECK(whole.read(name) == parts.read(name));
  CHECK(parts.forward(rows) == whole.forward(rows));
}

TEST_CASE("several accumulations are one of all their rows, and rows that are missing have no weight") {
  const Rows rows(4);
  for (const Layout& layout : {Layout{}, Layout{"cpu:2", "dp=2,zero=2"}, Layout{"cpu:2", "pp=2"}}) {
    INFO(layout.parallel);
    Parts once(layout), often(layout);
    double loss = 0;
    std::vector<float> all, part;
    const double expected = once.accumulate(rows, "cross_entropy", scale_of(rows), &all);
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 2}, {2, 1}, {3, 1}}) {
      loss += often.accumulate(rows.part(first, count), "cross_entropy", scale_of(rows), &part);
      for (size_t i = 0; i < part.size(); ++i)
        CHECK(std::fabs(part[i] - all[static_cast<size_t>(first * kSeq) + i]) < 1e-5);
    }
    CHECK(std::fabs(loss - expected) < 1e-6);
    for (const char* name : kSome) {
      const std::string gradient = std::string(name) + ".grad";
      CHECK(largest_difference(once.read(gradient.c_str()), often.read(gradient.c_str())) < 1e-6);
    }
    CHECK(std::fabs(once.update().grad_norm - often.update().grad_norm) < 1e-5);
    for (const char* name : kSome) CHECK(largest_difference(once.read(name), often.read(name)) < 1e-5);
  }
}

TEST_CASE("rows that are shorter than the trainer's have the same log probabilities and gradients") {
  constexpr int64_t kShort = 7;
  const Rows rows(3);
  Rows cut = rows;  // of which the ends have no weight
  tsr_batch batch = rows.batch();
  std::vector<int32_t> tokens, labels;
  for (size_t i = 0; i < rows.tokens.size(); ++i) {
    if (static_cast<int64_t>(i) % kSeq < kShort) {
      tokens.push_back(rows.tokens[i]);
      labels.push_back(rows.labels[i]);
    } else {
      cut.labels[i] = -1;
    }
  }
  batch.tokens = tokens.data();
  batch.labels = labels.data();
  batch.seq = kShort;
  Parts expected, found;
  std::vector<float> logprobs, own(tokens.size());
  const double loss = expected.accumulate(cut, "cross_entropy", 1, &logprobs);
  double value = 0;
  size_t count = 0;
  ok(tsr_trainer_forward_backward(found.trainer.get(), &batch, "cross_entropy", nullptr, &value, own.data(),
                                  own.size(), &count));
  CHECK(count == own.size());
  CHECK(std::fabs(value - loss) < 1e-5);
  for (size_t i = 0; i < own.size(); ++i)
    CHECK(std::fabs(own[i] - logprobs[i / kShort * kSeq + i % kShort]) < 1e-5);
  for (const char* name : kSome) {
    const std::string gradient = std::string(name) + ".grad";
    CHECK(largest_difference(expected.read(gradient.c_str()), found.read(gradient.c_str())) < 1e-5);
  }
}

TEST_CASE("losses of ratios are their formulas, and so are their gradients") {
  const Rows rows(3);
  struct Loss {
    const char* name;
    // p0: p where it is a constant; mean: the mean of p0 - q in the row.
    std::function<double(double p, double q, double a, double p0, double mean)> of;
  };
  const auto clip = [](double r) { return std::min(std::max(r, 0.8), 1.2); };
  const Loss losses[] = {
      {"importance_sampling",
       [](double p, double q, double a, double, double) { return -std::exp(p - q) * a; }},
      {"ppo",
       [&](double p, double q, double a, double, double) {
         const double r = std::exp(p - q);
         return -std::min(r * a, clip(r) * a);
       }},
      {"cispo",
       [&](double p, double q, double a, double p0, double) { return -clip(std::exp(p0 - q)) * a * p; }},
      {"dro",
       [](double p, double q, double a, double, double) { return 0.05 / 2 * (p - q) * (p - q) - a * p; }},
      {"gspo",
       [](double p, double, double a, double p0, double mean) {
         const double r = std::exp(mean + p - p0);
         return -std::min(r * a, std::min(std::max(r, 1 - 3e-4), 1 + 4e-4) * a);
       }},
  };
  for (const auto& [layout, fused_loss] : {std::pair(Layout{}, "off"),
                                           {Layout{"cpu:2", "dp=2,zero=1"}, "off"},
                                           {Layout{"cpu:2", "tp=2"}, "off"},
                                           {Layout{}, "on"},
                                           {Layout{"cpu:2", "tp=2"}, "on"},
                                           {Layout{"cpu:2", "dp=2,zero=3"}, "on"}}) {
    INFO(layout.parallel);
    INFO(fused_loss);
    Parts parts(layout, 4, kAllLosses, "f32", fused_loss), expected(layout, 4, "gradient");
    for (const Loss& loss : losses) {
      INFO(loss.name);
      std::vector<float> logprobs;
      const double found = parts.accumulate(rows, loss.name, 0.5, &logprobs);
      double sum = 0;
      std::vector<float> gradients(logprobs.size());
      std::vector<double> means(static_cast<size_t>(rows.rows)), counts(means.size());
      for (size_t i = 0; i < logprobs.size(); ++i) {
        if (rows.labels[i] < 0) continue;
        means[i / kSeq] += double{logprobs[i]} - rows.sampler[i];
        counts[i / kSeq] += 1;
      }
      for (size_t row = 0; row < means.size(); ++row) means[row] /= counts[row];
      int clipped = 0;
      for (size_t i = 0; i < logprobs.size(); ++i) {
        if (rows.labels[i] < 0) continue;
        const double p = logprobs[i], q = rows.sampler[i], a = rows.advantages[i], h = 1e-6;
        clipped += std::exp(p - q) < 0.8 || std::exp(p - q) > 1.2;
        const double mean = means[i / kSeq];
        sum += 0.5 * loss.of(p, q, a, p, mean);
        gradients[i] = static_cast<float>(
            0.5 * (loss.of(p + h, q, a, p, mean) - loss.of(p - h, q, a, p, mean)) / (2 * h));
      }
      CHECK(clipped > 3);
      CHECK(std::fabs(found - sum) < 1e-4);
      expected.backward(rows, gradients);
      for (const char* name : kSome) {
        const std::string gradient = std::string(name) + ".grad";
        CHECK(largest_difference(parts.read(gradient.c_str()), expected.read(gradient.c_str())) < 1e-4);
      }
      // No update of either changes the parameters: the next loss begins with the same ones.
      parts.drop();
      expected.drop();
    }
  }
}

TEST_CASE("the ratio of gspo is its document's, over the labels that have weight") {
  // Two documents in one row, of 7 and 5 tokens, and the same as two rows.
  constexpr int64_t kFirst = 7;
  const auto trainer = [](const Runtime& rt, int64_t segments) {
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(rt.get(), described(kModel).get(), nullptr,
                       options({{"batch", 2},
                                {"seq", kSeq},
                                {"batch_segments", segments},
                                {"losses", std::string("gspo")}})
                           .get(),
                       &made));
    return Trainer(made);
  };
  const Runtime rt = runtime();
  const Trainer packed = trainer(rt, 1), apart = trainer(rt, 0);
  Rows rows(1);
  std::vector<int32_t> segments(kSeq, 0), positions(kSeq);
  std::vector<float> weights(kSeq);
  for (size_t t = 0; t < kSeq; ++t) {
    segments[t] = t < kFirst ? 0 : 1;
    positions[t] = static_cast<int32_t>(t < kFirst ? t : t - kFirst);
    weights[t] = positions[t] < 2 ? 0.0f : 1.0f;  // without the prompt's
    rows.labels[t] = t + 1 == kFirst || t + 1 == kSeq ? -1 : rows.tokens[t + 1];
  }
  Rows two(2);
  std::vector<float> two_weights(2 * kSeq);
  for (size_t row = 0; row < 2; ++row)
    for (size_t t = 0; t < kSeq; ++t) {
      const size_t to = row * kSeq + t, from = row * kFirst + t;
      const bool is_own = from < static_cast<size_t>(row == 0 ? kFirst : kSeq);
      two.labels[to] = is_own ? rows.labels[from] : -1;
      if (!is_own) continue;
      two.tokens[to] = rows.tokens[from];
      two.sampler[to] = rows.sampler[from];
      two.advantages[to] = rows.advantages[from];
      two_weights[to] = weights[from];
    }
  tsr_batch one_row = rows.batch(), two_rows = two.batch();
  one_row.segments = segments.data();
  one_row.positions = positions.data();
  one_row.weights = weights.data();
  two_rows.weights = two_weights.data();
  const auto run = [](const Trainer& on, const tsr_batch& batch, std::vector<float>& logprobs) {
    double value = 0;
    size_t count = 0;
    ok(tsr_trainer_forward_backward(on.get(), &batch, "gspo", options({{"eps_low", 0.1}, {"eps_high", 0.3}}).get(),
                                    &value, logprobs.data(), logprobs.size(), &count));
    return value;
  };
  std::vector<float> logprobs(kSeq), others(2 * kSeq);
  const double found = run(packed, one_row, logprobs), expected = run(apart, two_rows, others);
  double sum = 0;
  for (const auto& [begin, end] : {std::pair<size_t, size_t>{0, kFirst}, {kFirst, kSeq}}) {
    double mean = 0, count = 0;
    for (size_t t = begin; t < end; ++t) {
      if (rows.labels[t] < 0) continue;
      mean += weights[t] * (double{logprobs[t]} - rows.sampler[t]);
      count += weights[t];
    }
    const double ratio = std::exp(mean / count), clipped = std::min(std::max(ratio, 0.9), 1.3);
    for (size_t t = begin; t < end; ++t)
      if (rows.labels[t] >= 0)
        sum -= std::min(ratio * rows.advantages[t], clipped * rows.advantages[t]);
  }
  CHECK(std::fabs(found - sum) < 1e-5);  // f32 sums of 10 numbers of about 1
  CHECK(std::fabs(found - expected) < 1e-5);
  for (const char* name : kSome) {
    const std::string gradient = std::string(name) + ".grad";
    CHECK(largest_difference(parameter(packed, gradient.c_str()), parameter(apart, gradient.c_str())) < 1e-5);
  }
  for (float& weight : weights) weight = 0;
  const auto refused = [&](const char* part) {
    const Error error = take(tsr_trainer_forward_backward(packed.get(), &one_row, "gspo", nullptr, nullptr,
                                                          nullptr, 0, nullptr));
    INFO(error.message);
    CHECK(error.code == TSR_INVALID_ARGUMENT);
    CHECK(error.message.find(part) != std::string::npos);
  };
  refused("row 0, document 0");
  weights[3] = -1;
  refused("-1 in row 0, token 3: wanted 0 or more");
}

TEST_CASE("gradients of log probabilities become those of parameters, as finite differences say") {
  const Rows rows(4);
  Parts parts({}, 4, "gradient");
  const std::vector<float> given = noise(rows.tokens.size(), 77);
  parts.backward(rows, given);
  const auto value = [&] {
    double sum = 0;
    const std::vector<float> logprobs = parts.forward(rows);
    for (size_t i = 0; i < logprobs.size(); ++i) sum += double{logprobs[i]} * given[i];
    return sum;
  };
  for (const char* name : kSome) {
    const std::vector<float> gradient = parts.read((std::string(name) + ".grad").c_str());
    std::vector<float> values = parts.read(name);
    tsr_tensor* read = nullptr;
    ok(tsr_trainer_read(parts.trainer.get(), name, &read));
    const Tensor owner(read);
    const std::vector<int64_t> dims(tsr_tensor_dims(read), tsr_tensor_dims(read) + tsr_tensor_rank(read));
    // Along the gradient itself the derivative is its square.
    double square = 0;
    for (const float g : gradient) square += double{g} * g;
    const double step = 1e-2 / std::sqrt(square);
    const auto moved = [&](double by) {
      std::vector<float> at = values;
      for (size_t i = 0; i < at.size(); ++i) at[i] += static_cast<float>(by * gradient[i]);
      ok(tsr_trainer_write(parts.trainer.get(), name, tensor_f32(dims, at).get()));
      return value();
    };
    const double slope = (moved(step) - moved(-step)) / (2 * step);
    moved(0);
    CHECK(std::fabs(slope - square) < 0.01 * square);
  }
}

TEST_CASE("a loop in parts overfits a sentence") {
  Parts parts({}, 1);
  const Rows rows(1, 5);
  double loss = 9;
  for (int i = 0; i < 30; ++i) {
    loss = parts.accumulate(rows, "cross_entropy", scale_of(rows));
    parts.update();
  }
  CHECK(loss < 0.05);
}

TEST_CASE("the arena of steps in parts is as large as predicted") {
  const Rows rows(4);
  for (const Layout& layout : {Layout{}, Layout{"cpu:2", "dp=2,zero=2"}, Layout{"cpu:2", "pp=2"}}) {
    INFO(layout.parallel);
    Parts parts(layout, 4, kAllLosses);
    const std::vector<float> given = noise(rows.tokens.size(), 7);
    for (int i = 0; i < 2; ++i) {
      parts.whole(rows);
      for (const char* loss : {"cross_entropy", "importance_sampling", "ppo", "cispo", "dro", "gspo"})
        parts.accumulate(rows, loss, 0.1);
      parts.backward(rows, given);
      parts.update();
      parts.forward(rows);
      evaluated(parts.trainer);
    }
    std::string found = report(parts.trainer);
    int devices = 0;
    for (size_t at; (at = found.find("\"measured\":")) != std::string::npos; ++devices) {
      CHECK(tessera::test::number_after(found.substr(at), "\"measured\":") ==
            tessera::test::number_after(found.substr(found.rfind("\"predicted\":", at)), "\"predicted\":"));
      found.erase(0, at + 1);
    }
    CHECK(devices == (layout.devices == "cpu:1" ? 1 : 2));
  }
}

TEST_CASE("an update from batches without labels is left out") {
  const Runtime rt = runtime();
  const Model model = described(kModel);
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(rt.get(), model.get(), nullptr,
                     options({{"batch", 2}, {"seq", kSeq}, {"losses", std::string(kAllLosses)}}).get(), &made));
  const Trainer trainer(made);
  Rows rows(2);
  const std::vector<float> zeros(rows.labels.size(), 0);
  tsr_batch batch = rows.batch();
  batch.weights = zeros.data();
  double loss = 1;
  const auto add = [&] {
    ok(tsr_trainer_forward_backward(made, &batch, "cross_entropy", nullptr, &loss, nullptr, 0, nullptr));
  };
  const auto update = [&] { return take(tsr_trainer_optimizer_step(made, nullptr, nullptr)).message; };
  add();
  CHECK(update().find("none of the 1 batches since the last update has a label") != std::string::npos);
  CHECK(update().find("no gradients wait") != std::string::npos);
  add();
  batch.weights = nullptr;
  add();
  ok(tsr_trainer_optimizer_step(made, nullptr, nullptr));
}

TEST_CASE("what cannot be part of a step is refused, and a norm that is not finite leaves the update out") {
  Parts parts({}, 2, "ppo,gradient");
  tsr_trainer* const trainer = parts.trainer.get();
  const Rows rows(2);
  tsr_batch batch = rows.batch();
  const auto refused = [&](tsr_status* status, tsr_code code, const char* part) {
    const Error error = take(status);
    INFO(error.message);
    CHECK(error.code == code);
    CHECK(error.message.find(part) != std::string::npos);
  };
  const auto run = [&](const char* loss) {
    return tsr_trainer_forward_backward(trainer, &batch, loss, nullptr, nullptr, nullptr, 0, nullptr);
  };
  refused(tsr_trainer_optimizer_step(trainer, nullptr, nullptr), TSR_FAILED_PRECONDITION,
          "no gradients wait");
  refused(run("dpo"), TSR_INVALID_ARGUMENT, "wanted one of cross_entropy");
  refused(run("gradient"), TSR_INVALID_ARGUMENT, "tsr_trainer_backward");
  refused(run("cross_entropy"), TSR_FAILED_PRECONDITION, "made for the losses ppo, gradient");
  batch.rows = 3;
  refused(run("ppo"), TSR_INVALID_ARGUMENT, "3 rows, wanted 1 to 2");
  batch.rows = 2;
  batch.seq = 13;
  refused(run("ppo"), TSR_INVALID_ARGUMENT, "13 tokens, wanted 1 to 12");
  batch.seq = kSeq;
  batch.advantages = nullptr;
  refused(run("ppo"), TSR_INVALID_ARGUMENT, "needs the batch's advantages");
  batch.advantages = rows.advantages.data();
  batch.weights = rows.advantages.data();
  refused(run("ppo"), TSR_INVALID_ARGUMENT, "weights mean nothing to loss 'ppo'");
  batch.weights = nullptr;
  batch.segments = rows.tokens.data();
  refused(run("ppo"), TSR_INVALID_ARGUMENT, "batch_segments");
  batch.segments = nullptr;
  std::vector<int32_t> tokens = rows.tokens;
  tokens[5] = 64;
  batch.tokens = tokens.data();
  refused(run("ppo"), TSR_INVALID_ARGUMENT, "64");
  batch.tokens = rows.tokens.data();
  std::vector<float> gradients(rows.tokens.size(), 1.0f);
  refused(tsr_trainer_backward(trainer, &batch, gradients.data(), 3), TSR_INVALID_ARGUMENT,
          "3 gradients for 2 rows");
  gradients[0] = INFINITY;
  refused(tsr_trainer_backward(trainer, &batch, gradients.data(), gradients.size()), TSR_INVALID_ARGUMENT,
          "wanted a finite number");

  const std::vector<float> before = parts.read(kSome[0]);
  for (float& each : gradients) each = 1e38f;
  ok(tsr_trainer_backward(trainer, &batch, gradients.data(), gradients.size()));
  const std::string folder = (std::filesystem::temp_directory_path() / "tsr_step_parts").string();
  refused(tsr_trainer_save(trainer, folder.c_str()), TSR_FAILED_PRECONDITION, "wait for an update");
  refused(tsr_trainer_optimizer_step(trainer, nullptr, nullptr), TSR_NOT_FINITE,
          "the gradients are gone");
  CHECK(parts.read(kSome[0]) == before);
  for (const float each : parts.read((std::string(kSome[0]) + ".grad").c_str())) CHECK(each == 0);
  ok(run("ppo"));
  CHECK(parts.update().step == 1);
  CHECK(parts.read(kSome[0]) != before);

  // The rate that was set is that of updates, too.
  ok(tsr_trainer_set_lr(trainer, 0.25));
  ok(run("ppo"));
  CHECK(parts.update().lr == 0.25);
  ok(tsr_trainer_set_lr(trainer, -1));

  // Checkpoints hold no gradients: trainers of whole steps resume them, and what waited is dropped.
  ok(tsr_trainer_save(trainer, folder.c_str()));
  const std::vector<float> saved = parts.read(kSome[0]);
  ok(run("ppo"));
  ok(tsr_trainer_resume(trainer, folder.c_str()));
  for (const float each : parts.read((std::string(kSome[0]) + ".grad").c_str())) CHECK(each == 0);
  refused(tsr_trainer_optimizer_step(trainer, nullptr, nullptr), TSR_FAILED_PRECONDITION,
          "no gradients wait");
  CHECK(parts.read(kSome[0]) == saved);
  std::filesystem::remove_all(folder);
}

}  // namespace capi_test::step_parts
