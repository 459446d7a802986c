// Weights that handles over one model use together: tokens, memory, and what becomes of them when the model or
// its file changes.
#include <malloc.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "c_api.h"
#include "small_training.h"
#include "tests/number_after.h"

using namespace capi_test;
using tessera::test::number_after;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Bytes of anonymous memory that the process holds.
int64_t anonymous_bytes() {
  malloc_trim(0);
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("RssAnon:", 0) == 0) return std::stoll(line.substr(8)) * 1024;
  return 0;
}

// 25 MiB of parameters in a file, opened.
struct OpenedLlama {
  OpenedLlama() {
    const Model drawn = described_with_bytes("llama:L=6,C=256,H=4,F=1024,V=256,T=32", 3);
    ok(tsr_model_save(drawn.get(), path.c_str(), nullptr));
    tsr_model* made = nullptr;
    ok(tsr_model_load(path.c_str(), &made));
    model.reset(made);
  }
  const Scratch scratch;
  const std::string path = scratch / "m.tsr";
  Model model;
};

Generator generator(const Runtime& rt, const Model& model, const char* devices, const char* parallel,
                    const char* weights = "model") {
  tsr_generator* made = nullptr;
  ok(tsr_generator_new(rt.get(), model.get(),
                       options({{"devices", std::string(devices)},
                                {"parallel", std::string(parallel)},
                                {"weights", std::string(weights)},
                                {"temperature", 0.0},
                                {"max_tokens", int64_t{6}}})
                           .get(),
                       &made));
  return Generator(made);
}

std::vector<int32_t> tokens(const Generator& generator) {
  ok(tsr_generator_start(generator.get(), "the cat", TSR_TEXT_END));
  std::vector<int32_t> all;
  for (;;) {
    tsr_piece piece = {};
    piece.struct_size = sizeof piece;
    ok(tsr_generator_next(generator.get(), -1, &piece));
    if (piece.kind == TSR_END) return all;
    all.push_back(piece.token);
  }
}

std::string report_of(const Generator& generator) {
  return text([&](auto... out) { return tsr_generator_report(generator.get(), out...); });
}

}  // namespace

TEST_CASE("a further generator costs its caches and scratch, and yields the same tokens") {
  const Runtime rt = runtime();
  const OpenedLlama file;
  struct Layout {
    const char *devices, *parallel, *weights;
    int64_t first;  // most anonymous bytes of the weights of the first
  };
  // Columns of weights are cut out, once; rows lie in the file as they are needed.
  for (const Layout& layout : {Layout{"cpu:1", "", "model", 0},
                               {"cpu:2", "pp=2", "model", 0},
                               {"cpu:2", "tp=2", "model", 12 * kMiB},
                               {"cpu:1", "", "bf16", 13 * kMiB},
                               {"cpu:1", "", "q8_0", 7 * kMiB}}) {
    const std::string name = std::string(layout.parallel) + " " + layout.weights;
    INFO(name);
    std::vector<Generator> all;
    std::vector<int32_t> wanted;
    for (int i = 0; i < 4; ++i) {
      const int64_t before = anonymous_bytes();
      all.push_back(generator(rt, file.model, layout.devices, layout.parallel, layout.weights));
      const std::vector<int32_t> got = tokens(all.back());
      const int64_t taken = anonymous_bytes() - before;
      const std::string report = report_of(all.back());
      if (i == 0) {
        wanted = got;
        CHECK(number_after(report, "\"shared_weight_bytes\":") > 6 * kMiB);
        CHECK(taken < layout.first + 8 * kMiB);
      } else {
        CHECK(taken < 4 * kMiB);
      }
      CHECK(got == wanted);
    }
  }
}

TEST_CASE("generators with the same settings run one program, and others do not") {
  const Runtime rt = runtime();
  const OpenedLlama file;
  const auto arena = [](const Generator& made) {
    return number_after(report_of(made), "\"max_live_bytes\":");
  };
  const auto with_context = [&](int64_t context, double temperature) {
    tsr_generator* made = nullptr;
    ok(tsr_generator_new(rt.get(), file.model.get(),
                         options({{"context", context}, {"temperature", temperature}}).get(), &made));
    return Generator(made);
  };
  const Generator first = with_context(16, 0), same = with_context(16, 0.5), longer = with_context(32, 0);
  CHECK(arena(first) == arena(same));
  CHECK(arena(longer) > arena(first));
  // The context that options leave to the model.
  ok(tsr_model_set_metadata(file.model.get(), "context_length", "16"));
  tsr_generator* made = nullptr;
  ok(tsr_generator_new(rt.get(), file.model.get(), nullptr, &made));
  const Generator of_16(made);
  ok(tsr_model_set_metadata(file.model.get(), "context_length", "32"));
  ok(tsr_generator_new(rt.get(), file.model.get(), nullptr, &made));
  const Generator of_32(made);
  CHECK(arena(of_16) == arena(first));
  CHECK(arena(of_32) == arena(longer));
}

