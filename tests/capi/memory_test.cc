// Memory that a call takes beyond its result, read off the process's own peak.
#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <numeric>

#include "c_api.h"
#include "small_training.h"
#include "tests/number_after.h"

using namespace capi_test;
using tessera::test::number_after;

namespace {

// Kibibytes of a line of /proc/self/status, in bytes.
int64_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(name, 0) == 0) return std::stoll(line.substr(name.size())) * 1024;
  return 0;
}

// Bytes by which the process's resident memory grows at most while `body` runs; -1 where the kernel does not
// reset its peak. What earlier work has left in the heap is given back first, or it would be used unseen.
template <class Body>
int64_t growth(Body&& body) {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;
  const int64_t before = status_bytes("VmHWM:");
  if (before > status_bytes("VmRSS:") + (int64_t{4} << 20)) return -1;
  body();
  return status_bytes("VmHWM:") - before;
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

constexpr int64_t kMiB = int64_t{1} << 20;

// 25 MiB of parameters, the largest of 1 MiB.
Model wide_llama() { return described_with_bytes("llama:L=6,C=256,H=4,F=1024,V=256,T=32", 3); }

}  // namespace

TEST_CASE("a trained model's file is written one tensor at a time, byte for byte as through the model") {
  const Runtime rt = runtime();
  const Dataset data = repeated_text("the cat sat on the mat and the dog sat on the log. ", 60, 16, 0.1);
  for (const char* weights : {"model", "bf16"}) {
    INFO(std::string(weights));
    const Model model = wide_llama();
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(rt.get(), model.get(), data.get(),
                       options({{"devices", std::string("cpu:2")},
                                {"parallel", std::string("dp=2,zero=3")},
                                {"batch", int64_t{2}},
                                {"weights", std::string(weights)}})
                           .get(),
                       &made));
    const Trainer trainer(made);
    ok(tsr_trainer_step(made, nullptr));
    const Scratch scratch;
    const std::string direct = scratch / "direct.tsr", through = scratch / "through.tsr";
    const int64_t streamed =
        growth([&] { ok(tsr_trainer_save_model(made, model.get(), direct.c_str(), nullptr)); });
    const int64_t stored = growth([&] {
      ok(tsr_trainer_store(made, model.get()));
      ok(tsr_model_save(model.get(), through.c_str(), nullptr));
    });
    CHECK(contents(direct) == contents(through));
    const std::string report = text([&](auto... out) { return tsr_trainer_report(made, out...); });
    CHECK(number_after(report, "\"model_bytes\":") > 24 * kMiB);
    CHECK(number_after(report, "\"model_bytes\":") < static_cast<int64_t>(contents(direct).size()));
    CHECK(number_after(report, "\"memory_bytes\":") < 2 * kMiB);
    if (streamed < 0 || stored < 0) continue;
    CHECK(stored > 20 * kMiB);
    CHECK(streamed < 6 * kMiB);
  }
}

TEST_CASE("a model without the parameters that were trained is not written") {
  const Runtime rt = runtime();
  const Model model = mlp_model();
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(rt.get(), model.get(), nullptr, nullptr, &made));
  const Trainer trainer(made);
  const Model other = described_with_bytes("llama:L=1,C=32,H=2,F=32,V=256,T=8", 1);
  const Scratch scratch;
  const Error error = take(tsr_trainer_save_model(made, other.get(), (scratch / "m.tsr").c_str(), nullptr));
  CHECK(error.code == TSR_NOT_FOUND);
  CHECK(error.message.find("no parameter 'b1'") != std::string::npos);
  CHECK(std::filesystem::is_empty(scratch.path));
}

TEST_CASE("drawn values are written as they are drawn") {
  const Model model = wide_llama();
  const Scratch scratch;
  const int64_t taken =
      growth([&] { ok(tsr_model_save(model.get(), (scratch / "m.tsr").c_str(), nullptr)); });
  if (taken >= 0) CHECK(taken < 6 * kMiB);
}

