// tsr_embedder: rows of texts do not depend on other texts, on the batch or on devices; classes of texts and
// of pairs; what is refused.
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"

using namespace capi_test;

namespace {

constexpr const char* kBert = "bert:L=2,C=32,H=4,F=48,V=256,T=64,mlm=0";
constexpr const char* kModern = "modernbert:L=4,C=32,H=4,F=48,V=256,T=64,mlm=0,window=5";
constexpr const char* kGemma =
    "gemma3:L=2,C=32,H=4,KV=2,D=8,F=48,V=256,T=64,window=5,tied,rope_half,causal=0,head=0,dense=64|16";
constexpr const char* kClassifier = "bert:L=1,C=32,H=4,F=48,V=256,T=64,N=3";

const std::vector<std::string> kTexts = {"a", "the tiles of one mosaic",
                                         "side by side, and a longer text than others", "", "tiles"};

struct Packed {
  std::string bytes;
  std::vector<size_t> lengths;
};
Packed packed(const std::vector<std::string>& texts) {
  Packed all;
  for (const std::string& text : texts) {
    all.bytes += text;
    all.lengths.push_back(text.size());
  }
  return all;
}

Embedder embedder(const Runtime& rt, const Model& model, std::initializer_list<Setting> settings = {}) {
  tsr_embedder* made = nullptr;
  ok(tsr_embedder_new(rt.get(), model.get(), options(settings).get(), &made));
  return Embedder(made);
}

size_t width_of(const Embedder& embedder) {
  size_t width = 0;
  ok(tsr_embedder_width(embedder.get(), &width));
  return width;
}

std::vector<float> rows_of(const Embedder& embedder, const std::vector<std::string>& texts,
                           size_t texts_a_row = 1) {
  const Packed all = packed(texts);
  std::vector<float> rows(texts.size() / texts_a_row * width_of(embedder));
  ok(tsr_embedder_embed(embedder.get(), all.bytes.data(), all.bytes.size(), all.lengths.data(),
                        all.lengths.size(), rows.data(), rows.size(), nullptr));
  return rows;
}

void check_near(const std::vector<float>& found, const std::vector<float>& wanted) {
  REQUIRE(found.size() == wanted.size());
  for (size_t i = 0; i < found.size(); ++i) CHECK(found[i] == doctest::Approx(wanted[i]).epsilon(1e-4));
}

}  // namespace

TEST_CASE("a text's row is the same alone, among others and in pieces, to the bit") {
  const Runtime rt = runtime();
  for (const char* description : {kBert, kModern, "llama:L=1,C=32,H=4,KV=2,F=48,V=256,T=64,rope_half"}) {
    CAPTURE(description);
    const Model model = described_with_bytes(description, 7);
    const Embedder made = embedder(rt, model, {{"batch", 2}, {"pooling", std::string("mean")}});
    CHECK(width_of(made) == 32);
    std::vector<std::string> texts = kTexts;
    texts.erase(texts.begin() + 3);  // a tokenizer of bytes puts nothing around an empty text
    const std::vector<float> rows = rows_of(made, texts);
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::vector<float> alone = rows_of(made, {texts[i]});
      CHECK(std::equal(alone.begin(), alone.end(), rows.begin() + static_cast<ptrdiff_t>(32 * i)));
    }
    const Packed all = packed(texts);
    ok(tsr_embedder_start(made.get(), all.bytes.data(), all.bytes.size(), all.lengths.data(),
                          all.lengths.size()));
    std::vector<float> again(rows.size());
    CHECK(take(tsr_embedder_rows(made.get(), again.data(), again.size(), nullptr)).code ==
          TSR_FAILED_PRECONDITION);
    for (double done = 0; done < 1;) ok(tsr_embedder_step(made.get(), &done));
    ok(tsr_embedder_rows(made.get(), again.data(), again.size(), nullptr));
    CHECK(again == rows);
    // A padded batch gives what each text gives in a graph without padding.
    const Embedder one = embedder(rt, model, {{"batch", 1}, {"seq", 5}, {"pooling", std::string("mean")}});
    check_near(rows_of(one, {"tiles"}), rows_of(made, {"tiles"}));
  }
}

