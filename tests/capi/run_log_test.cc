// tsr_run_log: the files of a training, and its distance from the physical limit.
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "c_api.h"
#include "small_training.h"
#include "tests/file_size_limit.h"

using namespace capi_test;
using RunJson = nlohmann::json;

namespace {

using RunLog = Handle<tsr_run_log, tsr_run_log_free>;

Trainer logged_trainer(const Runtime& runtime, const Model& model, const Dataset& data, const char* devices,
                       const char* parallel) {
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(runtime.get(), model.get(), data.get(),
                     options({{"devices", std::string(devices)},
                              {"parallel", std::string(parallel)},
                              {"batch", 4},
                              {"steps", 6}})
                         .get(),
                     &made));
  return Trainer(made);
}

RunLog log_of(const Trainer& trainer, const std::string& folder) {
  tsr_run_log* made = nullptr;
  ok(tsr_run_log_new(trainer.get(),
                     options({{"metrics", folder + "/run.jsonl"},
                              {"tensorboard", folder + "/events"},
                              {"report", folder + "/run.html"},
                              {"report_seconds", 0.0},
                              {"model", std::string("</script>.tsr")},
                              {"settings", std::string(R"({"note": "mine"})")}})
                         .get(),
                     &made));
  return RunLog(made);
}

std::vector<RunJson> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<RunJson> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(RunJson::parse(line));
  return lines;
}

// The data in a page.
RunJson page_data(const std::string& path) {
  std::ifstream file(path);
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  const std::string begin = "id=\"run\">";
  const size_t at = page.find(begin) + begin.size();
  return RunJson::parse(page.substr(at, page.find("</script>", at) - at));
}

RunJson summary_of(const RunLog& log) {
  tsr_text* made = nullptr;
  ok(tsr_run_log_summary(log.get(), &made));
  const RunJson summary = RunJson::parse(tsr_text_data(made));
  tsr_text_free(made);
  return summary;
}

Error logged(tsr_status* status) { return take(status); }

const char* const kLogged = "llama:L=2,C=32,H=4,KV=2,F=48,V=256,T=32";

}  // namespace

