// Generating from weights kept in bf16, f16 and block types: near the model's own logits, the same on one device and
// several, in fewer bytes; and what the file yields that `quantize --pure` writes.
#include <cmath>
#include <cstdlib>

#include "c_api.h"

using namespace capi_test;

namespace {

struct Asked {
  std::vector<float> logits;
  double bytes = 0;  // of the first device
};

// Logits after a prompt of 23 tokens, in steps of 16 and fewer.
Asked ask(const Runtime& rt, const Model& model, const char* devices, const char* parallel,
          const char* weights, const char* activations = "f32") {
  tsr_generator* made = nullptr;
  ok(tsr_generator_new(rt.get(), model.get(),
                       options({{"devices", std::string(devices)},
                                {"parallel", std::string(parallel)},
                                {"max_tokens", int64_t{1}},
                                {"weights", std::string(weights)},
                                {"activations", std::string(activations)}})
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

void check_types(const char* description) {
  tsr_model* made = nullptr;
  ok(tsr_model_new(description, options({{"seed", int64_t{3}}}).get(), &made));
  const Model model(made);
  const Runtime rt = runtime();
  const Asked whole = ask(rt, model, "cpu:1", "", "model");
  // Relative to the logits' size: a step of the type (2^-9; 1/254 and 1/16 of the largest of a block) through a few
  // products, with twice that to spare; and the type must show at all.
  struct Kept {
    const char* type;
    double least, most;
    bool is_cut;  // two ranks find whole blocks to take
  };
  double last_bytes = whole.bytes;
  for (const Kept& kept : {Kept{"bf16", 1e-5, 0.01, true},
                           {"q8_0", 1e-4, 0.03, true},
                           {"q4_k", 1e-3, 0.3, false},
                           {"q4_0", 1e-2, 0.35, true}}) {
    INFO(kept.type);
    const Asked one = ask(rt, model, "cpu:1", "", kept.type);
    CHECK(distance(one.logits, whole.logits) > kept.least);
    CHECK(distance(one.logits, whole.logits) < kept.most);
    CHECK(one.bytes < last_bytes);
    last_bytes = one.bytes;
    // f32 sums in another order.
    for (const auto& [devices, parallel] :
         {std::pair{"cpu:2", "pp=2"}, {"cpu:2", "tp=2"}, {"cpu:4", "tp=2,pp=2"}}) {
      INFO(parallel);
      if (!kept.is_cut && std::string(parallel) != "pp=2") continue;
      CHECK(distance(ask(rt, model, devices, parallel, kept.type).logits, one.logits) < 1e-5);
    }
  }
  CHECK(ask(rt, model, "cpu:1", "", "f16").bytes == ask(rt, model, "cpu:1", "", "bf16").bytes);
}

TEST_CASE("a_llama_generates_from_weights_of_every_type_on_any_number_of_devices") {
  check_types("llama:L=2,C=256,H=4,KV=2,F=384,V=256,T=48");
}

TEST_CASE("a_gpt2_whose_table_is_its_head_generates_from_weights_of_every_type") {
  check_types("gpt2:L=2,C=128,H=4,V=256,T=48");
}

TEST_CASE("weights_kept_in_a_type_yield_what_the_file_does_that_is_quantised_to_it") {
  const Runtime rt = runtime();
  const Scratch scratch;
  const std::string path = scratch / "pure.tsr";
  for (const char* head : {"", ",tied=1"}) {
    tsr_model* made = nullptr;
    const std::string description = std::string("llama:L=2,C=256,H=4,KV=2,F=384,V=256,T=48") + head;
    ok(tsr_model_new(description.c_str(), options({{"seed", int64_t{3}}}).get(), &made));
    const Model model(made);
    for (const char* type : {"q8_0", "q4_0", "q4_k", "tq2_0"}) {
      CAPTURE(type);
      ok(tsr_model_quantize(nullptr, model.get(), path.c_str(),
                            options({{"type", std::string(type)}, {"pure", int64_t{1}}}).get(), nullptr));
      ok(tsr_model_load(path.c_str(), &made));
      const Model file(made);
      for (const char* activations : {"f32", "q8"}) {
        const Asked kept = ask(rt, model, "cpu:1", "", type, activations);
        const Asked stored = ask(rt, file, "cpu:1", "", "model", activations);
        CHECK(kept.logits == stored.logits);
        CHECK(kept.bytes == stored.bytes);
        // Weights that are as narrow already stay.
        CHECK(ask(rt, file, "cpu:1", "", "q8_0", activations).logits == stored.logits);
      }
    }
  }
}

TEST_CASE("a_type_that_does_not_exist_is_refused_with_those_that_do_and_former_names_with_todays") {
  tsr_model* made = nullptr;
  ok(tsr_model_new("llama:L=1,C=32,H=4,KV=2,F=32,V=64,T=16", options({}).get(), &made));
  const Model model(made);
  const Runtime rt = runtime();
  const auto refused = [&](const char* weights) {
    tsr_generator* generator = nullptr;
    const Error error = take(tsr_generator_new(
        rt.get(), model.get(), options({{"weights", std::string(weights)}}).get(), &generator));
    CHECK(error.code == TSR_INVALID_ARGUMENT);
    return error.message;
  };
  const std::string unknown = refused("int3");
  CHECK(unknown.find("wanted one of model, ") != std::string::npos);
  CHECK(unknown.find("q4_k") != std::string::npos);
  CHECK(unknown.find("iq3_s") == std::string::npos);  // has no encoder
  CHECK(refused("f32").find("wanted one of model, ") != std::string::npos);
  CHECK(refused("int8").find("wanted q8_0") != std::string::npos);
  CHECK(refused("int4").find("wanted q4_0") != std::string::npos);
}

}  // namespace
