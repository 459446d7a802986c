#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/whole_model.h"

namespace tessera::fuzz {
namespace {

using testing::source_of;

class GgufLoader final : public Loader {
 public:
  GgufLoader() {
    testing::GgufBuilder quantised;
    quantised.text("general.architecture", "llama")
        .texts("texts", {"a", "bc"})
        .numbers("numbers", 5, std::vector<int32_t>{1, 2});
    quantised.scalar("f64", 12, 0.5).flag("flag", true).u32("general.alignment", 32);
    quantised.tensor("token_embd.weight", 8, {32, 2}, std::string(68, 'x'))
        .tensor("b", 2, {64}, std::string(36, 'y'));
    quantised.tensor("c", 1, {3}, std::string(6, 'z')).tensor("d", 30, {4}, std::string(8, 'w'));
    for (const std::string& file :
         {testing::small_llama(false).finish(), testing::small_llama(true).finish(), quantised.finish()}) {
      seeds_.push_back({file, gguf_sites(file)});
    }
    for (const std::string& file : block_models()) {
      check_ok(import_gguf(source_of(file)).status());
      seeds_.push_back({file, gguf_sites(file)});
    }
  }
  std::string_view name() const override { return "gguf"; }
  Outcome run(Random& random) override {
    const Seed& seed = random.pick<Seed>(seeds_);
    std::string file = seed.file;
    mutate_sites(file, seed.sites, random);
    if (random.one_in(10)) file.resize(random.below(file.size()));
    if (random.one_in(20)) file[random.below(24)] = static_cast<char>(random.next());
    return {past_gguf_header(file), use_result(import_gguf(source_of(file)))};
  }

 private:
  std::vector<Seed> seeds_;
};

}  // namespace

std::unique_ptr<Loader> gguf_loader() { return std::make_unique<GgufLoader>(); }

}  // namespace tessera::fuzz
