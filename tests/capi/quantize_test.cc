// Quantisation through C: of files in steps, of a loaded model in one call; what it reports and refuses.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "serialize/importance_matrix.h"
#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"
#include "tests/serialize/gguf_builder.h"

using namespace capi_test;
using Json = nlohmann::json;
using tessera::testing::GgufBuilder;

namespace {

// Rows of 256 numbers, of 96 in `down`, and of 256 in a tied head.
constexpr const char* kDescription = "llama:L=2,C=256,H=4,KV=2,F=96,V=300,T=32,tied=1";

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Model loaded(const std::string& path) {
  tsr_model* made = nullptr;
  ok(tsr_model_load(path.c_str(), &made));
  return Model(made);
}

Error quantize(const Model& model, const std::string& path, std::initializer_list<Setting> settings,
               Json* report = nullptr) {
  tsr_text* made = nullptr;
  Error error = take(tsr_model_quantize(nullptr, model.get(), path.c_str(), options(settings).get(),
                                        report ? &made : nullptr));
  const Handle<tsr_text, tsr_text_free> owner(made);
  if (made) *report = Json::parse(std::string(tsr_text_data(made), tsr_text_size(made)));
  return error;
}

Json convert(const std::string& in, const std::string& out, std::initializer_list<Setting> settings) {
  tsr_work* made = nullptr;
  ok(tsr_conversion_begin(nullptr, in.c_str(), out.c_str(), options(settings).get(), &made));
  const Work work(made);
  step_through(made);
  return Json::parse(text([&](auto... last) { return tsr_conversion_finish(made, last...); }));
}

Error refused(const std::string& in, const std::string& out, std::initializer_list<Setting> settings) {
  tsr_work* made = nullptr;
  Error error = take(tsr_conversion_begin(nullptr, in.c_str(), out.c_str(), options(settings).get(), &made));
  const Work work(made);
  for (int32_t done = 0; error.code == TSR_OK && done == 0;) error = take(tsr_work_step(made, &done));
  return error;
}

void check_says(const Error& error, tsr_code code, std::string_view words) {
  INFO(error.message);
  CHECK(error.code == code);
  CHECK(error.message.find(words) != std::string::npos);
}

std::vector<float> logprobs(const Model& model) {
  std::vector<int32_t> ids(24);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 37 % 300);
  std::vector<float> out(ids.size());
  ok(tsr_model_score(runtime().get(), model.get(), nullptr, ids.data(), ids.size(), nullptr, 1, out.data(),
                     nullptr));
  return out;
}

}  // namespace

TEST_CASE("a model and its file are quantised to the same bytes, whatever the threads") {
  const Scratch scratch;
  const std::string in = scratch / "in.tsr", out = scratch / "out.tsr", other = scratch / "other.tsr";
  const Model model = described(kDescription);
  ok(tsr_model_save(model.get(), in.c_str(), nullptr));
  const Json report = convert(in, out, {{"type", "q4_k_m"}, {"threads", int64_t{1}}, {"verify", int64_t{1}}});
  Json direct;
  CHECK(quantize(model, other, {{"type", "q4_k_m"}, {"threads", int64_t{3}}}, &direct).code == TSR_OK);
  CHECK(contents(out) == contents(other));
  CHECK(report["quantization"] == direct);

  int64_t in_bytes = 0, out_bytes = 0;
  for (const Json& it : direct["tensors"]) {
    in_bytes += it["bytes_in"].get<int64_t>();
    out_bytes += it["bytes_out"].get<int64_t>();
    const double error = it["error"].get<double>();
    CHECK((error == 0) == (it["from"] == it["to"]));
    CHECK(error < 0.12);
    const std::string name = it["name"], to = it["to"];
    if (name == "token_embedding") CHECK(to == "q6_k");
    if (name == "block.1.q") CHECK(to == "q4_k");
    if (name == "final_norm") CHECK(to == "f32");
    if (name == "block.0.down") {
      CHECK(to == "q5_0");
      CHECK(it["wanted"] == "q4_k");
      CHECK(it["width"] == 96);
    }
  }
  CHECK(direct["bytes_in"] == in_bytes);
  CHECK(direct["bytes_out"] == out_bytes);
  CHECK(direct["fallbacks"] == 2);
  CHECK(out_bytes < in_bytes / 4);

  const std::vector<float> before = logprobs(model), after = logprobs(loaded(out));
  for (size_t i = 1; i < before.size(); ++i) CHECK(std::fabs(before[i] - after[i]) < 0.15f);
  const Model again = loaded(out);
  CHECK(short_text([&](auto... to) { return tsr_model_metadata(again.get(), "quantization", to...); }) ==
        "q4_k_m");
}

