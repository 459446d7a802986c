#include "engine/base/runtime.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <random>

#include "engine/base/device_profiles.h"
#include "graph/base/status_codes.h"
#include "graph/base/text.h"
#include "runtime/backend_abi.h"
#include "runtime/core_arbiter.h"
#include "runtime/transport_plugin.h"
#include "text/json.h"

// The linked backends, defined in runtime/backends/cpu and runtime/backends/null.
// The registry gets entry functions like those of a plugin.
extern "C" const tsr_backend_api* tsr_cpu_backend_entry(const tsr_host_api* host);
extern "C" const tsr_backend_api* tsr_null_backend_entry(const tsr_host_api* host);

namespace tessera {
namespace {

// The only function that reads the environment; tessera.h documents the variables.
std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// The rank that launchers give a process: Open MPI's, and those with PMIx, as Slurm's.
constexpr const char* kLaunchedRank[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"};
// The number of processes that others give: MPICH's and Intel's, and Slurm's without PMIx. Open MPI joins none of these.
constexpr const char* kOtherLaunchersCount[] = {"PMI_SIZE", "SLURM_STEP_NUM_TASKS"};

void add_to_queue(void* context, int32_t level, const char* message) {
  static_cast<LogQueue*>(context)->add(level, message);
}

// InsideSink: marks that this thread is in a log's sink; nested sinks of other logs are linked.
class InsideSink {
 public:
  explicit InsideSink(const LogQueue& queue) : queue_(queue), outer_(innermost_) { innermost_ = this; }
  ~InsideSink() { innermost_ = outer_; }
  InsideSink(const InsideSink&) = delete;
  InsideSink& operator=(const InsideSink&) = delete;

  static bool of(const LogQueue& queue) {
    for (const InsideSink* it = innermost_; it != nullptr; it = it->outer_)
      if (&it->queue_ == &queue) return true;
    return false;
  }

 private:
  static inline thread_local const InsideSink* innermost_ = nullptr;
  const LogQueue& queue_;
  const InsideSink* const outer_;
};

}  // namespace

void LogQueue::add(int32_t level, std::string_view text) {
  if (level < lowest_level_) return;
  const std::string record(text);
  {
    const std::lock_guard lock(mutex_);
    if (records_.size() == capacity_) records_.pop_front();
    records_.push_back({level, record});
  }
  if (InsideSink::of(*this)) return;
  const std::lock_guard lock(sink_mutex_);
  if (sink_.call == nullptr) return;
  const InsideSink inside(*this);
  sink_.call(sink_.context, level, record.c_str());
}

Status LogQueue::set_sink(const LogSink& sink) {
  if (InsideSink::of(*this))
    return Status(kBusy, "a log function cannot replace itself while it is called");
  LogSink before = sink;
  {
    const std::lock_guard lock(sink_mutex_);
    std::swap(before, sink_);
  }
  before.end();  // may use this log
  return {};
}

std::optional<LogRecord> LogQueue::take(size_t room) {
  const std::lock_guard lock(mutex_);
  if (records_.empty()) return std::nullopt;
  LogRecord record = records_.front();
  if (record.text.size() < room) records_.pop_front();
  return record;
}

Result<std::shared_ptr<Runtime>> Runtime::create(const Options& options, const HostHooks& hooks) {
  HeldHooks held(hooks);  // until the registry owns them
  int64_t threads_default = 0;
  if (const std::string text = environment("TESSERA_THREADS"); !text.empty()) {
    const std::optional<int64_t> threads = parse_i64(text);
    if (!threads || *threads < 0 || *threads > 4096)
      return Status(StatusCode::kInvalidArgument,
                    format("TESSERA_THREADS is '{}', wanted a number between 0 and 4096", text));
    threads_default = *threads;
  }
  std::string level_default = environment("TESSERA_LOG");
  if (level_default.empty()) level_default = "warning";

  OptionReader reader(options, "runtime");
  RegistryOptions registry;
  registry.threads = static_cast<int32_t>(reader.i64("threads", threads_default, 0, 4096));
  registry.plugin_path = reader.text("plugin_path", environment("TESSERA_PLUGIN_PATH"));
  std::string profile_default = environment("TESSERA_PROFILE");
  if (profile_default.empty()) profile_default = "auto";
  const std::string profile = reader.text("profile", profile_default);
  const std::string level = reader.choice("log_level", level_default, {"debug", "info", "warning", "error"});
  const int64_t log_capacity = reader.i64("log_capacity", 1000, 1, 1000000);
  const bool joins = reader.choice("processes", "auto", {"auto", "none"}) == "auto";
  TransportOptions world;
  world.comm = reader.i64("mpi_comm", -1, -1, INT32_MAX);
  world.timeout_s = reader.f64("process_timeout", world.timeout_s, 0, 86400);
  TSR_RETURN_IF_ERROR(reader.finish());
  if (!joins && world.comm >= 0)
    return Status(StatusCode::kInvalidArgument, "runtime: option 'mpi_comm' is of several processes, and option 'processes' is none: give one of them");

  const int32_t lowest = level == "debug" ? 0 : level == "info" ? 1 : level == "warning" ? 2 : 3;
  std::shared_ptr<Runtime> runtime(new Runtime(lowest, static_cast<size_t>(log_capacity)));
  registry.built_in = {tsr_cpu_backend_entry, tsr_null_backend_entry};
  registry.log = add_to_queue;
  registry.log_context = &runtime->log_;
  registry.hooks = hooks;
  runtime->process_ = getpid();
  runtime->profile_ = profile;
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty())
    runtime->cache_folder_ = cache + "/tessera";
  else if (const std::string home = environment("HOME"); !home.empty())
    runtime->cache_folder_ = home + "/.cache/tessera";
  held.hand_over();
  const std::string plugin_path = registry.plugin_path;
  runtime->registry_ = std::make_unique<BackendRegistry>(std::move(registry));
  if (joins) TSR_RETURN_IF_ERROR(runtime->join_world(plugin_path, world));
  return runtime;
}

bool Runtime::is_launched_after_first() {
  for (const char* name : kLaunchedRank)
    if (const std::string rank = environment(name); !rank.empty()) return rank != "0";
  return false;
}

Status Runtime::join_world(const std::string& plugin_path, const TransportOptions& options) {
  const auto is_set = [](const char* name) { return !environment(name).empty(); };
  const auto launched = std::ranges::find_if(kLaunchedRank, is_set);
  if (options.comm < 0 && launched == std::end(kLaunchedRank)) {
    for (const char* name : kOtherLaunchersCount)
      if (parse_i64(environment(name)).value_or(1) > 1) {
        log_.add(2, format("a launcher started this process as one of several ({} is {}), which Open MPI does not join, so that it runs alone: start it by "
                           "Open MPI's mpirun, or by srun --mpi=pmix; option 'processes' none (--processes none) means it",
                           name, environment(name)));
        break;
      }
    return {};
  }
  const Result<const tsr_transport_api*> api = load_transport(plugin_path, "mpi", registry_->host());
  if (!api.ok() && options.comm >= 0) return api.status().with_context("runtime: option 'mpi_comm'");
  if (!api.ok()) {
    log_.add(2, format("a launcher started this process as one of several ({} is set), and it runs alone: {}", *launched, api.status().message()));
    return {};
  }
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<Transport> transport, Transport::open(**api, registry_->host(), options));
  if (transport->processes() > 1) transport_ = std::move(transport);
  return {};
}

