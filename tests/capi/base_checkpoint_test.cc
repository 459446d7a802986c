// Checkpoints of trainings that leave parameters as the model has them: these are not in the folder, and a run goes
// on only over a model that has the same.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"

using namespace capi_test;
using Json = nlohmann::json;

namespace {

constexpr const char* kDescription = "llama:L=2,C=64,H=4,KV=2,F=96,V=256,T=32,tied=0";

Model loaded(const std::string& path) {
  tsr_model* made = nullptr;
  ok(tsr_model_load(path.c_str(), &made));
  return Model(made);
}

// A file of a random model, quantised where `type` names a type.
std::string base_file(const Scratch& scratch, const char* name, const char* type, int64_t seed = 7) {
  const std::string path = scratch / name;
  const Model model = described_with_bytes(kDescription, seed);
  if (type == nullptr)
    ok(tsr_model_save(model.get(), path.c_str(), nullptr));
  else
    ok(tsr_model_quantize(nullptr, model.get(), path.c_str(), options({{"type", std::string(type)}}).get(),
                          nullptr));
  return path;
}

Model adapted(const std::string& path) {
  tsr_model* made = nullptr;
  ok(tsr_model_add_adapters(loaded(path).get(), options({{"rank", 2}}).get(), &made));
  return Model(made);
}

struct Layout {
  const char *devices, *parallel;
};
constexpr Layout kAlone = {"cpu:1", ""};

Trainer trainer_of(const Runtime& runtime, const Model& model, const Layout& layout,
                   const char* frozen = "") {
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(runtime.get(), model.get(), bytes_dataset().get(),
                     options({{"devices", std::string(layout.devices)},
                              {"parallel", std::string(layout.parallel)},
                              {"frozen", std::string(frozen)},
                              {"lr", 3e-3},
                              {"batch", 4}})
                         .get(),
                     &made));
  return Trainer(made);
}

std::vector<double> steps(const Trainer& trainer, int count) {
  std::vector<double> losses;
  for (int i = 0; i < count; ++i) losses.push_back(one_step(trainer));
  return losses;
}

Json info_of(const std::string& folder) {
  return Json::parse(text([&](tsr_text** out) { return tsr_checkpoint_info(folder.c_str(), out); }));
}

Json saving(const Trainer& trainer) {
  return Json::parse(text([&](tsr_text** out) { return tsr_trainer_report(trainer.get(), out); }))["saving"];
}

Error resumed(const Trainer& trainer, const std::string& folder) {
  return take(tsr_trainer_resume(trainer.get(), folder.c_str()));
}

std::string value(const Trainer& trainer, const std::string& name) {
  tsr_tensor* made = nullptr;
  ok(tsr_trainer_read(trainer.get(), name.c_str(), &made));
  const Tensor owner(made);
  return {static_cast<const char*>(tsr_tensor_data(made)), tsr_tensor_bytes(made)};
}

int64_t folder_bytes(const std::string& folder) {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

bool holds(const Json& info, std::string_view name) {
  for (const Json& tensor : info["tensors"])
    if (tensor["name"] == name) return true;
  return false;
}

void check_refused(const Error& error, std::initializer_list<std::string> words) {
  CHECK(error.code == TSR_INVALID_ARGUMENT);
  INFO(error.message);
  for (const std::string& word : words) CHECK(error.message.find(word) != std::string::npos);
}

}  // namespace

