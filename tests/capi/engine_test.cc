// The engine's pure parts: sample order, learning rate, text streaming, drawing, rewriting.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>

#include "engine/data/text_dataset.h"
#include "engine/model/initialize.h"
#include "engine/model/rewrite.h"
#include "engine/sampling/text_stream.h"
#include "engine/settings/learning_rate.h"
#include "graph/base/text.h"

using namespace tessera;

namespace {

std::vector<int32_t> counting(int32_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(i);
  return tokens;
}

std::shared_ptr<const TextDataset> dataset(int32_t tokens, const Options& options) {
  auto made = TextDataset::create(counting(tokens), options);
  REQUIRE_MESSAGE(made.ok(), made.status().to_string());
  return *made;
}

}  // namespace

TEST_CASE("a permutation visits every place once, for counts that are no power of two") {
  for (const int64_t count : {1, 2, 3, 7, 100, 1000}) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < count; ++i) seen.insert(permuted(i, count, 42));
    CHECK(static_cast<int64_t>(seen.size()) == count);
    CHECK(*seen.rbegin() == count - 1);
  }
}

TEST_CASE("control tokens in a text are text, or with the option special these tokens") {
  TokenizerData data;
  for (int byte = 0; byte < 256; ++byte) data.tokens.push_back(format("<0x{}>", byte));
  data.tokens.push_back("</s>");
  data.eos = 256;
  const auto tokenizer = Tokenizer::create(data);
  REQUIRE(tokenizer.ok());
  const std::string_view text = "ab</s>cd</s>";
  const auto made = [&](const Options& options) {
    return TextDataset::from_text(text, "text", **tokenizer, options);
  };
  const auto plain = made({{"seq", int64_t{11}}});
  REQUIRE(plain.ok());
  CHECK((*plain)->largest_token() == 's');
  const auto special = made({{"seq", int64_t{5}}, {"special", int64_t{1}}});
  REQUIRE(special.ok());
  const std::vector<int32_t> wanted = {'a', 'b', 256, 'c', 'd', 256};
  CHECK(std::ranges::equal((*special)->training_sample(0), wanted));
  // Ids have no written control tokens; and options are checked before a file is read.
  const auto ids = TextDataset::create(wanted, {{"seq", int64_t{5}}, {"special", int64_t{1}}});
  CHECK(ids.status().message().find("special") != std::string_view::npos);
  const auto unread = open_dataset("/nowhere", *tokenizer, {{"sequence", int64_t{5}}});
  CHECK(unread.status().code() == StatusCode::kInvalidArgument);
  CHECK(unread.status().message().find("sequence") != std::string_view::npos);
}

TEST_CASE("each epoch visits each training sample once, in an order of its own") {
  const auto data = dataset(401, {{"seq", int64_t{4}}, {"eval_fraction", 0.1}});
  CHECK(data->train_samples() == 90);
  CHECK(data->eval_samples() == 10);
  std::vector<int32_t> orders[2];
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::set<int32_t> firsts;
    for (int64_t i = 0; i < 90; ++i) {
      const auto sample = data->training_sample(epoch * 90 + i);
      REQUIRE(sample.size() == 5);
      CHECK(sample[4] == sample[0] + 4);
      firsts.insert(sample[0]);
      orders[epoch].push_back(sample[0]);
    }
    CHECK(firsts.size() == 90);
    CHECK(*firsts.rbegin() == 89 * 4);
  }
  CHECK(orders[0] != orders[1]);
}

TEST_CASE("a text too short for one sample is refused with the counts") {
  const auto made = TextDataset::create(counting(4), {{"seq", int64_t{4}}});
  REQUIRE(!made.ok());
  CHECK(made.status().message().find("4 tokens make 0 samples of seq 4 + 1") != std::string::npos);
  CHECK(made.status().message().find("for evaluation") == std::string::npos);  // there is none
  const auto evaluated = TextDataset::create(counting(6), {{"seq", int64_t{4}}, {"eval_fraction", 0.5}});
  REQUIRE(!evaluated.ok());
  CHECK(evaluated.status().message().find("1 of them for evaluation") != std::string::npos);
}