int64_t Runtime::draw_seed() {
  std::random_device entropy;
  return static_cast<int64_t>((uint64_t{entropy()} << 32 | entropy()) >> 11);
}

bool Runtime::in_creating_process() const { return getpid() == process_; }

Status Runtime::check_process() const {
  if (in_creating_process()) return {};
  return Status(
      kForked,
      format("this runtime belongs to process {}, this is process {}: threads do not survive fork; make a "
             "runtime after forking",
             process_, static_cast<int64_t>(getpid())));
}

Result<std::shared_ptr<DeviceSet>> Runtime::open_devices(std::string_view text, std::string_view profile,
                                                         DeviceShare share) {
  return open(text, profile, share, nullptr);
}

Result<std::shared_ptr<DeviceSet>> Runtime::open_world_devices(std::string_view text, std::string_view profile) {
  return open(text, profile, {}, transport_);
}

Status Runtime::check_alone(std::string_view what) const {
  if (transport_ == nullptr) return {};
  return Status(StatusCode::kUnsupported, format("{}: its devices are in one process, and this one runs with {} others: start one process "
                                                 "(without mpirun or srun), or give option 'processes' none",
                                                 what, transport_->processes() - 1));
}

Result<std::shared_ptr<DeviceSet>> Runtime::open(std::string_view text, std::string_view profile, DeviceShare share,
                                                 std::shared_ptr<Transport> transport) {
  TSR_RETURN_IF_ERROR(check_process());
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<DeviceSet> devices, DeviceSet::open(*registry_, text, share, std::move(transport)));
  ProfileChoice choice{profile.empty() ? profile_ : std::string(profile), cache_folder_, {}, {}};
  TSR_ASSIGN_OR_RETURN(auto measured, find_profile(choice, *devices));
  if (!choice.ignored.empty()) log_.add(2, choice.ignored);
  if (!devices->use_profile(std::move(measured), choice.path))
    log_.add(2, format("the algorithms in profile '{}' were timed with another device, library or build: not "
                       "used; option 'tune' times these",
                       choice.path));
  return devices;
}

