// Checkpoints do not know the layout that they were saved under: loaded under any other, every tensor is the
// same, bit for bit, and the run goes on.
#include <cmath>

#include "c_api.h"
#include "small_training.h"

using namespace capi_test;

namespace {

struct Layout {
  std::string devices, parallel;
};

// One of every form that places parameters or state differently.
const std::vector<Layout> kLayouts = {
    {"cpu:1", ""},
    {"cpu:3", "dp=3,zero=1"},
    {"cpu:2", "dp=2,zero=2,mb=2"},
    {"cpu:5", "dp=5,zero=3"},
    {"cpu:4", "dp=4,zero=3:2"},
    {"cpu:3", "tp=3"},
    {"cpu:4", "dp=2,tp=2,sp,zero=3"},
    {"cpu:4", "tp=2d:2x2"},
    {"cpu:8", "tp=2.5d:2x2x2"},
    {"cpu:8", "tp=3d:2x2x2"},
    {"cpu:3", "cp=ring:3"},
    {"cpu:2", "cp=ring:2,zero=1"},
    {"cpu:4", "cp=ulysses:2,dp=2,zero=1"},
    {"cpu:2", "pp=2:1f1b,mb=3"},
    {"cpu:2", "pp=2:zb-v,mb=3"},
    {"cpu:4", "dp=2,pp=2:interleaved:2,mb=2,zero=3"},
    {"cpu:2", "dp=2,zero=1,offload=optimizer"},
    {"cpu:2", "dp=2,zero=3,offload=params+optimizer@file"},
};

Model model() { return described_with_bytes("llama:L=4,C=32,H=8,KV=4,F=42,V=256,T=32,tied=1", 3); }

Dataset words() { return repeated_text("the cat sat on the mat and the dog sat on the log. ", 60, 12, 0.1); }

// Null when this version does not carry the layout out.
Trainer trainer_for(const Runtime& rt, const Model& model, const Dataset& data, const Layout& layout) {
  tsr_trainer* made = nullptr;
  const Error error = take(tsr_trainer_new(
      rt.get(), model.get(), data.get(),
      options(
          {{"devices", layout.devices}, {"parallel", layout.parallel}, {"batch", int64_t{12}}, {"lr", 3e-3}})
          .get(),
      &made));
  INFO(layout.parallel, ": ", error.message);
  CHECK((error.code == TSR_OK || error.code == TSR_UNSUPPORTED));
  return Trainer(made);
}

std::vector<std::string> tensor_names() {
  std::vector<std::string> parameters = {"token_embedding", "final_norm"};
  for (const std::string block : {"block.0", "block.1", "block.2", "block.3"})
    for (const std::string leaf : {"attention_norm", "q", "k", "v", "o", "ffn_norm", "gate", "up", "down"})
      parameters.push_back(block + "." + leaf);
  std::vector<std::string> names = parameters;
  for (const std::string& name : parameters) {
    names.push_back(name + ".m");
    names.push_back(name + ".v");
  }
  return names;
}

std::vector<std::vector<float>> everything(const Trainer& trainer) {
  std::vector<std::vector<float>> all;
  for (const std::string& name : tensor_names()) {
    tsr_tensor* value = nullptr;
    ok(tsr_trainer_read(trainer.get(), name.c_str(), &value));
    all.push_back(floats(Tensor(value).get()));
  }
  return all;
}

}  // namespace

TEST_CASE("a checkpoint saved under any layout loads under any other, bit for bit") {
  const Runtime rt = runtime();
  const Model llama = model();
  const Dataset data = words();
  std::vector<Layout> layouts;
  std::vector<Trainer> trainers;
  for (const Layout& layout : kLayouts) {
    Trainer made = trainer_for(rt, llama, data, layout);
    if (!made) continue;
    layouts.push_back(layout);
    trainers.push_back(std::move(made));
  }
  REQUIRE(layouts.size() >= 8);
  for (size_t from = 0; from < layouts.size(); ++from) {
    const Scratch scratch;
    const std::string folder = scratch / "checkpoint";
    one_step(trainers[from]);
    ok(tsr_trainer_save(trainers[from].get(), folder.c_str()));
    const auto saved = everything(trainers[from]);
    double next = 0;
    for (size_t to = 0; to < layouts.size(); ++to) {
      INFO(layouts[from].parallel, " -> ", layouts[to].parallel);
      // Another state than the saved one.
      if (to == from) one_step(trainers[to]);
      ok(tsr_trainer_resume(trainers[to].get(), folder.c_str()));
      CHECK(everything(trainers[to]) == saved);
      if (to != 0 && to != from) continue;
      const double loss = one_step(trainers[to]);
      if (next != 0) CHECK(loss == doctest::Approx(next).epsilon(1e-4));
      next = loss;
    }
  }
}
