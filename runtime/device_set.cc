#include "runtime/device_set.h"

#include <algorithm>
#include <climits>
#include <span>

#include "graph/base/hash.h"
#include "graph/base/text.h"
#include "runtime/device_set_impl.h"

namespace tessera {

namespace {

constexpr int64_t kMostDevices = 1024;

Status not_understood(std::string_view text, std::string_view why) {
  return Status(
      StatusCode::kInvalidArgument,
      format(
          "devices '{}': {}; wanted a backend and a count or ordinals, as in 'cpu:4', 'cuda' or 'cuda:0,1'",
          text, why));
}

// Devices after the colon: "4" of a virtual backend is a count; "0,1" of a real one is a list of ordinals.
// Without a colon it is one virtual device, or every real one.
Result<std::vector<int32_t>> parse_ordinals(std::string_view text, std::string_view rest, bool has_rest,
                                            int32_t present) {
  std::vector<int32_t> ordinals;
  const bool is_virtual = present == INT32_MAX;
  if (is_virtual || !has_rest) {
    int64_t count = is_virtual ? 1 : present;
    if (has_rest) {
      const std::optional<int64_t> parsed = parse_i64(rest);
      if (!parsed || *parsed < 1 || *parsed > kMostDevices)
        return not_understood(text,
                              format("'{}' is no count of virtual devices from 1 to {}", rest, kMostDevices));
      count = *parsed;
    }
    for (int32_t i = 0; i < count; ++i) ordinals.push_back(i);
    return ordinals;
  }
  for (const std::string& part : split(rest, ',')) {
    const std::optional<int64_t> ordinal = parse_i64(part);
    if (!ordinal || *ordinal < 0) return not_understood(text, format("'{}' is no device number", part));
    if (*ordinal >= present)
      return Status(StatusCode::kNotFound,
                    format("devices '{}': device {} does not exist, {} found (0 to {})", text, *ordinal,
                           present, present - 1));
    ordinals.push_back(static_cast<int32_t>(*ordinal));
  }
  return ordinals;
}

// The text that opens these devices, or as many virtual ones.
std::string text_of(std::string_view backend, std::span<const int32_t> ordinals, bool is_virtual) {
  if (is_virtual) return format("{}:{}", backend, ordinals.size());
  std::vector<std::string> numbers;
  for (const int32_t ordinal : ordinals) numbers.push_back(format("{}", ordinal));
  return format("{}:{}", backend, join(numbers, ","));
}

}  // namespace

namespace {

// A process' devices, as the processes exchange them.
struct Told {
  int32_t count, host, threads, unused;
  uint64_t kind;  // hash of the device's description
};

uint64_t hash_of(const tsr_abi_device_info& info) {
  Hash hash;
  hash.add(std::string_view(info.name));
  hash.add(info.memory_bytes);
  for (const double rate : {info.matmul_flops_per_s, info.memory_bytes_per_s, info.launch_s, info.link_bytes_per_s,
                            info.link_latency_s, info.host_link_bytes_per_s, info.host_link_latency_s})
    hash.add(rate);
  hash.add(info.shared_cores);
  return hash.value();
}

}  // namespace

Status DeviceSet::Impl::join_world() {
  TSR_ASSIGN_OR_RETURN(channel, Channel::open(transport));
  const auto own = static_cast<int32_t>(devices.size());
  const Told mine{own, transport->host(), threads, 0, hash_of(info)};
  std::vector<Told> all(static_cast<size_t>(transport->processes()));
  TSR_RETURN_IF_ERROR(
      channel->gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))));
  firsts.clear();
  pools_on_host = 0;
  int32_t world = 0, own_host = 0;
  std::vector<int32_t> by_host(static_cast<size_t>(transport->hosts()));
  bool are_consecutive = true;
  std::vector<uint64_t> known;
  for (size_t process = 0; process < all.size(); ++process) {
    const Told& told = all[process];
    firsts.push_back(world);
    world += told.count;
    if (told.host == mine.host) ++pools_on_host, own_host += told.count;
    by_host[static_cast<size_t>(told.host)] += told.count;
    are_consecutive &= process == 0 || told.host == all[process - 1].host || by_host[static_cast<size_t>(told.host)] == told.count;
    const auto kind = std::ranges::find(known, told.kind);
    kind_of.push_back(static_cast<int32_t>(kind - known.begin()));
    if (kind != known.end()) continue;
    known.push_back(told.kind);
    tsr_abi_device_info& described = kinds.emplace_back(info);
    TSR_RETURN_IF_ERROR(
        channel->broadcast(static_cast<int32_t>(process), std::as_writable_bytes(std::span(&described, 1))));
  }
  ranks = {world, firsts[static_cast<size_t>(transport->process())], own};
  if (info.shared_cores > 0) sharing = own_host;
  hosts = transport->hosts();
  most_on_host = *std::ranges::max_element(by_host);
  if (hosts > 1 && are_consecutive && std::ranges::count(by_host, most_on_host) == hosts) on_host = most_on_host;
  for (std::string& name : names) name += format(" of process {}", transport->process());
  return {};
}