Status Runtime::set_share(const Options& options) {
  TSR_RETURN_IF_ERROR(check_process());
  if (options.empty()) {
    registry_->arbiter()->set_share(std::nullopt);
    return {};
  }
  OptionReader reader(options, "share");
  const double share = reader.f64("inference_share", 0, 0, 1);
  TSR_RETURN_IF_ERROR(reader.finish());
  registry_->arbiter()->set_share(share);
  return {};
}

Status Runtime::join_share(const Runtime& other) {
  TSR_RETURN_IF_ERROR(check_process());
  registry_->join_arbiter(*other.registry_);
  return {};
}

std::string share_json(const Runtime& runtime) {
  const CoreArbiter::Report report = runtime.registry().arbiter()->report();
  const auto seconds = [](int64_t ns) { return static_cast<double>(ns) / 1e9; };
  const auto side = [&](const CoreUsage& usage) {
    return Json{{"turns", usage.turns}, {"seconds", seconds(usage.wall_ns)}, {"cpu_seconds", seconds(usage.cpu_ns)}};
  };
  Json inference = side(report.inference);
  inference["longest_wait_seconds"] = seconds(report.longest_wait_ns);
  inference["longest_wait_micro_batches"] = report.most_batches_waited;
  Json json;
  json["inference_share"] = report.inference_share ? Json(*report.inference_share) : Json(nullptr);
  json["inference"] = inference;
  json["training"] = side(report.training);
  return dump(json);
}

std::string world_json(const Runtime& runtime) {
  const Transport* const transport = runtime.transport().get();
  Json json = {{"process", 0}, {"processes", 1}, {"host", 0}, {"hosts", 1}, {"host_name", nullptr}, {"transport", nullptr}};
  if (transport != nullptr)
    json = {{"process", transport->process()},
            {"processes", transport->processes()},
            {"host", transport->host()},
            {"hosts", transport->hosts()},
            {"host_name", transport->host_name()},
            {"transport", transport->api().name}};
  return dump(json);
}

std::string backends_json(Runtime& runtime) {
  Json list = Json::array();
  for (const BackendInfo& backend : runtime.registry().list())
    list.push_back({{"name", backend.name},
                    {"available", backend.available},
                    {"reason", backend.reason},
                    {"device_count", backend.device_count},
                    {"devices", backend.devices}});
  return dump(Json{{"backends", list}});
}

}  // namespace tessera
