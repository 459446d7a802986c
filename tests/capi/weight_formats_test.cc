// Generating from weights kept in bf16, int8 and int4: near the model's own logits, the same on one device
// and several, in fewer bytes.
#include <cmath>
#include <cstdlib>

#include "c_api.h"

using namespace capi_test;

namespace {

struct Asked {
  std::vector<float> logits;
  double bytes = 0;  // of the first device
};

// Logits after a prompt of 20 tokens, which a chunk of 16 and single tokens take, and 3 more that are given.
Asked ask(const Runtime& rt, const Model& model, const char* devices, const char* parallel,
          const char* weights) {
  tsr_generator* made = nullptr;
  ok(tsr_generator_new(rt.get(), model.get(),
                       options({{"devices", std::string(devices)},
                                {"parallel", std::string(parallel)},
                                {"max_tokens", int64_t{1}},
                                {"weights", std::string(weights)}})
                           .get(),
                       &made));
  const Generator generator(made);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 23; ++i) prompt.push_back((i * 37 + 5) % 250);
  ok(tsr_generator_start_tokens(made, prompt.data(), prompt.size()));
  for (tsr_piece piece = {};;) {
    piece.struct_size = sizeof piece;
    ok(tsr_generator_next(made, -1, &piece));
    if (piece.kind == TSR_END) break;
  }
  tsr_tensor* logits = nullptr;
  ok(tsr_generator_logits(made, &logits));
  const std::string report = text([&](tsr_text** out) { return tsr_generator_report(made, out); });
  const size_t bytes = report.find("\"predicted\":", report.find("\"arena_bytes\""));
  REQUIRE(bytes != std::string::npos);
  return {floats(Tensor(logits).get()), std::atof(report.c_str() + bytes + 12)};
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double(a[i]) - double(b[i]), 2);
    size += std::pow(double(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

void check_formats(const char* description) {
  tsr_model* made = nullptr;
  ok(tsr_model_new(description, options({{"seed", int64_t{3}}}).get(), &made));
  const Model model(made);
  const Runtime rt = runtime();
  const Asked whole = ask(rt, model, "cpu:1", "", "model");
  // Relative to the logits' size: a step of the format (2^-9; 1/254 and 1/16 of the largest of a group)
  // through a few products, with twice that to spare; and the format must show at all.
  struct Format {
    const char* name;
    double least, most, bytes;
  };
  double last_bytes = whole.bytes;
  for (const Format& format :
       {Format{"bf16", 1e-5, 0.01, 0}, {"int8", 1e-4, 0.03, 0}, {"int4", 1e-2, 0.35, 0}}) {
    INFO(format.name);
    const Asked one = ask(rt, model, "cpu:1", "", format.name);
    CHECK(distance(one.logits, whole.logits) > format.least);
    CHECK(distance(one.logits, whole.logits) < format.most);
    CHECK(one.bytes < last_bytes);
    last_bytes = one.bytes;
    // f32 sums in another order.
    for (const auto& [devices, parallel] :
         {std::pair{"cpu:2", "tp=2"}, {"cpu:2", "pp=2"}, {"cpu:4", "tp=2,pp=2"}}) {
      INFO(parallel);
      CHECK(distance(ask(rt, model, devices, parallel, format.name).logits, one.logits) < 1e-5);
    }
  }
}

TEST_CASE("a_llama_generates_from_weights_of_every_format_on_any_number_of_devices") {
  check_formats("llama:L=2,C=256,H=4,KV=2,F=384,V=256,T=48");
}

TEST_CASE("a_gpt2_whose_table_is_its_head_generates_from_weights_of_every_format") {
  check_formats("gpt2:L=2,C=128,H=4,V=256,T=48");
}

TEST_CASE("a_format_that_does_not_exist_is_refused_with_those_that_do") {
  tsr_model* made = nullptr;
  ok(tsr_model_new("llama:L=1,C=32,H=4,KV=2,F=32,V=64,T=16", options({}).get(), &made));
  const Model model(made);
  const Runtime rt = runtime();
  tsr_generator* generator = nullptr;
  const Error error = take(tsr_generator_new(rt.get(), model.get(),
                                             options({{"weights", std::string("int3")}}).get(), &generator));
  CHECK(error.code == TSR_INVALID_ARGUMENT);
  CHECK(error.message.find("int4") != std::string::npos);
}

}  // namespace
