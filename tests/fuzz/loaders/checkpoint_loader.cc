#include "serialize/checkpoint.h"
#include "serialize/envelope.h"
#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"
#include "tests/saved_checkpoint.h"

namespace tessera::fuzz {
namespace {

class CheckpointLoader final : public Loader {
 public:
  CheckpointLoader() {
    CheckpointInfo info;
    info.step = 3;
    info.values = {{"seed", "7"}, {"data_position", "24"}};
    info.tensors = {
        {"w", {DType::kF32, {3, 5}}}, {"m", {DType::kBF16, {2, 4, 6}}}, {"q", {DType::kQ8_0, {2, 32}}}};
    info.base = {{"base", {DType::kQ4_0, {4, 64}}, 1}, {"norm", {DType::kF32, {64}}, 2}};
    check_ok(save_checkpoint(folder_ / "c", info,
                             [](std::string_view, std::span<std::byte>) { return Status(); }));
    seed_ = enveloped_seed(read_file(folder_ / "c/manifest"), "checkpoint");
  }
  std::string_view name() const override { return "checkpoint"; }
  Outcome run(Random& random) override {
    const std::string file = mutant_of(seed_, random);
    write_file(folder_ / "c/manifest", file);
    Outcome outcome{past_envelope(file, kCheckpointMagic), {}};
    auto reader = CheckpointReader::open(folder_ / "c");
    if (!reader.ok()) {
      outcome.status = reader.status();
      return outcome;
    }
    for (const auto& [tensor, type] : reader->info().tensors) {
      auto read = reader->read(tensor);
      if (!read.ok()) outcome.status = read.status();
    }
    return outcome;
  }

 private:
  ScratchFolder folder_;
  Seed seed_;
};

}  // namespace

std::unique_ptr<Loader> checkpoint_loader() { return std::make_unique<CheckpointLoader>(); }

}  // namespace tessera::fuzz
