// Weights of block types through the C API: kept as the file has them, computed as their values are, frozen
// under adapters, widened where they train.
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "graph/base/blocks/block_codec.h"
#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"
#include "tests/serialize/gguf_builder.h"

using namespace capi_test;
using tessera::DType;
using tessera::testing::GgufBuilder;

namespace {

constexpr const char* kDescription = "llama:L=2,C=64,H=4,KV=2,F=96,V=256,T=32,tied=0";

std::vector<float> values_of(const Model& model, const std::string& name) {
  tsr_tensor* value = nullptr;
  ok(tsr_model_read(model.get(), name.c_str(), &value));
  const Tensor owner(value);
  int64_t elements = 1;
  for (int32_t i = 0; i < tsr_tensor_rank(value); ++i) elements *= tsr_tensor_dims(value)[i];
  std::vector<float> out(static_cast<size_t>(elements));
  tessera::decode_blocks(static_cast<DType>(tsr_tensor_dtype(value)),
                         static_cast<const std::byte*>(tsr_tensor_data(value)), out.data(), elements);
  return out;
}

tsr_dtype type_of(const Model& model, const char* name) {
  tsr_tensor* value = nullptr;
  ok(tsr_model_read(model.get(), name, &value));
  return tsr_tensor_dtype(Tensor(value).get());
}

// A GGUF of a random model, whose matrices have `type` (a ggml number) and are the blocks of `dtype`.
std::string gguf_of(const Model& model, uint32_t type, DType dtype) {
  GgufBuilder w;
  w.text("general.architecture", "llama");
  w.u32("llama.block_count", 2).u32("llama.embedding_length", 64).u32("llama.attention.head_count", 4);
  w.u32("llama.attention.head_count_kv", 2)
      .u32("llama.feed_forward_length", 96)
      .u32("llama.context_length", 32);
  w.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f).u32("llama.rope.dimension_count", 16);
  const auto norm = [&](const std::string& theirs, const std::string& ours) {
    w.tensor_f32(theirs, {64}, values_of(model, ours));
  };
  const auto matrix = [&](const std::string& theirs, const std::string& ours, uint64_t columns,
                          uint64_t rows) {
    const std::vector<float> numbers = values_of(model, ours);
    std::string blocks(static_cast<size_t>(tessera::dtype_bytes(dtype, static_cast<int64_t>(numbers.size()))),
                       '\0');
    REQUIRE(tessera::encode_blocks(dtype, numbers.data(), static_cast<int64_t>(numbers.size()),
                                   reinterpret_cast<std::byte*>(blocks.data()))
                .ok());
    w.tensor(theirs, type, {columns, rows}, blocks);
  };
  matrix("token_embd.weight", "token_embedding", 64, 256);
  matrix("output.weight", "output", 64, 256);
  norm("output_norm.weight", "final_norm");
  for (int i = 0; i < 2; ++i) {
    const std::string theirs = "blk." + std::to_string(i) + ".", ours = "block." + std::to_string(i) + ".";
    norm(theirs + "attn_norm.weight", ours + "attention_norm");
    norm(theirs + "ffn_norm.weight", ours + "ffn_norm");
    matrix(theirs + "attn_q.weight", ours + "q", 64, 64);
    matrix(theirs + "attn_k.weight", ours + "k", 64, 32);
    matrix(theirs + "attn_v.weight", ours + "v", 64, 32);
    matrix(theirs + "attn_output.weight", ours + "o", 64, 64);
    matrix(theirs + "ffn_gate.weight", ours + "gate", 64, 96);
    matrix(theirs + "ffn_up.weight", ours + "up", 64, 96);
    matrix(theirs + "ffn_down.weight", ours + "down", 96, 64);
  }
  return w.finish();
}

Model loaded(const std::string& bytes) {
  auto* owned = new std::string(bytes);
  tsr_model* made = nullptr;
  ok(tsr_model_load_bytes(
      owned->data(), owned->size(), [](void* context) { delete static_cast<std::string*>(context); }, owned,
      &made));
  Model model(made);
  ok(tsr_model_set_tokenizer(model.get(), byte_tokenizer().get()));
  return model;
}

// The same model with the values of the blocks in f32.
Model widened(const Model& blocks) {
  Model model = described(kDescription);
  size_t count = 0;
  ok(tsr_model_parameter_count(model.get(), &count));
  for (size_t i = 0; i < count; ++i) {
    const std::string name =
        short_text([&](auto... out) { return tsr_model_parameter_name(model.get(), i, out...); });
    tsr_tensor* old = nullptr;
    ok(tsr_model_read(model.get(), name.c_str(), &old));
    const Tensor owner(old);
    const std::vector<int64_t> dims(tsr_tensor_dims(old), tsr_tensor_dims(old) + tsr_tensor_rank(old));
    ok(tsr_model_write(model.get(), name.c_str(), tensor_f32(dims, values_of(blocks, name)).get()));
  }
  return model;
}