TEST_CASE("run_logs_have_every_step_and_go_on_after_a_resume") {
  const Scratch scratch;
  const std::string folder = scratch.path;
  const Runtime runtime = capi_test::runtime();
  const Model model = described_with_bytes(kLogged, 3);
  const Dataset data = bytes_dataset();
  std::vector<double> losses;
  {
    const Trainer trainer = logged_trainer(runtime, model, data, "cpu:2", "dp=2");
    const RunLog log = log_of(trainer, folder);
    CHECK(logged(tsr_run_log_step(log.get())).code == TSR_FAILED_PRECONDITION);  // no step was made
    CHECK(page_data(folder + "/run.html")["state"] == "running");
    for (int i = 0; i < 5; ++i) {
      losses.push_back(one_step(trainer));
      ok(tsr_run_log_step(log.get()));
      CHECK(logged(tsr_run_log_step(log.get())).code == TSR_FAILED_PRECONDITION);  // the same again
      if (i == 2) {
        ok(tsr_run_log_evaluation(log.get(), evaluated(trainer), 0.25));
        ok(tsr_run_log_value(log.get(), "rewards/margin", std::numeric_limits<double>::quiet_NaN()));
        const std::string sample("<b>&\0</b>", 9);
        ok(tsr_run_log_sample(log.get(), "Once", sample.data(), sample.size()));
        ok(tsr_trainer_save(trainer.get(), (folder + "/checkpoint").c_str()));
        ok(tsr_run_log_checkpoint(log.get(), (folder + "/checkpoint").c_str()));
      }
    }
    CHECK(logged(tsr_run_log_evaluation(log.get(), 1, 1.5)).message.find("accuracy is 1.5") !=
          std::string::npos);
    const RunJson summary = summary_of(log);
    CHECK(summary["step"] == 5);
    CHECK(summary["steps"] == 6);
    CHECK(summary["loss"] == losses.back());
    CHECK(summary["best_eval_step"] == 3);
    CHECK(summary["seconds_left"].get<double>() > 0);
    CHECK(summary["limit"]["share"].get<double>() > 0);
  }
  // The log is freed without an end.
  RunJson page = page_data(folder + "/run.html");
  CHECK(page["state"] == "stopped");
  CHECK(page["header"]["model"] == "</script>.tsr");
  CHECK(page["series"]["steps"]["step"] == RunJson({1, 2, 3, 4, 5}));
  CHECK(page["devices"][0]["arena_bytes"]["measured"] == page["devices"][0]["arena_bytes"]["predicted"]);

  std::vector<RunJson> lines = lines_of(folder + "/run.jsonl");
  REQUIRE(lines.size() == 10);
  CHECK(lines[0]["format"] == "tessera-run");
  CHECK(lines[0]["settings"]["note"] == "mine");
  CHECK(lines[0]["plan"]["strategy"] == "dp=2");
  CHECK(lines[0]["tokens_per_step"] == 128);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(lines[i + 1]["step"] == i + 1);
    CHECK(lines[i + 1]["loss"] == losses[i]);
    CHECK(lines[i + 1]["tokens"] == 128);
  }
  CHECK(lines[4]["kind"] == "evaluation");
  CHECK(lines[4]["perplexity"] == doctest::Approx(std::exp(lines[4]["eval_loss"].get<double>())));
  CHECK(lines[4]["accuracy"] == 0.25);
  CHECK(lines[5]["value"].is_null());
  CHECK(lines[7]["kind"] == "checkpoint");

  // Resumed at step 3: lines of steps 4 and 5 go, and come again with the same losses.
  const Trainer trainer = logged_trainer(runtime, model, data, "cpu:2", "dp=2");
  ok(tsr_trainer_resume(trainer.get(), (folder + "/checkpoint").c_str()));
  const RunLog log = log_of(trainer, folder);
  CHECK(summary_of(log)["best_eval_step"] == 3);  // of the lines that were kept
  for (int i = 3; i < 5; ++i) {
    CHECK(one_step(trainer) == losses[static_cast<size_t>(i)]);
    ok(tsr_run_log_step(log.get()));
  }
  ok(tsr_run_log_finish(log.get(), nullptr));
  CHECK(logged(tsr_run_log_finish(log.get(), nullptr)).code == TSR_FAILED_PRECONDITION);
  lines = lines_of(folder + "/run.jsonl");
  REQUIRE(lines.size() == 12);
  CHECK(lines[8]["kind"] == "resume");
  CHECK(lines[8]["step"] == 3);
  CHECK(lines[10]["loss"] == losses[4]);
  CHECK(lines[11]["outcome"] == "finished");
  page = page_data(folder + "/run.html");
  CHECK(page["state"] == "finished");
  CHECK(page["series"]["steps"]["step"] == RunJson({1, 2, 3, 4, 5}));
  CHECK(page["series"]["evaluations"].size() == 1);
  CHECK(page["series"]["samples"][0]["text"] == std::string("<b>&\0</b>", 9));
  CHECK(page["explanation"]["strategy"] == "dp=2");
  CHECK(std::distance(std::filesystem::directory_iterator(folder + "/events"), {}) == 2);
}

TEST_CASE("run_logs_refuse_what_they_cannot_write") {
  const Scratch scratch;
  const std::string folder = scratch.path;
  const Runtime runtime = capi_test::runtime();
  const Model model = described_with_bytes(kLogged, 3);
  const Trainer trainer = logged_trainer(runtime, model, bytes_dataset(), "cpu:1", "");
  std::ofstream(folder + "/notes.txt") << "notes\n";
  const auto refused = [&](std::initializer_list<Setting> settings) {
    tsr_run_log* made = nullptr;
    const Error error = logged(tsr_run_log_new(trainer.get(), options(settings).get(), &made));
    CHECK(made == nullptr);
    CHECK(error.code != TSR_OK);
    return error.message;
  };
  CHECK(refused({{"metrics", folder + "/notes.txt"}}).find("is no file of metrics") != std::string::npos);
  CHECK(refused({{"report", folder}}).find(folder) != std::string::npos);
  CHECK(refused({{"report", folder + "/none/run.html"}}).find("none") != std::string::npos);
  CHECK(refused({{"tensorboard", folder + "/notes.txt"}}).find("notes.txt") != std::string::npos);
  CHECK(refused({{"metrics", folder + "/same"}, {"report", folder + "/same"}}).find("a file for each") !=
        std::string::npos);
  CHECK(refused({{"settings", std::string("[1]")}}).find("wanted a JSON object") != std::string::npos);
  CHECK(refused({{"settings", std::string("{")}}).find("settings") != std::string::npos);
  CHECK(refused({{"metricz", std::string("x")}}).find("metrics") != std::string::npos);
  CHECK(refused({{"report_seconds", -1.0}}).find("report_seconds") != std::string::npos);
  // A summary needs no files.
  tsr_run_log* made = nullptr;
  ok(tsr_run_log_new(trainer.get(), nullptr, &made));
  const RunLog log(made);
  CHECK(summary_of(log)["limit"]["share"].is_null());
}