TEST_CASE("the size of a batch is told without making it, and what fits of it is given") {
  std::vector<int32_t> tokens(1000);
  std::iota(tokens.begin(), tokens.end(), 0);
  tsr_dataset* made = nullptr;
  ok(tsr_dataset_new_tokens(tokens.data(), tokens.size(), options({{"seq", int64_t{9}}}).get(), &made));
  const Dataset data(made);
  size_t count = 0;
  const int64_t taken = growth([&] { ok(tsr_dataset_batch(made, 0, 1 << 24, nullptr, 0, &count)); });
  CHECK(count == (size_t{1} << 24) * 10);
  if (taken >= 0) CHECK(taken < 4 * kMiB);
  std::vector<int32_t> whole(70), part(70, -1);
  ok(tsr_dataset_batch(made, 3, 7, whole.data(), whole.size(), &count));
  CHECK(count == 70);
  for (const size_t capacity : {size_t{0}, size_t{1}, size_t{10}, size_t{33}, size_t{69}}) {
    std::fill(part.begin(), part.end(), -1);
    ok(tsr_dataset_batch(made, 3, 7, part.data(), capacity, &count));
    CHECK(count == 70);
    CHECK(std::equal(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(capacity), whole.begin()));
    CHECK(std::count(part.begin(), part.end(), -1) == static_cast<std::ptrdiff_t>(70 - capacity));
  }
  CHECK(take(tsr_dataset_batch(made, 0, (1 << 24) + 1, nullptr, 0, &count)).code == TSR_INVALID_ARGUMENT);
}

TEST_CASE("a conversion takes memory for slices, not for the file or its largest tensor") {
  const Scratch scratch;
  const std::string in = scratch / "in.tsr", out = scratch / "out.tsr";
  tsr_graph* graph = nullptr;
  // A bias starts as zeros: packed too well to be kept packed, so that it is written twice.
  ok(tsr_graph_parse("graph {\n  parameter large.bias: f32[6291456]\n  output out = large.bias\n}",
                     TSR_TEXT_END, &graph));
  const Graph owner(graph);
  tsr_model* made = nullptr;
  ok(tsr_model_new_from_graph(graph, nullptr, &made));
  Model model(made);
  ok(tsr_model_save(made, in.c_str(), nullptr));
  model.reset();
  for (const int64_t compress : {0, 1}) {
    const Options chosen = options({{"compress", compress}, {"verify", int64_t{1}}});
    const int64_t grown = growth([&] {
      tsr_work* work = nullptr;
      ok(tsr_conversion_begin(nullptr, in.c_str(), out.c_str(), chosen.get(), &work));
      step_through(work);
      ok(tsr_conversion_finish(work, nullptr));
      tsr_work_free(work);
    });
    MESSAGE("converting 24 MiB took ", grown, " bytes");
    CHECK(grown < 6 * kMiB);
  }
}

TEST_CASE("a quantisation takes memory for slices, however many tensors the file has") {
  const Scratch scratch;
  const std::string in = scratch / "in.tsr", out = scratch / "out.tsr";
  tsr_model* made = nullptr;
  ok(tsr_model_new("llama:L=10,C=256,H=4,F=256,V=64,T=16", nullptr, &made));  // 70 matrices, 18 MiB
  Model model(made);
  ok(tsr_model_save(made, in.c_str(), nullptr));
  model.reset();
  const Options chosen = options({{"type", std::string("q8_0")}, {"threads", int64_t{1}}});
  const int64_t grown = growth([&] {
    tsr_work* work = nullptr;
    ok(tsr_conversion_begin(nullptr, in.c_str(), out.c_str(), chosen.get(), &work));
    step_through(work);
    ok(tsr_conversion_finish(work, nullptr));
    tsr_work_free(work);
  });
  MESSAGE("quantising 18 MiB took ", grown, " bytes");
  CHECK(grown < 6 * kMiB);
}
