// Experts' weights of block types through the C API: a mixture's GGUF file keeps them, computes what their values
// give, on one device and several, and trains what is not frozen over them.
#include <cmath>
#include <string>
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

// Two whole blocks of 256 in every packed dim, so that two ranks find some to take.
constexpr const char* kDescription = "moe:L=1,C=512,H=4,KV=2,F=512,V=256,T=32,E=3,K=2,capacity=0,tied=0";

struct Value {
  tsr_dtype type;
  std::vector<int64_t> dims;
  std::vector<float> numbers;
};

Value value_of(const Model& model, const std::string& name) {
  tsr_tensor* read = nullptr;
  ok(tsr_model_read(model.get(), name.c_str(), &read));
  const Tensor owner(read);
  Value value{
      tsr_tensor_dtype(read), {tsr_tensor_dims(read), tsr_tensor_dims(read) + tsr_tensor_rank(read)}, {}};
  int64_t elements = 1;
  for (const int64_t dim : value.dims) elements *= dim;
  value.numbers.resize(static_cast<size_t>(elements));
  tessera::decode_blocks(static_cast<DType>(value.type), static_cast<const std::byte*>(tsr_tensor_data(read)),
                         value.numbers.data(), elements);
  return value;
}

// A GGUF of a random model: matrices and experts have `type` (a ggml number), blocks of `dtype`.
std::string gguf_of(const Model& model, uint32_t type, DType dtype) {
  GgufBuilder w;
  w.text("general.architecture", "llama");
  w.u32("llama.block_count", 1).u32("llama.embedding_length", 512).u32("llama.attention.head_count", 4);
  w.u32("llama.attention.head_count_kv", 2)
      .u32("llama.feed_forward_length", 512)
      .u32("llama.context_length", 32);
  w.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f).u32("llama.rope.dimension_count", 128);
  w.u32("llama.expert_count", 3).u32("llama.expert_used_count", 2);
  const auto put = [&](const std::string& theirs, const std::string& ours, bool in_blocks) {
    const Value value = value_of(model, ours);
    const std::vector<uint64_t> dims(value.dims.rbegin(), value.dims.rend());
    const auto count = static_cast<int64_t>(value.numbers.size());
    if (!in_blocks) {
      w.tensor_f32(theirs, dims, value.numbers);
      return;
    }
    std::string blocks(static_cast<size_t>(tessera::dtype_bytes(dtype, count)), '\0');
    REQUIRE(tessera::encode_blocks(dtype, value.numbers.data(), count,
                                   reinterpret_cast<std::byte*>(blocks.data()))
                .ok());
    w.tensor(theirs, type, dims, blocks);
  };
  put("token_embd.weight", "token_embedding", true);
  put("output.weight", "output", true);
  put("output_norm.weight", "final_norm", false);
  for (const auto& [theirs, ours] : {std::pair{"attn_q", "q"},
                                     {"attn_k", "k"},
                                     {"attn_v", "v"},
                                     {"attn_output", "o"},
                                     {"ffn_gate_exps", "experts.gate"},
                                     {"ffn_up_exps", "experts.up"},
                                     {"ffn_down_exps", "experts.down"}})
    put(std::string("blk.0.") + theirs + ".weight", std::string("block.0.") + ours, true);
  for (const auto& [theirs, ours] :
       {std::pair{"attn_norm", "attention_norm"}, {"ffn_norm", "ffn_norm"}, {"ffn_gate_inp", "router"}})
    put(std::string("blk.0.") + theirs + ".weight", std::string("block.0.") + ours, false);
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
    const Value value = value_of(blocks, name);
    ok(tsr_model_write(model.get(), name.c_str(), tensor_f32(value.dims, value.numbers).get()));
  }
  return model;
}

// After a prompt that a chunk and single tokens take.
std::vector<float> logits(const Runtime& rt, const Model& model, const char* devices, const char* parallel,
                          const char* activations) {
  tsr_generator* made = nullptr;
  ok(tsr_generator_new(rt.get(), model.get(),
                       options({{"devices", std::string(devices)},
                                {"parallel", std::string(parallel)},
                                {"max_tokens", int64_t{1}},
                                {"activations", std::string(activations)}})
                           .get(),
                       &made));
  const Generator generator(made);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 19; ++i) prompt.push_back((i * 37 + 5) % 250);
  ok(tsr_generator_start_tokens(made, prompt.data(), prompt.size()));
  for (tsr_piece piece = {};;) {
    piece.struct_size = sizeof piece;
    ok(tsr_generator_next(made, -1, &piece));
    if (piece.kind == TSR_END) break;
  }
  tsr_tensor* last = nullptr;
  ok(tsr_generator_logits(made, &last));
  return floats(Tensor(last).get());
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

