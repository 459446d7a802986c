// Requests that compute of their prompt alone, through C: vectors and scores are those of an embedder and a scorer, and have the
// same bits alone and among others.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "c_api.h"
#include "text/json.h"

using namespace capi_test;
using tessera::Json;

namespace {

using Engine = Handle<tsr_engine, tsr_engine_free>;
using Tokens = std::vector<int32_t>;
using Settings = std::vector<Setting>;

constexpr int64_t k1 = 1;
// Attention over pages is another kernel than an embedder's, and a scorer's sums are of f32: sums of some hundred terms may
// differ in their last bits.
constexpr double kOtherSums = 1e-5;

struct Layout {
  const char *devices, *parallel;
};
constexpr Layout kLayouts[] = {{"cpu:1", ""}, {"cpu:2", "tp=2"}, {"cpu:2", "pp=2"}};

Options options_of(const Settings& settings) {
  Options made = capi_test::options({});
  for (const auto& [key, value] : settings) {
    if (const auto* integer = std::get_if<int64_t>(&value))
      ok(tsr_options_set_i64(made.get(), key, *integer));
    if (const auto* text = std::get_if<std::string>(&value))
      ok(tsr_options_set_str(made.get(), key, text->c_str()));
  }
  return made;
}

Model new_model(const char* description = "llama:L=2,C=48,H=6,KV=3,F=48,V=96,T=256") {
  tsr_model* made = nullptr;
  ok(tsr_model_new(description, capi_test::options({{"seed", int64_t{3}}}).get(), &made));
  return Model(made);
}

Engine new_engine(const Runtime& rt, const Model& model, Settings settings) {
  tsr_engine* made = nullptr;
  ok(tsr_engine_new(rt.get(), model.get(), options_of(settings).get(), &made));
  return Engine(made);
}

Engine new_engine(const Runtime& rt, const Model& model, const Layout& layout) {
  return new_engine(rt, model,
                    {{"devices", std::string(layout.devices)},
                     {"parallel", std::string(layout.parallel)},
                     {"embeddings", k1},
                     {"sequences", int64_t{4}},
                     {"cache_tokens", int64_t{320}},  // not enough for four: some are computed again
                     {"speculation", std::string("ngram")},
                     {"step_tokens", int64_t{48}},
                     {"scored_tokens", int64_t{20}}});
}

Tokens random_tokens(uint32_t seed, size_t count) {
  Tokens tokens;
  for (size_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>(((seed = seed * 1664525u + 1013904223u) >> 8) % 96));
  return tokens;
}

int64_t submit(const Engine& to, const Tokens& tokens, const Settings& settings) {
  int64_t request = -1;
  ok(tsr_engine_submit_tokens(to.get(), options_of(settings).get(), tokens.data(), tokens.size(), &request));
  return request;
}

Error refusal(const Engine& to, const Tokens& tokens, const Settings& settings) {
  int64_t request = -1;
  return take(
      tsr_engine_submit_tokens(to.get(), options_of(settings).get(), tokens.data(), tokens.size(), &request));
}

// Until nothing is in progress: the details of ends, by request.
std::map<int64_t, Json> finish(const Engine& it) {
  std::map<int64_t, Json> ends;
  for (;;) {
    tsr_event event{};
    event.struct_size = sizeof event;
    ok(tsr_engine_next(it.get(), -1, &event));
    if (event.kind == TSR_EVENT_PENDING) return ends;
    if (event.kind != TSR_EVENT_END) continue;
    CHECK(event.finish != TSR_FINISH_FAILED);
    ends[event.request] = Json::parse(std::string(event.details, event.details_size));
  }
}

struct Result {
  std::vector<float> values;
  std::vector<uint8_t> greedy;
};

Result taken(const Engine& from, int64_t request, bool scores) {
  Result result;
  const auto call = [&](float* items, size_t capacity, size_t* count) {
    return scores ? tsr_engine_take_scores(from.get(), request, items, capacity, result.greedy.data(), count)
                  : tsr_engine_take_embedding(from.get(), request, items, capacity, count);
  };
  size_t count = 0;
  ok(call(nullptr, 0, &count));
  REQUIRE(count > 0);
  result.values.resize(count);
  result.greedy.resize(count);
  ok(call(result.values.data(), count, &count));
  CHECK(take(call(result.values.data(), count, &count)).code == TSR_NOT_FOUND);  // it is taken
  return result;
}

struct Asked {
  Tokens tokens;
  Settings settings;
  bool scores = false;
};

Json report_of(const Engine& it) {
  return Json::parse(text([&](tsr_text** out) { return tsr_engine_report(it.get(), out); }));
}

std::vector<Result> compute(const Engine& it, const std::vector<Asked>& all) {
  std::vector<int64_t> requests;
  for (size_t i = 0; i < all.size(); ++i) {
    // Texts with them, which take pages from them while they grow.
    if (i % 2 == 0)
      submit(it, random_tokens(static_cast<uint32_t>(i), 30 + 7 * i),
             {{"max_tokens", int64_t{50}}, {"seed", k1}, {"priority", k1}, {"ignore_eos", k1}});
    requests.push_back(submit(it, all[i].tokens, all[i].settings));
  }
  finish(it);
  CHECK(report_of(it)["preemptions"] > 0);
  std::vector<Result> results;
  for (size_t i = 0; i < all.size(); ++i) results.push_back(taken(it, requests[i], all[i].scores));
  return results;
}

std::vector<float> embedder_row(const Runtime& rt, const Model& model, const Tokens& tokens,
                                const Settings& settings) {
  tsr_embedder* made = nullptr;
  ok(tsr_embedder_new(rt.get(), model.get(), options_of(settings).get(), &made));
  const Embedder it(made);
  const size_t length = tokens.size();
  ok(tsr_embedder_start_ids(made, tokens.data(), length, &length, 1));
  for (double done = 0; done < 1;) ok(tsr_embedder_step(made, &done));
  size_t count = 0;
  ok(tsr_embedder_rows(made, nullptr, 0, &count));
  std::vector<float> row(count);
  ok(tsr_embedder_rows(made, row.data(), count, nullptr));
  return row;
}

void check_near(const std::vector<float>& found, const std::vector<float>& wanted) {
  REQUIRE(found.size() == wanted.size());
  for (size_t i = 0; i < found.size(); ++i)
    if (!std::isnan(wanted[i]) || !std::isnan(found[i])) CHECK(std::abs(found[i] - wanted[i]) < kOtherSums);
}

}  // namespace

