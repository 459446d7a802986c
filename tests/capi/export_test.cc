// Exports in steps: what they leave when they are given up or fail, and a trained model that others can open.
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "c_api.h"
#include "small_training.h"

using namespace capi_test;

namespace {


constexpr const char* kLlama = "llama:L=1,C=128,H=2,F=96,V=3100,T=16,tied";

std::string saved(const Scratch& scratch) {
  const std::string path = scratch / "in.tsr";
  ok(tsr_model_save(described(kLlama).get(), path.c_str(), nullptr));
  return path;
}

Work begun(const std::string& in, const std::string& out, const char* format) {
  tsr_work* made = nullptr;
  ok(tsr_export_begin(nullptr, in.c_str(), out.c_str(), options({{"format", std::string(format)}}).get(),
                    &made));
  return Work(made);
}

int step_all(const Work& work) {
  int steps = 0;
  double before = 0;
  for (int32_t done = 0; done == 0; ++steps) {
    ok(tsr_work_step(work.get(), &done));
    const tsr_progress progress = progress_of(work.get());
    CHECK(progress.fraction >= before);
    CHECK(progress.done <= progress.total);
    before = progress.fraction;
    REQUIRE(steps < 10000);
  }
  return steps;
}

std::string finished(const Work& work) {
  step_all(work);
  return text([&](auto... out) { return tsr_export_finish(work.get(), out...); });
}

Error refused(const std::string& in, const std::string& out, const Options& chosen = nullptr) {
  tsr_work* made = nullptr;
  Error error = take(tsr_export_begin(nullptr, in.c_str(), out.c_str(), chosen.get(), &made));
  const Work work(made);
  for (int32_t done = 0; error.code == TSR_OK && done == 0;) error = take(tsr_work_step(made, &done));
  return error;
}

size_t file_count(const Scratch& scratch) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(scratch.path), {}));
}

std::string first_bytes(const Model& model, const char* parameter) {
  tsr_tensor* value = nullptr;
  ok(tsr_model_read(model.get(), parameter, &value));
  const Tensor owner(value);
  return {static_cast<const char*>(tsr_tensor_data(value)), tsr_tensor_bytes(value)};
}

Model loaded(const std::string& path) {
  tsr_model* made = nullptr;
  ok(tsr_model_load(path.c_str(), &made));
  return Model(made);
}

}  // namespace

TEST_CASE(
    "an export given up anywhere leaves nothing, and an earlier one stays until the next takes its place") {
  const Scratch scratch;
  const std::string in = saved(scratch);
  for (const char* format : {"hf", "gguf"}) {
    CAPTURE(format);
    const std::string out = scratch / format;
    const size_t before = file_count(scratch);
    const int all = step_all(begun(in, out, format));
    CHECK(!std::filesystem::exists(out));
    for (int steps = 0; steps < all; ++steps) {
      const Work work = begun(in, out, format);
      for (int i = 0; i < steps; ++i) ok(tsr_work_step(work.get(), nullptr));
      CHECK(take(tsr_export_finish(work.get(), nullptr)).code == TSR_FAILED_PRECONDITION);
    }
    CHECK(file_count(scratch) == before);
    const std::string report = finished(begun(in, out, format));
    CHECK(report.find("\"architecture\":\"llama\"") != std::string::npos);
    const Work again = begun(in, out, format);  // over what is there
    step_all(again);
    CHECK(std::filesystem::exists(out));
    ok(tsr_export_finish(again.get(), nullptr));
    CHECK(take(tsr_export_finish(again.get(), nullptr)).code == TSR_FAILED_PRECONDITION);
    CHECK(file_count(scratch) == before + 1);
    CHECK(first_bytes(loaded(out), "token_embedding") == first_bytes(loaded(in), "token_embedding"));
  }
}

TEST_CASE("a disk that is full in the midst of an export leaves nothing") {
  const Scratch scratch;
  const std::string in = saved(scratch);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit tight = before;
  tight.rlim_cur = rlim_t{1} << 20;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
  const Error folder = refused(in, scratch / "hf"),
              file = refused(in, scratch / "m.gguf", options({{"format", std::string("gguf")}}));
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, old_handler);
  for (const Error& error : {folder, file}) {
    CHECK(error.code == TSR_IO);
    CHECK(error.message.find("cannot write: File too large") != std::string::npos);
  }
  CHECK(file_count(scratch) == 1);
}

