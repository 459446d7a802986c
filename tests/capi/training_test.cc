// Training through C: equal on one and two devices, resumable, cancellable, safe against divergence.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <thread>

#include "c_api.h"
#include "fed_training.h"
#include "small_training.h"
#include "tests/number_after.h"

using namespace capi_test;
using tessera::test::number_after;

namespace {

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(double{a[i]} - b[i]));
  return largest;
}

// Nothing takes the values on the devices for those of a training, and every call says what to do.
void check_lost(const Trainer& trainer, const Model& model, const std::string& folder) {
  double loss = 0;
  tsr_tensor* value = nullptr;
  for (tsr_status* status :
       {tsr_trainer_step(trainer.get(), nullptr), tsr_trainer_evaluate(trainer.get(), &loss),
        tsr_trainer_save(trainer.get(), folder.c_str()), tsr_trainer_store(trainer.get(), model.get()),
        tsr_trainer_read(trainer.get(), "final_norm", &value)}) {
    const Error error = take(status);
    CHECK(error.code == TSR_VALUES_LOST);
    CHECK(error.message.find("resume from a checkpoint") != std::string::npos);
  }
}

Model tiny_llama() { return described_with_bytes("llama:L=2,C=32,H=4,KV=2,F=48,V=256,T=32", 3); }

Dataset tiny_text() {
  return repeated_text("the cat sat on the mat and the dog sat on the log. ", 60, 16, 0.1);
}

Trainer llama_trainer(const Runtime& rt, const Model& model, const Dataset& data, const char* devices,
                      const char* parallel) {
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(rt.get(), model.get(), data.get(),
                     options({{"devices", std::string(devices)},
                              {"parallel", std::string(parallel)},
                              {"batch", int64_t{4}},
                              {"lr", 3e-3}})
                         .get(),
                     &made));
  return Trainer(made);
}

std::vector<double> steps(const Trainer& trainer, int count) {
  std::vector<double> all;
  for (int i = 0; i < count; ++i) all.push_back(step(trainer).loss);
  return all;
}

}  // namespace

