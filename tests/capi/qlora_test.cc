// Adapters over bases of every block type (QLoRA): the same gradients as over the values of the blocks in f32, on every
// layout, with the base in its blocks from the plan to the checkpoint.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "graph/base/blocks/block_codec.h"
#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"
#include "tests/full.h"

using namespace capi_test;
using Json = nlohmann::json;
using tessera::DType;

namespace {

// Rows of 256: whole blocks of every type, and two for a split in two of all but those of 256.
constexpr const char* kDescription = "llama:L=2,C=256,H=4,KV=2,F=512,V=256,T=16,tied=0";
constexpr int kSteps = 3;

std::vector<std::string> block_types() {
  if (!tessera::test::full()) return {"q4_0", "q8_0", "q4_k", "q6_k", "nf4"};
  return {"q4_0", "q4_1", "q5_0", "q5_1",   "q8_0",   "q2_k",  "q3_k",  "q4_k",  "q5_k", "q6_k",
          "nf4",  "q1_0", "q2_0", "iq4_nl", "iq4_xs", "tq1_0", "tq2_0", "mxfp4", "nvfp4"};
}

Model opened(const std::string& path) {
  tsr_model* made = nullptr;
  ok(tsr_model_load(path.c_str(), &made));
  return Model(made);
}

// A random model, all of whose matrices are blocks of the type.
Model base_of(const Scratch& scratch, const std::string& type) {
  const Model random = described_with_bytes(kDescription, 5);
  const std::string path = scratch / (type + ".tsr").c_str();
  ok(tsr_model_quantize(nullptr, random.get(), path.c_str(), options({{"type", type}, {"pure", 1}}).get(),
                        nullptr));
  return opened(path);
}

std::vector<std::string> parameter_names(const Model& model) {
  size_t count = 0;
  ok(tsr_model_parameter_count(model.get(), &count));
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i)
    names.push_back(
        short_text([&](auto... out) { return tsr_model_parameter_name(model.get(), i, out...); }));
  return names;
}

Tensor parameter(const Model& model, const std::string& name) {
  tsr_tensor* value = nullptr;
  ok(tsr_model_read(model.get(), name.c_str(), &value));
  return Tensor(value);
}

// The same model with the values of the blocks in f32, and the seed of a file's model, from which adapters are drawn.
Model in_f32(const Model& blocks) {
  Model model = described_with_bytes(kDescription, 0);
  for (const std::string& name : parameter_names(model)) {
    const Tensor stored = parameter(blocks, name);
    const std::vector<int64_t> dims(tsr_tensor_dims(stored.get()),
                                    tsr_tensor_dims(stored.get()) + tsr_tensor_rank(stored.get()));
    int64_t elements = 1;
    for (const int64_t extent : dims) elements *= extent;
    std::vector<float> values(static_cast<size_t>(elements));
    tessera::decode_blocks(static_cast<DType>(tsr_tensor_dtype(stored.get())),
                           static_cast<const std::byte*>(tsr_tensor_data(stored.get())), values.data(),
                           elements);
    ok(tsr_model_write(model.get(), name.c_str(), tensor_f32(dims, values).get()));
  }
  return model;
}

struct Method {
  const char* name;
  bool rslora, dora;
  double plus_ratio;
};
constexpr Method kMethods[] = {{"LoRA", false, false, 1},
                               {"rsLoRA", true, false, 1},
                               {"DoRA", false, true, 1},
                               {"LoRA+", false, false, 4}};

Model adapted(const Model& base, const Method& method) {
  tsr_model* made = nullptr;
  ok(tsr_model_add_adapters(
      base.get(),
      options({{"rank", 4}, {"alpha", 8.0}, {"rslora", method.rslora}, {"dora", method.dora}}).get(), &made));
  return Model(made);
}

struct Place {
  const char *devices, *parallel;
};
constexpr Place kAlone = {"cpu:1", ""};

