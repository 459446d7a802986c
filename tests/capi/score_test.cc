// Scoring through C: log probabilities of given tokens, in windows, in batches, on several devices.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "capi/handles.h"
#include "engine/sampling/score_windows.h"
#include "tests/capi/c_api.h"
#include "tests/capi/naive_llama.h"
#include "tests/capi/small_training.h"
#include "tests/number_after.h"
#include "text/tokenizer/tokenizer.h"

using namespace capi_test;
using tessera::test::number_after;

namespace {

constexpr const char* kDescription = "llama:L=2,C=32,H=4,KV=2,F=48,V=40,T=64,tied=0";
constexpr LlamaShape kShape = {2, 32, 4, 2, 48, 40, false, false};

// A model with ten times a new model's weights, since a new model's probabilities are nearly uniform.
Model sharp_model(const char* description = kDescription) {
  Model model = described(description, 3);
  size_t count = 0;
  ok(tsr_model_parameter_count(model.get(), &count));
  for (size_t i = 0; i < count; ++i) {
    const std::string name =
        short_text([&](auto... out) { return tsr_model_parameter_name(model.get(), i, out...); });
    tsr_tensor* read = nullptr;
    ok(tsr_model_read(model.get(), name.c_str(), &read));
    const Tensor value(read);
    if (tsr_tensor_rank(read) < 2) continue;
    std::vector<float> values = floats(read);
    for (float& one : values) one *= 10;
    const std::vector<int64_t> dims(tsr_tensor_dims(read), tsr_tensor_dims(read) + tsr_tensor_rank(read));
    ok(tsr_model_write(model.get(), name.c_str(), tensor_f32(dims, values).get()));
  }
  return model;
}

std::vector<int32_t> some_tokens(size_t count, uint32_t seed = 1, uint32_t vocabulary = 40) {
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) {
    seed = seed * 1664525u + 1013904223u;
    id = static_cast<int32_t>((seed >> 10) % vocabulary);
  }
  return ids;
}

Scorer scorer(const Runtime& rt, const Model& model, std::initializer_list<Setting> settings = {}) {
  tsr_scorer* made = nullptr;
  ok(tsr_scorer_new(rt.get(), model.get(), options(settings).get(), &made));
  return Scorer(made);
}

struct Scores {
  std::vector<float> logprobs;
  std::vector<uint8_t> greedy;
};

Scores score(const Scorer& with, const std::vector<int32_t>& ids, const std::vector<size_t>& lengths = {}) {
  Scores out{std::vector<float>(ids.size(), -1), std::vector<uint8_t>(ids.size(), 9)};
  ok(tsr_scorer_score(with.get(), ids.data(), ids.size(), lengths.empty() ? nullptr : lengths.data(),
                      lengths.empty() ? 1 : lengths.size(), out.logprobs.data(), out.greedy.data()));
  return out;
}

struct Wanted {
  double logprob;
  bool greedy;
};
Wanted naive(const NaiveLlama& model, const std::vector<int32_t>& before, int32_t token) {
  const std::vector<double> logits = model.logits(before);
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - most);
  const double own = logits[static_cast<size_t>(token)];
  return {own - most - std::log(sum), own == most};
}

double mean_nll(const Scores& scores) {
  double sum = 0;
  int count = 0;
  for (const float logprob : scores.logprobs)
    if (!std::isnan(logprob)) sum -= static_cast<double>(logprob), ++count;
  return sum / count;
}

void check_near(const std::vector<float>& found, const std::vector<float>& wanted, double within) {
  REQUIRE(found.size() == wanted.size());
  double worst = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(std::isnan(found[i]) == std::isnan(wanted[i]));
    if (!std::isnan(found[i])) worst = std::max(worst, std::abs(static_cast<double>(found[i] - wanted[i])));
  }
  CHECK(worst <= within);
}

// Bits, as NaN is unlike itself.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(
      a, b, {}, [](float x) { return std::bit_cast<uint32_t>(x); },
      [](float x) { return std::bit_cast<uint32_t>(x); });
}

}  // namespace