TEST_CASE("engine: vectors are an embedder's, and have the same bits alone and among others") {
  const Runtime rt = runtime();
  const Model model = new_model();
  std::vector<Asked> all;
  for (const auto& [pooling, count] :
       {std::pair("mean", 150), {"last", 150}, {"cls", 40}, {"auto", 1}, {"none", 60}}) {
    all.push_back(
        {random_tokens(7, static_cast<size_t>(count)), {{"embed", k1}, {"pooling", std::string(pooling)}}});
    if (std::string(pooling) == "mean" || std::string(pooling) == "last")
      all.back().settings.emplace_back("normalize", k1);
  }
  std::vector<Result> first;
  for (const Layout& layout : kLayouts) {
    INFO(layout.parallel);
    const Engine many = new_engine(rt, model, layout), one = new_engine(rt, model, layout);
    const std::vector<Result> batched = compute(many, all);
    for (size_t i = 0; i < all.size(); ++i) {
      INFO(i);
      const int64_t request = submit(one, all[i].tokens, all[i].settings);
      finish(one);
      CHECK(batched[i].values == taken(one, request, false).values);
    }
    if (!first.empty()) continue;
    first = batched;
    for (size_t i = 0; i + 1 < all.size(); ++i) {
      Settings settings(all[i].settings.begin() + 1, all[i].settings.end());
      check_near(batched[i].values, embedder_row(rt, model, all[i].tokens, settings));
    }
    size_t width = 0;
    ok(tsr_engine_embedding_width(one.get(), &width));
    CHECK(width == 48);
    CHECK(batched.back().values.size() == 60 * width);  // of "none"
    // The same again, from the cache as far as it is of use.
    const int64_t last = submit(one, all[1].tokens, all[1].settings),
                  mean = submit(one, all[0].tokens, all[0].settings);
    const std::map<int64_t, Json> ends = finish(one);
    CHECK(ends.at(last)["cached_tokens"] == 149);
    CHECK(ends.at(mean)["cached_tokens"] == 0);
    CHECK(ends.at(mean)["tokens"] == 0);
    CHECK(taken(one, last, false).values == first[1].values);
    CHECK(taken(one, mean, false).values == first[0].values);
  }
}