TEST_CASE("the entropy of token frequencies takes memory by the tokens there are, not by the largest") {
  const auto made = TextDataset::create({0, 7, INT32_MAX, 7, 0, INT32_MAX, 7, 7}, {{"seq", int64_t{2}}});
  REQUIRE_MESSAGE(made.ok(), made.status().to_string());
  struct rlimit before {};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  const struct rlimit tight {
    rlim_t{8} << 30, before.rlim_max
  };  // a count for each id below would be 16 GiB
  REQUIRE(setrlimit(RLIMIT_AS, &tight) == 0);
  double entropy = 0;
  CHECK_NOTHROW(entropy = (*made)->unigram_entropy());
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
  CHECK(entropy == doctest::Approx(1.5 * std::log(2.0)));  // shares 1/2, 1/4, 1/4
}

TEST_CASE("the learning rate rises to its peak at the end of the warmup and falls towards its end") {
  LearningRate rate{LearningRate::Kind::kCosine, 1.0, 0.1, 10, 110};
  CHECK(rate.at(1) == doctest::Approx(0.1));
  CHECK(rate.at(10) == doctest::Approx(1.0));
  CHECK(rate.at(11) == doctest::Approx(1.0));
  CHECK(rate.at(61) == doctest::Approx(0.55));
  CHECK(rate.at(110) == doctest::Approx(0.1 + 0.9 * 0.5 * (1 + std::cos(std::acos(-1.0) * 0.99))));
  CHECK(rate.at(1000) == rate.at(110));
  rate.kind = LearningRate::Kind::kLinear;
  CHECK(rate.at(36) == doctest::Approx(0.775));
  rate.kind = LearningRate::Kind::kConstant;
  CHECK(rate.at(500) == doctest::Approx(1.0));
}

TEST_CASE("the learning rate stays at its peak and falls over the last steps alone") {
  LearningRate rate{LearningRate::Kind::kWsd, 1.0, 0.1, 10, 100, 0.2};
  CHECK(rate.at(5) == doctest::Approx(0.5));
  CHECK(rate.at(11) == 1);
  CHECK(rate.at(81) == 1);  // as other schedules begin
  CHECK(rate.at(86) == doctest::Approx(0.1 + 0.9 * 0.75));
  CHECK(rate.at(100) == doctest::Approx(0.1 + 0.9 * 0.05));
  CHECK(rate.at(200) == rate.at(100));
  rate.decay_shape = LearningRate::DecayShape::kSqrt;
  CHECK(rate.at(86) == doctest::Approx(0.1 + 0.9 * (1 - std::sqrt(0.25))));
  rate.decay_fraction = 1;  // the warmup is not made shorter
  CHECK(rate.at(10) == 1);
  CHECK(rate.at(12) < 1);
  rate.decay_fraction = 0;
  CHECK(rate.at(100) == 1);
}

TEST_CASE("every step of every schedule has a rate, and none rises after the warmup") {
  for (const auto kind : {LearningRate::Kind::kConstant, LearningRate::Kind::kCosine,
                          LearningRate::Kind::kLinear, LearningRate::Kind::kWsd})
    for (const int64_t warmup : {0, 1, 7, 20, 30})
      for (const int64_t steps : {1, 2, 20}) {
        CAPTURE(warmup);
        CAPTURE(steps);
        const LearningRate rate{kind, 1.0, 0.0, warmup, steps};
        for (int64_t step = 1; step <= steps + 2; ++step) {
          CHECK(rate.at(step) > 0);
          CHECK(rate.at(step) <= 1);
          if (step > warmup + 1) CHECK(rate.at(step) <= rate.at(step - 1));
        }
        // The usual convention (get_linear_schedule_with_warmup counts steps from 0): (N - i) / (N - W).
        if (kind != LearningRate::Kind::kLinear || warmup >= steps) continue;
        for (int64_t step = warmup + 1; step <= steps; ++step)
          CHECK(rate.at(step) == doctest::Approx(static_cast<double>(steps - (step - 1)) /
                                                 static_cast<double>(steps - warmup)));
      }
}