TEST_CASE("an importance matrix changes what it names, and another model's is refused") {
  const Scratch scratch;
  const std::string matrix = scratch / "imatrix.gguf", out = scratch / "out.tsr",
                    plain = scratch / "plain.tsr";
  const Model model = described(kDescription);
  const auto write_matrix = [&](const char* name, size_t columns) {
    std::vector<float> sums(columns, 1.0f);
    for (size_t i = 0; i < columns; i += 5) sums[i] = 50;
    GgufBuilder w;
    w.text("general.type", "imatrix");
    w.tensor_f32(std::string(name) + ".in_sum2", {columns}, sums);
    w.tensor_f32(std::string(name) + ".counts", {1}, {1});
    std::ofstream(matrix, std::ios::binary) << w.finish();
  };
  Json report;
  write_matrix("blk.1.attn_q.weight", 256);
  CHECK(quantize(model, out, {{"type", "q4_k_s"}, {"imatrix", matrix}}, &report).code == TSR_OK);
  CHECK(quantize(model, plain, {{"type", "q4_k_s"}}).code == TSR_OK);
  CHECK(contents(out).size() == contents(plain).size());
  CHECK(contents(out) != contents(plain));
  for (const Json& it : report["tensors"]) CHECK(it["weighted"] == (it["name"] == "block.1.q"));

  write_matrix("blk.1.attn_q.weight", 255);
  check_says(quantize(model, out, {{"type", "q4_k_s"}, {"imatrix", matrix}}), TSR_INVALID_ARGUMENT,
             "has 255 numbers for 'block.1.q', whose rows are 256");
  write_matrix("blk.9.attn_q.weight", 256);
  check_says(quantize(model, out, {{"type", "q4_k_s"}, {"imatrix", matrix}}), TSR_INVALID_ARGUMENT,
             "none of the 1 names in the importance matrix");
  std::ofstream(matrix, std::ios::binary) << "no matrix";
  check_says(quantize(model, out, {{"type", "q4_k_s"}, {"imatrix", matrix}}), TSR_CORRUPT, "imatrix.gguf: ");
  check_says(quantize(model, out, {{"type", "q4_k_s"}, {"imatrix", scratch / "none"}}), TSR_NOT_FOUND,
             "none");
}

TEST_CASE("a quantisation that is refused or given up leaves the file that was there") {
  const Scratch scratch;
  const std::string in = scratch / "in.tsr", out = scratch / "out.tsr";
  const Model model = described(kDescription);
  ok(tsr_model_save(model.get(), in.c_str(), nullptr));
  std::ofstream(out) << "old";
  check_says(quantize(model, out, {}), TSR_INVALID_ARGUMENT, "option type is missing");
  check_says(quantize(model, out, {{"type", "q4_km"}}), TSR_INVALID_ARGUMENT, "nearest: q4_k");
  check_says(quantize(model, out, {{"type", "iq3_s"}}), TSR_UNSUPPORTED, "can be read and not made");
  check_says(quantize(model, out, {{"type", "q4_0"}, {"output_type", "q4_k_m"}}), TSR_INVALID_ARGUMENT,
             "output_type: unknown type 'q4_k_m'");
  check_says(quantize(model, out, {{"type", "q4_0"}, {"prue", int64_t{1}}}), TSR_INVALID_ARGUMENT,
             "nearest: pure");
  check_says(refused(in, out, {{"pure", int64_t{1}}}), TSR_INVALID_ARGUMENT, "type is missing");
  std::ofstream(in, std::ios::binary) << GgufBuilder().text("general.architecture", "llama").finish();
  CHECK(refused(in, out, {{"type", "q4_0"}}).code != TSR_OK);

  // A weight that is no number.
  const Model broken = described(kDescription);
  std::vector<float> values(256 * 256, 0.5f);
  values[70000 % values.size()] = std::nanf("");
  ok(tsr_model_write(broken.get(), "block.0.q", tensor_f32({256, 256}, values).get()));
  check_says(quantize(broken, out, {{"type", "q4_0"}}), TSR_INVALID_ARGUMENT, "tensor 'block.0.q': ");
  CHECK(contents(out) == "old");
  ok(tsr_model_save(broken.get(), in.c_str(), nullptr));
  check_says(refused(in, out, {{"type", "q4_0"}}), TSR_INVALID_ARGUMENT, "in.tsr: tensor 'block.0.q': ");
  CHECK(contents(out) == "old");
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(scratch.path)) ++files;
  CHECK(files == 2);
}