Trainer trainer_of(const Runtime& rt, const Model& model, const Dataset& data, const char* devices,
                   const char* parallel, std::initializer_list<Setting> more = {}) {
  Options chosen = options(more);
  ok(tsr_options_set_str(chosen.get(), "devices", devices));
  ok(tsr_options_set_str(chosen.get(), "parallel", parallel));
  ok(tsr_options_set_i64(chosen.get(), "batch", 4));
  ok(tsr_options_set_f64(chosen.get(), "lr", 1e-2));
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(rt.get(), model.get(), data.get(), chosen.get(), &made));
  return Trainer(made);
}

struct Form {
  const char *devices, *parallel;
};
constexpr Form kForms[] = {
    {"cpu:1", ""}, {"cpu:2", "tp=2"}, {"cpu:2", "dp=2,zero=3"}, {"cpu:2", "pp=2,mb=2"}};

}  // namespace

TEST_CASE("a model of blocks keeps them, and computes what their values give, on every number of devices") {
  const Runtime rt = runtime();
  const Dataset data = repeated_text("the tiles of one mosaic lie side by side; ", 60, 16, 0.2);
  const Model random = described(kDescription);
  for (const auto& [type, dtype] : {std::pair{8u, DType::kQ8_0}, std::pair{3u, DType::kQ4_1}}) {
    CAPTURE(to_text(dtype));
    const Model blocks = loaded(gguf_of(random, type, dtype));
    CHECK(type_of(blocks, "block.0.q") == static_cast<tsr_dtype>(dtype));
    CHECK(type_of(blocks, "token_embedding") == static_cast<tsr_dtype>(dtype));
    CHECK(type_of(blocks, "final_norm") == TSR_F32);
    const double wanted =
        evaluated(trainer_of(rt, widened(blocks), data, "cpu:1", "", {{"evaluate_only", int64_t{1}}}));
    for (const auto& [devices, parallel] : kForms) {
      CAPTURE(parallel);
      const double found =
          evaluated(trainer_of(rt, blocks, data, devices, parallel, {{"evaluate_only", int64_t{1}}}));
      CHECK(found == doctest::Approx(wanted).epsilon(1e-5));  // sums in another order, in f32
    }
    // And from a file of our own.
    const Scratch scratch;
    ok(tsr_model_save(blocks.get(), (scratch / "m.tsr").c_str(), nullptr));
    tsr_model* again = nullptr;
    ok(tsr_model_load((scratch / "m.tsr").c_str(), &again));
    const Model reopened(again);
    CHECK(type_of(reopened, "block.1.down") == static_cast<tsr_dtype>(dtype));
    CHECK(values_of(reopened, "block.1.down") == values_of(blocks, "block.1.down"));
  }
}

TEST_CASE("adapters train over blocks that stay as they are, and merge into f32") {
  const Runtime rt = runtime();
  const Dataset data = repeated_text("the tiles of one mosaic lie side by side; ", 60, 16, 0.2);
  const Model blocks = loaded(gguf_of(described(kDescription), 8, DType::kQ8_0));
  const std::vector<float> before = values_of(blocks, "block.0.q");
  std::vector<double> first;
  for (const auto& [devices, parallel] : kForms) {
    CAPTURE(parallel);
    tsr_model* made = nullptr;
    ok(tsr_model_add_adapters(blocks.get(), options({{"rank", int64_t{4}}}).get(), &made));
    const Model adapted(made);
    CHECK(type_of(adapted, "block.0.q") == TSR_Q8_0);
    const Trainer trainer = trainer_of(rt, adapted, data, devices, parallel, {{"warmup", int64_t{0}}});
    std::vector<double> losses;
    for (int i = 0; i < 8; ++i) losses.push_back(one_step(trainer));
    if (first.empty()) first = losses;
    CHECK(losses.back() < losses.front());
    for (size_t i = 0; i < losses.size(); ++i) CHECK(losses[i] == doctest::Approx(first[i]).epsilon(1e-3));
    ok(tsr_trainer_store(trainer.get(), adapted.get()));
    CHECK(type_of(adapted, "block.0.q") == TSR_Q8_0);
    CHECK(values_of(adapted, "block.0.q") == before);

    ok(tsr_model_merge_adapters(adapted.get(), &made));
    const Model merged(made);
    CHECK(type_of(merged, "block.0.q") == TSR_F32);
    CHECK(type_of(merged, "output") == TSR_Q8_0);  // no adapter
    CHECK(evaluated(trainer_of(rt, merged, data, "cpu:1", "", {{"evaluate_only", int64_t{1}}})) ==
          doctest::Approx(evaluated(trainer)).epsilon(1e-5));
  }
}

