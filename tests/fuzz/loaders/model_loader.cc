#include "serialize/envelope.h"
#include "serialize/model.h"
#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/whole_model.h"

namespace tessera::fuzz {
namespace {

using testing::source_of;

class ModelLoader final : public Loader {
 public:
  ModelLoader() {
    auto llama = import_gguf(source_of(testing::small_llama(false).finish()));
    TSR_CHECK(llama.ok(), "the seed model is not valid");
    Model rich;
    rich.graph = rich_graph();
    rich.tokenizer.emplace();
    rich.tokenizer->kind = TokenizerKind::kByteLevelBpe;
    rich.tokenizer->tokens = {"a", "b", "c", "Ġ", "ab", "abc", "Ġa", "<s>"};
    rich.tokenizer->merges = {"a b", "ab c", "Ġ a"};
    rich.tokenizer->pre_tokenizer = "gpt-2";
    rich.parameters["w"] = HostTensor::zeros({DType::kF32, {8, 4}}, nullptr);
    ScratchFolder folder;
    for (const Model& model : {*llama, rich}) {
      for (bool compress : {false, true}) {
        check_ok(save_model(model, folder / "seed", {compress}));
        seeds_.push_back(enveloped_seed(read_file(folder / "seed"), "model"));
      }
    }
    for (const std::string& file : block_models()) {
      auto model = import_gguf(source_of(file));
      check_ok(model.status());
      check_ok(save_model(*model, folder / "seed", {.compress = seeds_.size() % 2 == 1}));
      seeds_.push_back(enveloped_seed(read_file(folder / "seed"), "model"));
    }
  }
  std::string_view name() const override { return ".tsr"; }
  Outcome run(Random& random) override {
    const std::string file = mutant_of(random.pick<Seed>(seeds_), random);
    return {past_envelope(file, kModelMagic), use_result(load_model(source_of(file)))};
  }

 private:
  std::vector<Seed> seeds_;
};

}  // namespace

std::unique_ptr<Loader> model_loader() { return std::make_unique<ModelLoader>(); }

}  // namespace tessera::fuzz
