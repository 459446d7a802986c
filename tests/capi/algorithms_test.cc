// Algorithms chosen by timing: kept in the profile, taken by programs lowered later, in this process and in
// others; on a backend with several ways to compute a product whose times are made up.
#include "runtime/algorithms.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/device_profiles.h"
#include "engine/program/probe_program.h"
#include "runtime/backends/cpu/cpu_backend.h"
#include "runtime/session.h"
#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"
#include "tests/skip.h"
#include "tests/test_backend.h"

using namespace tessera;

namespace {

// The CPU backend, whose products can be asked for as "<variant>:first" and "<variant>:second" too.
struct Ways {
  const tsr_backend_api* cpu = nullptr;
  const tsr_host_api* host = nullptr;
  tsr_backend_api table{};
  uint64_t fingerprint = 7;
  std::string fastest = "second";
  int timed = 0;
  std::function<void()> meanwhile = [] {};  // what others do while the next product is timed
};
Ways& ways() {
  static Ways ways;
  return ways;
}

// The description without its way; an error where there is no such way.
tsr_abi_error* take_way(const tsr_abi_kernel_desc& desc, std::string& variant, std::string& way) {
  variant = desc.variant != nullptr ? desc.variant : "";
  const size_t colon = variant.find(':');
  if (colon == std::string::npos) return nullptr;
  way = variant.substr(colon);
  variant.resize(colon);
  if (way == ":first" || way == ":second") return nullptr;
  return ways().host->make_error(ways().host->host, static_cast<int32_t>(StatusCode::kFailedPrecondition),
                                 ("no way '" + way + "'").c_str());
}

tsr_abi_error* query(int32_t ordinal, const tsr_abi_kernel_desc* desc, tsr_abi_kernel_info* out) {
  std::string variant, way;
  if (tsr_abi_error* error = take_way(*desc, variant, way); error != nullptr) return error;
  tsr_abi_kernel_desc plain = *desc;
  plain.variant = variant.empty() ? nullptr : variant.c_str();
  if (tsr_abi_error* error = ways().cpu->kernel_query(ordinal, &plain, out); error != nullptr) return error;
  (std::string(out->variant) + way).copy(out->variant, sizeof(out->variant) - 1);
  return nullptr;
}

const tsr_backend_api* ways_entry(const tsr_host_api* host) {
  ways().cpu = tsr_cpu_backend_entry(host);
  ways().host = host;
  tsr_backend_api& table = ways().table;
  table = *ways().cpu;
  table.name = "ways";
  table.kernel_query = query;
  table.kernel_prepare = [](tsr_abi_device* device, const tsr_abi_kernel_desc* desc,
                            tsr_abi_kernel** out) -> tsr_abi_error* {
    std::string variant, way;
    if (tsr_abi_error* error = take_way(*desc, variant, way); error != nullptr) return error;
    tsr_abi_kernel_desc plain = *desc;
    plain.variant = variant.empty() ? nullptr : variant.c_str();
    return ways().cpu->kernel_prepare(device, &plain, out);
  };
  table.kernel_fingerprint = [](int32_t) { return ways().fingerprint; };
  table.kernel_tune = [](tsr_abi_device*, const tsr_abi_kernel_desc* desc,
                         tsr_abi_kernel_info* out) -> tsr_abi_error* {
    const std::string op = desc->op;
    if (tsr_abi_error* error = query(0, desc, out); error != nullptr || op != "matmul") return error;
    ++ways().timed;
    std::exchange(ways().meanwhile, [] {})();
    (std::string(out->variant) + ":" + ways().fastest).copy(out->variant, sizeof(out->variant) - 1);
    return nullptr;
  };
  return &table;
}

class Bench {
 public:
  Bench() : folder_(std::filesystem::temp_directory_path() / ("algorithms." + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    ways() = {};
    RegistryOptions options;
    options.built_in = {tsr_cpu_backend_entry, ways_entry};
    options.threads = 1;
    registry_ = std::make_unique<BackendRegistry>(options);
  }
  ~Bench() { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ / "profile.json"; }

  // As in a process of its own: opened again, with the profile's file where there is one.
  std::shared_ptr<DeviceSet> devices(const std::string& text = "ways:1", bool* used = nullptr) {
    const auto set = DeviceSet::open(*registry_, text).value();
    if (!std::filesystem::exists(path())) return set;
    const bool is_used =
        set->use_profile(std::make_shared<DeviceProfile>(read_profile(path()).value()), path());
    if (used != nullptr) *used = is_used;
    return set;
  }
  void write(AlgorithmChoices algorithms) {
    DeviceProfile profile;
    profile.device = devices()->cluster().kinds[0].name;
    profile.kernels = {{"", "", DType::kF32, {"bytes"}, {{64, 4096}}, {1e-6, 2e-6}, {}}};
    profile.algorithms = std::move(algorithms);
    REQUIRE(write_profile(profile, path()).ok());
  }
  AlgorithmChoices kept() const { return read_profile(path()).value().algorithms; }

 private:
  std::filesystem::path folder_;
  std::unique_ptr<BackendRegistry> registry_;
};

// Two products, and something that has one way alone.
Program program_on(const DeviceSet& devices) {
  const TensorType x{DType::kF32, Shape{8, 16}}, w{DType::kF32, Shape{16, 32}}, v{DType::kF32, Shape{16, 4}};
  return probe_program({{"matmul", {}, {x, w}}, {"matmul", {}, {x, v}}, {"add", {}, {x, x}}},
                       devices.catalog(), 1)
      .value()
      .program;
}
std::vector<std::string> ways_of(const Program& program) {
  std::vector<std::string> all;
  for (const KernelDesc& kernel : program.ranks[0].kernels)
    all.push_back(std::string(kernel.op->name) +
                  kernel.variant.substr(std::min(kernel.variant.find(':'), kernel.variant.size())));
  return all;
}
const std::vector<std::string> kNone = {"matmul", "matmul", "add"};
const std::vector<std::string> kSecond = {"matmul:second", "matmul:second", "add"};

}  // namespace

TEST_CASE("what was timed is kept in the profile and taken by every later process") {
  Bench bench;
  bench.write({});
  auto devices = bench.devices();
  const uint64_t before = devices->catalog().fingerprint();
  const uint64_t checksum = read_profile(bench.path()).value().checksum;
  CHECK(ways_of(program_on(*devices)) == kNone);
  REQUIRE(keep_fastest_algorithms(program_on(*devices), *devices).ok());
  CHECK(ways().timed == 2);
  CHECK(ways_of(program_on(*devices)) == kSecond);
  CHECK(devices->catalog().fingerprint() != before);
  CHECK(bench.kept().choices.size() == 2);
  CHECK(bench.kept().choices[0].kernel.starts_with("matmul f32[8, 16], f32[16, 32] -> f32[8, 32] #"));
  CHECK(read_profile(bench.path()).value().checksum == checksum);  // prices are what they were

  // Another would be the fastest by now.
  ways().fastest = "first";
  auto later = bench.devices();
  CHECK(later->catalog().fingerprint() == devices->catalog().fingerprint());
  CHECK(ways_of(program_on(*later)) == kSecond);
  REQUIRE(keep_fastest_algorithms(program_on(*later), *later).ok());
  CHECK(ways().timed == 2);
  CHECK(fingerprint(program_on(*later)) == fingerprint(program_on(*devices)));
  CHECK(Executable::prepare(later, program_on(*later)).ok());
}

TEST_CASE("what another process has kept meanwhile stands") {
  Bench bench;
  bench.write({});
  auto devices = bench.devices();
  const Program program = program_on(*devices);
  ways().meanwhile = [&] {
    auto others = bench.devices();
    ways().fastest = "first";
    REQUIRE(keep_fastest_algorithms(program, *others).ok());
    ways().fastest = "second";
  };
  REQUIRE(keep_fastest_algorithms(program, *devices).ok());
  CHECK(ways_of(program_on(*devices)) == std::vector<std::string>{"matmul:first", "matmul:first", "add"});
  CHECK(ways_of(program_on(*bench.devices())) == ways_of(program_on(*devices)));
}

TEST_CASE("choices of another device, library or build are not taken, and replaced when times are taken") {
  Bench bench;
  bench.write({});
  auto devices = bench.devices();
  REQUIRE(keep_fastest_algorithms(program_on(*devices), *devices).ok());
  ways().fingerprint = 8;
  bool used = true;
  devices = bench.devices("ways:1", &used);
  CHECK_FALSE(used);
  CHECK(ways_of(program_on(*devices)) == kNone);
  ways().fastest = "first";
  REQUIRE(keep_fastest_algorithms(program_on(*devices), *devices).ok());
  CHECK(bench.kept().backend == 8);
  CHECK(ways_of(program_on(*bench.devices("ways:1", &used)))[0] == "matmul:first");
  CHECK(used);
}

TEST_CASE("a way that the backend does not know is an error, and none where nothing can be chosen") {
  Bench bench;
  // The CPU computes everything in one way: no profile is asked for.
  auto cpu = bench.devices("cpu:1");
  CHECK(keep_fastest_algorithms(program_on(*cpu), *cpu).ok());
  auto devices = bench.devices();
  const Status status = keep_fastest_algorithms(program_on(*devices), *devices);
  CHECK(status.code() == StatusCode::kFailedPrecondition);
  CHECK(status.message().find("tessera calibrate --devices ways:1") != std::string::npos);

  bench.write({});
  devices = bench.devices();
  ways().fastest = "third";
  const Program program = program_on(*devices);
  REQUIRE(keep_fastest_algorithms(program, *devices).ok());
  Program named = program;
  named.ranks[0].kernels[0].variant += ":third";
  CHECK_FALSE(Executable::prepare(devices, named).ok());
  CHECK(probe_program({{"matmul", {}, {program.ranks[0].kernels[0].inputs}}}, devices->catalog(), 1)
            .status()
            .message()
            .find("no way ':third'") != std::string::npos);
}

namespace {

// Enough of them for bits of the last place to reach the losses.
constexpr int64_t kSteps = 8;

std::vector<double> losses_of_training(const std::string& profile, int64_t tune) {
  using namespace capi_test;
  const capi_test::Runtime rt = capi_test::runtime();
  const capi_test::Dataset dataset = repeated_text("the tiles of one mosaic lie side by side; ", 20, 16, 0);
  const capi_test::Model model = described("gpt2:L=1,C=32,H=2,V=256,T=16");
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(rt.get(), model.get(), dataset.get(),
                     options({{"devices", std::string("cuda:0")},
                              {"batch", 4},
                              {"steps", kSteps},
                              {"lr", 0.02},
                              {"profile", profile},
                              {"tune", tune}})
                         .get(),
                     &made));
  const capi_test::Trainer trainer(made);
  std::vector<double> losses;
  for (int64_t i = 0; i < kSteps; ++i) losses.push_back(one_step(trainer));
  return losses;
}

}  // namespace