TEST_CASE("a token's score is its log probability in a plain Llama in f64, also in windows and after BOS") {
  const Runtime rt = runtime();
  const Model model = sharp_model();
  tessera::TokenizerData data;
  for (int i = 0; i < 40; ++i) data.tokens.push_back("<" + std::to_string(i) + ">");
  data.kind = tessera::TokenizerKind::kSentencePiece;
  data.scores.assign(40, 0);
  data.types.assign(40, tessera::TokenType::kNormal);
  data.types[0] = tessera::TokenType::kUnknown;
  data.types[39] = tessera::TokenType::kControl;
  data.unknown = 0;
  data.bos = 39;
  data.add_bos = true;
  auto made = tessera::Tokenizer::create(std::move(data));
  CAPTURE(made.status().message());
  REQUIRE(made.ok());
  const tsr_tokenizer tokenizer{*made};
  ok(tsr_model_set_tokenizer(model.get(), &tokenizer));
  const NaiveLlama plain(model, kShape);
  std::vector<int32_t> ids = some_tokens(33, 1, 39);
  for (size_t i = 4; i < ids.size(); i += 4) {  // some that are the likeliest
    const std::vector<double> logits = plain.logits({ids.begin(), ids.begin() + static_cast<ptrdiff_t>(i)});
    ids[i] = static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  }
  int most_greedy = 0;
  struct Case {
    int64_t seq, stride;
    const char* bos;
  };
  for (const Case& one : {Case{64, 0, "none"}, Case{16, 5, "none"}, Case{12, 12, "none"}, Case{64, 0, "auto"},
                          Case{16, 6, "always"}}) {
    CAPTURE(one.seq);
    CAPTURE(std::string(one.bos));
    const bool bos = one.bos != std::string("none");
    const Scores found = score(
        scorer(
            rt, model,
            {{"seq", one.seq}, {"stride", one.stride}, {"bos", std::string(one.bos)}, {"batch", int64_t{2}}}),
        ids);
    CHECK(std::isnan(found.logprobs[0]) == !bos);
    const int64_t stride = one.stride == 0 ? one.seq / 2 : one.stride;
    int greedy = 0;
    double worst = 0;
    for (int64_t token = bos ? 0 : 1; token < 33; ++token) {
      const int64_t label = bos ? token : token - 1;
      // The first window, at a multiple of the stride, that reaches it.
      const int64_t window = label < one.seq ? 0 : (label - one.seq) / stride + 1;
      std::vector<int32_t> before(ids.begin() + window * stride, ids.begin() + token);
      if (bos) before.insert(before.begin(), 39);
      const Wanted wanted = naive(plain, before, ids[static_cast<size_t>(token)]);
      worst = std::max(worst, std::abs(found.logprobs[static_cast<size_t>(token)] - wanted.logprob));
      CHECK((found.greedy[static_cast<size_t>(token)] == 1) == wanted.greedy);
      greedy += wanted.greedy;
    }
    CHECK(worst < 2e-4);  // of numbers up to 20
    most_greedy = std::max(most_greedy, greedy);
  }
  CHECK(most_greedy >= 7);  // where all tokens before are seen
}

