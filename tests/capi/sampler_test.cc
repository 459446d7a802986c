// Sampling on the host: every rule against its definition, and the tokens of the op "sample".
#include "engine/sampling/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/sampling/approximate_draw.h"
#include "engine/sampling/log_probabilities.h"
#include "tests/capi/c_api.h"

using namespace tessera;

namespace {

constexpr double kNone = -INFINITY;

// Everything that a draw depends on.
struct Case {
  SamplingSettings settings;
  std::vector<float> logits;
  std::vector<int32_t> prompt, generated, end_ids;
  std::vector<uint32_t> mask;

  bool allows(size_t token) const { return mask.empty() || (mask[token / 32] >> token % 32 & 1) != 0; }
};

Sampler sampler_of(const Case& it, uint64_t seed = 0, uint64_t sequence = 0) {
  Result<Sampler> made =
      Sampler::create(std::make_shared<const SamplingSettings>(it.settings),
                      {static_cast<int64_t>(it.logits.size()), it.prompt, it.end_ids, seed, sequence});
  REQUIRE_MESSAGE(made.ok(), made.status().to_string());
  for (const int32_t token : it.generated) made->accept(token);
  return std::move(made).value();
}

// Rules 1 to 4 by definition, with logits rounded to f32 where rows hold them.
std::vector<double> adjusted_by_definition(const Case& it) {
  const SamplingSettings& s = it.settings;
  std::vector<std::pair<int32_t, bool>> history;  // token, whether it was generated
  for (const int32_t token : it.prompt) history.emplace_back(token, false);
  for (const int32_t token : it.generated) history.emplace_back(token, true);
  if (s.penalty_last > 0 && std::ssize(history) > s.penalty_last)
    history.erase(history.begin(), history.end() - s.penalty_last);
  std::vector<double> logits;
  for (size_t token = 0; token < it.logits.size(); ++token) {
    double l = it.logits[token];
    int all = 0, generated = 0;
    for (const auto& [id, made] : history)
      if (static_cast<size_t>(id) == token) ++all, generated += made ? 1 : 0;
    if (all > 0) l = l > 0 ? l / s.repetition_penalty : l * s.repetition_penalty;
    if (generated > 0) l -= s.frequency_penalty * generated + s.presence_penalty;
    l = double(float(l));
    for (const TokenBias& bias : s.logit_bias)
      if (static_cast<size_t>(bias.token) == token) l = double(float(l) + bias.bias);
    if (!it.allows(token) || std::isnan(l)) l = kNone;
    logits.push_back(l);
  }
  std::set<int64_t> ends(s.stop_ids.begin(), s.stop_ids.end());
  if (!s.ignore_eos) ends.insert(it.end_ids.begin(), it.end_ids.end());
  if (std::ssize(it.generated) >= s.min_tokens) return logits;
  std::vector<double> without = logits;
  for (const int64_t token : ends) without[static_cast<size_t>(token)] = kNone;
  return *std::ranges::max_element(without) == kNone ? logits : without;
}

// Keeps of `p` the first tokens of `order` up to that with which the sum reaches `wanted` of all. Tokens that earlier rules
// dropped have 0 and are passed over.
void keep_first(std::vector<double>& p, const std::vector<size_t>& order, double wanted) {
  const double all = std::accumulate(p.begin(), p.end(), 0.0);
  double sum = 0;
  bool is_full = false;
  for (const size_t token : order) {
    if (p[token] == 0) continue;
    if (is_full) p[token] = 0;
    sum += p[token];
    is_full = is_full || sum >= wanted * all;
  }
}

std::vector<double> distribution_by_definition(const Case& it) {
  const SamplingSettings& s = it.settings;
  const std::vector<double> logits = adjusted_by_definition(it);
  const double top = *std::ranges::max_element(logits), temperature = double(float(s.temperature));
  std::vector<double> p(logits.size());
  if (temperature == 0) {
    p[static_cast<size_t>(std::ranges::find(logits, top) - logits.begin())] = 1;
    return p;
  }
  for (size_t token = 0; token < p.size(); ++token) p[token] = std::exp((logits[token] - top) / temperature);
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (s.top_k > 0)
    for (size_t i = static_cast<size_t>(s.top_k); i < order.size(); ++i) p[order[i]] = 0;
  if (s.typical_p < 1) {
    const double all = std::accumulate(p.begin(), p.end(), 0.0);
    double entropy = 0;
    for (const double weight : p) entropy -= weight > 0 ? weight / all * std::log(weight / all) : 0;
    std::vector<size_t> typical = order;
    const auto distance = [&](size_t token) { return std::abs(-std::log(p[token] / all) - entropy); };
    std::ranges::stable_sort(typical, [&](size_t a, size_t b) { return distance(a) < distance(b); });
    keep_first(p, typical, s.typical_p);
  }
  if (s.top_p < 1) keep_first(p, order, double(float(s.top_p)));
  const double largest = *std::ranges::max_element(p);
  for (double& weight : p)
    if (weight < s.min_p * largest) weight = 0;
  const double all = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& weight : p) weight /= all;
  return p;
}

