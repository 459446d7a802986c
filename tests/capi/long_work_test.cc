// Long work in steps: loadings and conversions show what is done, can be given up, and leave nothing behind.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "c_api.h"
#include "small_training.h"
#include "tests/number_after.h"
#include "tests/serialize/gguf_builder.h"

using namespace capi_test;
using tessera::test::number_after;

namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

Work loading(const std::string& path, const Options& chosen = nullptr, const Runtime& rt = nullptr) {
  tsr_work* made = nullptr;
  ok(tsr_model_begin_load(rt.get(), path.c_str(), chosen.get(), &made));
  return Work(made);
}

Work conversion(const std::string& in, const std::string& out, const Options& chosen = nullptr,
                const Runtime& rt = nullptr) {
  tsr_work* made = nullptr;
  ok(tsr_conversion_begin(rt.get(), in.c_str(), out.c_str(), chosen.get(), &made));
  return Work(made);
}

// Steps to the end; the number of them.
int step_all(const Work& work) {
  int steps = 0;
  double before = 0;
  for (int32_t done = 0; done == 0; ++steps) {
    ok(tsr_work_step(work.get(), &done));
    const tsr_progress progress = progress_of(work.get());
    CHECK(progress.fraction >= before);
    CHECK((progress.fraction == 1) == (done == 1));
    CHECK(progress.done <= progress.total);
    CHECK((*progress.label == '\0') == (done == 1));
    before = progress.fraction;
    REQUIRE(steps < 10000);
  }
  return steps;
}

std::string finished(const Work& work) {
  step_all(work);
  return text([&](auto... out) { return tsr_conversion_finish(work.get(), out...); });
}

Model loaded(const std::string& path) {
  tsr_model* made = nullptr;
  ok(tsr_model_load(path.c_str(), &made));
  return Model(made);
}

// Parameters by name, as bytes.
std::map<std::string, std::string> values(const Model& model) {
  std::map<std::string, std::string> all;
  size_t count = 0;
  ok(tsr_model_parameter_count(model.get(), &count));
  for (size_t i = 0; i < count; ++i) {
    const std::string name =
        short_text([&](auto... out) { return tsr_model_parameter_name(model.get(), i, out...); });
    tsr_tensor* value = nullptr;
    ok(tsr_model_read(model.get(), name.c_str(), &value));
    const Tensor owner(value);
    all[name].assign(static_cast<const char*>(tsr_tensor_data(value)), tsr_tensor_bytes(value));
  }
  return all;
}

size_t file_count(const Scratch& scratch) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(scratch.path), {}));
}

// The largest parameter has 1.5 MiB: several slices, and a short one at the end.
constexpr const char* kSeveralSlices = "llama:L=1,C=128,H=2,F=96,V=3100,T=16,tied=1";

