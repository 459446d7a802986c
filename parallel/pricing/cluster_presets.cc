// Where the figures come from. Rates of products are published reachable ones where known (A100 271 of 312
// Tflop/s, H100 794 of 989), else 0.8 to 0.85 of the peak; of 8-bit floats 0.59 of the peak, which PyTorch's
// scaled product was published to reach of an H100's (1170 of 1979 Tflop/s, 8192^3); memory at 0.86 of the
// peak, which streaming benchmarks are published to reach on an A100 (1.75 of 2.04 TB/s) and pass on an H100.
// Tile ramp, launch and issue costs are fitted to measured training steps of A100s
// (tests/planner/measured_steps_test.cc holds steps against them), all-reduce curves are measured. Links inside a DGX
// B200 are twice an H100's, as NVLink's figures are. Quadro RTX 5000: four a node on FDR InfiniBand (6.8 GB/s)
// without direct transfers, of which published steps of such a cluster leave 4.5.
#include "parallel/pricing/cluster_presets.h"

#include <algorithm>

#include "graph/base/nearest_hint.h"
#include "graph/base/text.h"

namespace tessera {

namespace {

constexpr double kTera = 1e12, kGiga = 1e9, kMicro = 1e-6;
constexpr int64_t kGiB = int64_t{1} << 30;

struct KindRow {
  std::string_view name;
  int64_t memory_gib;
  // Reachable, in Tflop/s; half: f16 and bf16 (0: as f32); fp8: 8-bit floats (0: none).
  double f32_flops, half_flops, fp8_flops;
  double memory_rate;  // reachable, GB/s
  int32_t multiprocessors;
  double tile_ramp, launch_us;
  bool bf16;              // false: bf16 runs at the f32 rate
  std::string_view form;  // default form
};
constexpr KindRow kKinds[] = {
    {"v100-16gb", 16, 13.4, 105, 0, 770, 80, 110, 9, false, "dgx"},
    {"v100-32gb", 32, 13.4, 105, 0, 770, 80, 110, 9, false, "dgx"},
    {"a100-40gb", 40, 17, 271, 0, 1340, 108, 125, 9, true, "dgx"},
    {"a100-80gb", 80, 17, 271, 0, 1750, 108, 125, 9, true, "dgx"},
    {"h100", 80, 52, 794, 1170, 2880, 132, 160, 7, true, "dgx"},
    {"h200", 141, 52, 794, 1170, 4130, 132, 160, 7, true, "dgx"},
    {"b200", 180, 60, 1800, 2660, 6880, 148, 160, 7, true, "dgx"},
    {"l40s", 48, 78, 290, 433, 740, 142, 110, 6, true, "pcie"},
    {"rtx-4090", 24, 65, 140, 195, 870, 128, 110, 6, true, "pcie"},
    {"rtx-5000", 16, 9.5, 72, 0, 385, 48, 60, 9, false, "pcie"},
    {"cpu", 16, 0.1, 0, 0, 20, 0, 0, 1, false, "host"},
};

struct FormRow {
  std::string_view name;
  std::string_view kind;  // empty: kinds without a row of their own
  int32_t node_devices;
  // All-reduce within a node among 2, 4, 8: GB/s and microseconds.
  double rate[3], latency_us[3];
  double network_rate, network_latency_us;  // GB/s out of a node
  int64_t host_gib;
  double host_rate;  // GB/s, one device to its host
};
constexpr FormRow kForms[] = {
    {"dgx", "v100-16gb", 8, {46, 85, 135}, {30, 40, 45}, 42, 10, 512, 11},
    {"dgx", "v100-32gb", 8, {46, 85, 135}, {30, 40, 45}, 42, 10, 1536, 11},
    {"dgx", "a100-40gb", 8, {197, 222, 231}, {45, 55, 70}, 175, 10, 1024, 22},
    {"dgx", "a100-80gb", 8, {197, 222, 231}, {45, 55, 70}, 175, 10, 2048, 22},
    {"dgx", "h100", 8, {330, 350, 370}, {25, 30, 35}, 350, 8, 2048, 50},
    {"dgx", "h200", 8, {330, 350, 370}, {25, 30, 35}, 350, 8, 2048, 50},
    {"dgx", "b200", 8, {640, 680, 720}, {25, 30, 35}, 350, 8, 2048, 50},
    {"pcie", "rtx-5000", 4, {9, 8, 8}, {30, 45, 60}, 4.5, 10, 128, 11},
    {"pcie", "", 8, {18, 12, 10}, {30, 45, 60}, 11, 10, 512, 22},
    {"host", "cpu", 0, {10, 10, 10}, {20, 30, 40}, 0, 0, 16, 10},
};

// Host time of an eager framework to issue one kernel.
constexpr double kIssue = 42 * kMicro;
constexpr double kBatchedShare = 0.45;

const KindRow* find_kind(std::string_view name) {
  const auto* at = std::ranges::find(kKinds, name, &KindRow::name);
  return at == std::end(kKinds) ? nullptr : at;
}

const FormRow* find_form(std::string_view form, std::string_view kind) {
  for (const FormRow& row : kForms)
    if (row.name == form && (row.kind == kind || (row.kind.empty() && kind != "cpu"))) return &row;
  return nullptr;
}

DeviceKind make_kind(const KindRow& row) {
  DeviceKind kind;
  kind.name = row.name;
  kind.memory_bytes = row.memory_gib * kGiB;
  kind.matmul_flops_per_s = row.f32_flops * kTera;
  kind.memory_bytes_per_s = row.memory_rate * kGiga;
  kind.launch_s = row.launch_us * kMicro;
  if (row.half_flops > 0) {
    kind.matrix_rates.push_back({DType::kF16, row.half_flops * kTera});
    if (row.bf16) kind.matrix_rates.push_back({DType::kBF16, row.half_flops * kTera});
    kind.issue_s = kIssue;
    kind.batched_share = kBatchedShare;
    if (row.fp8_flops > 0) kind.matrix_rates.push_back({DType::kE4M3, row.fp8_flops * kTera});
  }
  kind.multiprocessors = row.multiprocessors;
  kind.tile_ramp = row.tile_ramp;
  return kind;
}

}  // namespace

std::vector<std::string> cluster_preset_names() {
  std::vector<std::string> names;
  for (const KindRow& kind : kKinds) {
    if (kind.form == "host") names.emplace_back(kind.name);
    for (const std::string_view form : {"dgx", "pcie"})
      if (find_form(form, kind.name) != nullptr) names.push_back(format("{}-{}", form, kind.name));
  }
  return names;
}

Result<Cluster> cluster_preset(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = trim(text.substr(0, colon));
  std::string_view kind_name = name, form_name;
  for (const std::string_view form : {"dgx-", "pcie-"})
    if (name.starts_with(form))
      form_name = form.substr(0, form.size() - 1), kind_name = name.substr(form.size());
  const KindRow* kind = find_kind(kind_name);
  const FormRow* form =
      kind == nullptr ? nullptr : find_form(form_name.empty() ? kind->form : form_name, kind_name);
  if (form == nullptr)
    return Status(
        StatusCode::kNotFound,
        format("cluster '{}' is not known{}; all: {}; an example: dgx-a100-80gb:512", name,
               nearest_hint(name, cluster_preset_names()), join(cluster_preset_names(), ", ")));
  int64_t count = std::max(1, form->node_devices);
  if (colon != std::string_view::npos) {
    const auto given = parse_i64(trim(text.substr(colon + 1)));
    if (!given || *given < 1 || *given > (1 << 20))
      return Status(
          StatusCode::kInvalidArgument,
          format("cluster '{}': wanted a number of devices from 1 to {} after the colon", text, 1 << 20));
    count = *given;
  }
  Cluster cluster;
  cluster.kinds.push_back(make_kind(*kind));
  cluster.devices.assign(static_cast<size_t>(count), 0);
  cluster.link = {form->rate[0] * kGiga, form->latency_us[0] / 2 * kMicro};
  cluster.node_devices = form->node_devices;
  for (const size_t i : {0, 1, 2})
    cluster.node_links.push_back({2 << i, {form->rate[i] * kGiga, form->latency_us[i] * kMicro}});
  cluster.network = {form->network_rate * kGiga, form->network_latency_us * kMicro};
  cluster.host_memory_bytes = form->host_gib * kGiB;
  cluster.host_link = {form->host_rate * kGiga, 10 * kMicro};
  cluster.file_bytes = 4096 * kGiB;
  cluster.file_link = {3 * kGiga, 100 * kMicro};
  return cluster;
}

}  // namespace tessera