// A case with some of all rules.
Case random_case(std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<double> values) {
    return values.begin()[random() % values.size()];
  };
  const auto chance = [&](unsigned of) { return random() % of == 0; };
  Case it;
  const size_t V = 1 + random() % 70;
  std::normal_distribution<float> normal(0, static_cast<float>(one_of({0.1, 1, 4})));
  const bool has_ties = chance(4);
  for (size_t i = 0; i < V; ++i) it.logits.push_back(has_ties ? std::round(normal(random)) : normal(random));
  if (chance(8)) it.logits[random() % V] = NAN;
  if (chance(8)) it.logits[random() % V] = -INFINITY;
  const auto token = [&] { return static_cast<int32_t>(random() % V); };
  for (size_t i = random() % 12; i > 0; --i) it.prompt.push_back(token());
  for (size_t i = random() % 12; i > 0; --i) it.generated.push_back(token());
  if (chance(2)) it.end_ids = {token(), token()};
  if (chance(3)) {
    for (size_t i = 0; i < (V + 31) / 32; ++i) it.mask.push_back(static_cast<uint32_t>(random() | random()));
    it.mask[0] |= 1;
  }
  it.logits[0] = 1;  // one that is left in any case
  SamplingSettings& s = it.settings;
  s.temperature = one_of({0, 0.3, 0.8, 1, 2.5});
  if (chance(2)) s.top_k = 1 + static_cast<int64_t>(random() % (V + 5));
  if (chance(2)) s.top_p = one_of({0, 0.3, 0.71, 0.95});
  if (chance(3)) s.min_p = one_of({0.01, 0.1, 0.6, 1});
  if (chance(3)) s.typical_p = one_of({0, 0.2, 0.73, 0.97});
  if (chance(2)) s.repetition_penalty = one_of({0.7, 1.3});
  if (chance(3)) s.presence_penalty = one_of({-1, 0.4});
  if (chance(3)) s.frequency_penalty = one_of({-0.3, 0.6});
  if (chance(3)) s.penalty_last = 1 + static_cast<int64_t>(random() % 20);
  if (chance(4)) s.logit_bias = {{token(), 3}};
  if (chance(3)) s.min_tokens = static_cast<int64_t>(random() % 12);
  if (chance(4)) s.stop_ids = {token()};
  s.ignore_eos = chance(3);
  return it;
}

// The op "sample" of a CPU device, on one row of V logits.
class SampleOp {
 public:
  explicit SampleOp(int64_t V) : V_(V) {
    tsr_graph* graph = nullptr;
    capi_test::ok(tsr_graph_new(&graph));
    graph_.reset(graph);
    std::vector<tsr_value> operands;
    const auto input = [&](const char* name, tsr_dtype dtype, std::vector<int64_t> dims) {
      operands.emplace_back();
      capi_test::ok(tsr_graph_input(graph, name, dtype, static_cast<int32_t>(dims.size()), dims.data(),
                                    &operands.back()));
    };
    input("logits", TSR_F32, {1, V});
    input("temperature", TSR_F32, {});
    input("top_k", TSR_I32, {});
    input("top_p", TSR_F32, {});
    input("seed", TSR_I64, {});
    input("start", TSR_I32, {1});
    input("length", TSR_I32, {1});
    tsr_value token;
    size_t count = 0;
    capi_test::ok(
        tsr_graph_node(graph, "sample", operands.data(), operands.size(), nullptr, &token, 1, &count));
    capi_test::ok(tsr_graph_output(graph, "token", token));
    tsr_devices* devices = nullptr;
    capi_test::ok(tsr_devices_open(runtime_.get(), "cpu:1", &devices));
    devices_.reset(devices);
    tsr_plan* plan = nullptr;
    capi_test::ok(tsr_plan_new_for_graph(devices, graph, nullptr, &plan));
    plan_.reset(plan);
    const tsr_entry entry = {sizeof(tsr_entry), "main", graph, plan};
    tsr_program* program = nullptr;
    capi_test::ok(tsr_program_new(devices, &entry, 1, &program));
    program_.reset(program);
    tsr_session* session = nullptr;
    capi_test::ok(tsr_session_new(program, nullptr, &session));
    session_.reset(session);
  }