// SGD adds the gradient times the rate to a parameter.
Trainer trainer_of(const Runtime& runtime, const Model& model, const Dataset& data, const Method& method,
                   const Place& place) {
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(runtime.get(), model.get(), data.get(),
                     options({{"devices", std::string(place.devices)},
                              {"parallel", std::string(place.parallel)},
                              {"optimizer", std::string("sgd")},
                              {"momentum", 0.0},
                              {"clip_norm", 0.0},
                              {"lora_plus_ratio", method.plus_ratio},
                              {"warmup", 0},
                              {"schedule", std::string("constant")},
                              {"lr", 0.02},
                              {"batch", 4}})
                         .get(),
                     &made));
  return Trainer(made);
}

struct Run {
  std::vector<double> losses;  // of the steps, then held out
  std::map<std::string, std::vector<float>> adapters;
};

Run run(const Trainer& trainer, const std::vector<std::string>& names) {
  Run found;
  for (int i = 0; i < kSteps; ++i) found.losses.push_back(one_step(trainer));
  found.losses.push_back(evaluated(trainer));
  for (const std::string& name : names) {
    if (name.find(".lora_") == std::string::npos) continue;
    tsr_tensor* value = nullptr;
    ok(tsr_trainer_read(trainer.get(), name.c_str(), &value));
    found.adapters[name] = floats(Tensor(value).get());
  }
  return found;
}

// The largest difference of losses, relative, and of adapters, relative to the largest number of the matrix.
double difference(const Run& a, const Run& b) {
  double most = 0;
  for (size_t i = 0; i < a.losses.size(); ++i)
    most = std::max(most, std::fabs(a.losses[i] / b.losses[i] - 1));
  for (const auto& [name, values] : a.adapters) {
    const std::vector<float>& others = b.adapters.at(name);
    REQUIRE(values.size() == others.size());
    double largest = 0, difference = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(others[i])));
      difference = std::max(difference, std::fabs(static_cast<double>(values[i]) - static_cast<double>(others[i])));
    }
    CAPTURE(name);
    CHECK(largest > 0);
    most = std::max(most, difference / largest);
  }
  return most;
}

// Sums of a few hundred products in f32, in another order: some 1e-6 of the largest gradient, three steps long.
constexpr double kTolerance = 1e-5;

Dataset sentences() { return repeated_text("the tiles of one mosaic lie side by side; ", 30, 8, 0.1); }

Json report_of(const Trainer& trainer) {
  return Json::parse(text([&](tsr_text** out) { return tsr_trainer_report(trainer.get(), out); }));
}

}  // namespace

TEST_CASE("adapters over blocks have the gradients of those over their values, by every method") {
  const Runtime rt = runtime();
  const Dataset data = sentences();
  const Scratch scratch;
  for (const std::string& type : block_types()) {
    CAPTURE(type);
    const Model blocks = base_of(scratch, type), values = in_f32(blocks);
    for (const Method& method : kMethods) {
      CAPTURE(method.name);
      const Model block_model = adapted(blocks, method), f32_model = adapted(values, method);
      const std::vector<std::string> names = parameter_names(block_model);
      const Trainer trainer = trainer_of(rt, block_model, data, method, kAlone);
      const Run found = run(trainer, names), wanted = run(trainer_of(rt, f32_model, data, method, kAlone), names);
      CHECK(found.losses.front() > found.losses.back());
      CHECK(difference(found, wanted) < kTolerance);
      // The base keeps its blocks, in the trainer and in the model that it writes.
      ok(tsr_trainer_store(trainer.get(), block_model.get()));
      const Tensor before = parameter(blocks, "block.0.down"), after = parameter(block_model, "block.0.down");
      CHECK(std::string(tsr_dtype_name(tsr_tensor_dtype(after.get()))) == type);
      CHECK(
          std::equal(static_cast<const char*>(tsr_tensor_data(before.get())),
                     static_cast<const char*>(tsr_tensor_data(before.get())) + tsr_tensor_bytes(before.get()),
                     static_cast<const char*>(tsr_tensor_data(after.get()))));
    }
  }
}