TEST_CASE("exports refuse what is in their way") {
  const Scratch scratch;
  const std::string in = saved(scratch);
  const std::string mine = scratch / "mine";
  std::filesystem::create_directory(mine);
  std::ofstream(mine + "/notes.txt") << "mine";
  CHECK(refused(in, mine).message.find("has 'notes.txt', which no export writes") != std::string::npos);
  CHECK(refused(in, in).message.find("is where the model is read from") != std::string::npos);
  CHECK(refused(in, mine + "/notes.txt").message.find("is a file, wanted the name of a folder") !=
        std::string::npos);
  CHECK(refused(in, scratch / "none/out").code == TSR_NOT_FOUND);
  CHECK(refused(in, scratch / "out", options({{"type", std::string("q8_0")}}))
            .message.find("f32, bf16 or f16") != std::string::npos);
  CHECK(refused(in, scratch / "out", options({{"format", std::string("onnx")}})).code ==
        TSR_INVALID_ARGUMENT);
  finished(begun(in, scratch / "out", "hf"));
  CHECK(refused(scratch / "out", scratch / "out").message.find("is where the model is read from") !=
        std::string::npos);
  // Nor does a model that was made of a loaded one write over its file, quantised or not; the loaded one may.
  tsr_model* loaded_model = nullptr;
  ok(tsr_model_load(in.c_str(), &loaded_model));
  const Model own(loaded_model);
  tsr_model* with_adapters = nullptr;
  ok(tsr_model_add_adapters(own.get(), nullptr, &with_adapters));
  const Model made_of(with_adapters);
  CHECK(take(tsr_model_save(made_of.get(), in.c_str(), nullptr)).message.find("is where the model is read from") !=
        std::string::npos);
  CHECK(take(tsr_model_quantize(nullptr, own.get(), in.c_str(), options({{"type", std::string("q8_0")}}).get(), nullptr))
            .message.find("is where the model is read from") != std::string::npos);
  ok(tsr_model_save(own.get(), in.c_str(), nullptr));
  // Adapters have to be merged first.
  tsr_model* adapted = nullptr;
  ok(tsr_model_add_adapters(described(kLlama).get(), nullptr, &adapted));
  const Model owner(adapted);
  tsr_work* made = nullptr;
  ok(tsr_export_begin_for_model(nullptr, adapted, (scratch / "lora").c_str(), nullptr, &made));
  const Work work(made);
  const Error error = take(tsr_work_step(made, nullptr));
  CHECK(error.code == TSR_FAILED_PRECONDITION);
  CHECK(error.message.find("tessera merge") != std::string::npos);
  CHECK(!std::filesystem::exists(scratch / "lora"));
}

TEST_CASE("a model in memory is exported as it is now") {
  const Scratch scratch;
  const Model model = described(kLlama);
  const std::string drawn = first_bytes(model, "block.0.down");
  std::string changed = drawn;
  changed[1] = static_cast<char>(changed[1] ^ 1);
  const int64_t dims[] = {128, 96};
  tsr_tensor* value = nullptr;
  ok(tsr_tensor_new(TSR_F32, 2, dims, &value));
  const Tensor owner(value);
  std::copy(changed.begin(), changed.end(), static_cast<char*>(tsr_tensor_writable(value)));
  ok(tsr_model_write(model.get(), "block.0.down", value));
  tsr_work* made = nullptr;
  ok(tsr_export_begin_for_model(nullptr, model.get(), (scratch / "out").c_str(), nullptr, &made));
  finished(Work(made));
  CHECK(first_bytes(loaded(scratch / "out"), "block.0.down") == changed);
}

TEST_CASE("a gguf file is quantised as it is written") {
  const Scratch scratch;
  const std::string in = saved(scratch), out = scratch / "q8.gguf";
  tsr_work* made = nullptr;
  ok(tsr_export_begin(nullptr, in.c_str(), out.c_str(),
                    options({{"format", std::string("gguf")}, {"type", std::string("q8_0")}}).get(), &made));
  const std::string report = finished(Work(made));
  CHECK(report.find("\"quantization\":{\"type\":\"q8_0\"") != std::string::npos);
  // It equals the file of `quantize`.
  const std::string wanted = scratch / "q8.tsr";
  ok(tsr_model_quantize(nullptr, loaded(in).get(), wanted.c_str(),
                        options({{"type", std::string("q8_0")}}).get(), nullptr));
  for (const char* parameter : {"token_embedding", "block.0.v", "block.0.down", "final_norm"})
    CHECK(first_bytes(loaded(out), parameter) == first_bytes(loaded(wanted), parameter));
}

