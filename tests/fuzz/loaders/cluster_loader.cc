#include <nlohmann/json.hpp>

#include "serialize/cluster_json.h"
#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"

namespace tessera::fuzz {
namespace {

class ClusterLoader final : public Loader {
 public:
  ClusterLoader() {
    Cluster cluster;
    DeviceKind kind;
    kind.name = "gpu", kind.memory_bytes = int64_t{80} << 30, kind.matmul_flops_per_s = 1e12,
    kind.memory_bytes_per_s = 1e12;
    kind.matrix_rates = {{DType::kF16, 2e14}};
    cluster.kinds = {kind};
    cluster.devices = {0, 0, 0, 0};
    cluster.node_devices = 2;
    cluster.link = {1e9, 1e-6};
    cluster.node_links = {{2, {1e11, 4.5e-5}}};
    cluster.network = {1e11, 1e-5};
    seed_ = cluster_to_json(cluster);
    check_ok(cluster_from_json(seed_).status());
  }
  std::string_view name() const override { return "cluster"; }
  Outcome run(Random& random) override {
    std::string text = seed_;
    mutate_text(text, random);
    const auto cluster = cluster_from_json(text);
    if (cluster.ok()) (void)cluster_to_json(*cluster);
    return {nlohmann::json::accept(text), cluster.status()};
  }

 private:
  std::string seed_;
};

}  // namespace

std::unique_ptr<Loader> cluster_loader() { return std::make_unique<ClusterLoader>(); }

}  // namespace tessera::fuzz