TEST_CASE("adapters over blocks train alike on every layout, with bytes as planned") {
  const Runtime rt = runtime();
  const Dataset data = sentences();
  const Scratch scratch;
  const Place places[] = {{"cpu:2", "dp=2"},
                          {"cpu:2", "tp=2"},
                          {"cpu:2", "pp=2,mb=2"},
                          {"cpu:2", "dp=2,zero=3"},
                          {"cpu:1", "offload=params+optimizer"},
                          {"cpu:2", "dp=2,zero=3,offload=params+optimizer@file"}};
  for (const std::string type : {"q4_k", "nf4"}) {
    CAPTURE(type);
    const Model blocks = base_of(scratch, type);
    for (const Method& method : {kMethods[0], kMethods[2]}) {
      // Heads with magnitudes follow the blocks of `o`: one block of 256 leaves nothing to cut, and is refused by name.
      if (type == "q4_k" && method.dora) continue;
      CAPTURE(method.name);
      const Model model = adapted(blocks, method);
      const std::vector<std::string> names = parameter_names(model);
      const Run alone = run(trainer_of(rt, model, data, method, kAlone), names);
      for (const Place& place : places) {
        CAPTURE(place.parallel);
        const Trainer trainer = trainer_of(rt, model, data, method, place);
        CHECK(difference(run(trainer, names), alone) < kTolerance);
        for (const Json& device : report_of(trainer)["devices"]) {
          CAPTURE(device.dump());
          CHECK(device["arena_bytes"]["predicted"] == device["arena_bytes"]["measured"]);
        }
      }
    }
  }
}

TEST_CASE("a frozen base takes the bytes of its blocks in training, and none in a checkpoint") {
  const Runtime rt = runtime();
  const Dataset data = sentences();
  const Scratch scratch;
  const Model values = adapted(in_f32(base_of(scratch, "nf4")), kMethods[0]);
  const auto shared_bytes = [&](const Model& model) {
    const Trainer trainer = trainer_of(rt, model, data, kMethods[0], kAlone);
    one_step(trainer);
    return report_of(trainer)["devices"][0]["shared_weight_bytes"].get<int64_t>();
  };
  const auto stored_bytes = [&](const Model& model) {
    int64_t sum = 0;
    for (const std::string& name : parameter_names(model))
      if (name.find(".lora_") == std::string::npos)
        sum += static_cast<int64_t>(tsr_tensor_bytes(parameter(model, name).get()));
    return sum;
  };
  CHECK(shared_bytes(values) == stored_bytes(values));
  for (const std::string& type : block_types()) {
    CAPTURE(type);
    const Model model = adapted(base_of(scratch, type), kMethods[0]);
    // Each weight begins at a multiple of 64 bytes.
    const int64_t wanted = stored_bytes(model), found = shared_bytes(model);
    CHECK(found >= wanted);
    CHECK(found < wanted + 64 * std::ssize(parameter_names(model)));
    CHECK(wanted < stored_bytes(values) / 2);
  }
  const Model model = adapted(base_of(scratch, "nf4"), kMethods[0]);
  const Trainer trainer = trainer_of(rt, model, data, kMethods[0], kAlone);
  one_step(trainer);
  const std::string folder = scratch / "checkpoint";
  ok(tsr_trainer_save(trainer.get(), folder.c_str()));
  const Json info =
      Json::parse(text([&](tsr_text** out) { return tsr_checkpoint_info(folder.c_str(), out); }));
  for (const Json& tensor : info["tensors"])
    CHECK(tensor["name"].get<std::string>().find(".lora_") != std::string::npos);
  const Trainer other = trainer_of(rt, model, data, kMethods[0], {"cpu:2", "tp=2"});
  ok(tsr_trainer_resume(other.get(), folder.c_str()));
  CHECK(one_step(other) == doctest::Approx(one_step(trainer)).epsilon(kTolerance));
}