TEST_CASE("engine: scores over pages of fewer bits are near those over pages of f32") {
  const Runtime rt = runtime();
  const Model model = new_model("llama:L=2,C=96,H=3,F=96,V=96,T=256");
  const Tokens tokens = random_tokens(9, 256);
  const auto scores = [&](const char* cache) {
    const Engine it =
        new_engine(rt, model, {{"cache_type", std::string(cache)}, {"scored_tokens", int64_t{256}}});
    const int64_t request = submit(it, tokens, {{"score_from", k1}});
    finish(it);
    return taken(it, request, true).values;
  };
  const std::vector<float> exact = scores("model");
  for (const auto& [cache, rounding] :
       {std::pair("f16", 0x1p-12), std::pair("bf16", 0x1p-9), std::pair("q8_0", 0.5 / 127)}) {
    const std::vector<float> found = scores(cache);
    double error = 0, squares = 0, sum = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      error += std::pow(found[i] - exact[i], 2);
      squares += std::pow(exact[i], 2);
      sum += exact[i];
    }
    const auto n = static_cast<double>(exact.size());
    const double spread = std::sqrt(squares / n - std::pow(sum / n, 2));
    // Each number is off by at most `rounding` of the largest of its own, or of its block; attention takes means of
    // such errors, and the residual stream adds what has none.
    INFO(std::string(cache));
    CHECK(std::sqrt(error / n) < rounding * spread);
    CHECK(error > 0);
  }
}

TEST_CASE("engine: scores are a scorer's, of completions that share their context") {
  const Runtime rt = runtime();
  const Model model = new_model();
  const Tokens context = random_tokens(11, 100);
  std::vector<Asked> all;
  for (uint32_t i = 0; i < 5; ++i) {
    Tokens tokens = context;
    const Tokens completion = random_tokens(20 + i, 1 + 9 * i);
    tokens.insert(tokens.end(), completion.begin(), completion.end());
    all.push_back({tokens, {{"score_from", int64_t(context.size())}}, true});
  }
  all.push_back({random_tokens(5, 256), {{"score_from", int64_t{0}}}, true});
  all.push_back({random_tokens(6, 2), {{"score_from", k1}}, true});
  std::vector<std::vector<float>> wanted;
  std::vector<std::vector<uint8_t>> likeliest;
  for (const Asked& it : all) {
    std::vector<float>& logprobs = wanted.emplace_back(it.tokens.size());
    std::vector<uint8_t>& greedy = likeliest.emplace_back(it.tokens.size());
    ok(tsr_model_score(rt.get(), model.get(), nullptr, it.tokens.data(), it.tokens.size(), nullptr, 1,
                       logprobs.data(), greedy.data()));
    const auto from = static_cast<ptrdiff_t>(std::get<int64_t>(it.settings[0].second));
    logprobs.erase(logprobs.begin(), logprobs.begin() + from);
    greedy.erase(greedy.begin(), greedy.begin() + from);
  }
  for (const Layout& layout : kLayouts) {
    INFO(layout.parallel);
    const Engine many = new_engine(rt, model, layout), one = new_engine(rt, model, layout);
    const std::vector<Result> batched = compute(many, all);
    for (size_t i = 0; i < all.size(); ++i) {
      INFO(i);
      check_near(batched[i].values, wanted[i]);
      CHECK(batched[i].greedy == likeliest[i]);
      const int64_t request = submit(one, all[i].tokens, all[i].settings);
      const Json end = finish(one).at(request);
      CHECK(end["cached_tokens"] == (i > 0 && i < 5 ? 99 : 0));  // the context's last token predicts
      const Result alone = taken(one, request, true);
      for (size_t k = 0; k < alone.values.size(); ++k)
        CHECK((alone.values[k] == batched[i].values[k] || (i == 5 && k == 0)));  // NaN
    }
    CHECK(report_of(one)["generated"] == 0);
  }
}

