// Long work on a thread of its own (planning, reading, saving) and conversions of what is in memory: the same results as
// in one call, progress that does not fall, an end at free or tsr_runtime_cancel that leaves nothing behind.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "c_api.h"
#include "small_training.h"

using namespace capi_test;

namespace {

constexpr const char* kModel = "llama:L=2,C=64,H=4,F=96,V=256,T=32";

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Steps to the end; how many of them saw a share strictly between none and all.
int step_all(const Work& work) {
  int between = 0;
  double before = 0;
  for (int32_t done = 0; done == 0;) {
    ok(tsr_work_step(work.get(), &done));
    const double share = progress_of(work.get()).fraction;
    CHECK(share >= before);
    CHECK((share == 1) == (done == 1));
    between += share > 0 && share < 1;
    before = share;
  }
  return between;
}

Work reading_text(const std::string& text, const Tokenizer& tokenizer, const Options& chosen,
                  tsr_runtime* runtime = nullptr) {
  tsr_work* made = nullptr;
  ok(tsr_dataset_begin_text(runtime, text.data(), text.size(), tokenizer.get(), chosen.get(), &made));
  return Work(made);
}

Trainer trainer_of(const Runtime& runtime, const Model& model) {
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(
      runtime.get(), model.get(), bytes_dataset().get(),
      options(
          {{"devices", std::string("cpu:2")}, {"parallel", std::string("dp=2")}, {"batch", 8}, {"steps", 20}})
          .get(),
      &made));
  return Trainer(made);
}

std::string words(size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += "the tiles of one mosaic lie side by side; ";
  return text;
}

}  // namespace

TEST_CASE("a reading makes the dataset of one call, and says how far it is") {
  const Options chosen = options({{"seq", 64}, {"seed", 3}, {"eval_fraction", 0.1}});
  const Tokenizer tokenizer = byte_tokenizer();
  const std::string text = words(size_t{24} << 20);
  tsr_dataset* raw = nullptr;
  ok(tsr_dataset_new_text(text.data(), text.size(), tokenizer.get(), chosen.get(), &raw));
  const Dataset whole(raw);
  const Work reading = reading_text(text, tokenizer, chosen);
  ok(tsr_work_step(reading.get(), nullptr));
  step_all(reading);
  ok(tsr_dataset_finish(reading.get(), &raw));
  const Dataset read(raw);
  const auto info = [](const Dataset& of) {
    return capi_test::text([&](auto... out) { return tsr_dataset_info(of.get(), out...); });
  };
  CHECK(info(read) == info(whole));
  CHECK(take(tsr_dataset_finish(reading.get(), &raw)).code == TSR_FAILED_PRECONDITION);  // once

  const Scratch scratch;
  const std::string path = scratch.path / "text.txt";
  std::ofstream(path, std::ios::binary) << text;
  tsr_work* of_file = nullptr;
  ok(tsr_dataset_begin_file(runtime().get(), path.c_str(), tokenizer.get(), chosen.get(), &of_file));
  const Work file_reading(of_file);
  step_all(file_reading);
  ok(tsr_dataset_finish(file_reading.get(), &raw));
  CHECK(info(Dataset(raw)) == info(whole));
}

TEST_CASE("a reading fails as a dataset does, at its beginning or in a step") {
  const Tokenizer tokenizer = byte_tokenizer();
  tsr_work* made = nullptr;
  CHECK(take(tsr_dataset_begin_file(nullptr, "x", tokenizer.get(), options({{"sequence", 1}}).get(), &made))
            .message.find("seq") != std::string::npos);
  ok(tsr_dataset_begin_file(nullptr, "/nowhere/text", tokenizer.get(), nullptr, &made));
  const Work reading(made);
  Error error;
  int32_t done = 0;
  while (error.code == TSR_OK && done == 0) error = take(tsr_work_step(reading.get(), &done));
  CHECK(error.code == TSR_NOT_FOUND);
  CHECK(take(tsr_work_step(reading.get(), &done)).code == TSR_NOT_FOUND);  // and again
  tsr_dataset* dataset = nullptr;
  CHECK(take(tsr_dataset_finish(reading.get(), &dataset)).code == TSR_FAILED_PRECONDITION);
}

TEST_CASE("a pipe that nobody writes to is waited for, and given up") {
  const Tokenizer tokenizer = byte_tokenizer();
  const Scratch scratch;
  const std::string path = scratch.path / "pipe";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  tsr_work* made = nullptr;
  ok(tsr_dataset_begin_file(nullptr, path.c_str(), tokenizer.get(), options({{"seq", 16}}).get(), &made));
  int32_t done = 0;
  ok(tsr_work_step(made, &done));
  CHECK(done == 0);
  tsr_work_free(made);

  ok(tsr_dataset_begin_file(nullptr, path.c_str(), tokenizer.get(), options({{"seq", 16}}).get(), &made));
  const Work reading(made);
  ok(tsr_work_step(reading.get(), &done));
  std::thread writer([&] { std::ofstream(path, std::ios::binary) << words(size_t{1} << 17); });
  step_all(reading);
  writer.join();
  tsr_dataset* dataset = nullptr;
  ok(tsr_dataset_finish(reading.get(), &dataset));
  const Dataset owner(dataset);
  CHECK(text([&](auto... out) {
          return tsr_dataset_info(owner.get(), out...);
        }).find("\"tokens\":" + std::to_string(words(size_t{1} << 17).size())) != std::string::npos);
}