  int32_t draw(const std::vector<float>& logits, const SamplingSettings& settings, int64_t seed,
               int32_t position) {
    feed("logits", TSR_F32, {1, V_}, logits.data());
    const float temperature = static_cast<float>(settings.temperature),
                top_p = static_cast<float>(settings.top_p);
    const int32_t top_k = static_cast<int32_t>(settings.top_k), start = position - 1, length = 1;
    feed("temperature", TSR_F32, {}, &temperature);
    feed("top_k", TSR_I32, {}, &top_k);
    feed("top_p", TSR_F32, {}, &top_p);
    feed("seed", TSR_I64, {}, &seed);
    feed("start", TSR_I32, {1}, &start);
    feed("length", TSR_I32, {1}, &length);
    capi_test::ok(tsr_session_run(session_.get(), "main"));
    tsr_tensor* made = nullptr;
    capi_test::ok(tsr_session_fetch(session_.get(), "main", "token", &made));
    return *static_cast<const int32_t*>(tsr_tensor_data(capi_test::Tensor(made).get()));
  }

 private:
  void feed(const char* name, tsr_dtype dtype, std::vector<int64_t> dims, const void* values) {
    tsr_tensor* made = nullptr;
    capi_test::ok(tsr_tensor_new(dtype, static_cast<int32_t>(dims.size()), dims.data(), &made));
    const capi_test::Tensor tensor(made);
    std::memcpy(tsr_tensor_writable(made), values, tsr_tensor_bytes(made));
    capi_test::ok(tsr_session_feed(session_.get(), "main", name, made));
  }

  int64_t V_;
  capi_test::Runtime runtime_ = capi_test::runtime();
  capi_test::Graph graph_;
  capi_test::Devices devices_;
  capi_test::Plan plan_;
  capi_test::Program program_;
  capi_test::Session session_;
};

int32_t drawn(const Sampler& sampler, const Case& it, int64_t position, SamplerScratch& scratch) {
  const Result<int32_t> token = sampler.draw(it.logits, it.mask, position, scratch);
  REQUIRE_MESSAGE(token.ok(), token.status().to_string());
  return *token;
}

}  // namespace

TEST_CASE("draws are tokens that the rules by definition allow") {
  std::mt19937 random(1);
  SamplerScratch scratch;
  for (int round = 0; round < 6000; ++round) {
    const Case it = random_case(random);
    CAPTURE(round);
    const std::vector<double> p = distribution_by_definition(it);
    const Sampler sampler = sampler_of(it, 5, 1);
    for (int position = 0; position < 8; ++position)
      REQUIRE(p[static_cast<size_t>(drawn(sampler, it, position, scratch))] > 0);
  }
}

TEST_CASE("tokens are drawn as often as the distribution says") {
  std::mt19937 random(2);
  SamplerScratch scratch;
  for (int round = 0; round < 24; ++round) {
    Case it = random_case(random);
    if (it.settings.temperature == 0) it.settings.temperature = 1;
    const std::vector<double> p = distribution_by_definition(it);
    const Sampler sampler = sampler_of(it, 5, 1);
    std::vector<double> counts(p.size());
    constexpr int kDraws = 40000;
    for (int position = 0; position < kDraws; ++position)
      counts[static_cast<size_t>(drawn(sampler, it, position, scratch))] += 1;
    double chi_square = 0, rare = 0, rare_count = 0;
    int freedom = -1;
    for (size_t token = 0; token < p.size(); ++token) {
      if (p[token] == 0) REQUIRE(counts[token] == 0);
      if (p[token] * kDraws < 20) {
        rare += p[token] * kDraws, rare_count += counts[token];
        continue;
      }
      ++freedom;
      chi_square += std::pow(counts[token] - p[token] * kDraws, 2) / (p[token] * kDraws);
    }
    CAPTURE(round);
    CHECK(std::abs(rare_count - rare) < 5 * std::sqrt(rare) + 5);
    // The mean of the distribution is its degrees of freedom, its variance twice as much.
    CHECK(chi_square < freedom + 4 * std::sqrt(2.0 * std::max(1, freedom)) + 4);
  }
}

