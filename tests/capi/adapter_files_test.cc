// Adapters of PEFT's files, in and out: what is added to each weight is what the file says, what comes back is what went
// out, and what is wrong with a file is told.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "tests/capi/c_api.h"
#include "tests/capi/parameter_values.h"
#include "tests/capi/small_training.h"
#include "tests/serialize/safetensors_writer.h"

using namespace capi_test;
using tessera::testing::SafetensorsWriter;

namespace {

constexpr const char* kLlama =
    "llama:L=2,C=8,H=2,KV=1,F=12,V=16,T=8";  // rotates (2i, 2i + 1); the files (i, i + R/2)
constexpr const char* kPhi3 = "phi3:L=1,C=8,H=2,KV=1,F=12,V=16,T=8,rope_half";

Model merged(const Model& model) {
  tsr_model* made = nullptr;
  ok(tsr_model_merge_adapters(model.get(), &made));
  return Model(made);
}

// Some numbers, which `seed` tells apart.
std::vector<float> numbers(size_t count, int seed) {
  std::vector<float> all(count);
  for (size_t i = 0; i < count; ++i)
    all[i] = static_cast<float>((static_cast<int>(i) * 7 + seed * 5) % 11 - 5) / 8;
  return all;
}

// A folder of PEFT's.
struct Folder {
  Scratch scratch;
  std::string path = scratch.path.string();
  SafetensorsWriter tensors;
  std::string config = R"("r":2,"lora_alpha":3,"target_modules":["q_proj"])";