TEST_CASE("generators that are made and run at once yield what one yields") {
  const Runtime rt = runtime();
  const OpenedLlama file;
  std::vector<std::vector<int32_t>> found(4);
  std::vector<std::thread> threads;
  for (std::vector<int32_t>& got : found)
    threads.emplace_back([&rt, &file, &got] { got = tokens(generator(rt, file.model, "cpu:2", "tp=2")); });
  for (std::thread& thread : threads) thread.join();
  const std::vector<int32_t> wanted = tokens(generator(rt, file.model, "cpu:2", "tp=2"));
  for (const std::vector<int32_t>& got : found) CHECK(got == wanted);
}

TEST_CASE("what is written to the model reaches handles that are made later") {
  const Runtime rt = runtime();
  const OpenedLlama file;
  const Generator before = generator(rt, file.model, "cpu:2", "tp=2");
  const std::vector<int32_t> wanted = tokens(before);
  const Tensor zeros = tensor_f32({256}, std::vector<float>(256));
  ok(tsr_model_write(file.model.get(), "final_norm", zeros.get()));
  const Generator after = generator(rt, file.model, "cpu:2", "tp=2");
  CHECK(tokens(after) == std::vector<int32_t>(6, 0));  // all logits are equal
  CHECK(tokens(before) == wanted);
}

TEST_CASE("a frozen parameter that is written to becomes the trainer's own") {
  const Runtime rt = runtime();
  const OpenedLlama file;
  const Dataset data = repeated_text("the cat sat on the mat and the dog sat on the log. ", 60, 16, 0.5);
  const Generator second = generator(rt, file.model, "cpu:2", "tp=2");
  const std::vector<int32_t> wanted = tokens(second);
  for (const char* parallel : {"tp=2", "dp=2,zero=3", "pp=2,mb=2"}) {
    const std::string name = parallel;
    INFO(name);
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(rt.get(), file.model.get(), data.get(),
                       options({{"devices", std::string("cpu:2")},
                                {"parallel", std::string(parallel)},
                                {"frozen", std::string("block.*,token_embedding,output")},
                                {"batch", int64_t{2}}})
                           .get(),
                       &made));
    const Trainer trainer(made);
    double loss = 0, changed = 0, restored = 0;
    ok(tsr_trainer_evaluate(made, &loss));
    tsr_tensor* kept = nullptr;
    ok(tsr_trainer_read(made, "block.1.down", &kept));
    const Tensor value(kept);
    const Tensor zeros = tensor_f32({256, 1024}, std::vector<float>(size_t{256} * 1024));
    ok(tsr_trainer_write(made, "block.1.down", zeros.get()));
    ok(tsr_trainer_evaluate(made, &changed));
    CHECK(changed != loss);
    ok(tsr_trainer_write(made, "block.1.down", value.get()));
    ok(tsr_trainer_evaluate(made, &restored));
    CHECK(restored == loss);
    CHECK(tokens(second) == wanted);
  }
}

TEST_CASE("a model's file that is written to ends texts with an error") {
  const Runtime rt = runtime();
  const OpenedLlama file;
  const Generator made = generator(rt, file.model, "cpu:1", "");
  CHECK(tokens(made).size() == 6);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the clock of files is coarse
  std::ofstream(file.path, std::ios::app) << "more";
  ok(tsr_generator_start(made.get(), "the cat", TSR_TEXT_END));
  tsr_piece piece = {};
  piece.struct_size = sizeof piece;
  const Error error = take(tsr_generator_next(made.get(), -1, &piece));
  CHECK(error.code == TSR_CHANGED);
  CHECK(error.message.find("was written to after it was opened") != std::string::npos);
}

TEST_CASE("weights outlive the model that they were taken from") {
  const Runtime rt = runtime();
  Generator made;
  std::vector<int32_t> wanted;
  {
    OpenedLlama file;
    wanted = tokens(generator(rt, file.model, "cpu:1", ""));
    made = generator(rt, file.model, "cpu:1", "");
    file.model.reset();
  }
  CHECK(tokens(made) == wanted);
}