TEST_CASE("with temperature, top_k and top_p alone the token is the op's") {
  std::mt19937 random(3);
  for (const int64_t V : {1, 7, 300, 20000}) {
    SampleOp op(V);
    SamplerScratch scratch;
    for (int round = 0; round < (V > 1000 ? 60 : 150); ++round) {
      Case it;
      std::normal_distribution<float> normal(0, std::array{0.01f, 1.0f, 3.0f, 8.0f}[random() % 4]);
      const bool has_ties = random() % 4 == 0;
      for (int64_t i = 0; i < V; ++i)
        it.logits.push_back(has_ties ? std::round(normal(random)) : normal(random));
      if (random() % 4 == 0) it.logits[random() % it.logits.size()] = NAN;
      if (random() % 4 == 0)
        for (float& logit : it.logits) logit = logit < 0 ? -INFINITY : logit;
      if (V == 1) it.logits[0] = 1;
      it.settings.temperature = std::array{0.0, 1e-50, 0.05, 0.6, 0.8, 1.0, 1.7, 40.0}[random() % 8];
      it.settings.top_k = std::array<int64_t, 7>{0, 0, 0, 1, 20, V - 1, V}[random() % 7];
      it.settings.top_p = std::array{0.0, 0.1, 0.8, 0.95, 0.9999, 0.99999999999, 1.0, 1.0}[random() % 8];
      const int64_t seed = static_cast<int64_t>(uint64_t{random()} << 32 | random());
      const Sampler sampler = sampler_of(it, static_cast<uint64_t>(seed));
      if (std::ranges::none_of(it.logits, [](float logit) { return logit > kNone; }))
        continue;  // nothing to draw
      for (int draw = 0; draw < 4; ++draw) {
        const int32_t position = static_cast<int32_t>(1 + random() % 100000);
        CAPTURE(V);
        CAPTURE(it.settings.temperature);
        CAPTURE(it.settings.top_k);
        CAPTURE(it.settings.top_p);
        REQUIRE(drawn(sampler, it, position, scratch) == op.draw(it.logits, it.settings, seed, position));
      }
    }
  }
}