TEST_CASE("an MLP trains the same on one device and data-parallel on two") {
  const Runtime rt = runtime();
  const Model model = mlp_model();
  const Trainer one = mlp_trainer(rt, model, {});
  const Trainer two =
      mlp_trainer(rt, model, {{"devices", std::string("cpu:2")}, {"parallel", std::string("dp=2")}});
  const std::vector<double> alone = losses(one, 20), grouped = losses(two, 20);
  for (size_t i = 0; i < alone.size(); ++i) CHECK(grouped[i] == doctest::Approx(alone[i]).epsilon(1e-5));
  CHECK(alone[19] < alone[3]);
  for (const char* name : {"w1", "b1", "w2"})
    CHECK(largest_difference(parameter(one, name), parameter(two, name)) < 2e-5);
  CHECK(report(two).find(R"("strategy":"dp=2)") != std::string::npos);
  CHECK(report(two).find(R"("collective":"all_reduce")") != std::string::npos);
}

TEST_CASE("two trainers with the same options give the same bits") {
  const Runtime rt = runtime();
  const Model model = mlp_model();
  const Trainer a = mlp_trainer(rt, model, {{"devices", std::string("cpu:2")}});
  const Trainer b = mlp_trainer(rt, model, {{"devices", std::string("cpu:2")}});
  CHECK(losses(a, 5) == losses(b, 5));
  CHECK(parameter(a, "w1") == parameter(b, "w1"));
}

TEST_CASE("trained values reach the model only by store, and survive a file") {
  const Runtime rt = runtime();
  const Model model = mlp_model();
  const Trainer trainer = mlp_trainer(rt, model, {});
  tsr_tensor* before = nullptr;
  ok(tsr_model_read(model.get(), "w1", &before));
  const Tensor owner(before);
  const std::vector<float> untrained = floats(before);
  losses(trainer, 3);
  tsr_tensor* still = nullptr;
  ok(tsr_model_read(model.get(), "w1", &still));
  CHECK(floats(Tensor(still).get()) == untrained);

  ok(tsr_trainer_store(trainer.get(), model.get()));
  const Scratch scratch;
  ok(tsr_model_save(model.get(), (scratch / "m.tsr").c_str(), nullptr));
  ok(tsr_model_verify((scratch / "m.tsr").c_str()));
  tsr_model* loaded = nullptr;
  ok(tsr_model_load((scratch / "m.tsr").c_str(), &loaded));
  const Model again(loaded);
  tsr_tensor* value = nullptr;
  ok(tsr_model_read(loaded, "w1", &value));
  CHECK(floats(Tensor(value).get()) == parameter(trainer, "w1"));
  CHECK(floats(before) == untrained);  // a read stays what it was
}

TEST_CASE("a step whose gradient is not finite is refused and changes nothing") {
  const Runtime rt = runtime();
  const Model model = mlp_model();
  for (const double clip_norm : {0.0, 1.0}) {
    const Trainer trainer = mlp_trainer(rt, model, {{"clip_norm", clip_norm}});
    losses(trainer, 3);
    const std::vector<float> w1 = parameter(trainer, "w1"), m = parameter(trainer, "w1.m");
    std::vector<float> poisoned = noise(64, 1);
    poisoned[5] = std::numeric_limits<float>::quiet_NaN();
    ok(tsr_trainer_feed(trainer.get(), "x", tensor_f32({8, 8}, poisoned).get()));
    const Error error = take(tsr_trainer_step(trainer.get(), nullptr));
    CHECK(error.code == TSR_NOT_FINITE);
    CHECK(error.message.find("step 4") != std::string::npos);
    CHECK(parameter(trainer, "w1") == w1);
    CHECK(parameter(trainer, "w1.m") == m);
    feed(trainer, 0);
    CHECK(step(trainer).step == 4);  // the step left out is not counted
    CHECK(report(trainer).find(R"("skipped_steps":1)") != std::string::npos);
  }
}

TEST_CASE("inputs of a dataset cannot be fed too, and the message says what can be done") {
  const Runtime rt = runtime();
  const Model model = tiny_llama();
  const Trainer trainer = llama_trainer(rt, model, tiny_text(), "cpu:1", "");
  for (const char* input : {"tokens", "labels", "loss_scale"}) {
    const Error error = take(tsr_trainer_feed(trainer.get(), input, tensor_f32({}, {1}).get()));
    CHECK(error.code == TSR_INVALID_ARGUMENT);
    CHECK(error.message.find("comes from the dataset; to feed it, make a trainer without one") !=
          std::string::npos);
  }
}

TEST_CASE("a language model learns, the same on every number of devices, within the memory it announced") {
  const Runtime rt = runtime();
  const Model model = tiny_llama();
  const Dataset data = tiny_text();
  const Trainer one = llama_trainer(rt, model, data, "cpu:1", "");
  const std::vector<double> alone = steps(one, 8);
  CHECK(alone[0] == doctest::Approx(std::log(256.0)).epsilon(0.02));
  CHECK(alone[7] < alone[0] - 0.3);
  double eval = 0;
  ok(tsr_trainer_evaluate(one.get(), &eval));
  CHECK(eval < alone[0]);
  struct Layout {
    const char *devices, *parallel;
  };
  for (const Layout layout :
       {Layout{"cpu:2", "dp=2"}, {"cpu:2", "tp=2"}, {"cpu:4", "dp=2,tp=2,zero=1"}, {"cpu:3", ""}}) {
    INFO(layout.devices, " ", layout.parallel);
    const Trainer many = llama_trainer(rt, model, data, layout.devices, layout.parallel);
    const std::vector<double> shared = steps(many, 8);
    for (size_t i = 0; i < alone.size(); ++i) CHECK(shared[i] == doctest::Approx(alone[i]).epsilon(1e-4));
    double other = 0;
    ok(tsr_trainer_evaluate(many.get(), &other));
    CHECK(other == doctest::Approx(eval).epsilon(1e-3));
    CHECK(report(many).find(R"("allocations_after_first_step":0)") != std::string::npos);
  }
}

TEST_CASE("a run resumed on another number of devices goes on where it stopped, on the same data") {
  const Runtime rt = runtime();
  const Model model = tiny_llama();
  const Dataset data = tiny_text();
  const Scratch scratch;
  const Trainer whole = llama_trainer(rt, model, data, "cpu:1", "");
  steps(whole, 3);
  ok(tsr_trainer_save(whole.get(), (scratch / "checkpoint").c_str()));
  const std::vector<double> rest = steps(whole, 4);

  const Trainer same = llama_trainer(rt, model, data, "cpu:1", "");
  ok(tsr_trainer_resume(same.get(), (scratch / "checkpoint").c_str()));
  CHECK(steps(same, 4) == rest);  // to the bit

  const Trainer other = llama_trainer(rt, model, data, "cpu:2", "dp=2");
  steps(other, 1);
  ok(tsr_trainer_resume(other.get(), (scratch / "checkpoint").c_str()));
  const std::vector<double> moved = steps(other, 4);
  for (size_t i = 0; i < rest.size(); ++i) CHECK(moved[i] == doctest::Approx(rest[i]).epsilon(1e-4));

  const Trainer stranger = mlp_trainer(rt, mlp_model(), {});
  CHECK(take(tsr_trainer_resume(stranger.get(), (scratch / "checkpoint").c_str())).code ==
        TSR_INVALID_ARGUMENT);
  CHECK(take(tsr_trainer_resume(same.get(), (scratch / "nothing").c_str())).code == TSR_NOT_FOUND);
}

TEST_CASE("a resumed run takes the checkpoint's plan, unless its options ask for another") {
  const Runtime rt = runtime();
  const Model model = tiny_llama();
  const Dataset data = tiny_text();
  const Scratch scratch;
  const auto plan_of = [](const Trainer& trainer) {
    const std::string json = report(trainer);
    const size_t at = json.find(R"("strategy":")");
    REQUIRE(at != std::string::npos);
    return json.substr(at + 12, json.find('"', at + 12) - at - 12);
  };
  const Trainer whole = llama_trainer(rt, model, data, "cpu:2", "dp=2,zero=1,mb=1");
  steps(whole, 2);
  ok(tsr_trainer_save(whole.get(), (scratch / "checkpoint").c_str()));
  const std::vector<double> rest = steps(whole, 3);
  const Trainer own = llama_trainer(rt, model, data, "cpu:2", "");
  REQUIRE(plan_of(own) != plan_of(whole));
  steps(own, 1);
  ok(tsr_trainer_resume(own.get(), (scratch / "checkpoint").c_str()));
  CHECK(plan_of(own) == plan_of(whole));
  CHECK(steps(own, 3) == rest);  // to the bit
  CHECK(evaluated(own) == evaluated(whole));
  const Trainer asked = llama_trainer(rt, model, data, "cpu:2", "tp=2");
  ok(tsr_trainer_resume(asked.get(), (scratch / "checkpoint").c_str()));
  CHECK(plan_of(asked).find("tp=2") != std::string::npos);
  std::string said;
  char record[4096];
  for (size_t size = 1; size > 0; said.append(record, size))
    ok(tsr_runtime_next_log(rt.get(), nullptr, record, sizeof record, &size));
  CHECK(said.find("option parallel or pins asks for tp=2") != std::string::npos);
  CHECK(text([&](auto... out) { return tsr_checkpoint_info((scratch / "checkpoint").c_str(), out...); })
            .find("plan_devices") == std::string::npos);
}

TEST_CASE("a checkpoint damaged on the way leaves no mixture of two trainings") {
  const Runtime rt = runtime();
  const Model model = tiny_llama();
  const Dataset data = tiny_text();
  const Scratch scratch;
  const Trainer trainer = llama_trainer(rt, model, data, "cpu:1", "");
  steps(trainer, 2);
  const std::string folder = scratch / "checkpoint", shard = folder + "/shard-00000";
  ok(tsr_trainer_save(trainer.get(), folder.c_str()));
  const std::vector<double> rest = steps(trainer, 2);
  const auto flip_middle = [&] {  // of the shard: tensors before it are read and written before it is found
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary | std::ios::ate);
    const std::streamoff middle = file.tellg() / 2;
    file.seekg(middle);
    const int byte = file.get();
    file.seekp(middle);
    file.put(static_cast<char>(byte ^ 1));
    REQUIRE(file.good());
  };
  flip_middle();
  const Trainer other = llama_trainer(rt, model, data, "cpu:1", "");
  CHECK(take(tsr_trainer_resume(other.get(), folder.c_str())).code == TSR_CORRUPT);
  check_lost(other, model, scratch / "other");
  flip_middle();
  ok(tsr_trainer_resume(other.get(), folder.c_str()));
  CHECK(steps(other, 2) == rest);
}