TEST_CASE("on a GPU, real or emulated, a run without times taken computes what the run that took them did" *
          doctest::test_suite("gpu")) {
  RegistryOptions options;
  options.plugin_path = test::plugin_folder();
  BackendRegistry registry(options);
  if (!registry.find("cuda").ok()) {
    test::skip("no CUDA device, real or emulated");
    return;
  }
  const capi_test::Scratch scratch;
  const std::string path = scratch / "profile.json";
  DeviceProfile profile;
  profile.device = DeviceSet::open(registry, "cuda:0").value()->cluster().kinds[0].name;
  profile.kernels = {{"", "", DType::kF32, {"bytes"}, {{64, 4096}}, {1e-6, 2e-6}, {}}};
  REQUIRE(write_profile(profile, path).ok());
  const std::vector<double> untimed = losses_of_training(path, 0);
  const std::vector<double> timed = losses_of_training(path, 1);
  const AlgorithmChoices kept = read_profile(path).value().algorithms;
  CHECK(kept.choices.size() >= 8);  // of a block, its gradients and the head
  CHECK(losses_of_training(path, 0) == timed);
  CHECK(losses_of_training(path, 1) == timed);
  CHECK(read_profile(path).value().algorithms == kept);
  CHECK(losses_of_training("none", 0) == untimed);
  for (size_t i = 0; i < timed.size(); ++i) CHECK(timed[i] == doctest::Approx(untimed[i]).epsilon(1e-4));
}