// A GGUF file of q8_0, whose embedding is several slices as f32, and no whole number of them.
std::string llama_of_blocks() {
  constexpr uint64_t kWidth = 64, kTokens = 4300;
  tessera::testing::GgufBuilder file;
  file.text("general.architecture", "llama")
      .u32("llama.block_count", 1)
      .u32("llama.embedding_length", kWidth);
  file.u32("llama.attention.head_count", 2)
      .u32("llama.feed_forward_length", kWidth)
      .u32("llama.context_length", 16);
  file.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  const std::vector<float> ones(kWidth, 1.0f);
  uint32_t state = 1;
  const auto matrix = [&](const std::string& name, uint64_t rows) {
    std::string bytes;
    for (uint64_t block = 0; block < rows * kWidth / 32; ++block) {
      bytes += {'\x00', '\x2c'};  // 1/16 as f16
      for (int i = 0; i < 32; ++i) bytes += static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
    }
    file.tensor(name, 8, {kWidth, rows}, bytes);
  };
  matrix("token_embd.weight", kTokens);
  for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
    matrix("blk.0." + std::string(name) + ".weight", kWidth);
  for (const char* name : {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"})
    file.tensor_f32(name, {kWidth}, ones);
  return file.finish();
}

}  // namespace

TEST_CASE(
    "a conversion writes what loading and saving writes, byte for byte, and reports what it read and wrote") {
  const Scratch scratch;
  const std::string tsr = scratch / "in.tsr", packed = scratch / "packed.tsr", llama = scratch / "llama.gguf",
                    blocks = scratch / "blocks.gguf", out = scratch / "out.tsr",
                    wanted = scratch / "wanted.tsr";
  const Model model = described_with_bytes(kSeveralSlices, 3);
  ok(tsr_model_save(model.get(), tsr.c_str(), nullptr));
  ok(tsr_model_save(model.get(), packed.c_str(), options({{"compress", int64_t{1}}}).get()));
  write(llama, tessera::testing::small_llama(false).finish());
  write(blocks, llama_of_blocks());
  for (const auto& [in, compress] : {std::pair(tsr, int64_t{1}), {packed, 0}, {llama, 0}, {blocks, 1}}) {
    CAPTURE(in);
    ok(tsr_model_save(loaded(in).get(), wanted.c_str(), options({{"compress", compress}}).get()));
    const std::string report =
        finished(conversion(in, out, options({{"compress", compress}, {"verify", compress}})));
    CHECK((contents(out) == contents(wanted)));
    ok(tsr_model_verify(out.c_str()));
    const size_t at = report.find("\"out\"");
    CHECK(number_after(report, "\"bytes\":") == static_cast<int64_t>(std::filesystem::file_size(in)));
    CHECK(number_after(report.substr(at), "\"bytes\":") ==
          static_cast<int64_t>(std::filesystem::file_size(out)));
  }
}

TEST_CASE("a loading makes the model that tsr_model_load makes, once, and only when all is done") {
  const Scratch scratch;
  const std::string path = scratch / "packed.tsr";
  ok(tsr_model_save(described(kSeveralSlices).get(), path.c_str(),
                    options({{"compress", int64_t{1}}}).get()));
  const Work work = loading(path);
  tsr_model* made = nullptr;
  CHECK(take(tsr_model_finish(work.get(), &made)).code == TSR_FAILED_PRECONDITION);
  CHECK(step_all(work) >= 3);
  ok(tsr_model_finish(work.get(), &made));
  const Model model(made);
  CHECK((values(model) == values(loaded(path))));
  CHECK(take(tsr_model_finish(work.get(), &made)).message.find("taken already") != std::string::npos);
}

TEST_CASE("a loading that verifies finds damage that stays unread otherwise, and a conversion writes none") {
  const Scratch scratch;
  const std::string path = scratch / "m.tsr", out = scratch / "out.tsr";
  ok(tsr_model_save(described(kSeveralSlices).get(), path.c_str(), nullptr));
  std::string bytes = contents(path);
  bytes[bytes.size() / 2] ^= 1;
  write(path, bytes);
  step_all(loading(path));
  const auto error_of = [](const Work& work) {
    for (int32_t done = 0; done == 0;)
      if (const Error error = take(tsr_work_step(work.get(), &done)); error.code != TSR_OK) return error;
    return Error();
  };
  const Error verified = error_of(loading(path, options({{"verify", int64_t{1}}})));
  CHECK(verified.code == TSR_CORRUPT);
  CHECK(verified.message.find("m.tsr: tensor '") != std::string::npos);
  const Work work = conversion(path, out);
  const Error converted = error_of(work);
  CHECK(converted.code == TSR_CORRUPT);
  CHECK(converted.message == verified.message);
  CHECK(take(tsr_work_step(work.get(), nullptr)).message.find("failed before") != std::string::npos);
  CHECK(take(tsr_conversion_finish(work.get(), nullptr)).code == TSR_FAILED_PRECONDITION);
  CHECK(!std::filesystem::exists(out));

  write(path, tessera::testing::small_llama(false).finish());
  const Work gguf = loading(path, options({{"verify", int64_t{1}}}));
  CHECK(take(tsr_work_step(gguf.get(), nullptr)).code == TSR_UNSUPPORTED);
}

TEST_CASE("a conversion given up anywhere leaves nothing, and the file that was there") {
  const Scratch scratch;
  const std::string in = scratch / "in.tsr", out = scratch / "out.tsr";
  ok(tsr_model_save(described(kSeveralSlices).get(), in.c_str(), nullptr));
  write(out, "old");
  const int all = step_all(conversion(in, out, options({{"verify", int64_t{1}}})));
  CHECK(all >= 4);
  for (int steps = 0; steps <= all; ++steps) {
    const Work work = conversion(in, out, options({{"verify", int64_t{1}}}));
    for (int i = 0; i < steps; ++i) ok(tsr_work_step(work.get(), nullptr));
    if (steps < all) CHECK(take(tsr_conversion_finish(work.get(), nullptr)).code == TSR_FAILED_PRECONDITION);
  }
  CHECK(contents(out) == "old");
  CHECK(file_count(scratch) == 2);
}

TEST_CASE("work says what it does when another kind's finish is called, and how far it is in bytes") {
  const Scratch scratch;
  const std::string path = scratch / "packed.tsr";
  ok(tsr_model_save(described(kSeveralSlices).get(), path.c_str(),
                    options({{"compress", int64_t{1}}}).get()));
  const Work work = loading(path);
  tsr_progress progress = progress_of(work.get());
  CHECK(progress.fraction == 0);
  CHECK(progress.label == std::string("opening"));
  step_through(work.get());
  progress = progress_of(work.get());
  CHECK(progress.done == progress.total);
  CHECK(progress.total > 0);
  CHECK(progress.unit == std::string("bytes"));
  tsr_plan* plan = nullptr;
  const Error other = take(tsr_plan_finish(work.get(), &plan));
  CHECK(other.code == TSR_INVALID_ARGUMENT);
  CHECK(other.message ==
        "this work loads a model: finish it with tsr_model_finish; tsr_plan_finish wants work that makes a "
        "plan");
  tsr_calibration* calibration = nullptr;
  CHECK(take(tsr_calibration_finish(work.get(), &calibration)).code == TSR_INVALID_ARGUMENT);
  CHECK(take(tsr_checkpoint_finish(work.get())).code == TSR_INVALID_ARGUMENT);
  tsr_model* made = nullptr;
  ok(tsr_model_finish(work.get(), &made));  // what was refused took nothing
  tsr_model_free(made);
}

TEST_CASE("steps are cancelled with the runtime, and go on when they are called again") {
  const Scratch scratch;
  const std::string in = scratch / "in.tsr", out = scratch / "out.tsr", wanted = scratch / "wanted.tsr";
  const Options compress = options({{"compress", int64_t{1}}});
  ok(tsr_model_save(described(kSeveralSlices).get(), in.c_str(), compress.get()));
  const Runtime rt = runtime();
  const auto cancelled = [&](auto make) {
    for (int attempt = 0; attempt < 200; ++attempt) {
      const auto work = make();
      std::atomic<bool> ends{false};
      std::thread canceller([&] {
        while (!ends) {
          tsr_runtime_cancel(rt.get());
          std::this_thread::sleep_for(std::chrono::microseconds(300));
        }
      });
      bool was_cancelled = false;
      int32_t done = 0;
      while (done == 0 && !was_cancelled)
        was_cancelled = take(tsr_work_step(work.get(), &done)).code == TSR_CANCELLED;
      ends = true;
      canceller.join();
      if (!was_cancelled) continue;
      step_all(work);
      return true;
    }
    return false;
  };
  CHECK(cancelled([&] { return loading(in, nullptr, rt); }));
  CHECK(cancelled([&] { return conversion(in, out, compress, rt); }));
  CHECK(!std::filesystem::exists(out));
}

TEST_CASE("a conversion refuses its own input, and a file that is written to meanwhile") {
  const Scratch scratch;
  const std::string in = scratch / "in.tsr", out = scratch / "out.tsr", link = scratch / "link.tsr";
  ok(tsr_model_save(described(kSeveralSlices).get(), in.c_str(), nullptr));
  std::filesystem::create_symlink(in, link);
  tsr_work* made = nullptr;
  for (const std::string& same : {in, link})
    CHECK(take(tsr_conversion_begin(nullptr, in.c_str(), same.c_str(), nullptr, &made))
              .message.find("is where the model is read from") != std::string::npos);
  CHECK(take(tsr_conversion_begin(nullptr, (scratch / "none").c_str(), out.c_str(), nullptr, &made)).code ==
        TSR_NOT_FOUND);
  CHECK(take(tsr_conversion_begin(nullptr, in.c_str(), (scratch / "no/out").c_str(), nullptr, &made)).code ==
        TSR_NOT_FOUND);
  CHECK(take(tsr_conversion_begin(nullptr, in.c_str(), out.c_str(), options({{"kompress", int64_t{1}}}).get(),
                                  &made))
            .message.find("nearest: compress") != std::string::npos);
  const Work work = conversion(in, out);
  ok(tsr_work_step(work.get(), nullptr));
  std::filesystem::last_write_time(in, std::filesystem::last_write_time(in) + std::chrono::seconds(1));
  const Error changed = take(tsr_work_step(work.get(), nullptr));
  CHECK(changed.code == TSR_CHANGED);
  CHECK(changed.message.find("was written to") != std::string::npos);
  CHECK(!std::filesystem::exists(out));
}

TEST_CASE("a model in several files loads and converts as the whole one, and no part of it is written over") {
  const Scratch scratch;
  const std::string whole = scratch / "whole.gguf", wanted = scratch / "wanted.tsr",
                    out = scratch / "out.tsr";
  write(whole, tessera::testing::small_llama(false).finish());
  std::vector<std::string> parts;
  int64_t bytes = 0;
  for (const auto& part : tessera::testing::small_llama_parts(3)) {
    const std::string name = "m-0000" + std::to_string(parts.size() + 1) + "-of-00003.gguf";
    parts.push_back(scratch / name.c_str());
    write(parts.back(), part.finish());
    bytes += static_cast<int64_t>(std::filesystem::file_size(parts.back()));
  }
  finished(conversion(whole, wanted));
  for (const std::string& part : parts) {
    CAPTURE(part);
    const Model model = loaded(part);
    CHECK((values(model) == values(loaded(whole))));
    const std::string info = text([&](auto... out_text) { return tsr_model_info(model.get(), out_text...); });
    CHECK(number_after(info, "\"files\":") == 3);
    const std::string report = finished(conversion(part, out));
    CHECK((contents(out) == contents(wanted)));
    CHECK(number_after(report, "\"bytes\":") == bytes);
    tsr_tokenizer* tokenizer = nullptr;
    ok(tsr_tokenizer_load(part.c_str(), &tokenizer));
    CHECK(tsr_tokenizer_vocabulary_size(tokenizer) == 12);
    tsr_tokenizer_free(tokenizer);
  }
  // Its own file is refused at once, the others when the parts are known.
  tsr_work* made = nullptr;
  CHECK(take(tsr_conversion_begin(nullptr, parts[0].c_str(), parts[0].c_str(), nullptr, &made))
            .message.find("is where the model is read from") != std::string::npos);
  const std::string before = contents(parts[1]);
  const Error refused = take(tsr_work_step(conversion(parts[0], parts[1]).get(), nullptr));
  CHECK(refused.code == TSR_INVALID_ARGUMENT);
  CHECK(refused.message.find(": is where the model is read from") != std::string::npos);
  CHECK((contents(parts[1]) == before));
  // Written to after it was opened: any part counts.
  const Work work = conversion(parts[0], out);
  ok(tsr_work_step(work.get(), nullptr));
  std::filesystem::last_write_time(parts[2],
                                   std::filesystem::last_write_time(parts[2]) + std::chrono::seconds(1));
  const Error changed = take(tsr_work_step(work.get(), nullptr));
  CHECK(changed.code == TSR_CHANGED);
  CHECK(changed.message.find(parts[2]) != std::string::npos);
  // A part in memory has no name, from which those of the others follow.
  const std::string first = contents(parts[0]);
  tsr_model* model = nullptr;
  const Error nameless = take(tsr_model_load_bytes(first.data(), first.size(), nullptr, nullptr, &model));
  CHECK(nameless.code == TSR_UNSUPPORTED);
  CHECK(nameless.message.find("load it by its path") != std::string::npos);
}