TEST_CASE("blocks that train are f32 from then on, in the trainer, the model and the file") {
  const Runtime rt = runtime();
  const Dataset data = repeated_text("the tiles of one mosaic lie side by side; ", 60, 16, 0.2);
  const Model blocks = loaded(gguf_of(described(kDescription), 2, DType::kQ4_0));
  const Trainer trainer =
      trainer_of(rt, blocks, data, "cpu:2", "dp=2", {{"frozen", std::string("token_embedding")}});
  for (int i = 0; i < 3; ++i) one_step(trainer);
  const double trained = evaluated(trainer);
  const Scratch scratch;
  ok(tsr_trainer_save_model(trainer.get(), blocks.get(), (scratch / "m.tsr").c_str(), nullptr));
  CHECK(type_of(blocks, "block.0.q") == TSR_Q4_0);  // the model is as it was
  ok(tsr_trainer_store(trainer.get(), blocks.get()));
  tsr_model* saved = nullptr;
  ok(tsr_model_load((scratch / "m.tsr").c_str(), &saved));
  const Model file(saved);
  for (const Model* model : {&blocks, &file}) {
    CHECK(type_of(*model, "block.0.q") == TSR_F32);
    CHECK(type_of(*model, "token_embedding") == TSR_Q4_0);
    CHECK(evaluated(trainer_of(rt, *model, data, "cpu:1", "", {{"evaluate_only", int64_t{1}}})) ==
          doctest::Approx(trained).epsilon(1e-5));
  }
}

namespace {

struct Written {
  std::vector<int32_t> tokens;
  int64_t copied = 0, shared = 0;  // bytes of weights, of all devices
};

Written written(tsr_generator* generator) {
  ok(tsr_generator_start(generator, "Once upon a time", TSR_TEXT_END));
  Written all;
  tsr_piece piece = {};
  piece.struct_size = sizeof piece;
  while (piece.kind != TSR_END) {
    ok(tsr_generator_next(generator, -1, &piece));
    if (piece.kind == TSR_PIECE) all.tokens.push_back(piece.token);
  }
  const std::string report = text([&](auto... out) { return tsr_generator_report(generator, out...); });
  const auto sum = [&](const std::string& key) {
    int64_t bytes = 0;
    for (size_t at = report.find(key); at != report.npos; at = report.find(key, at + 1))
      bytes += std::stoll(report.substr(at + key.size()));
    return bytes;
  };
  all.copied = sum("\"copied_weight_bytes\":");
  all.shared = sum("\"shared_weight_bytes\":");
  return all;
}

}  // namespace

TEST_CASE("repacked weights yield the tokens of those in the file's order") {
  const Runtime rt = runtime();
  const Model drawn = described(kDescription, 11);
  struct Layout {
    const char *devices, *parallel;
  };
  for (const auto& [type, dtype] : {std::pair{8u, DType::kQ8_0}, {2u, DType::kQ4_0}, {7u, DType::kQ5_1}}) {
    const Model model = loaded(gguf_of(drawn, type, dtype));
    for (const Layout& layout : {Layout{"cpu:1", ""}, {"cpu:2", "tp=2"}, {"cpu:2", "pp=2"}}) {
      std::vector<int32_t> wanted;
      for (const char* repack : {"off", "auto"}) {
        const std::string name =
            tessera::to_text(dtype) + (" " + std::string(layout.parallel)) + " " + repack;
        INFO(name);
        tsr_generator* made = nullptr;
        ok(tsr_generator_new(rt.get(), model.get(),
                             options({{"devices", std::string(layout.devices)},
                                      {"parallel", std::string(layout.parallel)},
                                      {"repack", std::string(repack)},
                                      {"temperature", 0.0},
                                      {"max_tokens", int64_t{8}}})
                                 .get(),
                             &made));
        const Generator generator(made);
        const Written found = written(made);
        if (wanted.empty()) wanted = found.tokens;
        CHECK(found.tokens == wanted);
        CHECK(found.shared > 0);
        if (std::string(repack) == "auto") CHECK(found.copied > found.shared / 2);
        if (std::string(repack) == "off" && std::string(layout.parallel) != "tp=2") CHECK(found.copied == 0);
      }
    }
  }
}
