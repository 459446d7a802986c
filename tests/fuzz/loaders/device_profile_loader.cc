#include "serialize/device_profile_json.h"
#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"

namespace tessera::fuzz {
namespace {

class DeviceProfileLoader final : public Loader {
 public:
  DeviceProfileLoader() {
    DeviceProfile profile;
    profile.device = "cpu (2 cores, avx2)";
    profile.cores = 2;
    profile.kernels = {{"", "", DType::kF32, {"bytes"}, {{64, 4096}}, {1e-6, 2e-6}, {1.5e-6, 4e-6}},
                       {"matmul",
                        "trans_w=0",
                        DType::kF32,
                        {"*", "k", "n"},
                        {{1, 8}, {16}, {16, 64}},
                        {1e-6, 2e-6, 3e-6, 7e-6},
                        {2e-6, 2e-6, 6e-6, 1.4e-5}}};
    profile.collectives = {{CollectiveKind::kAllReduce, 2, {{4096, 65536}, {1e-5, 3e-5}}}};
    profile.messages = {{4096, 65536}, {1e-5, 2e-5}};
    profile.copies = {{Tier::kDevice, Tier::kHost, {{4096}, {1e-6}}}};
    seed_ = device_profile_to_json(profile);
    check_ok(device_profile_from_json(seed_).status());
  }
  std::string_view name() const override { return "device profile"; }
  Outcome run(Random& random) override {
    std::string text = seed_;
    mutate_text(text, random);
    auto profile = device_profile_from_json(text);
    if (profile.ok()) (void)device_profile_to_json(*profile);
    // The content is looked at before its checksum is.
    const bool is_json = profile.status().message().find("not JSON") == std::string_view::npos;
    return {is_json, profile.status()};
  }

 private:
  std::string seed_;
};

}  // namespace

std::unique_ptr<Loader> device_profile_loader() { return std::make_unique<DeviceProfileLoader>(); }

}  // namespace tessera::fuzz