TEST_CASE("windows score each token once, with all the tokens before it that the stride promises") {
  for (const int64_t seq : {1, 2, 7, 16})
    for (int64_t stride = 1; stride <= seq; ++stride)
      for (const bool bos : {false, true}) {
        const std::vector<size_t> lengths = {0, 1, 2, 7, 8, 40, 0, 17};
        const size_t count = std::accumulate(lengths.begin(), lengths.end(), size_t{0});
        std::vector<int> scored(count);
        std::vector<size_t> begins;  // of each token's text
        for (size_t i = 0, begin = 0; i < lengths.size(); begin += lengths[i++])
          begins.insert(begins.end(), lengths[i], begin);
        for (const tessera::ScoreWindow& window : tessera::make_windows(lengths, {seq, stride, bos})) {
          CHECK(window.positions >= 1);
          CHECK(window.positions <= seq);
          CHECK(window.known < window.positions);
          for (int32_t i = window.known; i < window.positions; ++i) {
            const size_t token = window.label + static_cast<size_t>(i);
            ++scored[token];
            const auto before = static_cast<int64_t>(token - begins[token]);
            const int64_t seen = bos ? i : i + 1;
            CHECK(seen <= before);
            CHECK(seen >= std::min(before, seq - stride));
            CHECK(begins[token] == begins[window.label]);
          }
        }
        for (size_t token = 0; token < count; ++token)
          CHECK(scored[token] == (bos || token != begins[token]));
      }
}

TEST_CASE("texts of any length in one batch score bit for bit as each does by itself") {
  const Runtime rt = runtime();
  const Model model = sharp_model();
  const std::vector<size_t> lengths = {5, 0, 40, 1, 33, 2, 64, 17, 64, 3};
  const std::vector<int32_t> ids = some_tokens(std::accumulate(lengths.begin(), lengths.end(), size_t{0}));
  const Scorer with =
      scorer(rt, model, {{"seq", int64_t{48}}, {"stride", int64_t{20}}, {"batch", int64_t{3}}});
  const Scores all = score(with, ids, lengths);
  CHECK(number_after(text([&](auto out) { return tsr_scorer_report(with.get(), out); }),
                     R"("scored_tokens":)") == doctest::Approx(static_cast<double>(ids.size()) - 9));
  size_t begin = 0;
  for (const size_t length : lengths) {
    CAPTURE(length);
    const auto first = ids.begin() + static_cast<ptrdiff_t>(begin);
    const Scores one = score(with, {first, first + static_cast<ptrdiff_t>(length)});
    const auto found = all.logprobs.begin() + static_cast<ptrdiff_t>(begin);
    CHECK(same_bits({found, found + static_cast<ptrdiff_t>(length)}, one.logprobs));
    begin += length;
  }
  // Scores in pieces equal those of one call.
  ok(tsr_scorer_start(with.get(), ids.data(), ids.size(), lengths.data(), lengths.size()));
  double done = 0, last = -1;
  while (done < 1) {
    ok(tsr_scorer_step(with.get(), &done));
    CHECK(done > last);
    last = done;
  }
  std::vector<float> again(ids.size());
  size_t count = 0;
  ok(tsr_scorer_logprobs(with.get(), again.data(), again.size(), &count));
  CHECK(count == ids.size());
  CHECK(same_bits(again, all.logprobs));
  std::vector<float> once(ids.size());
  const Options same = options({{"seq", int64_t{48}}, {"stride", int64_t{20}}, {"batch", int64_t{3}}});
  ok(tsr_model_score(rt.get(), model.get(), same.get(), ids.data(), ids.size(), lengths.data(),
                     lengths.size(), once.data(), nullptr));
  CHECK(same_bits(once, all.logprobs));
}

TEST_CASE(
    "what a token scores does not depend on the tokens after it, also where experts are short of slots") {
  const Runtime rt = runtime();
  for (const char* description :
       {kDescription, "moe:L=2,C=32,H=4,KV=2,F=24,E=4,K=2,V=40,T=64,capacity=0.6"}) {
    CAPTURE(std::string(description));
    const Scorer with = scorer(rt, sharp_model(description), {{"seq", int64_t{32}}, {"stride", int64_t{8}}});
    const std::vector<int32_t> ids = some_tokens(60);
    const std::vector<float> whole = score(with, ids).logprobs;
    for (const size_t size : {2, 20, 45}) {
      const std::vector<float> prefix =
          score(with, {ids.begin(), ids.begin() + static_cast<ptrdiff_t>(size)}).logprobs;
      check_near(prefix, {whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)}, 2e-4);
    }
  }
}

