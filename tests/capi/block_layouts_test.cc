// Quantised models on several devices: the same tokens as on one. A product whose packed dimension is cut adds up its
// blocks in f32 in another order (a chain on each device, then one sum of these). What follows rounds such a number to
// 8 bits with its block, and a last bit may tip a code: of 127 steps one, of one number of a row, hence 1e-2 at most
// in a log probability.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"

using namespace capi_test;
using Json = nlohmann::json;

namespace {

Model quantized(const char* description, const std::string& type, const std::string& path) {
  ok(tsr_model_quantize(nullptr, described(description, 5).get(), path.c_str(),
                        options({{"type", type}}).get(), nullptr));
  tsr_model* made = nullptr;
  ok(tsr_model_load(path.c_str(), &made));
  Model model(made);
  ok(tsr_model_set_tokenizer(made, byte_tokenizer().get()));
  return model;
}

std::vector<int32_t> generated(const Runtime& rt, const Model& model, const std::string& devices,
                               const std::string& parallel) {
  tsr_generator* made = nullptr;
  ok(tsr_generator_new(
      rt.get(), model.get(),
      options(
          {{"devices", devices}, {"parallel", parallel}, {"temperature", 0.0}, {"max_tokens", int64_t{12}}})
          .get(),
      &made));
  const Generator generator(made);
  ok(tsr_generator_start(made, "Once upon a time", TSR_TEXT_END));
  std::vector<int32_t> tokens;
  tsr_piece piece = {};
  piece.struct_size = sizeof piece;
  while (piece.kind != TSR_END) {
    ok(tsr_generator_next(made, -1, &piece));
    if (piece.kind == TSR_PIECE && piece.token >= 0) tokens.push_back(piece.token);
  }
  return tokens;
}

struct Scored {
  std::vector<float> logprobs;
  std::vector<uint8_t> greedy;
};

// Scores of four texts; arenas are measured.
Scored scored(const Runtime& rt, const Model& model, const std::string& devices,
              const std::string& parallel) {
  tsr_scorer* made = nullptr;
  ok(tsr_scorer_new(rt.get(), model.get(),
                    options({{"devices", devices},
                             {"parallel", parallel},
                             {"batch", int64_t{4}},
                             {"seq", int64_t{16}},
                             {"measure_memory", int64_t{1}}})
                        .get(),
                    &made));
  const Handle<tsr_scorer, tsr_scorer_free> owner(made);
  std::vector<int32_t> ids(64);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 37 % 256);
  const std::vector<size_t> lengths = {16, 16, 16, 16};
  Scored out{std::vector<float>(ids.size()), std::vector<uint8_t>(ids.size())};
  ok(tsr_scorer_score(made, ids.data(), ids.size(), lengths.data(), lengths.size(), out.logprobs.data(),
                      out.greedy.data()));
  const Json report = Json::parse(text([&](auto... last) { return tsr_scorer_report(made, last...); }));
  for (const Json& device : report.at("devices"))
    CHECK(device.at("arena_bytes").at("measured") == device.at("arena_bytes").at("predicted"));
  CHECK(!report.at("devices").empty());
  return out;
}

struct Layout {
  const char *devices, *parallel;
};

}  // namespace

TEST_CASE("a quantised model yields the same tokens on every layout, and arenas are as predicted") {
  const Runtime rt = runtime();
  const Scratch scratch;
  // Heads of 128: two of them are a K block, so that three devices hold one each and two hold one each of two.
  const std::pair<const char*, std::vector<Layout>> models[] = {
      {"llama:L=2,C=512,H=4,KV=2,F=512,V=256,T=32,tied=0",
       {{"cpu:2", "tp=2"}, {"cpu:2", "pp=2"}, {"cpu:4", "pp=2,tp=2"}}},
      {"llama:L=1,C=768,H=6,KV=3,F=768,V=256,T=32,tied=0", {{"cpu:3", "tp=3"}}}};
  for (const auto& [description, layouts] : models)
    for (const char* type : {"q4_k_m", "q8_0"}) {
      CAPTURE(type);
      const Model model = quantized(description, type, scratch / (std::string(type) + ".tsr").c_str());
      const std::vector<int32_t> wanted = generated(rt, model, "cpu:1", "");
      CHECK(wanted.size() == 12);
      const Scored one = scored(rt, model, "cpu:1", "");
      for (const auto& [devices, parallel] : layouts) {
        CAPTURE(parallel);
        CHECK(generated(rt, model, devices, parallel) == wanted);
      }
      for (const auto& [devices, parallel] : {layouts[0], Layout{"cpu:2", "dp=2"}}) {
        CAPTURE(parallel);
        const Scored all = scored(rt, model, devices, parallel);
        CHECK(all.greedy == one.greedy);
        for (size_t i = 0; i < one.logprobs.size(); ++i)
          if (i % 16 != 0) CHECK(std::fabs(all.logprobs[i] - one.logprobs[i]) < 1e-2f);
      }
    }
}