TEST_CASE("handles may be freed in any order") {
  Runtime rt = runtime();
  Model model = tiny_llama();
  Dataset data = tiny_text();
  Trainer trainer = llama_trainer(rt, model, data, "cpu:2", "");
  tsr_generator* raw = nullptr;
  ok(tsr_generator_new(rt.get(), model.get(), options({{"context", int64_t{16}}}).get(), &raw));
  Generator generator(raw);
  tsr_plan* plan_raw = nullptr;
  ok(tsr_trainer_plan(trainer.get(), &plan_raw));
  const Plan plan(plan_raw);
  rt.reset();
  data.reset();
  model.reset();
  step(trainer);
  ok(tsr_generator_start(raw, "the", TSR_TEXT_END));
  trainer.reset();
  CHECK(text([&](auto... out) { return tsr_plan_text(plan.get(), out...); }).size() > 100);
  generator.reset();  // while it may still be computing
}

TEST_CASE("sessions in several threads do not disturb each other") {
  const Runtime rt = runtime();
  const Model model = tiny_llama();
  const Dataset data = tiny_text();
  std::vector<double> wanted;
  {
    const Trainer trainer = llama_trainer(rt, model, data, "cpu:2", "");
    wanted = steps(trainer, 4);
  }
  std::vector<Trainer> trainers;
  for (int i = 0; i < 3; ++i) trainers.push_back(llama_trainer(rt, model, data, "cpu:2", ""));
  std::vector<std::vector<double>> found(3, std::vector<double>(4));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      for (double& loss : found[i]) {
        tsr_step info = {};
        info.struct_size = sizeof info;
        tsr_status* status = tsr_trainer_step(trainers[i].get(), &info);
        loss = status ? -1 : info.loss;
        tsr_status_free(status);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<double>& losses : found) CHECK(losses == wanted);
}

