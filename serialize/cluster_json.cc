// Devices are written as runs: {"kind": "a100-80gb", "count": 512}.
#include "serialize/cluster_json.h"

#include <algorithm>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {

namespace {

constexpr std::string_view kFormat = "tessera-cluster";
constexpr int64_t kVersion = 1;
constexpr int64_t kMostDevices = 1 << 20;
constexpr size_t kMostKinds = 1024;  // bounds the search for each run's kind
// Limits beyond any machine, far from overflow of sums and quotients.
constexpr int64_t kMostBytes = int64_t{1} << 60;
constexpr double kMostSeconds = 1e6, kMostRate = 1e30, kMostRamp = 1e9;

Json link_to_json(const Link& link) {
  return Json{{"bytes_per_s", link.bytes_per_s}, {"latency_s", link.latency_s}};
}

// Reader: one JSON object; keeps the first error and the keys read.
class Reader {
 public:
  Reader(const Json& json, std::string where, std::string& failure)
      : json_(json), where_(std::move(where)), failure_(failure) {
    if (!json.is_object()) fail("is not an object");
  }
  ~Reader() {
    if (!json_.is_object()) return;
    for (const auto& [key, value] : json_.items())
      if (std::find(asked_.begin(), asked_.end(), key) == asked_.end())
        fail(format("has the unknown key '{}'", quote(key)));
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // Reads a number from zero to `most`; a missing one keeps its default.
  void number(const char* key, double& target, double most) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_number() || !(value->get<double>() >= 0 && value->get<double>() <= most))
      return fail(format("has {} = {}, wanted a number from 0 to {}", key, quote_json(*value), most));
    target = value->get<double>();
  }
  void seconds(const char* key, double& target) { number(key, target, kMostSeconds); }
  // Reads a rate per second; 0: absent.
  void rate(const char* key, double& target) {
    number(key, target, kMostRate);
    if (target > 0 && target < 1) fail(format("has {} = {}, wanted 0, or 1 to {}", key, target, kMostRate));
  }
  void bytes(const char* key, int64_t& target) { count(key, target, kMostBytes); }
  template <class T>
  void count(const char* key, T& target, int64_t most = INT64_MAX) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_number_integer() || value->get<int64_t>() < 0 || value->get<int64_t>() > most)
      return fail(format("has {} = {}, wanted a whole number from 0 to {}", key, quote_json(*value), most));
    target = static_cast<T>(value->get<int64_t>());
  }
  void text(const char* key, std::string& target) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_string()) return fail(format("has {} = {}, wanted text", key, quote_json(*value)));
    target = value->get<std::string>();
  }
  void link(const char* key, Link& target) {
    const Json* value = find(key);
    if (value == nullptr) return;
    Reader inner(*value, format("{}.{}", where_, key), failure_);
    inner.rate("bytes_per_s", target.bytes_per_s);
    inner.seconds("latency_s", target.latency_s);
  }
  template <class Each>
  void list(const char* key, Each each) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_array()) return fail(format("has {} = {}, wanted a list", key, quote_json(*value)));
    for (size_t i = 0; i < value->size(); ++i) {
      Reader inner((*value)[i], format("{}.{}[{}]", where_, key, i), failure_);
      each(inner);
    }
  }
  void fail(const std::string& message) {
    if (failure_.empty()) failure_ = format("{} {}", where_, message);
  }

 private:
  const Json* find(const char* key) {
    asked_.emplace_back(key);
    if (!json_.is_object()) return nullptr;
    const auto at = json_.find(key);
    return at == json_.end() ? nullptr : &*at;
  }

  const Json& json_;
  std::string where_;
  std::string& failure_;
  std::vector<std::string> asked_;
};

DeviceKind read_kind(Reader& in) {
  DeviceKind kind;
  in.text("name", kind.name);
  in.bytes("memory_bytes", kind.memory_bytes);
  in.rate("matmul_flops_per_s", kind.matmul_flops_per_s);
  in.rate("memory_bytes_per_s", kind.memory_bytes_per_s);
  in.seconds("launch_s", kind.launch_s);
  in.list("matrix_rates", [&](Reader& rate) {
    MatrixRate one;
    std::string dtype;
    rate.text("dtype", dtype);
    rate.rate("flops_per_s", one.flops_per_s);
    const auto known = dtype_from_name(dtype);
    if (!known) return rate.fail(format("has dtype = '{}', which is no element type", quote(dtype)));
    if (*known == DType::kE5M2)
      return rate.fail("has dtype = 'e5m2'; products of 8-bit floats are listed once, as e4m3");
    if (*known == DType::kE4M3 && one.flops_per_s <= 0)
      return rate.fail(
          "has dtype = 'e4m3' and no positive flops_per_s: leave it out where there are no such products");
    for (const MatrixRate& other : kind.matrix_rates)
      if (other.dtype == *known) return rate.fail(format("has dtype = '{}' for the second time", dtype));
    one.dtype = *known;
    kind.matrix_rates.push_back(one);
  });
  in.count("multiprocessors", kind.multiprocessors, INT32_MAX);
  in.number("tile_ramp", kind.tile_ramp, kMostRamp);
  in.number("batched_share", kind.batched_share, 1);
  in.seconds("issue_s", kind.issue_s);
  in.bytes("reserved_bytes", kind.reserved_bytes);
  if (kind.memory_bytes > 0 && kind.reserved_bytes >= kind.memory_bytes)
    in.fail(format("has reserved_bytes = {}, wanted less than its memory_bytes = {}", kind.reserved_bytes,
                   kind.memory_bytes));
  if (kind.name.empty()) in.fail("has no name");
  if (kind.matmul_flops_per_s <= 0) in.fail("has no positive matmul_flops_per_s");
  if (kind.memory_bytes_per_s <= 0) in.fail("has no positive memory_bytes_per_s");
  if (kind.batched_share < 1e-6) in.fail("has a batched_share below 0.000001");
  return kind;
}

}  // namespace