TEST_CASE("devices, however they share the work, score as one does, in the memory that was predicted") {
  const Runtime rt = runtime();
  const Model model = sharp_model();
  const std::vector<size_t> lengths = {50, 7, 64, 20};
  const std::vector<int32_t> ids = some_tokens(141);
  const Scores one = score(scorer(rt, model, {{"seq", int64_t{32}}, {"stride", int64_t{16}}}), ids, lengths);
  struct Form {
    const char *devices, *parallel;
  };
  for (const Form& form : {Form{"cpu:2", ""}, Form{"cpu:2", "dp=2"}, Form{"cpu:2", "tp=2"},
                           Form{"cpu:2", "tp=2,sp"}, Form{"cpu:2", "pp=2,mb=2"}, Form{"cpu:2", "dp=2,zero=3"},
                           Form{"cpu:2", "cp=ring:2"}, Form{"cpu:4", "dp=2,tp=2"}}) {
    CAPTURE(std::string(form.parallel));
    const Scorer with = scorer(rt, model,
                               {{"devices", std::string(form.devices)},
                                {"parallel", std::string(form.parallel)},
                                {"seq", int64_t{32}},
                                {"stride", int64_t{16}},
                                {"batch", int64_t{4}},
                                {"measure_memory", int64_t{1}}});
    const Scores found = score(with, ids, lengths);
    check_near(found.logprobs, one.logprobs, 2e-4);
    CHECK(found.greedy == one.greedy);
    const std::string report = text([&](auto out) { return tsr_scorer_report(with.get(), out); });
    const std::string devices = report.substr(report.rfind("\"devices\""));
    CHECK(number_after(devices, R"("measured":)") == number_after(devices, R"("predicted":)"));
  }
}

TEST_CASE("scores add up to the loss of an evaluation, also of weights in fewer bits") {
  const Runtime rt = runtime();
  const Model model = sharp_model();
  const std::vector<int32_t> ids = some_tokens(8 * 16 + 1);
  tsr_dataset* data = nullptr;
  ok(tsr_dataset_new_tokens(ids.data(), ids.size(),
                            options({{"seq", int64_t{16}}, {"eval_fraction", 1.0}}).get(), &data));
  const Dataset dataset(data);
  for (const char* weights : {"model", "bf16", "q8_0"}) {
    CAPTURE(std::string(weights));
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(rt.get(), model.get(), data,
                       options({{"evaluate_only", int64_t{1}}, {"weights", std::string(weights)}}).get(),
                       &made));
    const Trainer trainer(made);
    double loss = 0;
    ok(tsr_trainer_evaluate(made, &loss));
    const Scores found = score(scorer(rt, model,
                                      {{"seq", int64_t{16}},
                                       {"stride", int64_t{16}},
                                       {"weights", std::string(weights)},
                                       {"activations", std::string("f32")}}),
                               ids);
    CHECK(mean_nll(found) == doctest::Approx(loss).epsilon(1e-6));
  }
}