TEST_CASE("a cancelled step returns, the trainer refuses to go on, and a checkpoint revives it") {
  const Runtime rt = runtime();
  tsr_model* raw = nullptr;
  ok(tsr_model_new("llama:L=4,C=128,H=4,KV=4,F=256,V=256,T=64", nullptr, &raw));
  const Model model(raw);
  std::vector<int32_t> ids(4000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 7 % 256);
  tsr_dataset* data_raw = nullptr;
  ok(tsr_dataset_new_tokens(ids.data(), ids.size(), options({{"seq", int64_t{64}}}).get(), &data_raw));
  const Dataset data(data_raw);
  tsr_trainer* trainer_raw = nullptr;
  ok(tsr_trainer_new(
      rt.get(), raw, data_raw,
      options({{"batch", int64_t{16}}, {"devices", std::string("cpu:2")}, {"measure_memory", int64_t{0}}})
          .get(),
      &trainer_raw));
  const Trainer trainer(trainer_raw);
  const Scratch scratch;
  ok(tsr_trainer_save(trainer_raw, (scratch / "checkpoint").c_str()));
  tsr_trainer_cancel(trainer_raw);  // nothing in progress: nothing happens
  step(trainer);

  Error error;
  std::thread canceller;
  for (int attempt = 0; attempt < 20 && error.code == TSR_OK; ++attempt) {
    canceller = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      tsr_trainer_cancel(trainer_raw);
    });
    error = take(tsr_trainer_step(trainer_raw, nullptr));
    canceller.join();
  }
  REQUIRE(error.code == TSR_CANCELLED);
  check_lost(trainer, model, scratch / "other");
  ok(tsr_trainer_resume(trainer_raw, (scratch / "checkpoint").c_str()));
  CHECK(step(trainer).step == 1);
}