std::string cluster_to_json(const Cluster& cluster) {
  Json kinds = Json::array(), devices = Json::array(), links = Json::array();
  for (const DeviceKind& kind : cluster.kinds) {
    Json rates = Json::array();
    for (const MatrixRate& rate : kind.matrix_rates)
      rates.push_back(Json{{"dtype", info(rate.dtype).name}, {"flops_per_s", rate.flops_per_s}});
    kinds.push_back(Json{{"name", kind.name},
                         {"memory_bytes", kind.memory_bytes},
                         {"matmul_flops_per_s", kind.matmul_flops_per_s},
                         {"matrix_rates", rates},
                         {"memory_bytes_per_s", kind.memory_bytes_per_s},
                         {"launch_s", kind.launch_s},
                         {"multiprocessors", kind.multiprocessors},
                         {"tile_ramp", kind.tile_ramp},
                         {"batched_share", kind.batched_share},
                         {"issue_s", kind.issue_s}});
    if (kind.reserved_bytes >= 0) kinds.back()["reserved_bytes"] = kind.reserved_bytes;
  }
  for (size_t i = 0; i < cluster.devices.size();) {
    size_t end = i;
    while (end < cluster.devices.size() && cluster.devices[end] == cluster.devices[i]) ++end;
    devices.push_back(
        Json{{"kind", cluster.kinds[static_cast<size_t>(cluster.devices[i])].name}, {"count", end - i}});
    i = end;
  }
  for (const GroupLink& link : cluster.node_links) {
    Json one = link_to_json(link.link);
    one["members"] = link.members;
    links.push_back(one);
  }
  return Json{{"format", kFormat},
              {"version", kVersion},
              {"kinds", kinds},
              {"devices", devices},
              {"shared_cores", cluster.shared_cores},
              {"link", link_to_json(cluster.link)},
              {"node_devices", cluster.node_devices},
              {"node_links", links},
              {"network", link_to_json(cluster.network)},
              {"host_memory_bytes", cluster.host_memory_bytes},
              {"host_link", link_to_json(cluster.host_link)},
              {"file_bytes", cluster.file_bytes},
              {"file_link", link_to_json(cluster.file_link)}}
             .dump(2) +
         "\n";
}

Result<Cluster> cluster_from_json(std::string_view text) {
  TSR_ASSIGN_OR_RETURN(const Json json, parse_json(text, "cluster"));
  Cluster cluster;
  std::string failure, format_name;
  int64_t version = 0;
  {
    Reader in(json, "cluster", failure);
    in.text("format", format_name);
    in.count("version", version);
    if (format_name != kFormat) in.fail(format("has format '{}', wanted '{}'", quote(format_name), kFormat));
    if (version != kVersion) in.fail(format("has version {}, this build reads {}", version, kVersion));
    in.list("kinds", [&](Reader& kind) {
      if (cluster.kinds.size() == kMostKinds) return kind.fail(format("is beyond {} kinds", kMostKinds));
      DeviceKind one = read_kind(kind);
      if (std::ranges::find(cluster.kinds, one.name, &DeviceKind::name) != cluster.kinds.end())
        kind.fail(format("has name = '{}' for the second time", quote(one.name)));
      cluster.kinds.push_back(std::move(one));
    });
    in.list("devices", [&](Reader& run) {
      std::string name;
      int64_t count = 0;
      run.text("kind", name);
      run.count("count", count, kMostDevices);
      for (size_t k = 0; k < cluster.kinds.size(); ++k) {
        if (cluster.kinds[k].name != name) continue;
        if (static_cast<int64_t>(cluster.devices.size()) + count > kMostDevices)
          return run.fail("makes too many devices");
        cluster.devices.insert(cluster.devices.end(), static_cast<size_t>(count), static_cast<int32_t>(k));
        return;
      }
      run.fail(format("has kind = '{}', which is not among the kinds", quote(name)));
    });
    in.count("shared_cores", cluster.shared_cores, INT32_MAX);
    in.link("link", cluster.link);
    in.count("node_devices", cluster.node_devices, kMostDevices);
    in.list("node_links", [&](Reader& link) {
      GroupLink one;
      link.count("members", one.members, kMostDevices);
      link.rate("bytes_per_s", one.link.bytes_per_s);
      link.seconds("latency_s", one.link.latency_s);
      if (one.members < 2 ||
          (!cluster.node_links.empty() && one.members <= cluster.node_links.back().members))
        link.fail(format("has members = {}, wanted at least 2 and more than the one before", one.members));
      if (one.link.bytes_per_s <= 0) link.fail("has no positive bytes_per_s");
      cluster.node_links.push_back(one);
    });
    in.link("network", cluster.network);
    in.bytes("host_memory_bytes", cluster.host_memory_bytes);
    in.link("host_link", cluster.host_link);
    in.bytes("file_bytes", cluster.file_bytes);
    in.link("file_link", cluster.file_link);
    if (cluster.devices.empty()) in.fail("has no devices, wanted at least one");
    if (cluster.node_devices > 0 && static_cast<int64_t>(cluster.devices.size()) > cluster.node_devices &&
        cluster.network.bytes_per_s <= 0)
      in.fail("has several nodes but no positive network.bytes_per_s");
  }
  if (!failure.empty()) return Status(StatusCode::kCorrupt, failure);
  return cluster;
}

}  // namespace tessera