TEST_CASE("long work ends soon after it is freed, and when its runtime is cancelled during a step") {
  using Clock = std::chrono::steady_clock;
  const Tokenizer tokenizer = byte_tokenizer();
  const Runtime rt = runtime();
  const std::string text = words(size_t{64} << 20);  // takes longer than a step on any machine
  {
    const Work freed = reading_text(text, tokenizer, options({}), rt.get());
    int32_t done = 0;
    ok(tsr_work_step(freed.get(), &done));
  }
  const Work reading = reading_text(text, tokenizer, options({}), rt.get());
  std::atomic<bool> ended{false};
  std::thread canceller([&] {
    while (!ended) {
      tsr_runtime_cancel(rt.get());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  Error error;
  int32_t done = 0;
  const Clock::time_point begin = Clock::now();
  while (error.code == TSR_OK && done == 0 && Clock::now() < begin + std::chrono::seconds(60))
    error = take(tsr_work_step(reading.get(), &done));
  ended = true;
  canceller.join();
  CHECK(error.code == TSR_CANCELLED);
}

TEST_CASE("a planning makes the plan of one call") {
  const Runtime rt = runtime();
  const Model model = described(kModel);
  const Options chosen = options({{"devices", std::string("cpu:4")}, {"batch", 8}});
  tsr_plan* raw = nullptr;
  ok(tsr_plan_new(rt.get(), model.get(), chosen.get(), &raw));
  const Plan whole(raw);
  tsr_work* made = nullptr;
  ok(tsr_plan_begin(rt.get(), model.get(), chosen.get(), &made));
  const Work planning(made);
  CHECK(take(tsr_plan_finish(planning.get(), &raw)).message.find("step until 1 is done") !=
        std::string::npos);
  step_all(planning);
  ok(tsr_plan_finish(planning.get(), &raw));
  const Plan plan(raw);
  const auto text_of = [](const Plan& of) {
    return text([&](auto... out) { return tsr_plan_text(of.get(), out...); });
  };
  CHECK(text_of(plan) == text_of(whole));

  // A limit that nothing fits is said by a step, with its numbers.
  ok(tsr_plan_begin(rt.get(), model.get(),
                    options({{"devices", std::string("cpu:2")}, {"batch", 8}, {"memory_limit", 1000}}).get(),
                    &made));
  const Work refused(made);
  tsr_status* status = nullptr;
  for (int32_t done = 0; status == nullptr && done == 0;) status = tsr_work_step(refused.get(), &done);
  CHECK(tsr_status_code(status) == TSR_OUT_OF_MEMORY);
  int64_t smallest = 0;
  CHECK(tsr_status_number(status, "smallest_limit_bytes", &smallest) == 1);
  CHECK(smallest > 1000);
  bool is_listed = false;
  for (size_t i = 0; tsr_status_number_key(status, i) != nullptr; ++i)
    is_listed |= tsr_status_number_key(status, i) == std::string("smallest_limit_bytes");
  CHECK(is_listed);
  CHECK(tsr_status_number_key(nullptr, 0) == nullptr);
  tsr_status_free(status);
}

TEST_CASE("a planning of a graph outlives the graph's and the devices' handles") {
  const Runtime rt = runtime();
  tsr_devices* raw_devices = nullptr;
  ok(tsr_devices_open(rt.get(), "cpu:2", &raw_devices));
  Devices devices(raw_devices);
  const Model model = described(kModel);
  tsr_graph* raw_graph = nullptr;
  ok(tsr_model_graph(model.get(), &raw_graph));
  Graph graph(raw_graph);
  tsr_work* made = nullptr;
  ok(tsr_plan_begin_for_graph(devices.get(), graph.get(),
                              options({{"batch", 4}, {"symbols", std::string("T=16")}}).get(), &made));
  const Work planning(made);
  devices.reset();
  graph.reset();
  step_all(planning);
  tsr_plan* plan = nullptr;
  ok(tsr_plan_finish(planning.get(), &plan));
  tsr_plan_free(plan);
}

TEST_CASE("a saving writes the checkpoint of one call, and has the trainer to itself") {
  const Runtime rt = runtime();
  const Model model = described(kModel);
  Trainer trainer = trainer_of(rt, model);
  one_step(trainer);
  const Scratch scratch;
  const std::string whole = scratch.path / "whole", stepped = scratch.path / "stepped";
  ok(tsr_trainer_save(trainer.get(), whole.c_str()));
  tsr_work* made = nullptr;
  ok(tsr_checkpoint_begin(trainer.get(), stepped.c_str(), &made));
  Work saving(made);
  tsr_step step{};
  step.struct_size = sizeof step;
  const Error busy = take(tsr_trainer_step(trainer.get(), &step));
  CHECK(busy.code == TSR_BUSY);
  CHECK(busy.message.find("tsr_checkpoint_begin") != std::string::npos);
  CHECK(take(tsr_checkpoint_finish(saving.get())).code == TSR_FAILED_PRECONDITION);
  step_all(saving);
  one_step(trainer);  // free again
  CHECK(!std::filesystem::exists(stepped));
  ok(tsr_checkpoint_finish(saving.get()));
  CHECK(take(tsr_checkpoint_finish(saving.get())).code == TSR_FAILED_PRECONDITION);  // once
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(whole)) {
    CHECK(contents(entry.path()) == contents(std::filesystem::path(stepped) / entry.path().filename()));
    ++files;
  }
  CHECK(files > 1);

  // Freed before its end, with its trainer before it: the folder is the old checkpoint.
  ok(tsr_checkpoint_begin(trainer.get(), stepped.c_str(), &made));
  saving.reset(made);
  trainer.reset();
  saving.reset();
  Trainer resumed = trainer_of(rt, model);
  ok(tsr_trainer_resume(resumed.get(), stepped.c_str()));
  CHECK(text([&](auto... out) { return tsr_trainer_report(resumed.get(), out...); }).find("\"step\":1,") !=
        std::string::npos);
  CHECK(std::distance(std::filesystem::directory_iterator(scratch.path), {}) == 2);
  CHECK(take(tsr_checkpoint_begin(resumed.get(), "/nowhere/at/all", &made)).code == TSR_NOT_FOUND);
}

TEST_CASE("conversions of a model and of a trainer write the files of one call") {
  const Runtime rt = runtime();
  const Model model = described(kModel);
  const Scratch scratch;
  const auto path = [&](const char* name) { return (scratch.path / name).string(); };
  const auto convert = [&](const Work& work) {
    step_all(work);
    return text([&](auto... out) { return tsr_conversion_finish(work.get(), out...); });
  };
  const auto of_model = [&](const std::string& to, const Options& chosen) {
    tsr_work* made = nullptr;
    ok(tsr_conversion_begin_for_model(rt.get(), model.get(), to.c_str(), chosen.get(), &made));
    return Work(made);
  };
  ok(tsr_model_save(model.get(), path("whole.tsr").c_str(), nullptr));
  const std::string report = convert(of_model(path("stepped.tsr"), options({{"verify", 1}})));
  CHECK(contents(path("stepped.tsr")) == contents(path("whole.tsr")));
  CHECK(report.find("\"format\":\"memory\"") != std::string::npos);
  ok(tsr_model_quantize(rt.get(), model.get(), path("whole.q8").c_str(),
                        options({{"type", std::string("q8_0")}}).get(), nullptr));
  convert(of_model(path("stepped.q8"), options({{"type", std::string("q8_0")}})));
  CHECK(contents(path("stepped.q8")) == contents(path("whole.q8")));

  const Trainer trainer = trainer_of(rt, model);
  one_step(trainer);
  ok(tsr_trainer_save_model(trainer.get(), model.get(), path("trained.tsr").c_str(), nullptr));
  tsr_work* made = nullptr;
  ok(tsr_conversion_begin_for_trainer(trainer.get(), model.get(), path("stepped_trained.tsr").c_str(),
                                      nullptr, &made));
  Work work(made);
  double loss = 0;
  CHECK(take(tsr_trainer_evaluate(trainer.get(), &loss)).code == TSR_BUSY);
  convert(work);
  CHECK(contents(path("stepped_trained.tsr")) == contents(path("trained.tsr")));
  ok(tsr_trainer_evaluate(trainer.get(), &loss));  // free again

  // Given up: nothing is left, and the trainer is free.
  ok(tsr_conversion_begin_for_trainer(trainer.get(), model.get(), path("never.tsr").c_str(), nullptr, &made));
  work.reset(made);
  int32_t done = 0;
  ok(tsr_work_step(work.get(), &done));
  work.reset();
  CHECK(!std::filesystem::exists(path("never.tsr")));
  ok(tsr_trainer_evaluate(trainer.get(), &loss));
}

TEST_CASE("a forked child refuses its parent's long work, and frees nothing") {
  const Runtime rt = runtime();
  const Model model = described(kModel);
  tsr_work* made = nullptr;
  ok(tsr_plan_begin(rt.get(), model.get(), options({{"devices", std::string("cpu:4")}}).get(), &made));
  const pid_t child = fork();
  if (child == 0) {
    int32_t done = 0;
    tsr_status* status = tsr_work_step(made, &done);
    const bool refused = tsr_status_code(status) == TSR_FORKED;
    tsr_work_free(made);
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  const Work planning(made);
  step_all(planning);
}