TEST_CASE("after fork the child gets errors, not a hang") {
  const Runtime rt = runtime();
  const Model model = mlp_model();
  const Trainer trainer = mlp_trainer(rt, model, {{"devices", std::string("cpu:2")}});
  feed(trainer, 0);
  step(trainer);
  tsr_devices* opened = nullptr;
  ok(tsr_devices_open(rt.get(), "cpu:2", &opened));
  const Devices owner(opened);
  const Graph graph = mlp_graph();
  tsr_plan* plan_raw = nullptr;
  ok(tsr_plan_new_for_graph(opened, graph.get(), options({{"batch", int64_t{8}}}).get(), &plan_raw));
  const Plan of_graph(plan_raw);
  const tsr_entry entry = {sizeof(tsr_entry), "main", graph.get(), plan_raw};
  tsr_program* program_raw = nullptr;
  ok(tsr_program_new(opened, &entry, 1, &program_raw));
  const Program program(program_raw);
  tsr_session *session_raw = nullptr, *other = nullptr;
  ok(tsr_session_new(program_raw, nullptr, &session_raw));
  const Session session(session_raw);
  const Tensor x = tensor_f32({8, 8}, noise(64, 0)), w1 = tensor_f32({8, 16}, noise(128, 0));
  const Scratch scratch;
  const std::string folder = scratch / "of_the_child";
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(20);
    tsr_devices* devices = nullptr;
    tsr_tensor* value = nullptr;
    tsr_plan* plan = nullptr;
    double loss = 0;
    tsr_text* text = nullptr;
    bool refused = true;
    for (tsr_status* answer : {tsr_devices_open(rt.get(), "cpu:2", &devices),
                               tsr_trainer_step(trainer.get(), nullptr),
                               tsr_trainer_evaluate(trainer.get(), &loss),
                               tsr_trainer_save(trainer.get(), folder.c_str()),
                               tsr_trainer_resume(trainer.get(), folder.c_str()),
                               tsr_trainer_store(trainer.get(), model.get()),
                               tsr_trainer_read(trainer.get(), "w1", &value),
                               tsr_trainer_write(trainer.get(), "w1", w1.get()),
                               tsr_trainer_feed(trainer.get(), "x", x.get()),
                               tsr_trainer_report(trainer.get(), &text),
                               tsr_trainer_take_trace(trainer.get(), &text),
                               tsr_trainer_plan(trainer.get(), &plan),
                               tsr_session_new(program.get(), nullptr, &other),
                               tsr_session_write(session.get(), "w1", w1.get()),
                               tsr_session_read(session.get(), "w1", &value),
                               tsr_session_write_model(session.get(), model.get()),
                               tsr_session_feed(session.get(), "main", "x", x.get()),
                               tsr_session_run(session.get(), "main"),
                               tsr_session_fetch(session.get(), "main", "out", &value),
                               tsr_session_restore(session.get()),
                               tsr_session_report(session.get(), &text),
                               tsr_session_take_trace(session.get(), &text)})
      refused = refused && tsr_status_code(answer) == TSR_FORKED;
    refused = refused && !std::filesystem::exists(folder);
    tsr_trainer_cancel(trainer.get());
    tsr_session_cancel(session.get());
    tsr_session_free(session.get());
    tsr_trainer_free(trainer.get());
    tsr_runtime_free(rt.get());
    // A runtime made here works.
    tsr_runtime* own = nullptr;
    const bool made =
        tsr_runtime_new(nullptr, &own) == nullptr && tsr_devices_open(own, "cpu:2", &devices) == nullptr;
    _exit(refused && made ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  feed(trainer, 1);
  step(trainer);  // the parent goes on
}

TEST_CASE("what a split table touches of its arena does not depend on the tokens") {
  static constexpr const char* kText = R"(graph {
  symbol B
  input tokens: i32[B, 16]
  parameter table: f32[4, 3]
  e = embedding(table, tokens) : f32[B, 16, 3]
  s = square(e) : f32[B, 16, 3]
  loss = reduce_mean(s) {axes = [0, 1, 2]} : f32[]
  output loss = loss
})";
  tsr_graph* graph = nullptr;
  ok(tsr_graph_parse(kText, TSR_TEXT_END, &graph));
  const Graph owner(graph);
  tsr_model* model = nullptr;
  ok(tsr_model_new_from_graph(graph, nullptr, &model));
  const Model kept(model);
  const Runtime rt = runtime();
  const Trainer trainer =
      mlp_trainer(rt, kept, {{"devices", std::string("cpu:2")}, {"parallel", std::string("tp=2,sp")}});
  const std::vector<int64_t> dims = {8, 16};
  tsr_tensor* tokens = nullptr;  // all of the first row, which the second device has not
  ok(tsr_tensor_new(TSR_I32, 2, dims.data(), &tokens));
  const Tensor zeros(tokens);
  ok(tsr_trainer_feed(trainer.get(), "tokens", tokens));
  step(trainer);
  step(trainer);
  std::string json = report(trainer);
  int devices = 0;
  for (size_t at; (at = json.find("\"measured\":")) != std::string::npos; ++devices) {
    CHECK(number_after(json.substr(at), "\"measured\":") ==
          number_after(json.substr(json.rfind("\"predicted\":", at)), "\"predicted\":"));
    json.erase(0, at + 1);
  }
  CHECK(devices == 2);
}
