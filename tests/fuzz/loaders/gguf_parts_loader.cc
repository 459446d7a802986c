#include <filesystem>

#include "graph/base/text.h"
#include "serialize/model.h"
#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/whole_model.h"

namespace tessera::fuzz {
namespace {

// Models in several files, one of them broken; opened from any.
class GgufPartsLoader final : public Loader {
 public:
  GgufPartsLoader() {
    for (const bool no_tensor_first : {false, true}) {
      std::vector<Seed> parts;
      for (const testing::GgufBuilder& part : testing::small_llama_parts(kParts, no_tensor_first)) {
        std::string file = part.finish();
        std::vector<Site> sites = gguf_sites(file);
        write_file(path(models_.size(), parts.size()), file);
        parts.push_back({std::move(file), std::move(sites)});
      }
      models_.push_back(std::move(parts));
      check_ok(open(models_.size() - 1, 0).status());
    }
  }
  std::string_view name() const override { return "gguf parts"; }
  Outcome run(Random& random) override {
    const size_t model = random.below(models_.size());
    const std::vector<Seed>& parts = models_[model];
    const size_t broken = random.below(kParts), given = random.below(kParts);
    std::string file = parts[broken].file;
    if (random.one_in(20)) {
      file = parts[random.below(kParts)].file;  // another part under this name
    } else {
      mutate_sites(file, parts[broken].sites, random);
    }
    if (random.one_in(10)) file.resize(random.below(file.size()));
    const std::string broken_path = path(model, broken);
    write_file(broken_path, file);
    if (random.one_in(40)) std::filesystem::remove(broken_path);
    Outcome outcome{past_gguf_header(file), use_result(open(model, given))};
    write_file(broken_path, parts[broken].file);
    return outcome;
  }

 private:
  static constexpr size_t kParts = 3;

  std::string path(size_t model, size_t part) const {
    return folder_ / format("model{}-0000{}-of-0000{}.gguf", model, part + 1, kParts);
  }
  Result<Model> open(size_t model, size_t part) const {
    TSR_ASSIGN_OR_RETURN(auto source, open_file(path(model, part)));
    return import_gguf(std::move(source));
  }

  ScratchFolder folder_;
  std::vector<std::vector<Seed>> models_;
};

}  // namespace

std::unique_ptr<Loader> gguf_parts_loader() { return std::make_unique<GgufPartsLoader>(); }

}  // namespace tessera::fuzz