TEST_CASE(
    "a checkpoint of adapters over blocks holds them and their state alone, and any layout goes on from it") {
  const Runtime runtime = capi_test::runtime();
  for (const char* type : {"q4_0", "q8_0"}) {
    CAPTURE(type);
    const Scratch scratch;
    const std::string path = base_file(scratch, "base.tsr", type), folder = scratch / "checkpoint";
    const Trainer whole = trainer_of(runtime, adapted(path), kAlone);
    steps(whole, 2);
    ok(tsr_trainer_save(whole.get(), folder.c_str()));
    const Json info = info_of(folder);

    // 14 products of two blocks have adapters of rank 2, all with two moments.
    const int64_t widths = 2 * (64 + 64 + 2 * (64 + 32) + 64 + 64 + 3 * (64 + 96));
    const int64_t kept = 3 * 2 * widths * int64_t{sizeof(float)};
    CHECK(info["tensors"].size() == 3 * 2 * 14);
    CHECK(saving(whole)["checkpoint_bytes"] == kept);
    // The rest is padding of tensors to 64 bytes and the manifest.
    CHECK(folder_bytes(folder) >= kept);
    CHECK(folder_bytes(folder) < kept + 3 * 2 * 14 * (64 + 240) + 21 * 200 + 1024);
    CHECK(info["base"]["path"] == path);
    CHECK(info["base"]["tensors"] == 21);
    CHECK(info["base"]["bytes"].get<int64_t>() + kept / 3 == saving(whole)["model_bytes"].get<int64_t>());

    std::vector<std::string> names;
    std::vector<std::string> saved;
    for (const Json& tensor : info["tensors"]) names.push_back(tensor["name"]);
    for (const std::string& name : names) saved.push_back(value(whole, name));
    const std::string weight = value(whole, "block.1.q"), norm = value(whole, "final_norm");
    const std::vector<double> rest = steps(whole, 3);

    const Trainer same = trainer_of(runtime, adapted(path), kAlone);
    ok(tsr_trainer_resume(same.get(), folder.c_str()));
    CHECK(steps(same, 3) == rest);  // to the bit
    for (const Layout& layout :
         {Layout{"cpu:2", "dp=2,zero=3"}, Layout{"cpu:2", "tp=2"}, Layout{"cpu:2", "pp=2,mb=2"},
          Layout{"cpu:2", "dp=2,zero=3,offload=params+optimizer@file"}}) {
      CAPTURE(layout.parallel);
      const Trainer other = trainer_of(runtime, adapted(path), layout);
      one_step(other);  // another state than the saved one
      ok(tsr_trainer_resume(other.get(), folder.c_str()));
      for (size_t i = 0; i < names.size(); ++i) {
        CAPTURE(names[i]);
        CHECK(value(other, names[i]) == saved[i]);
      }
      CHECK(value(other, "block.1.q") == weight);
      CHECK(value(other, "final_norm") == norm);
      const std::string again = scratch / "again";
      ok(tsr_trainer_save(other.get(), again.c_str()));
      CHECK(info_of(again)["base"] == info["base"]);
      const std::vector<double> moved = steps(other, 3);
      for (size_t i = 0; i < rest.size(); ++i) CHECK(moved[i] == doctest::Approx(rest[i]).epsilon(1e-4));
      ok(tsr_trainer_resume(same.get(), again.c_str()));
      CHECK(steps(same, 3) == rest);
    }
  }
}

TEST_CASE("a run over another base is refused, with what differs, and the trainer stays as it was") {
  const Runtime runtime = capi_test::runtime();
  const Scratch scratch;
  const std::string path = base_file(scratch, "base.tsr", "q8_0"), folder = scratch / "checkpoint";
  {
    const Trainer trainer = trainer_of(runtime, adapted(path), kAlone);
    one_step(trainer);
    ok(tsr_trainer_save(trainer.get(), folder.c_str()));
  }
  const std::string strange = base_file(scratch, "strange.tsr", "q8_0", 8);
  const Trainer other = trainer_of(runtime, adapted(strange), kAlone);
  const Trainer untouched = trainer_of(runtime, adapted(strange), kAlone);
  check_refused(resumed(other, folder),
                {"on another base", "'block.0.down' q8_0[64, 96] has other contents in this model (xxh3 ",
                 "wanted the model that was trained, " + path});
  CHECK(steps(other, 2) == steps(untouched, 2));

  const Trainer fewer_bits = trainer_of(runtime, adapted(base_file(scratch, "q4.tsr", "q4_0")), kAlone);
  check_refused(resumed(fewer_bits, folder),
                {"'block.0.down' q8_0[64, 96], which is q4_0[64, 96] in this model",
                 "wanted the model that was trained, " + path});
  // Drawn at random: nothing that could be compared.
  tsr_model* made = nullptr;
  ok(tsr_model_add_adapters(described(kDescription).get(), options({{"rank", 2}}).get(), &made));
  check_refused(resumed(trainer_of(runtime, Model(made), kAlone), folder),
                {"of which this model has no values"});
}

TEST_CASE("a base parameter that was written to is in the checkpoint") {
  const Runtime runtime = capi_test::runtime();
  const Scratch scratch;
  const std::string path = base_file(scratch, "base.tsr", "q8_0");
  const std::string plain = scratch / "plain", written = scratch / "written";
  const Trainer trainer = trainer_of(runtime, adapted(path), kAlone);
  ok(tsr_trainer_save(trainer.get(), plain.c_str()));
  const std::string own = value(trainer, "final_norm");
  ok(tsr_trainer_write(trainer.get(), "final_norm", tensor_f32({64}, std::vector<float>(64, 2.0f)).get()));
  const std::string twos = value(trainer, "final_norm");
  REQUIRE(twos != own);
  ok(tsr_trainer_save(trainer.get(), written.c_str()));
  CHECK(!holds(info_of(plain), "final_norm"));
  CHECK(holds(info_of(written), "final_norm"));
  CHECK(info_of(written)["base"]["tensors"] == 20);

  const Trainer other = trainer_of(runtime, adapted(path), {"cpu:2", "tp=2"});
  for (const auto& [folder, wanted] :
       {std::pair(written, twos), std::pair(plain, own), std::pair(written, twos)}) {
    ok(tsr_trainer_resume(other.get(), folder.c_str()));
    CHECK(value(other, "final_norm") == wanted);
  }
}