TEST_CASE(
    "sums of approximate weights are within their error, and a token that they make certain is the exact "
    "one") {
  std::mt19937 random(7);
  std::vector<double> blocks;
  int certain = 0, rows = 0;
  for (int round = 0; round < 600; ++round) {
    const size_t V = 1 + random() % 3000;
    std::normal_distribution<float> normal(0, std::array{0.3f, 3.0f, 10.0f, 1000.0f}[random() % 4]);
    std::vector<float> values;
    for (size_t i = 0; i < V; ++i) values.push_back(random() % 50 == 0 ? -INFINITY : normal(random));
    values[0] = 0;
    if (V > 5 && random() % 3 == 0) values[3] = NAN, values[5] = -0.0f;
    const sampling::Logits<float> logits{values.data(), static_cast<int64_t>(V)};
    const sampling::Largest top = sampling::find_largest(logits, 0, logits.V);
    const double temperature = std::array{0.001, 0.3, 0.8, 1.0, 3.0, 1e6}[random() % 6];
    std::vector<double> weights;
    for (size_t i = 0; i < V; ++i)
      weights.push_back(sampling::weight_of(top.logit - logits.logit(static_cast<int64_t>(i)), temperature));
    const WeightSums sums = sum_weights(logits, top.logit, temperature, blocks);
    REQUIRE(sums.error < 3e-5 * sums.total);
    double exact = 0, found = 0;
    for (size_t block = 0; block < blocks.size(); ++block) {
      for (size_t i = block * WeightSums::kBlockTokens;
           i < std::min<size_t>(V, (block + 1) * WeightSums::kBlockTokens); ++i)
        exact += weights[i];
      found += blocks[block];
      REQUIRE(std::abs(found - exact) < sums.error / 2);  // the bound is not reached
    }
    REQUIRE(found == sums.total);
    std::vector<int32_t> order(V);
    std::vector<double> likeliest = weights;
    std::ranges::sort(likeliest, std::greater());
    const auto few = static_cast<ptrdiff_t>(random() % std::min<size_t>(V, 40));
    const double limit = std::accumulate(likeliest.begin(), likeliest.begin() + few, 0.0) / exact;
    for (const double top_p : {1.0, 0.0, 0.5, 0.95, limit})
      for (int draw = 0; draw < 3; ++draw) {
        // Numbers, and heads, at the very limits of tokens, too.
        double uniform = std::generate_canonical<double, 53>(random);
        if (draw == 1)
          uniform =
              std::accumulate(weights.begin(), weights.begin() + static_cast<ptrdiff_t>(random() % V), 0.0) /
              exact;
        if (draw == 2) uniform = 0;
        const sampling::Choice choice{temperature, 0, top_p, std::min(uniform, 0x1.fffffffffffffp-1)};
        const std::optional<int32_t> token = draw_approximately(logits, top.logit, choice, blocks);
        ++rows;
        if (!token) continue;
        ++certain;
        REQUIRE(*token == sampling::draw_token(logits, top, choice, weights.data(), order.data()));
      }
  }
  CHECK(certain > rows / 2);
}

TEST_CASE("a token depends on seed, sequence and position, and on nothing that was drawn in the same space") {
  Case it;
  it.logits.assign(1000, 0.5f);
  SamplerScratch scratch, other;
  const auto tokens = [&](const Sampler& sampler, int64_t first) {
    std::vector<int32_t> drawn_tokens;
    for (int64_t position = first; position < first + 4; ++position)
      drawn_tokens.push_back(drawn(sampler, it, position, scratch));
    return drawn_tokens;
  };
  const std::vector<int32_t> first = tokens(sampler_of(it, 7), 10);
  CHECK(first == tokens(sampler_of(it, 7), 10));
  CHECK(first != tokens(sampler_of(it, 8), 10));
  CHECK(first != tokens(sampler_of(it, 7, 1), 10));
  CHECK(first != tokens(sampler_of(it, 7), 11));
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    Case mixed = random_case(random);
    const Sampler sampler = sampler_of(mixed, 1);
    SamplerScratch fresh;
    CHECK(drawn(sampler, mixed, round, other) == drawn(sampler, mixed, round, fresh));
  }
}

TEST_CASE("counts of a window are those of its tokens, however the history went") {
  std::mt19937 random(5);
  for (const int64_t window : {0, 1, 7, 100}) {
    TokenCounts counts(window);
    std::vector<std::pair<int32_t, bool>> history;
    for (int step = 0; step < 300; ++step) {
      history.emplace_back(static_cast<int32_t>(random() % 20), step >= 50);
      counts.add(history.back().first, history.back().second);
      std::vector<std::array<int32_t, 2>> wanted(20), found(20);
      const size_t begin =
          window > 0 && std::ssize(history) > window ? history.size() - static_cast<size_t>(window) : 0;
      for (size_t i = begin; i < history.size(); ++i) {
        ++wanted[static_cast<size_t>(history[i].first)][0];
        if (history[i].second) ++wanted[static_cast<size_t>(history[i].first)][1];
      }
      for (const TokenCounts::Count& count : counts.counts()) {
        CHECK(count.all > 0);
        found[static_cast<size_t>(count.token)] = {count.all, count.generated};
      }
      REQUIRE(found == wanted);
    }
  }
}