TEST_CASE("wrong texts and options are refused, and a cancelled scoring goes on") {
  const Runtime rt = runtime();
  const Model model = sharp_model();
  const auto refused = [&](std::initializer_list<Setting> settings, const char* wanted) {
    tsr_scorer* made = nullptr;
    const Error error = take(tsr_scorer_new(rt.get(), model.get(), options(settings).get(), &made));
    CHECK(error.code != TSR_OK);
    CHECK(error.message.find(wanted) != std::string::npos);
    CHECK(made == nullptr);
  };
  refused({{"seq", int64_t{65}}}, "option 'seq' is 65, the model's context holds 64");
  refused({{"seq", int64_t{8}}, {"stride", int64_t{9}}}, "option 'stride' is 9, a window has 8");
  refused({{"bos", std::string("always")}}, "the model has no tokenizer");
  refused({{"windows", int64_t{9}}}, "windows");
  const Model images = mlp_model();
  tsr_scorer* none = nullptr;
  CHECK(take(tsr_scorer_new(rt.get(), images.get(), nullptr, &none)).message.find("'tokens'") !=
        std::string::npos);

  const Scorer with = scorer(rt, model);
  std::vector<int32_t> ids = some_tokens(20);
  std::vector<float> out(ids.size(), 7);
  size_t lengths[] = {10, 9};
  double done = 0;
  const auto message = [](tsr_status* status) { return take(status).message; };
  CHECK(message(tsr_scorer_step(with.get(), &done)).find("nothing was started") != std::string::npos);
  CHECK(message(tsr_scorer_score(with.get(), ids.data(), 20, lengths, 2, out.data(), nullptr)) ==
        "there are 20 ids, the lengths are of 19");
  lengths[1] = std::numeric_limits<size_t>::max();
  CHECK(message(tsr_scorer_start(with.get(), ids.data(), 20, lengths, 2)).find("10 of 20 ids are left") !=
        std::string::npos);
  CHECK(message(tsr_scorer_score(with.get(), nullptr, 20, nullptr, 1, out.data(), nullptr)).find("ids") !=
        std::string::npos);
  CHECK(message(tsr_scorer_start(with.get(), ids.data(), 20, nullptr, 2)).find("lengths is NULL") !=
        std::string::npos);
  ids[4] = 40;
  CHECK(message(tsr_scorer_score(with.get(), ids.data(), 20, nullptr, 1, out.data(), nullptr)) ==
        "ids[4] is 40, the model has tokens 0 to 39");
  CHECK(out == std::vector<float>(20, 7));                                     // written on success only
  ok(tsr_scorer_score(with.get(), nullptr, 0, nullptr, 0, nullptr, nullptr));  // of nothing, nothing

  ids = some_tokens(3000);
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    tsr_scorer_cancel(with.get());
  });
  ok(tsr_scorer_start(with.get(), ids.data(), ids.size(), nullptr, 1));
  std::vector<float> part(ids.size());
  CHECK(take(tsr_scorer_logprobs(with.get(), part.data(), part.size(), nullptr)).code ==
        TSR_FAILED_PRECONDITION);
  for (done = 0; done < 1;) {
    const Error error = take(tsr_scorer_step(with.get(), &done));
    CHECK((error.code == TSR_OK || error.code == TSR_CANCELLED));
  }
  canceller.join();
  ok(tsr_scorer_logprobs(with.get(), part.data(), part.size(), nullptr));
  CHECK(same_bits(part, score(with, ids).logprobs));
}

TEST_CASE("texts that begin alike have the scores of windows, and are computed once") {
  const Runtime rt = runtime();
  const Model model = sharp_model();
  std::vector<int32_t> ids;
  std::vector<size_t> lengths;
  const std::vector<int32_t> beginning = some_tokens(30, 5);
  for (uint32_t text = 0; text < 4; ++text) {
    ids.insert(ids.end(), beginning.begin(), beginning.end());
    const std::vector<int32_t> own = some_tokens(6, 20 + text);
    ids.insert(ids.end(), own.begin(), own.end());
    lengths.push_back(36);
  }
  const Scorer shares = scorer(rt, model, {{"share_prefixes", 1}});
  const Scores found = score(shares, ids, lengths), wanted = score(scorer(rt, model), ids, lengths);
  check_near(found.logprobs, wanted.logprobs, 1e-4);
  CHECK(found.greedy == wanted.greedy);
  const std::string report = text([&](tsr_text** out) { return tsr_scorer_report(shares.get(), out); });
  CHECK(number_after(report, "\"positions\":") < 100);
  CHECK(number_after(report, "\"scored_tokens\":") == 4 * 35);
  // A text longer than the context is read in windows.
  const std::vector<int32_t> longer = some_tokens(90);
  check_near(score(shares, longer).logprobs, score(scorer(rt, model), longer).logprobs, 1e-4);
  CHECK(text([&](tsr_text** out) { return tsr_scorer_report(shares.get(), out); }).find("cached_tokens") ==
        std::string::npos);
}