TEST_CASE("a checkpoint with every parameter, as earlier ones are, is resumed over the model's file") {
  const Runtime runtime = capi_test::runtime();
  const Scratch scratch;
  const std::string path = base_file(scratch, "base.tsr", nullptr), folder = scratch / "checkpoint";
  tsr_model* made = nullptr;
  ok(tsr_model_add_adapters(described(kDescription).get(), options({{"rank", 2}}).get(), &made));
  const Trainer drawn = trainer_of(runtime, Model(made), kAlone);
  steps(drawn, 2);
  ok(tsr_trainer_save(drawn.get(), folder.c_str()));
  CHECK(info_of(folder)["base"].is_null());
  CHECK(holds(info_of(folder), "token_embedding"));
  const std::vector<double> rest = steps(drawn, 2);

  const Trainer given = trainer_of(runtime, adapted(path), kAlone);
  ok(tsr_trainer_resume(given.get(), folder.c_str()));
  const std::string again = scratch / "again";
  ok(tsr_trainer_save(given.get(), again.c_str()));
  CHECK(info_of(again)["base"]["tensors"] == 21);
  CHECK(!holds(info_of(again), "token_embedding"));
  CHECK(steps(given, 2) == rest);
}

TEST_CASE("a checkpoint leaves out what option frozen names, and is evaluated without that option") {
  const Runtime runtime = capi_test::runtime();
  const Scratch scratch;
  const std::string path = base_file(scratch, "base.tsr", nullptr), folder = scratch / "checkpoint";
  const Trainer trainer = trainer_of(runtime, loaded(path), kAlone, "block.0.*");
  steps(trainer, 2);
  ok(tsr_trainer_save(trainer.get(), folder.c_str()));
  CHECK(!holds(info_of(folder), "block.0.q"));
  CHECK(holds(info_of(folder), "block.1.q"));
  const double wanted = evaluated(trainer);
  const std::vector<double> rest = steps(trainer, 2);

  check_refused(resumed(trainer_of(runtime, loaded(path), kAlone), folder),
                {"'block.0.", "did not train then and trains here: wanted option 'frozen' as it was then"});
  const Trainer other = trainer_of(runtime, loaded(path), {"cpu:2", "dp=2,zero=1"}, "block.0.*");
  ok(tsr_trainer_resume(other.get(), folder.c_str()));
  CHECK(evaluated(other) == doctest::Approx(wanted).epsilon(1e-5));
  for (const double loss : rest) CHECK(one_step(other) == doctest::Approx(loss).epsilon(1e-4));

  const auto evaluator = [&](const std::string& file) {
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(runtime.get(), loaded(file).get(), bytes_dataset().get(),
                       options({{"evaluate_only", 1}, {"batch", 4}}).get(), &made));
    return Trainer(made);
  };
  const Trainer judge = evaluator(path);
  // All of another training's values first: the model's come back where the checkpoint leaves them out.
  const std::string full = scratch / "full";
  const Trainer moved = trainer_of(runtime, loaded(path), kAlone);
  steps(moved, 2);
  ok(tsr_trainer_save(moved.get(), full.c_str()));
  CHECK(info_of(full)["base"].is_null());
  ok(tsr_trainer_resume(judge.get(), full.c_str()));
  CHECK(evaluated(judge) == evaluated(moved));
  ok(tsr_trainer_resume(judge.get(), folder.c_str()));
  CHECK(evaluated(judge) == wanted);
  check_refused(resumed(evaluator(base_file(scratch, "strange.tsr", nullptr, 8)), folder),
                {"on another base"});
}

TEST_CASE("an evaluation that keeps the base in fewer bits takes the model's values back in these") {
  const Runtime runtime = capi_test::runtime();
  const Scratch scratch;
  const std::string path = base_file(scratch, "base.tsr", nullptr);
  const auto bf16_trainer = [&](const char* frozen, int64_t evaluate_only) {
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(runtime.get(), loaded(path).get(), bytes_dataset().get(),
                       options({{"weights", std::string("bf16")},
                                {"frozen", std::string(frozen)},
                                {"evaluate_only", evaluate_only},
                                {"lr", 3e-3},
                                {"batch", 4}})
                           .get(),
                       &made));
    return Trainer(made);
  };
  const std::string all = scratch / "all", part = scratch / "part";
  const Trainer every = bf16_trainer("", 0), some = bf16_trainer("block.0.*", 0), judge = bf16_trainer("", 1),
                fresh = bf16_trainer("", 1);
  steps(every, 2);
  ok(tsr_trainer_save(every.get(), all.c_str()));
  steps(some, 2);
  ok(tsr_trainer_save(some.get(), part.c_str()));
  REQUIRE(!holds(info_of(part), "block.0.q"));
  ok(tsr_trainer_resume(fresh.get(), part.c_str()));
  for (int round = 0; round < 2; ++round) {
    ok(tsr_trainer_resume(judge.get(), all.c_str()));
    CHECK(evaluated(judge) == doctest::Approx(evaluated(every)).epsilon(1e-6));
    ok(tsr_trainer_resume(judge.get(), part.c_str()));
    CHECK(evaluated(judge) == evaluated(fresh));
  }
}