TEST_CASE("end tokens wait for min_tokens, unless the mask allows nothing else") {
  Case it;
  it.logits = {0, 9, 1, 8};
  it.end_ids = {1};
  it.settings.temperature = 0;
  it.settings.stop_ids = {3, 4, int64_t{1} << 40};  // of which two never come
  it.settings.min_tokens = 2;
  SamplerScratch scratch;
  Sampler sampler = sampler_of(it);
  CHECK(sampler.ends(1));
  CHECK(sampler.ends(3));
  CHECK(!sampler.ends(2));
  CHECK(drawn(sampler, it, 0, scratch) == 2);
  it.mask = {0b1010};  // a grammar that is complete
  CHECK(drawn(sampler, it, 0, scratch) == 1);
  it.mask = {0b1011};
  CHECK(drawn(sampler, it, 0, scratch) == 0);
  sampler.accept(2);
  CHECK(drawn(sampler, it, 0, scratch) == 0);
  sampler.accept(2);
  CHECK(drawn(sampler, it, 0, scratch) == 1);
  it.settings.ignore_eos = true;
  const Sampler ignores = sampler_of(it);
  CHECK(!ignores.ends(1));
  CHECK(ignores.ends(3));
  CHECK(drawn(ignores, it, 0, scratch) == 1);
}

TEST_CASE("log probabilities are those of the model's logits, the likeliest first") {
  std::mt19937 random(6);
  std::vector<int32_t> order;
  for (int round = 0; round < 200; ++round) {
    const size_t V = 1 + random() % 200;
    std::normal_distribution<float> normal(0, 3);
    std::vector<float> logits;
    for (size_t i = 0; i < V; ++i) logits.push_back(std::round(4 * normal(random)) / 4);
    double total = 0;
    for (const float logit : logits) total += std::exp(double(logit));
    const auto wanted = [&](int32_t token) {
      return double(logits[static_cast<size_t>(token)]) - std::log(total);
    };
    const int32_t token = static_cast<int32_t>(random() % V);
    const int64_t count = static_cast<int64_t>(random() % 21);
    const PositionLogProbabilities found = log_probabilities(logits, token, count, order);
    CHECK(found.own.token == token);
    CHECK(std::abs(found.own.log_probability - wanted(token)) < 1e-12);
    std::vector<int32_t> sorted(V);
    std::iota(sorted.begin(), sorted.end(), 0);
    std::ranges::stable_sort(sorted, [&](int32_t a, int32_t b) { return wanted(a) > wanted(b); });
    REQUIRE(std::ssize(found.likeliest) == std::min<int64_t>(count, std::ssize(logits)));
    for (size_t i = 0; i < found.likeliest.size(); ++i) {
      CHECK(found.likeliest[i].token == sorted[i]);
      CHECK(std::abs(found.likeliest[i].log_probability - wanted(sorted[i])) < 1e-12);
    }
  }
  const std::vector<float> odd = {-INFINITY, 1, NAN};
  CHECK(log_probabilities(odd, 0, 0, order).own.log_probability == kNone);
  CHECK(log_probabilities(odd, 2, 3, order).own.log_probability == kNone);
  CHECK(log_probabilities(odd, 1, 1, order).own.log_probability == 0);
}

TEST_CASE("a row or a mask of another size, and one that leaves no token, are errors that say so") {
  Case it;
  it.logits.assign(40, 1);
  const Sampler sampler = sampler_of(it);
  SamplerScratch scratch;
  const auto error = [&](std::vector<float> logits, std::vector<uint32_t> mask) {
    return std::string(sampler.draw(logits, mask, 0, scratch).status().message());
  };
  CHECK(error(std::vector<float>(39), {}) == "sampler: found a row of 39 logits, wanted 40");
  CHECK(error(it.logits, {1}) == "sampler: found a mask of 1 words, wanted 2 for 40 tokens");
  const std::string none =
      "sampler: no token is left to draw: the mask forbids all whose logit is a number above -inf";
  CHECK(error(it.logits, {0, 0}) == none);
  CHECK(error(std::vector<float>(40, NAN), {}) ==
        "sampler: no token is left to draw: the logits are not finite");
  const auto refused = [](SamplerText text) {
    return std::string(Sampler::create(std::make_shared<const SamplingSettings>(), text).status().message());
  };
  const std::vector<int32_t> ids = {1, 40};
  CHECK(refused({40, ids, {}, 0, 0}) == "sampler: the prompt has token id 40, the model has 40 tokens");
  CHECK(refused({40, {}, ids, 0, 0}) ==
        "sampler: the list of end tokens has token id 40, the model has 40 tokens");
}