TEST_CASE("rows over devices are those of one") {
  const Runtime rt = runtime();
  for (const char* description : {kBert, kModern, kGemma}) {
    CAPTURE(description);
    const Model model = described_with_bytes(description, 7);
    const std::vector<std::string> texts = {kTexts[1], kTexts[2], kTexts[4]};
    CHECK(width_of(embedder(rt, model)) == (description == kGemma ? 16u : 32u));
    const std::vector<float> alone = rows_of(embedder(rt, model), texts);
    for (const char* parallel : {"dp=2", "tp=2", "pp=2"}) {
      CAPTURE(parallel);
      const Embedder spread = embedder(
          rt, model, {{"devices", std::string("cpu:2")}, {"parallel", std::string(parallel)}, {"batch", 4}});
      check_near(rows_of(spread, texts), alone);
    }
  }
}

TEST_CASE("vectors are pooled and scaled as asked") {
  const Runtime rt = runtime();
  const Model model = described_with_bytes(kBert, 7);
  const auto with = [&](const char* pooling) {
    return rows_of(embedder(rt, model, {{"pooling", std::string(pooling)}}), {"tiles"});
  };
  const std::vector<float> cls = with("cls"), last = with("last"), mean = with("mean");
  CHECK(cls != last);
  CHECK(rows_of(embedder(rt, model), {"tiles"}) == mean);  // what attention in both directions has
  // One token has one vector under both.
  for (const char* pooling : {"cls", "last"})
    CHECK(rows_of(embedder(rt, model, {{"pooling", std::string(pooling)}}), {"t"}) ==
          rows_of(embedder(rt, model, {{"pooling", std::string("mean")}}), {"t"}));
  const std::vector<float> scaled = rows_of(embedder(rt, model, {{"normalize", 1}}), {"tiles"});
  const auto dot = [](const std::vector<float>& a, const std::vector<float>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  CHECK(dot(scaled, scaled) == doctest::Approx(1));
  CHECK(dot(scaled, mean) == doctest::Approx(std::sqrt(dot(mean, mean))));
}

TEST_CASE("texts are cut at seq tokens, and the report says so") {
  const Runtime rt = runtime();
  const Model model = described_with_bytes(kBert, 7);
  const Embedder made = embedder(rt, model, {{"seq", 5}});
  const std::vector<float> whole = rows_of(made, {"tiles"}), cut = rows_of(made, {"tiles of one mosaic"});
  CHECK(cut == whole);
  const std::string report = text([&](auto... out) { return tsr_embedder_report(made.get(), out...); });
  CHECK(report.find("\"truncated\":1") != report.npos);
  CHECK(report.find("\"seq\":5") != report.npos);
  const Error longer = take(tsr_embedder_new(rt.get(), model.get(), options({{"seq", 65}}).get(),
                                             std::array<tsr_embedder*, 1>{}.data()));
  CHECK(longer.code == TSR_INVALID_ARGUMENT);
  CHECK(longer.message.find("'seq' is 65, the model's context holds 64") != longer.message.npos);
}

TEST_CASE("a classifier's logits are at the first token, and probabilities follow from them") {
  const Runtime rt = runtime();
  const Model model = described_with_bytes(kClassifier, 7);
  const auto with = [&](const char* output) {
    return rows_of(embedder(rt, model, {{"output", std::string(output)}}), {"tiles", "a"});
  };
  const std::vector<float> logits = with("logits"), probabilities = with("probabilities");
  REQUIRE(logits.size() == 6);
  for (size_t text = 0; text < 2; ++text) {
    double sum = 0;
    for (size_t c = 0; c < 3; ++c) sum += std::exp(static_cast<double>(logits[3 * text + c]));
    for (size_t c = 0; c < 3; ++c)
      CHECK(probabilities[3 * text + c] ==
            doctest::Approx(std::exp(static_cast<double>(logits[3 * text + c])) / sum).epsilon(1e-5));
  }
  // For a regression, and a cross encoder without an activation, they are the logits.
  for (const auto& [key, value] : {std::pair("problem_type", "regression"), {"class_activation", "none"}}) {
    const Model raw = described_with_bytes(kClassifier, 7);
    ok(tsr_model_set_metadata(raw.get(), key, value));
    CHECK(rows_of(embedder(rt, raw, {{"output", std::string("probabilities")}}), {"tiles", "a"}) == logits);
  }
  // Pairs: the second text is of type 1, so that their order counts.
  const Embedder pairs = embedder(rt, model, {{"output", std::string("logits")}, {"pairs", 1}});
  const std::vector<float> ab = rows_of(pairs, {"tiles", "mosaic"}, 2),
                           ba = rows_of(pairs, {"mosaic", "tiles"}, 2);
  CHECK(ab.size() == 3);
  CHECK(ab != ba);
  CHECK(ab != rows_of(embedder(rt, model, {{"output", std::string("logits")}}), {"tilesmosaic"}));
  std::vector<float> row(3);
  const size_t one[] = {5};
  CHECK(take(tsr_embedder_embed(pairs.get(), "tiles", 5, one, 1, row.data(), row.size(), nullptr))
            .message.find("two for each pair") != std::string::npos);
}

TEST_CASE("embedders refuse what they cannot do") {
  const Runtime rt = runtime();
  const auto refused = [&](const Model& model, std::initializer_list<Setting> settings, const char* words) {
    tsr_embedder* made = nullptr;
    const Error error = take(tsr_embedder_new(rt.get(), model.get(), options(settings).get(), &made));
    CAPTURE(error.message);
    CHECK(error.message.find(words) != std::string::npos);
    CHECK(made == nullptr);
  };
  const Model bert = described_with_bytes(kBert, 7);
  refused(bert, {{"output", std::string("logits")}}, "the model has no classes");
  refused(bert, {{"pooling", std::string("max")}}, "pooling");
  refused(described_with_bytes(kClassifier, 7), {{"output", std::string("logits")}, {"normalize", 1}},
          "are of embeddings");
  refused(described_with_bytes("encoder:L=1,C=32,H=4,V=256,T=16", 7), {}, "no output \"hidden\"");
  refused(mlp_model(), {}, "input \"tokens\"");
  const Model silent = described(kBert);  // no tokenizer
  const Embedder made = embedder(rt, silent);
  std::vector<float> row(64);
  const size_t length[] = {1};
  CHECK(take(tsr_embedder_embed(made.get(), "a", 1, length, 1, row.data(), row.size(), nullptr)).code ==
        TSR_FAILED_PRECONDITION);
  const int32_t ids[] = {1, 300};
  const size_t two[] = {2}, beyond[] = {3};
  CHECK(take(tsr_embedder_start_ids(made.get(), ids, 2, two, 1)).message.find("ids[1] is 300") !=
        std::string::npos);
  CHECK(take(tsr_embedder_start_ids(made.get(), ids, 2, beyond, 1)).code == TSR_INVALID_ARGUMENT);
  double done = 0;
  CHECK(take(tsr_embedder_step(made.get(), &done)).code == TSR_FAILED_PRECONDITION);
  ok(tsr_embedder_start_ids(made.get(), ids, 1, length, 1));
  ok(tsr_embedder_step(made.get(), &done));
  CHECK(done == 1);
  ok(tsr_embedder_start_ids(made.get(), nullptr, 0, nullptr, 0));
  ok(tsr_embedder_step(made.get(), &done));
  CHECK(done == 1);
}

TEST_CASE("a graph with segments computes a padded text as it is without padding") {
  const Runtime rt = runtime();
  const Model model = described(kBert);
  tsr_graph* forward = nullptr;
  ok(tsr_model_graph(model.get(), &forward));
  const Graph plain(forward);
  tsr_graph* segmented = nullptr;
  ok(tsr_graph_segments(plain.get(), &segmented));
  const Graph graph(segmented);
  const std::string printed = text([&](auto... out) { return tsr_graph_print(graph.get(), out...); });
  CHECK(printed.find("input segments: i32[B, T]") != printed.npos);
}

TEST_CASE("texts that begin alike have the rows of batches, by an engine where one serves the model") {
  const Runtime rt = runtime();
  const std::vector<std::string> texts = {"a", "the tiles of one mosaic", "the tiles of one wall"};
  for (const char* description : {kBert, "llama:L=1,C=32,H=4,KV=2,F=48,V=256,T=64,rope_half"}) {
    CAPTURE(description);
    const Model model = described_with_bytes(description, 7);
    const Embedder shares = embedder(rt, model, {{"share_prefixes", 1}, {"normalize", 1}});
    CHECK(width_of(shares) == 32);
    check_near(rows_of(shares, texts), rows_of(embedder(rt, model, {{"normalize", 1}}), texts));
  }
}