TEST_CASE("run_logs_on_a_full_disk_write_what_is_missing_once_there_is_room") {
  const Scratch scratch;
  const std::string folder = scratch.path;
  const Runtime runtime = capi_test::runtime();
  const Model model = described_with_bytes(kLogged, 3);
  const Trainer trainer = logged_trainer(runtime, model, bytes_dataset(), "cpu:1", "");
  const RunLog log = log_of(trainer, folder);
  for (int step = 1; step <= 4; ++step) {
    one_step(trainer);
    const std::string page = page_data(folder + "/run.html").dump();
    if (step == 2 || step == 3) {
      const tessera::test::FileSizeLimit limit(std::filesystem::file_size(folder + "/run.jsonl") + 10);
      const Error error = logged(tsr_run_log_step(log.get()));
      CHECK(error.code == TSR_IO);
      CHECK(error.message == folder + "/run.jsonl: cannot write: File too large");
      CHECK(page_data(folder + "/run.html").dump() == page);
    } else {
      ok(tsr_run_log_step(log.get()));
    }
  }
  ok(tsr_run_log_finish(log.get(), nullptr));
  const std::vector<RunJson> lines = lines_of(folder + "/run.jsonl");
  REQUIRE(lines.size() == 6);
  for (size_t step = 1; step <= 4; ++step) CHECK(lines[step]["step"] == step);
  CHECK(page_data(folder + "/run.html")["series"]["steps"]["step"].size() == 4);
}

// A matmul [B*T, 32] x [32, 32] and AdamW, counted by hand.
TEST_CASE("the_physical_limit_counts_what_no_step_can_avoid") {
  const Runtime runtime = capi_test::runtime();
  const Model model = described_with_bytes("llama:L=1,C=32,H=2,KV=2,F=64,V=256,T=16", 3);
  const Trainer trainer =
      logged_trainer(runtime, model, repeated_text("the cat sat ", 200, 16, 0.0), "cpu:1", "");
  tsr_run_log* made = nullptr;
  ok(tsr_run_log_new(trainer.get(), nullptr, &made));
  const RunLog log(made);
  const RunJson limit = summary_of(log)["limit"];
  // q, k, v, o; gate, up, down; two norms of the block; final norm; head. The table is looked up.
  const double block = 4 * 32 * 32 + 3 * 32 * 64, norms = 3 * 32, head = 256 * 32, table = 256 * 32;
  REQUIRE(limit["terms"].size() == 3);
  const double read = 4 * (block + norms + head);
  CHECK(limit["terms"][0]["bytes"] == read);
  CHECK(limit["terms"][1]["bytes"] == 2 * read);
  // p, m and v are read and written, the gradient is read: 28 bytes a parameter.
  CHECK(limit["terms"][2]["bytes"] == 28 * (block + norms + head + table));
  // Products take 2 operations an element and token forward, 4 backward; the rest of a block adds some percent to that.
  const double matmul_flops = 2.0 * 4 * 16 * (block + head);
  CHECK(limit["terms"][0]["flops"].get<double>() >= matmul_flops);
  CHECK(limit["terms"][0]["flops"].get<double>() < 1.5 * matmul_flops);
  CHECK(limit["terms"][1]["flops"].get<double>() >= 2 * matmul_flops);
  double sum = 0;
  for (const RunJson& term : limit["terms"]) {
    sum += term["seconds"].get<double>();
    const double by_flops = term["flops"].get<double>() / limit["flops_per_s"].get<double>();
    const double by_bytes = term["bytes"].get<double>() / limit["bytes_per_s"].get<double>();
    CHECK(term["seconds"].get<double>() == doctest::Approx(std::max(by_flops, by_bytes)));
    CHECK(term["bound"] == (by_bytes > by_flops ? "memory" : "products"));
  }
  CHECK(limit["seconds"].get<double>() == doctest::Approx(sum));
}
