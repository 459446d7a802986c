// Evaluations with token accuracy, against a scorer's greedy tokens and on other plans; checkpoints written from a copy
// while the training goes on.
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/fed_training.h"
#include "tests/capi/small_training.h"

using namespace capi_test;

namespace {


constexpr const char* kModel = "llama:L=2,C=32,H=4,KV=2,F=48,V=64,T=16";
constexpr int64_t kRows = 10, kSeq = 16;

double number(const std::string& json, const std::string& key) {
  const size_t at = json.find('"' + key + "\":");
  REQUIRE(at != std::string::npos);
  return std::stod(json.substr(json.find(':', at) + 1));
}

// Rows with a learnable order of tokens; two labels of each do not count.
struct Rows {
  std::vector<int32_t> tokens, labels;
};
Rows some_rows() {
  Rows rows;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t t = 0; t < kSeq; ++t)
      rows.tokens.push_back(static_cast<int32_t>((row * 7 + t * 5 + t * t % 3) % 64));
    const auto own = rows.tokens.end() - kSeq;
    for (int64_t t = 0; t < kSeq; ++t) rows.labels.push_back(t == 3 || t + 1 == kSeq ? -1 : own[t + 1]);
  }
  return rows;
}

Dataset dataset_of(const Rows& rows) {
  tsr_dataset* made = nullptr;
  ok(tsr_dataset_new_rows(kRows, kSeq, rows.tokens.data(), rows.labels.data(), nullptr, nullptr, nullptr,
                          options({{"eval_fraction", 0.5}, {"shuffle", 0}}).get(), &made));
  return Dataset(made);
}

struct Evaluated {
  double loss, perplexity, accuracy, labels, correct;
};

Trainer trainer_of(const Runtime& rt, const Model& model, const Dataset& dataset, const char* devices,
                   const char* parallel, const char* fused, const char* precision = "f32") {
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(rt.get(), model.get(), dataset.get(),
                     options({{"devices", std::string(devices)},
                              {"parallel", std::string(parallel)},
                              {"fused_loss", std::string(fused)},
                              {"precision", std::string(precision)},
                              {"batch", 4},
                              {"lr", 1e-2},
                              {"warmup", 0}})
                         .get(),
                     &made));
  return Trainer(made);
}

Evaluated evaluation_of(const Trainer& trainer) {
  const std::string found =
      text([&](auto... out) { return tsr_trainer_evaluate_all(trainer.get(), out...); });
  CHECK(number(found, "seconds") >= 0);
  return {number(found, "loss"), number(found, "perplexity"), number(found, "accuracy"),
          number(found, "labels"), number(found, "correct")};
}

// Labels of the held-out rows, the last half, that count and are the scorer's greedy tokens.
int64_t greedy_labels(const Runtime& rt, const Model& model, const Rows& rows) {
  const int64_t first = kRows / 2;
  const std::vector<size_t> lengths(static_cast<size_t>(kRows - first), static_cast<size_t>(kSeq));
  const size_t count = static_cast<size_t>((kRows - first) * kSeq);
  std::vector<float> logprobs(count);
  std::vector<uint8_t> greedy(count);
  ok(tsr_model_score(rt.get(), model.get(), options({{"seq", kSeq}, {"bos", std::string("none")}}).get(),
                     rows.tokens.data() + first * kSeq, count, lengths.data(), lengths.size(),
                     logprobs.data(), greedy.data()));
  int64_t found = 0;
  for (size_t i = 0; i + 1 < count; ++i)
    found += rows.labels[i + static_cast<size_t>(first * kSeq)] >= 0 && greedy[i + 1];
  return found;
}

std::string file_contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE(
    "an evaluation's accuracy is the share of labels that a scorer finds greedy, with and without logits") {
  const Runtime rt = runtime();
  const Rows rows = some_rows();
  const Dataset dataset = dataset_of(rows);
  for (const char* fused : {"off", "on"}) {
    const Model model = described(kModel);
    const Trainer trainer = trainer_of(rt, model, dataset, "cpu:1", "", fused);
    for (int i = 0; i < 12; ++i) one_step(trainer);
    const Evaluated found = evaluation_of(trainer);
    ok(tsr_trainer_store(trainer.get(), model.get()));
    CHECK(found.labels == (kRows / 2) * (kSeq - 2));
    CHECK(found.correct == greedy_labels(rt, model, rows));
    CHECK(found.correct > 0);
    CHECK(found.correct < found.labels);
    CHECK(found.accuracy == found.correct / found.labels);
    CHECK(found.loss == evaluated(trainer));
    CHECK(found.perplexity == std::exp(found.loss));
  }
}