  Folder& matrix(const std::string& name, int64_t rows, int64_t columns, int seed) {
    tensors.f32("base_model.model." + name, tessera::format("[{}, {}]", rows, columns),
                numbers(static_cast<size_t>(rows * columns), seed));
    return *this;
  }
  // Values of "model.layers.<i>.self_attn.q_proj" of kLlama.
  Folder& queries() {
    for (const char* const i : {"0", "1"}) {
      const std::string name = "model.layers." + std::string(i) + ".self_attn.q_proj";
      matrix(name + ".lora_A.weight", 2, 8, 1).matrix(name + ".lora_B.weight", 8, 2, 2);
    }
    return *this;
  }
  void write() const {
    const char* const type = config.find("peft_type") == std::string::npos ? R"("peft_type":"LORA",)" : "";
    std::ofstream(path + "/adapter_config.json") << "{" << type << config << "}";
    std::ofstream(path + "/adapter_model.safetensors", std::ios::binary) << tensors.finish();
  }
  Error load(const Model& base, Model* out = nullptr) const {
    write();
    tsr_model* made = nullptr;
    Error error = take(tsr_model_load_adapters(base.get(), path.c_str(), nullptr, &made));
    Model model(made);
    if (out) *out = std::move(model);
    return error;
  }
  Model loaded(const Model& base) const {
    Model model;
    const Error error = load(base, &model);
    REQUIRE_MESSAGE(error.code == TSR_OK, error.message);
    return model;
  }
  std::string refusal(const Model& base) const {
    const Error error = load(base);
    CHECK(error.code != TSR_OK);
    return error.message;
  }
};

// factor * b a, row by row: a [r, columns], b [rows, r].
std::vector<double> product(const std::vector<float>& b, const std::vector<float>& a, size_t rank,
                            double factor) {
  const size_t rows = b.size() / rank, columns = a.size() / rank;
  std::vector<double> all(rows * columns);
  for (size_t i = 0; i < rows; ++i)
    for (size_t k = 0; k < rank; ++k)
      for (size_t j = 0; j < columns; ++j)
        all[i * columns + j] +=
            factor * static_cast<double>(b[i * rank + k]) * static_cast<double>(a[k * columns + j]);
  return all;
}

double largest_difference(const std::vector<float>& after, const std::vector<float>& before,
                          std::span<const double> added) {
  REQUIRE(after.size() == before.size());
  REQUIRE(after.size() == added.size());
  double most = 0;
  for (size_t i = 0; i < added.size(); ++i)
    most =
        std::max(most, std::abs(static_cast<double>(after[i]) - static_cast<double>(before[i]) - added[i]));
  return most;
}

std::string exported(const Model& model, const std::string& path, const char* format = "peft") {
  tsr_work* made = nullptr;
  ok(tsr_export_begin_for_model(nullptr, model.get(), path.c_str(),
                              options({{"format", std::string(format)}}).get(), &made));
  const Work work(made);
  step_through(work.get());
  return text([&](auto... out) { return tsr_export_finish(work.get(), out...); });
}

Model with_adapters(const Model& base, std::initializer_list<Setting> settings) {
  tsr_model* made = nullptr;
  ok(tsr_model_add_adapters(base.get(), options(settings).get(), &made));
  return Model(made);
}

// Adapters as if they had trained.
void fill(const Model& model) {
  int seed = 0;
  for (const auto& [name, value] : values_of(model))
    if (name.find(".lora_") != std::string::npos) {
      tsr_tensor* old = nullptr;
      ok(tsr_model_read(model.get(), name.c_str(), &old));
      const Tensor tensor(old);
      const int64_t* dims = tsr_tensor_dims(tensor.get());
      const Tensor filled =
          tensor_f32({dims, dims + tsr_tensor_rank(tensor.get())}, numbers(value.size(), ++seed));
      ok(tsr_model_write(model.get(), name.c_str(), filled.get()));
    }
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE(
    "an adapter of PEFT adds alpha / rank times its product, with rows in the order of the model's heads") {
  const Model base = described(kLlama);
  const Values before = values_of(base);
  Folder folder;
  const Values after = values_of(merged(folder.queries().loaded(base)));
  std::vector<double> theirs = product(numbers(16, 2), numbers(16, 1), 2, 1.5), added;
  for (const size_t head : {0, 1})
    for (const size_t row : {0, 2, 1, 3})
      added.insert(added.end(), theirs.begin() + static_cast<long>((head * 4 + row) * 8),
                   theirs.begin() + static_cast<long>((head * 4 + row + 1) * 8));
  for (const char* const name : {"block.0.q", "block.1.q"})
    CHECK(largest_difference(after.at(name), before.at(name), added) < 1e-6);
  CHECK(after.at("block.0.k") == before.at("block.0.k"));
  // The base is frozen, and adapters train.
  const Model model = folder.loaded(base);
  const std::string info = text([&](tsr_text** out) { return tsr_model_info(model.get(), out); });
  CHECK_MESSAGE(has(info, R"("adapters":{"rank":2,"alpha":3.0,"on":"block.0.q,block.1.q","bytes":256,)"),
                info);
}

TEST_CASE("patterns, roots of ranks and expressions choose as PEFT does") {
  const Model base = described(kLlama);
  const Values before = values_of(base);
  Folder folder;
  folder.config =
      R"("r":2,"lora_alpha":4,"use_rslora":true,"target_modules":"model\\.layers\\.(?P<n>\\d)\\.mlp\\.(up|down)_proj",
    "exclude_modules":["0.mlp.up_proj"],"rank_pattern":{"1.mlp.down_proj":3},"alpha_pattern":{"layers\\.1\\..*":6})";
  folder.matrix("model.layers.0.mlp.down_proj.lora_A.weight", 2, 12, 1)
      .matrix("model.layers.0.mlp.down_proj.lora_B.weight", 8, 2, 2)
      .matrix("model.layers.1.mlp.down_proj.lora_A.weight", 3, 12, 3)
      .matrix("model.layers.1.mlp.down_proj.lora_B.weight", 8, 3, 4)
      .matrix("model.layers.1.mlp.up_proj.lora_A.weight", 2, 8, 5)
      .matrix("model.layers.1.mlp.up_proj.lora_B.weight", 12, 2, 6);
  const Values after = values_of(merged(folder.loaded(base)));
  const auto off = [&](const char* name, int b, int a, size_t rank, size_t rows, size_t columns,
                       double factor) {
    return largest_difference(after.at(name), before.at(name),
                              product(numbers(rows * rank, b), numbers(rank * columns, a), rank, factor));
  };
  CHECK(off("block.0.down", 2, 1, 2, 8, 12, 4 / std::sqrt(2)) < 1e-5);
  CHECK(off("block.1.down", 4, 3, 3, 8, 12, 6 / std::sqrt(3)) < 1e-5);
  CHECK(off("block.1.up", 6, 5, 2, 12, 8, 6 / std::sqrt(2)) < 1e-5);
}

TEST_CASE("parts of a fused tensor share the first matrix, and the second is cut by rows") {
  const Model base = described(kPhi3);
  const Values before = values_of(base);
  Folder folder;
  folder.config = R"("r":2,"lora_alpha":2,"target_modules":["qkv_proj"])";
  folder.matrix("model.layers.0.self_attn.qkv_proj.lora_A.weight", 2, 8, 1)
      .matrix("model.layers.0.self_attn.qkv_proj.lora_B.weight", 16, 2, 2);
  const Model model = folder.loaded(base);
  CHECK(values_of(model).size() == before.size() + 4);  // one a, three b
  const Values after = values_of(merged(model));
  const std::vector<double> added = product(numbers(32, 2), numbers(16, 1), 2, 1);
  const auto part = [&](size_t first, size_t rows) { return std::span(added).subspan(first * 8, rows * 8); };
  CHECK(largest_difference(after.at("block.0.q"), before.at("block.0.q"), part(0, 8)) < 1e-6);
  CHECK(largest_difference(after.at("block.0.k"), before.at("block.0.k"), part(8, 4)) < 1e-6);
  CHECK(largest_difference(after.at("block.0.v"), before.at("block.0.v"), part(12, 4)) < 1e-6);
}

TEST_CASE("adapters that were made here come back from PEFT's form as they were") {
  const Scratch scratch;
  for (const char* const description :
       {kLlama, "gpt2:L=2,C=8,H=2,V=16,T=8", "gemma3:L=1,C=8,H=2,KV=1,D=4,F=12,V=16,T=8,tied,rope_half"}) {
    CAPTURE(description);
    const Model base = described(description);
    const bool is_gpt2 = description[1] == 'p';
    const Model model = is_gpt2 ? with_adapters(base, {{"rank", 3},
                                                       {"alpha", 4.0},
                                                       {"on", "*.o.weight,*.fc.weight"},
                                                       {"ranks", "block.0.o.weight=2"},
                                                       {"also", "*norm1*"}})
                                : with_adapters(base, {{"rank", 3},
                                                       {"alpha", 5.0},
                                                       {"rslora", 1},
                                                       {"ranks", "block.0.*=2"},
                                                       {"alphas", "*.up=7"},
                                                       {"also", "*.ffn_norm,final_norm"}});
    fill(model);
    const std::string path = (scratch / "adapter") + std::to_string(static_cast<int>(is_gpt2));
    const std::string report = exported(model, path);
    CHECK(has(report, R"("format":"peft")"));
    exported(model, path);  // replaces an earlier export
    tsr_model* made = nullptr;
    ok(tsr_model_load_adapters(base.get(), path.c_str(), nullptr, &made));
    const Model again(made);
    CHECK(values_of(again) == values_of(model));
    const auto graph = [](const Model& it) {
      tsr_graph* found = nullptr;
      ok(tsr_model_graph(it.get(), &found));
      const Graph held(found);
      return text([&](tsr_text** out) { return tsr_graph_print(held.get(), out); });
    };
    // Factors too, and what trains.
    CHECK(graph(again) == graph(model));
  }
}

TEST_CASE("magnitudes go to PEFT's form and back, and merge to weights of their norm") {
  const Scratch scratch;
  for (const char* const description : {"gpt2:L=1,C=8,H=2,V=16,T=8", kLlama, kPhi3}) {
    CAPTURE(description);
    const Model base = described(description);
    const Model model = with_adapters(base, {{"rank", 2}, {"alpha", 3.0}, {"dora", 1}});
    const Values untouched = values_of(merged(model)), before = values_of(base);
    for (const auto& [name, value] : before)  // magnitudes begin as the norms, and B as zero
      CHECK(largest_difference(untouched.at(name), value, std::vector<double>(value.size())) < 1e-6);
    fill(model);
    const std::string path = scratch / (description[0] == 'g'   ? "gpt2"
                                        : description[0] == 'l' ? "llama"
                                                                : "phi3");
    exported(model, path);
    tsr_model* made = nullptr;
    ok(tsr_model_load_adapters(base.get(), path.c_str(), nullptr, &made));
    const Model again(made);
    const Values once = values_of(merged(model)), twice = values_of(merged(again));
    for (const auto& [name, value] : once)
      CHECK(largest_difference(twice.at(name), value, std::vector<double>(value.size())) < 1e-5);
    // Each row of a merged weight has the length of its magnitude.
    const std::string weight = once.contains("block.0.o") ? "block.0.o" : "block.0.o.weight";
    const std::vector<float> magnitudes = values_of(model).at("block.0.o.lora_magnitude");
    for (size_t row = 0; row < 8; ++row) {
      double squares = 0;
      for (size_t i = 0; i < 8; ++i) {
        const auto value = static_cast<double>(once.at(weight)[row * 8 + i]);
        squares += value * value;
      }
      CHECK(std::sqrt(squares) == doctest::Approx(std::abs(magnitudes[row])).epsilon(1e-5));
    }
    tsr_work* work = nullptr;
    ok(tsr_export_begin_for_model(nullptr, model.get(), (scratch / "adapter.gguf").c_str(),
                                options({{"format", std::string("gguf")}, {"adapters", 1}}).get(), &work));
    const Work held(work);
    const Error refused = take(tsr_work_step(work, nullptr));
    CHECK(refused.code == TSR_UNSUPPORTED);
    CHECK_MESSAGE(has(refused.message, "is a magnitude (DoRA), which GGUF adapters have no form for"),
                  refused.message);
  }
}

TEST_CASE("adapters leave weights as they are stored, magnitudes too") {
  const Scratch scratch;
  const Model base = described("llama:L=1,C=64,H=2,KV=1,F=64,V=32,T=8,rope_half");
  const std::string path = scratch / "q8.tsr";
  ok(tsr_model_quantize(nullptr, base.get(), path.c_str(),
                        options({{"type", std::string("q8_0")}, {"pure", 1}}).get(), nullptr));
  tsr_model* loaded = nullptr;
  ok(tsr_model_load(path.c_str(), &loaded));
  const Model quantised(loaded);
  const Model model = with_adapters(quantised, {{"rank", 2}, {"dora", 1}});
  fill(model);
  const std::string info = text([&](tsr_text** out) { return tsr_model_info(model.get(), out); });
  CHECK_MESSAGE(has(info, R"({"name":"block.0.q","dtype":"q8_0","shape":[64,64]})"), info);
  const std::string adapted = scratch / "adapted.tsr";
  ok(tsr_model_save(model.get(), adapted.c_str(), nullptr));
  ok(tsr_model_load(adapted.c_str(), &loaded));
  const Values once = values_of(merged(model)), twice = values_of(merged(Model(loaded)));
  CHECK(once.at("block.0.down") == twice.at("block.0.down"));
}

TEST_CASE("a merged export is the export of the merged model, from memory and from a file") {
  const Scratch scratch;
  const Model model =
      with_adapters(described("llama:L=1,C=8,H=2,KV=1,F=12,V=16,T=8,rope_half"), {{"rank", 2}, {"dora", 1}});
  fill(model);
  ok(tsr_model_save(model.get(), (scratch / "adapted.tsr").c_str(), nullptr));
  const Values wanted = values_of(merged(model));
  const auto check = [&](tsr_work* made, const std::string& out) {
    const Work work(made);
    step_through(work.get());
    ok(tsr_export_finish(work.get(), nullptr));
    tsr_model* again = nullptr;
    ok(tsr_model_load(out.c_str(), &again));
    CHECK(values_of(Model(again)) == wanted);
  };
  const Options chosen = options({{"merged", 1}});
  tsr_work* made = nullptr;
  ok(tsr_export_begin_for_model(nullptr, model.get(), (scratch / "one").c_str(), chosen.get(), &made));
  check(made, scratch / "one");
  ok(tsr_export_begin(nullptr, (scratch / "adapted.tsr").c_str(), (scratch / "two").c_str(), chosen.get(),
                    &made));
  check(made, scratch / "two");
  const Error whole =
      take(tsr_export_begin_for_model(nullptr, model.get(), (scratch / "three").c_str(), nullptr, &made));
  const Work work(made);
  CHECK(whole.code == TSR_OK);
  CHECK(take(tsr_work_step(made, nullptr)).code == TSR_FAILED_PRECONDITION);
}

TEST_CASE("a GGUF adapter goes out and comes back, and one of another model is refused") {
  const Scratch scratch;
  const auto written = [&](const Model& model, const std::string& path) {
    tsr_work* made = nullptr;
    ok(tsr_export_begin_for_model(nullptr, model.get(), path.c_str(),
                                options({{"format", std::string("gguf")}, {"adapters", 1}}).get(), &made));
    const Work work(made);
    step_through(work.get());
    ok(tsr_export_finish(work.get(), nullptr));
  };
  const auto load = [&](const Model& base, const std::string& path, Model* out = nullptr) {
    tsr_model* made = nullptr;
    Error error = take(tsr_model_load_adapters(base.get(), path.c_str(), nullptr, &made));
    Model model(made);
    if (out) *out = std::move(model);
    return error;
  };
  const std::string path = scratch / "adapter.gguf";
  for (const char* const description :
       {kPhi3, "gpt2:L=2,C=8,H=2,V=16,T=8", kLlama, "llama:L=2,C=8,H=2,KV=1,F=12,V=16,T=8,rope_half"}) {
    CAPTURE(description);
    const Model base = described(description);
    const bool is_gpt2 = description[0] == 'g';
    const Model model = with_adapters(base, {{"rank", 2},
                                             {"alpha", 3.0},
                                             {"rslora", 1},
                                             {"ranks", std::string(is_gpt2 ? "*.o.weight=3" : "*.k=3")}});
    fill(model);
    written(model, path);
    Model again;
    const Error error = load(base, path, &again);
    REQUIRE_MESSAGE(error.code == TSR_OK, error.message);
    const Values once = values_of(merged(model)), twice = values_of(merged(again));
    for (const auto& [name, value] : once) {
      CAPTURE(name);
      CHECK(largest_difference(twice.at(name), value, std::vector<double>(value.size())) < 1e-5);
    }
  }
  const Error other = load(described("gpt2:L=2,C=8,H=2,V=16,T=8"), path);
  CHECK_MESSAGE(has(other.message, "general.architecture is 'llama', the model's is 'gpt2'"), other.message);
  const Error shorter = load(described("llama:L=1,C=8,H=2,KV=1,F=12,V=16,T=8"), path);
  CHECK_MESSAGE(has(shorter.message, "has no place in the model"), shorter.message);
  const Error wider = load(described("llama:L=2,C=16,H=2,KV=1,F=12,V=16,T=8"), path);
  CHECK_MESSAGE(has(wider.message, "the adapter is of another model"), wider.message);
  const Model base = described(kLlama);
  exported(base, scratch / "whole.gguf", "gguf");
  CHECK(has(load(base, scratch / "whole.gguf").message, "general.type is 'model', wanted adapter"));
  std::ofstream(scratch / "text.gguf") << "no adapter";
  CHECK(load(base, scratch / "text.gguf").code == TSR_CORRUPT);
}

TEST_CASE("parts of a fused tensor with matrices of their own become one adapter of the sum of their ranks") {
  const Scratch scratch;
  const Model base = described(kPhi3);
  const Model model =
      with_adapters(base, {{"rank", 2}, {"ranks", "*.k=3"}, {"alpha", 3.0}, {"on", "*.q,*.k,*.up"}});
  fill(model);
  exported(model, scratch / "adapter");
  tsr_model* made = nullptr;
  ok(tsr_model_load_adapters(base.get(), (scratch / "adapter").c_str(), nullptr, &made));
  const Values once = values_of(merged(model)), twice = values_of(merged(Model(made)));
  for (const auto& [name, value] : once) {
    CAPTURE(name);
    CHECK(largest_difference(twice.at(name), value, std::vector<double>(value.size())) < 1e-6);
  }
}

TEST_CASE("a saved head or table parts the two where they were one") {
  const Model base = described("llama:L=1,C=8,H=2,F=12,V=16,T=8,tied,rope_half");
  const Values before = values_of(base);
  Folder folder;
  folder.config = R"("r":2,"target_modules":["v_proj"],"modules_to_save":["lm_head"])";
  folder.matrix("model.layers.0.self_attn.v_proj.lora_A.weight", 2, 8, 1)
      .matrix("model.layers.0.self_attn.v_proj.lora_B.weight", 8, 2, 2)
      .matrix("lm_head.weight", 16, 8, 3);
  const Values after = values_of(folder.loaded(base));
  CHECK(after.at("output") == numbers(128, 3));
  CHECK(after.at("token_embedding") == before.at("token_embedding"));

  Folder table;
  table.config = R"("r":2,"lora_alpha":2,"target_modules":["embed_tokens"])";
  table.matrix("model.embed_tokens.lora_embedding_A", 2, 16, 1)
      .matrix("model.embed_tokens.lora_embedding_B", 8, 2, 2);
  const Values looked_up = values_of(merged(table.loaded(base)));
  CHECK(looked_up.at("output") == before.at("token_embedding"));
  std::vector<double> added = product(numbers(16, 2), numbers(32, 1), 2, 1), turned(added.size());
  for (size_t c = 0; c < 8; ++c)
    for (size_t v = 0; v < 16; ++v) turned[v * 8 + c] = added[c * 16 + v];
  CHECK(largest_difference(looked_up.at("token_embedding"), before.at("token_embedding"), turned) < 1e-6);
}

TEST_CASE("tables of a resized vocabulary widen the base, and rows of single tokens take their places") {
  const auto queries = [](Folder& folder) {
    folder.matrix("model.layers.0.self_attn.v_proj.lora_A.weight", 2, 8, 1)
        .matrix("model.layers.0.self_attn.v_proj.lora_B.weight", 8, 2, 2);
  };
  const Model untied = described("llama:L=1,C=8,H=2,F=12,V=16,T=8,rope_half");
  const Model tied = described("llama:L=1,C=8,H=2,F=12,V=16,T=8,tied,rope_half");
  Folder whole;
  queries(whole);
  whole.config = R"("r":2,"target_modules":["v_proj"],"modules_to_save":["embed_tokens","lm_head"])";
  whole.matrix("model.embed_tokens.weight", 18, 8, 3).matrix("model.embed_tokens.original_module.weight", 18, 8, 5);
  whole.matrix("lm_head.modules_to_save.weight", 18, 8, 4);
  for (const Model* const base : {&untied, &tied}) {
    const Values after = values_of(whole.loaded(*base));
    CHECK(after.at("token_embedding") == numbers(144, 3));
    CHECK(after.at("output") == numbers(144, 4));
  }
  Folder lacking;
  queries(lacking);
  lacking.config = R"("r":2,"target_modules":["v_proj"])";
  lacking.matrix("model.embed_tokens.weight", 18, 8, 3);
  CHECK(has(lacking.refusal(untied), "is [18, 8], the model's table has 16 rows, and the file lacks the resized head"));
  Folder rows;
  queries(rows);
  rows.config = R"("r":2,"target_modules":["v_proj"],"trainable_token_indices":[3,15])";
  rows.matrix("model.embed_tokens.token_adapter.trainable_tokens_delta", 2, 8, 6);
  for (const Model* const base : {&untied, &tied}) {
    std::vector<float> wanted = values_of(*base).at("token_embedding");
    const std::vector<float> put = numbers(16, 6);
    std::copy_n(put.begin(), 8, wanted.begin() + 3 * 8);
    std::copy_n(put.begin() + 8, 8, wanted.begin() + 15 * 8);
    const Values after = values_of(rows.loaded(*base));
    CHECK(after.at("token_embedding") == wanted);
    CHECK(after.contains("output") == (base == &untied));
  }
  rows.config = R"("r":2,"target_modules":["v_proj"],"trainable_token_indices":[3,16])";
  CHECK(has(rows.refusal(untied), "has token 16 of 'model.embed_tokens', whose table is [16, 8]"));
  rows.config = R"("r":2,"target_modules":["v_proj"],"trainable_token_indices":[3])";
  CHECK(has(rows.refusal(untied), "is [2, 8], the model and 1 tokens want [1, 8]"));
  rows.config = R"("r":2,"target_modules":["v_proj"])";
  CHECK(has(rows.refusal(untied), "names no tokens of its module"));
}

TEST_CASE("adapters that are no adapters of the model are refused with what is wrong") {
  const Model base = described(kLlama);
  const auto with_config = [&](const char* config) {
    Folder folder;
    folder.config = config;
    return folder.queries().refusal(base);
  };
  CHECK(has(with_config(R"("peft_type":"IA3")"), "peft_type is \"IA3\", wanted \"LORA\""));
  CHECK(has(with_config(R"("r":0,"target_modules":["q_proj"])"), "r is 0, wanted a rank from 1"));
  CHECK(has(with_config(R"("r":1000000000,"target_modules":["q_proj"])"), "r is 1000000000, wanted a rank"));
  CHECK(has(
      with_config(R"("r":2,"target_modules":["q_proj","k_proj"])"),
      "module 'model.layers.0.self_attn.k_proj' is one that adapter_config.json adapts, and has no tensors"));
  CHECK(
      has(with_config(R"("r":2,"target_modules":["k_proj"])"), "but adapter_config.json does not adapt it"));
  CHECK(has(with_config(R"("r":3,"target_modules":["q_proj"])"),
            "q_proj.lora_A.weight' is [2, 8], the model and rank 3 want [3, 8]"));
  CHECK(has(with_config(R"("r":2,"target_modules":["q_proj"],"layer_replication":[[0,2]])"),
            "layer_replication is [[0,2]], which is not supported"));
  CHECK(has(with_config(R"("r":2,"target_modules":["q_proj"],"init_lora_weights":"pissa_niter_4")"),
            "init_lora_weights is 'pissa_niter_4', which changes the base's weights too"));
  CHECK(has(with_config(R"("r":2,"target_modules":["q_proj"],"modules_to_save":["score"])"),
            "modules_to_save has 'score', which the model"));
  CHECK(has(with_config(R"("r":2,"target_modules":["q_proj"],"modules_to_save":["lm_head"])"),
            "tensor 'base_model.model.lm_head.weight' is missing"));
  CHECK(has(with_config(R"("r":2,"target_modules":"(([a-z._0-9]+)*)*[!?]")"), "takes too many steps"));
  CHECK(has(with_config(R"("r":2,"target_modules":"(")"), "target_modules"));
  CHECK(has(with_config(R"("r":2,"target_modules":["q_proj"],"use_tomorrow":1)"),
            "use_tomorrow is 1, which is not known"));
  CHECK(has(with_config(R"("r":2,"target_modules":["q_proj"],"use_dora":true)"),
            "q_proj.lora_magnitude_vector' is missing, and use_dora of adapter_config.json true"));
  CHECK(has(with_config(R"("r":2,"target_modules":["q_proj"],"target_parameters":["experts.gate_up_proj"])"),
            "target_parameters is"));

  Folder without_b;
  without_b.matrix("model.layers.0.self_attn.q_proj.lora_A.weight", 2, 8, 1);
  CHECK(has(without_b.refusal(base), "q_proj.lora_B.weight' is missing"));
  Folder deeper;
  deeper.queries().matrix("model.layers.2.self_attn.q_proj.lora_A.weight", 2, 8, 1);
  deeper.matrix("model.layers.2.self_attn.q_proj.lora_B.weight", 8, 2, 1);
  CHECK(has(deeper.refusal(base), "module 'model.layers.2.self_attn.q_proj' of the adapter has no place"));
  Folder twice;
  twice.queries().matrix("model.layers.0.self_attn.q_proj.lora_A.weight", 2, 8, 1);
  CHECK(has(twice.refusal(base), "is there twice"));
  Folder whole;
  whole.queries().matrix("model.layers.0.self_attn.q_proj.weight", 8, 8, 1);
  CHECK(has(whole.refusal(base), "neither in modules_to_save nor as a bias"));
  Folder elsewhere;
  elsewhere.queries().tensors.f32("model.norm.weight", "[8]", numbers(8, 1));
  CHECK(has(elsewhere.refusal(base), "wanted a name that begins with 'base_model.model.'"));

  Folder good;
  const Model adapted = good.queries().loaded(base);
  CHECK(has(good.refusal(adapted), "low-rank adapters"));
  tsr_model* made = nullptr;
  CHECK(take(tsr_model_load_adapters(base.get(), "/nowhere", nullptr, &made)).code == TSR_NOT_FOUND);
  // Another's adapter is not written over.
  Folder another;
  another.queries().write();
  tsr_work* work = nullptr;
  const Error theirs = take(tsr_export_begin_for_model(
      nullptr, adapted.get(), another.path.c_str(), options({{"format", std::string("peft")}}).get(), &work));
  CHECK_MESSAGE(has(theirs.message, "has an adapter that no export wrote"), theirs.message);
}

TEST_CASE("a checkpoint tells ranks, alphas and what trains besides, so that its model can be made again") {
  const Scratch scratch;
  const std::string folder = scratch / "checkpoint";
  const Runtime runtime = capi_test::runtime();
  const Dataset dataset = bytes_dataset();
  const Model base = described("gpt2:L=2,C=32,H=4,V=256,T=32");
  const Model model = with_adapters(base, {{"rank", 4},
                                           {"alpha", 6.0},
                                           {"rslora", 1},
                                           {"on", "*.q.weight,*.v.weight"},
                                           {"ranks", "*.v.weight=2"},
                                           {"alphas", "block.1.q.weight=3"},
                                           {"also", "final_norm*"}});
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(runtime.get(), model.get(), dataset.get(), options({{"batch", 2}}).get(), &made));
  const Trainer trainer(made);
  ok(tsr_trainer_step(trainer.get(), nullptr));
  ok(tsr_trainer_save(trainer.get(), folder.c_str()));
  const std::string info = text([&](tsr_text** out) { return tsr_checkpoint_info(folder.c_str(), out); });
  for (const char* const part :
       {R"("rank":4,"alpha":6.0)", R"("ranks":"block.0.v.weight=2,block.1.v.weight=2")",
        R"("alphas":"block.1.q.weight=3")", R"("rslora":"1")",
        R"("also":"final_norm.weight,final_norm.bias")"})
    CHECK_MESSAGE(has(info, part), info);
  const Model same =
      with_adapters(base, {{"rank", 4},
                           {"alpha", 6.0},
                           {"rslora", 1},
                           {"on", "block.0.q.weight,block.0.v.weight,block.1.q.weight,block.1.v.weight"},
                           {"ranks", "block.0.v.weight=2,block.1.v.weight=2"},
                           {"alphas", "block.1.q.weight=3"},
                           {"also", "final_norm.weight,final_norm.bias"}});
  tsr_trainer* again = nullptr;
  ok(tsr_trainer_new(runtime.get(), same.get(), dataset.get(), options({{"batch", 2}}).get(), &again));
  ok(tsr_trainer_resume(Trainer(again).get(), folder.c_str()));
}
