#include <cstring>

#include "serialize/importance_matrix.h"
#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"
#include "tests/serialize/gguf_builder.h"

namespace tessera::fuzz {
namespace {

using testing::source_of;

// Importance matrices, in both forms.
class ImportanceLoader final : public Loader {
 public:
  ImportanceLoader() {
    testing::GgufBuilder file;
    file.text("general.type", "imatrix").texts("imatrix.datasets", {"a text"});
    file.tensor_f32("a.in_sum2", {4, 1}, {1, 2, 3, 4}).tensor_f32("a.counts", {1, 1}, {2});
    file.tensor_f32("b.in_sum2", {2, 2}, {1, 2, 3, 4}).tensor_f32("b.counts", {1, 2}, {2, 0});
    gguf_ = file.finish();
    sites_ = gguf_sites(gguf_);
    const auto put = [this](auto value) {
      older_.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    put(int32_t{2});
    for (const char* name : {"a", "bc"}) {
      put(static_cast<int32_t>(std::strlen(name)));
      older_ += name;
      put(int32_t{3});  // calls
      put(int32_t{2});  // values
      put(1.5f);
      put(2.0f);
    }
    put(int32_t{3});
    check_ok(ImportanceMatrix::read(source_of(gguf_)).status());
    check_ok(ImportanceMatrix::read(source_of(older_)).status());
  }
  std::string_view name() const override { return "importance matrix"; }
  Outcome run(Random& random) override {
    std::string file = older_;
    if (random.one_in(2)) {
      file = gguf_;
      mutate_sites(file, sites_, random);
    } else {
      for (uint64_t left = 1 + random.below(3); left > 0; --left)
        file[random.below(file.size())] = static_cast<char>(random.next());
    }
    if (random.one_in(10)) file.resize(random.below(file.size()));
    return {file.size() >= 24, use_result(ImportanceMatrix::read(source_of(file)))};
  }

 private:
  std::string gguf_, older_;
  std::vector<Site> sites_;
};

}  // namespace

std::unique_ptr<Loader> importance_loader() { return std::make_unique<ImportanceLoader>(); }

}  // namespace tessera::fuzz