TEST_CASE("an evaluation is the same on every plan") {
  const Runtime rt = runtime();
  const Rows rows = some_rows();
  const Dataset dataset = dataset_of(rows);
  const Model model = described(kModel);
  const auto of = [&](const char* devices, const char* parallel, const char* fused) {
    const Trainer trainer = trainer_of(rt, model, dataset, devices, parallel, fused);
    for (int i = 0; i < 3; ++i) one_step(trainer);
    return evaluation_of(trainer);
  };
  const Evaluated one = of("cpu:1", "", "off");
  for (const auto& [devices, parallel] : {std::pair("cpu:2", "tp=2"),
                                          {"cpu:2", "dp=2"},
                                          {"cpu:2", "cp=ring:2"},
                                          {"cpu:2", "cp=ulysses:2"},
                                          {"cpu:2", "pp=2,mb=2"},
                                          {"cpu:4", "dp=2,tp=2,zero=1"}})
    for (const char* fused : {"off", "on"}) {
      INFO(std::string(parallel), ", fused loss ", std::string(fused));
      const Evaluated other = of(devices, parallel, fused);
      // Sums of f32 in another order, after three steps; no two logits of a row are nearly that close.
      CHECK(other.loss == doctest::Approx(one.loss).epsilon(1e-5));
      CHECK(other.correct == one.correct);
      CHECK(other.labels == one.labels);
    }
}

TEST_CASE("a checkpoint written from a copy is that of its step, whatever the trainer does meanwhile") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("tessera-copy-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const auto path = [&](const char* name) { return (folder / name).string(); };
  const Runtime rt = runtime();
  const Model model = described(kModel);
  const Trainer trainer = trainer_of(rt, model, dataset_of(some_rows()), "cpu:2", "dp=2,zero=1", "off");
  one_step(trainer);
  ok(tsr_trainer_save(trainer.get(), path("whole").c_str()));
  tsr_work* made = nullptr;
  ok(tsr_checkpoint_begin_snapshot(trainer.get(), path("copy").c_str(), nullptr, &made));
  Work saving(made);
  const double second = one_step(trainer);
  CHECK(!std::filesystem::exists(path("copy")));
  step_through(saving.get());
  ok(tsr_checkpoint_finish(saving.get()));
  for (const char* file : {"manifest", "shard-00000"})
    CHECK(file_contents(folder / "whole" / file) == file_contents(folder / "copy" / file));

  // Notes come back as texts; the trainer may be gone.
  ok(tsr_trainer_resume(trainer.get(), path("copy").c_str()));
  CHECK(one_step(trainer) == second);
  {
    const Trainer gone = trainer_of(rt, model, dataset_of(some_rows()), "cpu:1", "", "off");
    ok(tsr_checkpoint_begin_snapshot(
        gone.get(), path("noted").c_str(),
        options({{"best_loss", 0.1}, {"step", 3}, {"who", std::string("\"me\"")}}).get(), &made));
  }
  saving.reset(made);
  step_through(saving.get());
  ok(tsr_checkpoint_finish(saving.get()));
  const std::string info =
      text([&](auto... out) { return tsr_checkpoint_info(path("noted").c_str(), out...); });
  CHECK(info.find(R"("notes":{"best_loss":"0.1","step":"3","who":"\"me\""})") != std::string::npos);

  // The report has the copy's bytes: all tensors, and the largest once more.
  const std::string report = text([&](auto... out) { return tsr_trainer_report(trainer.get(), out...); });
  CHECK(number(report, "snapshot_bytes") == number(report, "checkpoint_bytes") + 64 * 32 * 4);

  // A saving given up leaves nothing; a folder with other files is refused.
  ok(tsr_checkpoint_begin_snapshot(trainer.get(), path("never").c_str(), nullptr, &made));
  saving.reset(made);
  saving.reset();
  CHECK(!std::filesystem::exists(path("never")));
  CHECK(!std::filesystem::exists(path("never.saving")));
  std::filesystem::create_directories(path("foreign"));
  std::ofstream(path("foreign") + "/notes.txt") << "mine";
  CHECK(take(tsr_checkpoint_begin_snapshot(trainer.get(), path("foreign").c_str(), nullptr, &made)).code ==
        TSR_EXISTS);
  CHECK(take(tsr_checkpoint_begin_snapshot(trainer.get(), "", nullptr, &made)).code == TSR_INVALID_ARGUMENT);
  std::filesystem::remove_all(folder);
}

TEST_CASE("storing a training of adapters copies them alone: the base stays where it lies") {
  const Runtime rt = runtime();
  Model base = described(kModel);
  tsr_model* raw = nullptr;
  ok(tsr_model_add_adapters(base.get(), options({{"rank", 2}}).get(), &raw));
  const Model model(raw);
  const auto data_of = [&](const char* name) {
    tsr_tensor* tensor = nullptr;
    ok(tsr_model_read(model.get(), name, &tensor));
    const Tensor held(tensor);
    return tsr_tensor_data(tensor);
  };
  const void* before = data_of("block.0.q");
  const Trainer trainer = trainer_of(rt, model, dataset_of(some_rows()), "cpu:1", "", "off");
  one_step(trainer);
  const void* adapter = data_of("block.0.q.lora_b");
  ok(tsr_trainer_store(trainer.get(), model.get()));
  CHECK(data_of("block.0.q") == before);
  CHECK(data_of("block.0.q.lora_b") != adapter);
}