TEST_CASE("engine: texts are embedded with what stands around them") {
  const Runtime rt = runtime();
  const Model model = new_model("llama:L=1,C=32,H=4,F=32,V=256,T=64");
  tsr_tokenizer* tokenizer = nullptr;
  ok(tsr_tokenizer_new_bytes(&tokenizer));
  ok(tsr_model_set_tokenizer(model.get(), tokenizer));
  tsr_tokenizer_free(tokenizer);
  ok(tsr_model_set_metadata(model.get(), "pooling", "mean"));
  ok(tsr_model_set_metadata(model.get(), "normalize", "1"));
  const Engine it = new_engine(rt, model, {{"embeddings", k1}});
  int64_t request = -1;
  ok(tsr_engine_submit(it.get(), options({{"embed", k1}}).get(), "a text", TSR_TEXT_END, &request));
  finish(it);
  const std::vector<float> row = taken(it, request, false).values;
  tsr_embedder* made = nullptr;
  ok(tsr_embedder_new(rt.get(), model.get(), nullptr, &made));
  const Embedder embedder(made);
  std::vector<float> wanted(row.size());
  const size_t length = 6;
  ok(tsr_embedder_embed(made, "a text", length, &length, 1, wanted.data(), wanted.size(), nullptr));
  check_near(row, wanted);
  double squares = 0;
  for (const float value : row) squares += static_cast<double>(value) * static_cast<double>(value);
  CHECK(squares == doctest::Approx(1));
}

TEST_CASE("engine: what computes of its prompt alone refuses what generates, by name") {
  const Runtime rt = runtime();
  const Model model = new_model("llama:L=1,C=32,H=4,F=32,V=96,T=64");
  const Engine it = new_engine(rt, model, {{"embeddings", k1}, {"sequences", k1}}),
               plain = new_engine(rt, model, {{"sequences", k1}});
  const Tokens three = {1, 2, 3};
  const auto says = [&](const Engine& engine, const Settings& settings, std::string_view wanted) {
    const Error error = refusal(engine, three, settings);
    INFO(error.message);
    CHECK(error.code == TSR_INVALID_ARGUMENT);
    CHECK(error.message.find(wanted) != std::string::npos);
  };
  says(it, {{"embed", k1}, {"max_tokens", k1}}, "option 'max_tokens' with 'embed'");
  says(it, {{"embed", k1}, {"regex", std::string("a")}}, "option 'regex' with 'embed'");
  says(it, {{"score_from", k1}, {"temperature", k1}}, "option 'temperature' with 'score_from'");
  says(it, {{"score_from", k1}, {"keep", k1}}, "option 'keep' with 'score_from'");
  says(it, {{"score_from", k1}, {"embed", k1}}, "'embed' and 'score_from' are both given");
  says(it, {{"score_from", int64_t{3}}}, "'score_from' is 3, the prompt has 3 tokens");
  says(it, {{"score_from", k1}, {"pooling", std::string("mean")}}, "'pooling' without 'embed'");
  says(it, {{"normalize", k1}}, "'normalize' without 'embed'");
  says(it, {{"embed", k1}, {"pooling", std::string("none")}, {"normalize", k1}},
       "'normalize' with 'pooling' none");
  says(it, {{"embed", k1}, {"pooling", std::string("max")}}, "auto, mean, cls, last");
  CHECK(refusal(it, Tokens(65, 1), {{"embed", k1}}).message.find("65 tokens, at most 64") !=
        std::string::npos);
  CHECK(refusal(it, Tokens(66, 1), {{"score_from", k1}}).message.find("66 tokens, at most 65") !=
        std::string::npos);
  CHECK(refusal(it, {1}, {{"score_from", int64_t{0}}}).message.find("at least 2") != std::string::npos);
  const Error without = refusal(plain, three, {{"embed", k1}});
  CHECK(without.code == TSR_FAILED_PRECONDITION);
  CHECK(without.message.find("set its option 'embeddings' to 1") != std::string::npos);
  size_t count = 0;
  CHECK(take(tsr_engine_embedding_width(plain.get(), &count)).code == TSR_FAILED_PRECONDITION);
  CHECK(take(tsr_engine_take_embedding(it.get(), 0, nullptr, 0, &count)).code == TSR_NOT_FOUND);
  const int64_t request = submit(plain, three, {{"score_from", k1}});
  finish(plain);
  CHECK(take(tsr_engine_take_embedding(plain.get(), request, nullptr, 0, &count)).code == TSR_NOT_FOUND);
  ok(tsr_engine_take_scores(plain.get(), request, nullptr, 0, nullptr, &count));
  CHECK(count == 2);
  const Model encoder = new_model("bert:L=1,C=32,H=4,F=32,V=96,T=64");
  tsr_engine* made = nullptr;
  const Error refused =
      take(tsr_engine_new(rt.get(), encoder.get(), options({{"embeddings", k1}}).get(), &made));
  CHECK(refused.message.find("tsr_embedder") != std::string::npos);
}
