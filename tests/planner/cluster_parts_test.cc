// Clusters whose devices are of several kinds, as parts whose devices are all alike.
#include "parallel/pricing/cluster_parts.h"

#include <doctest/doctest.h>

#include <initializer_list>
#include <utility>
#include <vector>

#include "parallel/pricing/cluster_presets.h"
#include "parallel/pricing/worst_case_kind.h"
#include "parallel/pricing/reserved_memory.h"

using namespace tessera;

namespace {

Fleet fleet(std::initializer_list<const char*> presets) {
  Fleet all;
  for (const char* preset : presets) all.clusters.push_back(*cluster_preset(preset));
  return all;
}

// Devices of one box: grouped by kind.
Cluster one_box(std::initializer_list<std::pair<const char*, int>> kinds) {
  Cluster box;
  for (const auto& [preset, count] : kinds) {
    const Cluster one = *cluster_preset(preset);
    const auto kind = static_cast<int32_t>(box.kinds.size());
    std::vector<DeviceKind> listed = box.kinds;
    std::vector<int32_t> devices = box.devices;
    if (box.kinds.empty()) box = one, listed.clear(), devices.clear();
    listed.push_back(one.kinds[0]);
    devices.insert(devices.end(), static_cast<size_t>(count), kind);
    box.kinds = listed, box.devices = devices;
  }
  box.node_devices = 0;
  return box;
}

}  // namespace

TEST_SUITE("cluster parts") {
  TEST_CASE("nodes of unlike sizes: what leaves a node is never counted twice") {
    // Three of one kind and five of another in each box of eight: both together are whole boxes.
    Cluster boxes = *cluster_preset("dgx-a100-80gb:16");
    boxes.kinds.push_back(cluster_preset("dgx-h100:8")->kinds[0]);
    for (const size_t d : {0, 1, 2, 8, 9, 10}) boxes.devices[d] = 1;
    const auto parts = cluster_parts({{boxes}}, DType::kBF16);
    REQUIRE(parts.ok());
    for (const ClusterPart& part : parts->parts) {
      CHECK(part.cluster.network == boxes.network);
      CHECK(part.cluster.node_devices == (part.groups.size() == 2            ? 8
                                          : part.cluster.devices.size() == 6 ? 3
                                                                             : 5));
    }
    // Eight and four: as three nodes of four that share the cards of the first two, or one of eight.
    const auto uneven =
        cluster_parts(fleet({"dgx-a100-80gb:8", "pcie-rtx-5000:4", "pcie-rtx-5000:4"}), DType::kF16);
    REQUIRE(uneven.ok());
    bool halved = false;
    for (const ClusterPart& part : uneven->parts)
      if (part.groups.size() == 2 && part.cluster.node_devices == 4) {
        halved = true;
        CHECK(part.cluster.devices.size() == 16);
        CHECK(part.cluster.network.bytes_per_s <= cluster_preset("pcie-rtx-5000:4")->network.bytes_per_s);
        CHECK(part.cluster.network.bytes_per_s <= cluster_preset("dgx-a100-80gb:8")->network.bytes_per_s / 2);
      }
    CHECK(halved);
  }

  TEST_CASE("devices of one box without a network are planned together, boxes without one are not") {
    const Cluster box = one_box({{"pcie-rtx-4090:4", 4}, {"pcie-rtx-5000:4", 4}});
    const auto together = cluster_parts({{box}}, DType::kBF16);
    REQUIRE(together.ok());
    CHECK(together->parts.size() == 3);
    const auto apart = cluster_parts(fleet({"cpu:4", "dgx-h100:8"}), DType::kF32);
    REQUIRE(apart.ok());
    CHECK(apart->parts.size() == 2);
  }

  TEST_CASE("of two kinds together the slower rate counts, and none where one has none") {
    const DeviceKind h100 = cluster_preset("dgx-h100")->kinds[0], b200 = cluster_preset("dgx-b200")->kinds[0],
                     a100 = cluster_preset("dgx-a100-80gb")->kinds[0];
    CHECK(matrix_rate(worst_case_kind(h100, b200), DType::kE4M3) == 1170e12);
    CHECK(matrix_rate(worst_case_kind(b200, h100), DType::kE4M3) == 1170e12);
    for (const DeviceKind& kind : {worst_case_kind(h100, a100), worst_case_kind(a100, h100)})
      for (const MatrixRate& rate : kind.matrix_rates) CHECK(rate.dtype != DType::kE4M3);
  }

  TEST_CASE("a small device keeps a share of its memory for contexts, and a cluster may say how much") {
    constexpr int64_t kMiB = 1 << 20;
    DeviceKind kind = cluster_preset("pcie-rtx-5000:2")->kinds[0];
    CHECK(reserved_bytes(kind) == 3072 * kMiB);
    kind.memory_bytes = 2048 * kMiB;
    CHECK(reserved_bytes(kind) == 384 * kMiB);
    kind.reserved_bytes = 1024 * kMiB;
    CHECK(reserved_bytes(kind) == 1024 * kMiB);
  }

  TEST_CASE("more kinds than choices can be gone through are refused with what is wanted") {
    const auto none = cluster_parts(fleet({"dgx-v100-16gb:8", "dgx-v100-32gb:8", "dgx-a100-40gb:8",
                                           "dgx-a100-80gb:8", "dgx-h100:8", "dgx-h200:8"}),
                                    DType::kBF16);
    REQUIRE(!none.ok());
    CHECK(none.status().code() == StatusCode::kUnsupported);
    CHECK(none.status().message().find("wanted 5 at most") != std::string::npos);
  }
}