constexpr std::pair<uint32_t, DType> kTypes[] = {{8, DType::kQ8_0}, {12, DType::kQ4_K}};

}  // namespace

TEST_CASE("a mixture's file keeps its experts' blocks, and computes what their values give on any layout") {
  const Runtime rt = runtime();
  const Model drawn = described(kDescription, 5);
  for (const auto& [type, dtype] : kTypes) {
    CAPTURE(tessera::to_text(dtype));
    const Model blocks = loaded(gguf_of(drawn, type, dtype));
    for (const char* name : {"block.0.experts.gate", "block.0.experts.down", "block.0.q"})
      CHECK(value_of(blocks, name).type == static_cast<tsr_dtype>(dtype));
    CHECK(value_of(blocks, "block.0.router").type == TSR_F32);
    const std::vector<float> wanted = logits(rt, widened(blocks), "cpu:1", "", "f32");
    const std::vector<float> one = logits(rt, blocks, "cpu:1", "", "f32");
    const std::vector<float> rounded = logits(rt, blocks, "cpu:1", "", "q8");
    CHECK(distance(one, wanted) < 1e-5);
    CHECK(distance(rounded, wanted) > 1e-4);  // it is not the same
    CHECK(distance(rounded, wanted) < 2e-2);
    for (const auto& [devices, parallel] :
         {std::pair{"cpu:3", "ep=3"}, {"cpu:2", "ep=2"}, {"cpu:2", "tp=2"}}) {
      INFO(parallel);
      // f32 sums in another order; q8 rounds what differs by an ulp to other codes now and then.
      CHECK(distance(logits(rt, blocks, devices, parallel, "f32"), one) < 1e-5);
      CHECK(distance(logits(rt, blocks, devices, parallel, "q8"), rounded) < 2e-3);
    }
  }
}

TEST_CASE("what is not frozen trains over experts in blocks as over their values") {
  const Runtime rt = runtime();
  const Dataset data = repeated_text("the tiles of one mosaic lie side by side; ", 60, 16, 0.2);
  const Model blocks = loaded(gguf_of(described(kDescription, 5), 8, DType::kQ8_0)), values = widened(blocks);
  const auto losses = [&](const Model& model, const char* devices, const char* parallel) {
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(rt.get(), model.get(), data.get(),
                       options({{"devices", std::string(devices)},
                                {"parallel", std::string(parallel)},
                                {"batch", int64_t{4}},
                                {"lr", 1e-3},
                                {"frozen", std::string("*.experts.*")}})
                           .get(),
                       &made));
    const Trainer trainer(made);
    std::vector<double> all;
    for (int i = 0; i < 3; ++i) all.push_back(one_step(trainer));
    return all;
  };
  const std::vector<double> wanted = losses(values, "cpu:1", "");
  CHECK(wanted[2] < wanted[0]);
  for (const auto& [devices, parallel] : {std::pair{"cpu:1", ""}, {"cpu:2", "ep=2"}, {"cpu:2", "tp=2"}}) {
    INFO(parallel);
    const std::vector<double> found = losses(blocks, devices, parallel);
    for (size_t i = 0; i < 3; ++i) CHECK(found[i] == doctest::Approx(wanted[i]).epsilon(1e-4));
  }
}

TEST_CASE("a mixture is quantised with its experts, and kept so") {
  const Runtime rt = runtime();
  const Scratch scratch;
  const std::string path = scratch / "small.tsr";
  const Model drawn = described(kDescription, 5);
  ok(tsr_model_quantize(nullptr, drawn.get(), path.c_str(),
                        options({{"type", std::string("q4_k")}, {"pure", int64_t{1}}}).get(), nullptr));
  tsr_model* made = nullptr;
  ok(tsr_model_load(path.c_str(), &made));
  const Model small(made);
  CHECK(value_of(small, "block.0.experts.up").type == TSR_Q4_K);
  CHECK(value_of(small, "block.0.router").type == TSR_F32);
  CHECK(distance(logits(rt, small, "cpu:1", "", "f32"), logits(rt, widened(small), "cpu:1", "", "f32")) <
        1e-5);
}