DeviceSet::DeviceSet(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceSet::~DeviceSet() = default;

Result<std::shared_ptr<DeviceSet>> DeviceSet::open(BackendRegistry& registry, std::string_view text,
                                                   DeviceShare share, std::shared_ptr<Transport> transport) {
  const std::string_view trimmed = trim(text);
  const size_t colon = trimmed.find(':');
  const std::string_view backend = trimmed.substr(0, colon);
  const bool has_rest = colon != std::string_view::npos;
  if (backend.empty()) return not_understood(text, "no backend is named");
  TSR_ASSIGN_OR_RETURN(const tsr_backend_api* api, registry.find(backend));
  const int32_t present = api->device_count();
  if (present < 1)
    return Status(StatusCode::kNotFound, format("devices '{}': backend '{}' finds no device", text, backend));
  TSR_ASSIGN_OR_RETURN(const std::vector<int32_t> all,
                       parse_ordinals(text, has_rest ? trimmed.substr(colon + 1) : "", has_rest, present));
  TSR_CHECK(share.index >= 0 && share.index < share.count, "no such share of devices");
  const auto count = static_cast<int32_t>(all.size()), own = count / share.count;
  if (own * share.count != count)
    return Status(StatusCode::kInvalidArgument,
                  format("devices '{}' are {}, which make no {} equal parts: wanted a multiple of {} devices",
                         text, count, share.count, share.count));
  std::vector<int32_t> ordinals(all.begin() + share.index * own, all.begin() + (share.index + 1) * own);

  auto impl = std::make_unique<Impl>();
  impl->api = api;
  impl->host = &registry.host();
  impl->run_lock = &registry.run_lock();
  impl->arbiter = registry.arbiter();
  impl->text = share.count == 1 ? std::string(trimmed) : text_of(backend, ordinals, present == INT32_MAX);
  impl->threads = impl->host->thread_count(impl->host->host);
  impl->info.struct_size = sizeof(impl->info);
  TSR_RETURN_IF_ERROR(take_error(api->device_info(ordinals[0], &impl->info)).with_context(trimmed));
  for (const int32_t ordinal : ordinals) {
    tsr_abi_device* device = nullptr;
    std::string name = format("{}:{}", backend, ordinal);
    TSR_RETURN_IF_ERROR(take_error(api->device_open(impl->host, ordinal, &device)).with_context(name));
    impl->devices.push_back(device);
    // Ranks on one device are distinguished by their number.
    if (std::ranges::count(all, ordinal) > 1)
      name += format("/{}", share.index * own + static_cast<int64_t>(impl->names.size()));
    impl->names.push_back(std::move(name));
  }
  // Ranks on one physical device, and virtual devices of one host, divide its memory.
  impl->sharing = count;
  if (impl->info.shared_cores == 0) {
    impl->sharing = 1;
    for (const int32_t ordinal : ordinals)
      impl->sharing = std::max<int64_t>(impl->sharing, std::ranges::count(all, ordinal));
  }
  impl->ranks = RankSet::all(own);
  impl->ordinals = std::move(ordinals);
  impl->kinds = {impl->info};
  impl->kind_of = {0};
  if (transport != nullptr && transport->processes() > 1) {
    impl->kinds.clear(), impl->kind_of.clear();
    impl->transport = std::move(transport);
    TSR_RETURN_IF_ERROR(impl->join_world().with_context(trimmed));
  }
  impl->catalog = std::make_unique<DeviceCatalog>(*api, impl->ordinals[0], 1.0 / impl->pool_share());
  return std::shared_ptr<DeviceSet>(new DeviceSet(std::move(impl)));
}

int32_t DeviceSet::size() const { return impl_->ranks.world; }
RankSet DeviceSet::ranks() const { return impl_->ranks; }
const std::string& DeviceSet::text() const { return impl_->text; }
std::string DeviceSet::device_name(int32_t rank) const {
  TSR_CHECK(rank >= 0 && rank < size(), "no such rank");
  if (ranks().has(rank)) return impl_->names[static_cast<size_t>(rank - ranks().first)];
  const int32_t process = impl_->process_of(rank);
  return format("device {} of process {}", rank - impl_->firsts[static_cast<size_t>(process)], process);
}
Channel* DeviceSet::channel() const { return impl_->channel.get(); }
int32_t DeviceSet::hosts() const { return impl_->hosts; }
CoreArbiter& DeviceSet::arbiter() const { return *impl_->arbiter; }
const KernelCatalog& DeviceSet::catalog() const { return *impl_->catalog; }

Cluster DeviceSet::cluster() const {
  const tsr_abi_device_info& info = impl_->info;
  Cluster cluster;
  for (const tsr_abi_device_info& one : impl_->kinds) {
    DeviceKind kind;
    kind.name = one.name;
    kind.memory_bytes = one.memory_bytes / impl_->sharing;
    kind.matmul_flops_per_s = one.matmul_flops_per_s * impl_->pool_share();
    kind.memory_bytes_per_s = one.memory_bytes_per_s * impl_->pool_share();
    kind.launch_s = one.launch_s;
    cluster.kinds.push_back(std::move(kind));
  }
  for (int32_t rank = 0; rank < size(); ++rank)
    cluster.devices.push_back(impl_->kind_of[static_cast<size_t>(impl_->process_of(rank))]);
  cluster.shared_cores = info.shared_cores > 0 ? impl_->threads * impl_->pools_on_host * impl_->hosts : 0;
  cluster.link = Link{info.link_bytes_per_s, info.link_latency_s};
  cluster.host_link = Link{info.host_link_bytes_per_s, info.host_link_latency_s};
  // Default for files: a solid-state disk; a profile may be more precise. Used to price offload.
  if (info.shared_cores > 0) cluster.file_link = Link{1e9, 1e-4};
  cluster.profile = impl_->profile;
  if (impl_->hosts == 1) return cluster;
  constexpr Link kUsualNetwork{1.25e9, 50e-6};  // 10 Gbit/s; `tessera calibrate` on all machines measures it
  cluster.network = impl_->profile != nullptr && impl_->profile->network.bytes_per_s > 0 ? impl_->profile->network : kUsualNetwork;
  cluster.node_devices = std::max(1, impl_->on_host);
  if (impl_->on_host == 0) cluster.network.bytes_per_s /= impl_->most_on_host;  // of machines that are not alike each device is one
  return cluster;
}

bool DeviceSet::use_profile(std::shared_ptr<const DeviceProfile> profile, std::string path) {
  impl_->profile = std::move(profile);
  impl_->profile_path = std::move(path);
  return impl_->profile == nullptr || impl_->catalog->use(impl_->profile->algorithms);
}
const std::string& DeviceSet::profile_path() const { return impl_->profile_path; }

}  // namespace tessera