TEST_CASE("an importance matrix holds the mean squares of inputs, for any batch") {
  const Scratch scratch;
  // One layer, so that the input of q, k and v is the normalised embedding, which is known.
  const Model model = described("llama:L=1,C=32,H=2,F=48,V=40,T=16,tied=0");
  const std::vector<float> table = [&] {
    tsr_tensor* read = nullptr;
    ok(tsr_model_read(model.get(), "token_embedding", &read));
    return floats(Tensor(read).get());
  }();
  std::vector<int32_t> ids(53);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 7 % 40);
  std::vector<double> wanted(32);
  for (size_t i = 0; i < 48; ++i) {  // three windows of 16; the rest is not read
    const float* row = &table[static_cast<size_t>(ids[i]) * 32];
    double mean = 0;
    for (size_t k = 0; k < 32; ++k) mean += static_cast<double>(row[k]) * static_cast<double>(row[k]) / 32;
    for (size_t k = 0; k < 32; ++k)
      wanted[k] += static_cast<double>(row[k]) * static_cast<double>(row[k]) / (mean + 1e-5) / 48;
  }
  const Runtime rt = runtime();
  std::string first;
  for (const int64_t batch : {1, 2, 3}) {
    const std::string path = scratch / "imatrix.gguf";
    tsr_work* made = nullptr;
    ok(tsr_imatrix_begin(rt.get(), model.get(), ids.data(), ids.size(), path.c_str(),
                         options({{"batch", batch}}).get(), &made));
    const Work work(made);
    check_says(take(tsr_imatrix_finish(made, nullptr)), TSR_FAILED_PRECONDITION, "0 of 3 windows are done");
    step_through(made);
    CHECK(!std::filesystem::exists(path));
    const Json report = Json::parse(text([&](auto... out) { return tsr_imatrix_finish(made, out...); }));
    CHECK(report["windows"] == 3);
    CHECK(report["tokens"] == 48);
    CHECK(report["weights"] == 8);
    if (first.empty()) first = contents(path);
    CHECK(contents(path) == first);
    const auto matrix = tessera::ImportanceMatrix::read(tessera::testing::source_of(contents(path)));
    REQUIRE(matrix.ok());
    const std::span<const float> found = matrix->find("blk.0.attn_k.weight");
    REQUIRE(found.size() == 32);
    for (size_t k = 0; k < 32; ++k)
      CHECK(std::fabs(static_cast<double>(found[k]) - wanted[k]) < 1e-4 * wanted[k]);
    CHECK(matrix->find("blk.0.ffn_down.weight").size() == 48);
    CHECK(matrix->find("output.weight").size() == 32);
    std::filesystem::remove(path);
  }
  tsr_work* none = nullptr;
  check_says(
      take(tsr_imatrix_begin(rt.get(), model.get(), ids.data(), 15, (scratch / "i").c_str(), nullptr, &none)),
      TSR_INVALID_ARGUMENT, "the text has 15 tokens, a window 16");
  ids[3] = 40;
  check_says(
      take(tsr_imatrix_begin(rt.get(), model.get(), ids.data(), 16, (scratch / "i").c_str(), nullptr, &none)),
      TSR_INVALID_ARGUMENT, "ids[3] is 40, the model has tokens 0 to 39");
}