TEST_CASE("streamed text holds back unfinished characters and gives every byte in the end") {
  TextStream stream({});
  CHECK(stream.add("a\xe2\x82") == "a");
  CHECK(stream.add("\xac!") == "\xe2\x82\xac!");
  CHECK(stream.add("\xf0\x9f") == "");
  CHECK(stream.finish() == "\xf0\x9f");
  TextStream raw({});
  CHECK(raw.add("\xff") == "\xff");  // never the start of a character
}

TEST_CASE("a stop text is found across pieces and left out; what only began like it comes out") {
  TextStream stream({"END", "stop"});
  CHECK(stream.add("one E") == "one ");
  CHECK(stream.add("N") == "");
  CHECK(stream.add("X sto") == "ENX ");
  CHECK(!stream.stopped());
  CHECK(stream.add("p here") == "");
  CHECK(stream.stopped());
  CHECK(stream.finish() == "");
}

TEST_CASE("drawn values depend on seed and name alone and have the deviation asked for") {
  const Initializer normal{Initializer::Kind::kNormal, 0.02};
  const TensorType type{DType::kF32, Shape{100, 101}};
  const auto a = draw(normal, type, 1, "w"), b = draw(normal, type, 1, "w"), c = draw(normal, type, 1, "v"),
             d = draw(normal, type, 2, "w");
  REQUIRE(a.ok());
  CHECK(std::equal(a->data.begin(), a->data.end(), b->data.begin()));
  CHECK(!std::equal(a->data.begin(), a->data.end(), c->data.begin()));
  CHECK(!std::equal(a->data.begin(), a->data.end(), d->data.begin()));
  double sum = 0, squares = 0;
  for (const float value : a->as<float>()) {
    sum += value;
    squares += value * value;
  }
  CHECK(std::abs(sum / 10100) < 0.001);
  CHECK(std::sqrt(squares / 10100) == doctest::Approx(0.02).epsilon(0.03));
  CHECK(!draw(normal, {DType::kI32, Shape{4}}, 1, "w").ok());
}

TEST_CASE("a rewritten graph prints like the original except for the probability") {
  const char* text = R"(graph {
  symbol B
  input x: f32[B, 4]
  input seed: i64[]
  parameter w: f32[4, 4]
  h = matmul(x, w) : f32[B, 4] @scope "first"
  d = dropout(h, seed) {p = 0.1, salt = 3} : f32[B, 4]
  output logits = d
})";
  const auto graph = parse_graph(text);
  REQUIRE_MESSAGE(graph.ok(), graph.status().to_string());
  const auto changed = with_dropout(*graph, 0.5);
  REQUIRE_MESSAGE(changed.ok(), changed.status().to_string());
  std::string wanted = print(*graph);
  const size_t at = wanted.find("p = 0.1");
  REQUIRE(at != std::string::npos);
  wanted.replace(at, 7, "p = 0.5");
  CHECK(print(*changed) == wanted);
}

TEST_CASE("freezing goes by name patterns and refuses one that matches nothing") {
  auto graph = parse_graph("graph {\n  parameter a.w: f32[2]\n  parameter b.w: f32[2]\n}");
  REQUIRE_MESSAGE(graph.ok(), graph.status().to_string());
  REQUIRE(freeze(*graph, "a.*").ok());
  CHECK(!graph->tensor(*graph->find_tensor("a.w")).trainable);
  CHECK(graph->tensor(*graph->find_tensor("b.w")).trainable);
  const Status none = freeze(*graph, "c*");
  CHECK(none.code() == StatusCode::kNotFound);
}