namespace {

// Rows of which those with a 0 in `labelled` have no label that counts.
Dataset rows_with_labels(const std::string& labelled, double eval_fraction = 0) {
  std::vector<int32_t> tokens, labels;
  for (size_t row = 0; row < labelled.size(); ++row)
    for (int64_t t = 0; t < kSeq; ++t) {
      tokens.push_back(static_cast<int32_t>((static_cast<int64_t>(row) * 11 + t * 5) % 64));
      labels.push_back(labelled[row] == '0' || t + 1 == kSeq ? -1 : (tokens.back() + 5) % 64);
    }
  tsr_dataset* made = nullptr;
  ok(tsr_dataset_new_rows(static_cast<int64_t>(labelled.size()), kSeq, tokens.data(), labels.data(), nullptr,
                          nullptr, nullptr, options({{"eval_fraction", eval_fraction}, {"shuffle", 0}}).get(), &made));
  return Dataset(made);
}

struct Stepped {
  std::vector<double> losses, rates;
  std::vector<float> weights;
  std::string report;
};

Stepped stepped(const Runtime& rt, const Dataset& data, const char* optimizer, int64_t accumulate, int count) {
  const Model model = described(kModel);
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(rt.get(), model.get(), data.get(),
                     options({{"batch", 1},
                              {"accumulate", accumulate},
                              {"optimizer", std::string(optimizer)},
                              {"lr", 1e-2},
                              {"schedule", std::string("linear")},
                              {"steps", 10},
                              {"warmup", 2}})
                         .get(),
                     &made));
  const Trainer trainer(made);
  Stepped all;
  for (int i = 0; i < count; ++i) {
    const tsr_step it = step(trainer);
    CHECK(it.step == i + 1);
    all.losses.push_back(it.loss), all.rates.push_back(it.lr);
  }
  all.weights = parameter(trainer, "block.0.q");
  all.report = report(trainer);
  return all;
}

}  // namespace

TEST_CASE("steps without labels are passed over: no loss, no update, no place in the schedule") {
  const Runtime rt = runtime();
  for (const char* optimizer : {"adamw", "adamw8", "sgd", "muon", "lion", "adafactor"}) {
    CAPTURE(optimizer);
    const Stepped some = stepped(rt, rows_with_labels("0100110"), optimizer, 1, 3);
    const Stepped all = stepped(rt, rows_with_labels("0100110"), optimizer, 1, 0);
    const Stepped dense = stepped(rt, rows_with_labels("1111111"), optimizer, 1, 0);
    CHECK(some.report.find(R"("unlabelled_steps":3)") != std::string::npos);
    CHECK(all.weights == dense.weights);
    CHECK(some.weights != all.weights);
    for (const double loss : some.losses) CHECK(loss > 1);
    CHECK(some.rates[0] == doctest::Approx(0.5e-2));  // of the steps that were made
    CHECK(some.rates[1] == doctest::Approx(1e-2));
  }
  // A batch without labels next to one with labels adds nothing; two such batches make no step.
  const Stepped parts = stepped(rt, rows_with_labels("10000101"), "adamw", 2, 3);
  CHECK(parts.report.find(R"("unlabelled_steps":1)") != std::string::npos);
  for (const double loss : parts.losses) CHECK(loss > 1);
}

TEST_CASE("without any label a step fails, and rows held out are refused") {
  const Runtime rt = runtime();
  const Model model = described(kModel);
  const Dataset none = rows_with_labels("00001111", 0.5), unseen = rows_with_labels("11110000", 0.5);
  const auto make = [&](const Dataset& data, tsr_trainer** made) {
    return tsr_trainer_new(rt.get(), model.get(), data.get(), options({{"batch", 2}}).get(), made);
  };
  tsr_trainer* made = nullptr;
  ok(make(none, &made));
  const Trainer trainer(made);
  const Error failed = take(tsr_trainer_step(made, nullptr));
  CHECK(failed.code == TSR_FAILED_PRECONDITION);
  CHECK(failed.message.find("none of the dataset's 4 rows for training has a label") != std::string::npos);
  CHECK(evaluation_of(trainer).perplexity > 1);
  tsr_trainer* refused = nullptr;
  const Error error = take(make(unseen, &refused));
  CHECK(error.code == TSR_INVALID_ARGUMENT);
  CHECK(error.message.find("none of the 4 rows held out for evaluation has a label") != std::string::npos);
}