TEST_CASE("the name of an output says its format, or is refused with the remedy") {
  const Scratch scratch;
  const std::string in = saved(scratch);
  const auto begins_with_gguf = [](const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string magic(4, ' ');
    file.read(magic.data(), 4);
    return magic == "GGUF";
  };
  // A model in memory, a file, a quantised file; types in capitals.
  ok(tsr_model_save(loaded(in).get(), (scratch / "saved.gguf").c_str(), nullptr));
  CHECK(begins_with_gguf(scratch / "saved.gguf"));
  tsr_work* made = nullptr;
  ok(tsr_conversion_begin(nullptr, in.c_str(), (scratch / "q8.GGUF").c_str(),
                        options({{"type", std::string("Q8_0")}}).get(), &made));
  const Work conversion(made);
  step_through(made);
  const std::string report = text([&](auto... out) { return tsr_conversion_finish(made, out...); });
  CHECK(begins_with_gguf(scratch / "q8.GGUF"));
  for (const char* part :
       {"\"in\":{\"format\":\"tsr\"", "\"out\":{\"format\":\"gguf\"", "\"type\":\"q8_0\"", "\"notes\""})
    CHECK_MESSAGE(report.find(part) != std::string::npos, report);
  tsr_work* exported = nullptr;
  ok(tsr_export_begin(nullptr, in.c_str(), (scratch / "by_name.gguf").c_str(), nullptr, &exported));
  finished(Work(exported));
  CHECK(begins_with_gguf(scratch / "by_name.gguf"));
  for (const char* name : {"x.safetensors", "x.ONNX", "x.bin", "x.pt", "x.zip"}) {
    const std::string path = scratch / name;
    CHECK(take(tsr_model_check_path(path.c_str())).message.find("a format that is not written") !=
          std::string::npos);
    CHECK(take(tsr_model_save(described(kLlama).get(), path.c_str(), nullptr)).code == TSR_INVALID_ARGUMENT);
    CHECK(take(tsr_conversion_begin(nullptr, in.c_str(), path.c_str(), nullptr, &made)).code ==
          TSR_INVALID_ARGUMENT);
    CHECK(refused(in, path).code == TSR_INVALID_ARGUMENT);
    CHECK(!std::filesystem::exists(path));
  }
  CHECK(refused(in, scratch / "x.tsr").message.find("tessera import") != std::string::npos);
  CHECK(
      refused(in, scratch / "x.gguf", options({{"format", std::string("hf")}})).message.find("format gguf") !=
      std::string::npos);
  CHECK(
      refused(in, scratch / "x.tsr", options({{"format", std::string("gguf")}})).message.find("NAME.gguf") !=
      std::string::npos);
  CHECK(take(tsr_model_save(described(kLlama).get(), (scratch / "x.gguf").c_str(),
                            options({{"compress", 1}}).get()))
            .message.find("compress") != std::string::npos);
  ok(tsr_model_check_path((scratch / "x.gguf").c_str()));
  ok(tsr_model_check_path((scratch / "model.v2").c_str()));
}

TEST_CASE("words of other projects are answered with the option or value here, and far ones with none") {
  const auto said = [](std::initializer_list<Setting> settings) {
    tsr_generator* made = nullptr;
    return take(tsr_generator_new(runtime().get(), described(kLlama).get(), options(settings).get(), &made))
        .message;
  };
  CHECK(said({{"max_new_tokens", 5}}).find("it is 'max_tokens' here") != std::string::npos);
  CHECK(said({{"n_ctx", 5}}).find("it is 'context' here") != std::string::npos);
  CHECK(said({{"max-tokens", 5}}).find("it is 'max_tokens' here") != std::string::npos);
  CHECK(said({{"temperatur", 5}}).find("nearest: temperature") != std::string::npos);
  const std::string far = said({{"zzzzzz", 5}});
  CHECK(far.find("nearest") == std::string::npos);
  CHECK(far.find("there are ") != std::string::npos);
  CHECK(said({{"precision", std::string("bfloat16")}}).find("it is bf16 here") != std::string::npos);
  CHECK(said({{"weights", std::string("Q4_KX")}}).find("wanted one of") != std::string::npos);
}

TEST_CASE("a word that is none of those known is answered in the spelling of those known") {
  const auto hint = [](const char* kind, const char* word, const char* known) {
    return text([&](tsr_text** out) { return tsr_word_hint(kind, word, known, out); });
  };
  CHECK(hint("option", "--learning_rate", "--lr --steps") == "did you mean --lr?");
  CHECK(hint("option", "learning-rate", "lr steps") == "did you mean 'lr'?");
  CHECK(hint("option", "--stepz", "--lr --steps") == "did you mean --steps?");
  CHECK(hint("option", "-ngl", "--devices -n") == "did you mean --devices cuda? (what fits is decided by the planner)");
  CHECK(hint("option", "-ts", "--lr") == "this command has nothing like it (other commands have --parallel)");
  CHECK(hint("option", "flash_attn", "lr") == "instead: nothing: attention never holds the matrix of scores");
  CHECK(hint("option", "max_memory", "lr").empty());
  CHECK(hint("option", "-oout", "--out -o").empty());
  CHECK(hint("command", "finetune", "train eval").find("instead: `tessera train MODEL") == 0);
  CHECK(hint("command", "trian", "train eval") == "did you mean train?");
  CHECK(hint("command", "frobnicate", "train eval").empty());
  tsr_text* none = nullptr;
  CHECK(take(tsr_word_hint("word", "a", "b", &none)).code == TSR_INVALID_ARGUMENT);
}
