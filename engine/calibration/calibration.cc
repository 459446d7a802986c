// A list of pieces (kernels by size, steps, collectives, messages, copies, oversubscription), measured in several passes,
// each in its share of the time; at the end prices are fitted to all points.
#include "engine/calibration/calibration.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <set>
#include <span>

#include "engine/base/device_profiles.h"
#include "engine/program/measured_run.h"
#include "engine/program/price_grids.h"
#include "graph/base/text.h"
#include "parallel/pricing/simulator.h"
#include "runtime/host_services.h"
#include "serialize/device_profile_json.h"

namespace tessera {

namespace {

constexpr double kMinSecondsForFullCalibration = 10;
// Every pass measures everything once, since disturbances last for seconds (on a virtual
// machine, the placement of cores) and bias everything measured meanwhile. With every
// core busy the median of the passes counts. With one rank whose kernels use several cores,
// a pass takes up to twice as long if the host placed the cores far apart (another cache:
// 360 ns between cores instead of 80); for these measurements the slowest pass counts, since
// plans must tolerate it.
constexpr int kPasses = 5;
constexpr int32_t kRounds = 5;  // rounds of a pass, at most
constexpr double kToleratedLoadOfOthers = 0.1;  // of other processes, as a share of the cores
const std::vector<int64_t> kSizes = {int64_t{4} << 10, int64_t{64} << 10, int64_t{512} << 10,
                                     int64_t{4} << 20, int64_t{16} << 20};

// Together the probes contain every op of a training step, each at sizes far apart.
// By name: a probe is configured as a user would, with strings for model and optimizer.
constexpr StepProbe kSteps[] = {
    {"gpt2:L=1,C=64,H=2,V=256,T=64", "adamw", 2, 32},
    {"gpt2:L=1,C=64,H=2,V=256,T=128", "adamw", 8, 128},
    {"gpt2:L=1,C=256,H=8,V=512,T=128", "adamw", 8, 128},
    {"gpt2:L=1,C=768,H=12,V=2048,T=256", "adamw", 4, 256},
    {"llama:L=1,C=64,H=4,KV=2,F=192,V=256,T=64", "sgd", 2, 64},
    {"llama:L=1,C=512,H=8,KV=4,F=1408,V=2048,T=256", "adamw", 4, 128},
    {"llama:L=1,C=256,H=8,KV=4,F=704,V=1024,T=256", "sgd", 8, 128},
    {"moe:L=1,C=128,H=4,KV=2,F=256,E=4,K=2,V=512,T=128", "adamw", 4, 128},
};

// Ops priced by shape, not by bytes.
std::set<std::string> ops_priced_by_shape() {
  std::set<std::string> ops;
  for (const PriceGrid& grid : price_grids(false, true)) ops.insert(grid.table.op);
  return ops;
}

// The step whose switches between streams are measured. By name: as above.
constexpr StepProbe kOffloading = {"gpt2:L=2,C=128,H=4,V=256,T=64", "adamw", 4, 64,
                                   "dp=1,offload=activations@host"};
// The model of the oversubscription measurement, as wide as the models that virtual devices are used for.
constexpr std::string_view kOversubscriptionModel = "gpt2:L={},C=128,H=4,V=512,T=64";
constexpr int32_t kMaxOversubscribedCores = 8;  // larger machines are not measured with more devices than cores

Status fill(Session& session, const std::string&) { return fill_probes(session); }

Tier tier_at(int i) { return static_cast<Tier>(i); }

}  // namespace

Result<std::unique_ptr<Calibration>> Calibration::create(std::shared_ptr<Runtime> runtime,
                                                         const std::string& devices, double seconds) {
  std::unique_ptr<Calibration> made(new Calibration);
  made->seconds_ = seconds;
  made->is_coarse_ = seconds < kMinSecondsForFullCalibration;
  made->backend_ = devices.substr(0, devices.find(':'));
  TSR_ASSIGN_OR_RETURN(made->one_, runtime->open_devices(devices));
  const bool has_several_devices = made->one_->size() > 1;
  made->most_members_ = made->one_->size();
  const Cluster cluster = made->one_->cluster();
  // Real devices are represented by their first; virtual ones are equal.
  if (has_several_devices) {
    const std::string first = cluster.shared_cores > 0 ? made->backend_ : made->one_->device_name(0);
    TSR_ASSIGN_OR_RETURN(made->one_, runtime->open_devices(first));
  }
  made->profile_.device = cluster.kinds[0].name;
  made->profile_.cores = cluster.shared_cores;
  if (cluster.shared_cores > 0) {
    made->most_members_ = made->is_coarse_ ? 2 : std::max(4, std::min(cluster.shared_cores, 16));
    if (cluster.shared_cores > 1) {
      TSR_ASSIGN_OR_RETURN(made->all_,
                           runtime->open_devices(format("{}:{}", made->backend_, cluster.shared_cores)));
    }
  }
  made->runtime_ = std::move(runtime);
  TSR_RETURN_IF_ERROR(made->find_leaders());
  made->list_pieces();
  return made;
}

Status Calibration::find_leaders() {
  const std::shared_ptr<Transport>& transport = runtime_->transport();
  if (transport == nullptr) return {};
  TSR_ASSIGN_OR_RETURN(channel_, Channel::open(transport));
  const int32_t mine = transport->host();
  std::vector<int32_t> hosts(static_cast<size_t>(transport->processes()));
  TSR_RETURN_IF_ERROR(channel_->gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(hosts))));
  for (size_t process = 0; process < hosts.size(); ++process)
    if (std::ranges::find(hosts, hosts[process]) == hosts.begin() + static_cast<std::ptrdiff_t>(process))
      host_leaders_.push_back(static_cast<int32_t>(process));
  measures_devices_ = std::ranges::find(host_leaders_, transport->process()) != host_leaders_.end();
  return {};
}

void Calibration::list_pieces() {
  const auto add = [&](std::string name, double weight, std::function<Status(double)> measure) {
    const size_t at = pieces_.size();
    pieces_.push_back({std::move(name), weight,
                       [this, at, measure = std::move(measure)] { return measures_devices_ ? measure(budget_s(pieces_[at])) : Status(); }});
  };
  // Virtual devices have no tensor cores: TF32 only rounds there and
  // costs the same as f32, so it gets no grid of its own.
  grids_ = price_grids(is_coarse_, profile_.cores == 0);
  for (int pass = 0; pass < kPasses; ++pass) {
    for (PriceGrid& grid : grids_)
      add(grid.name, grid.weight, [&grid, this](double budget) { return measure_grid(grid, budget); });
    for (const StepProbe& probe : kSteps) {
      if (is_coarse_ && probe.model.find("C=64") == std::string_view::npos) continue;
      add(format("a training step ({})", probe.model), 2,
          [=, this](double budget) { return measure_step(probe, budget); });
    }
    for (int32_t members = 2; members <= most_members_; members *= 2)
      add(format("collectives of {}", members), 1,
          [=, this](double budget) { return measure_collectives(members, budget); });
    if (most_members_ > 1) add("messages", 0.5, [this](double budget) { return measure_messages(budget); });
    add("copies between tiers", 0.5, [this](double budget) { return measure_copies(budget); });
    add("handing over between streams", 0.5, [this](double budget) { return measure_stream_switch(budget); });
    if (profile_.cores > 1)
      add("ranks side by side", 3, [this](double budget) { return measure_oversubscription(budget); });
  }
  if (host_leaders_.size() > 1)
    pieces_.push_back({"the network", 2, [this, at = pieces_.size()] { return measure_network(budget_s(pieces_[at])); }});
  pieces_.push_back({"the fit", 0.01, [this]() -> Status {
                       if (measures_devices_) {
                         fit();
                         TSR_RETURN_IF_ERROR(fit_oversubscription());
                       }
                       return share_profile();
                     }});
  for (const Piece& piece : pieces_) all_weights_ += piece.weight;
}

// Processes that measured nothing get the first one's.
Status Calibration::share_profile() {
  if (channel_ == nullptr) return {};
  TSR_ASSIGN_OR_RETURN(const std::string text, channel_->broadcast_text(0, runtime_->is_first_process() ? device_profile_to_json(profile_) : ""));
  if (measures_devices_) return {};
  TSR_ASSIGN_OR_RETURN(profile_, device_profile_from_json(text));
  return {};
}

double Calibration::budget_s(const Piece& piece) const { return seconds_ * piece.weight / all_weights_; }

double Calibration::done() const {
  double weights = 0;
  for (size_t i = 0; i < next_; ++i) weights += pieces_[i].weight;
  return next_ == pieces_.size() ? 1 : weights / all_weights_;
}

std::string Calibration::next() const { return next_ < pieces_.size() ? pieces_[next_].name : ""; }

WorkProgress Calibration::progress() const {
  return {done(), static_cast<int64_t>(next_), static_cast<int64_t>(pieces_.size()), "measurements", next()};
}

Status Calibration::step() {
  if (next_ == pieces_.size()) return {};
  TSR_RETURN_IF_ERROR(runtime_->check_process());
  const CancelScope scope(runtime_->cancel_signal());
  const std::optional<CpuLoad> before = read_cpu_load();
  TSR_RETURN_IF_ERROR(pieces_[next_].measure().with_context(pieces_[next_].name));
  if (before && profile_.cores > 0) note_others(*before, pieces_[next_].name);
  ++next_;
  if (next_ == pieces_.size() && clock_s_ > 0 && others_s_ / clock_s_ > kToleratedLoadOfOthers)
    profile_.others_share = std::round(100 * others_s_ / clock_s_) / 100;
  return {};
}

// Warns once in the log; the profile records the total load.
void Calibration::note_others(const CpuLoad& before, const std::string& piece) {
  const std::optional<CpuLoad> after = read_cpu_load();
  if (!after) return;
  const double clock_s = after->clock_s - before.clock_s, share = share_of_others(before, *after);
  clock_s_ += clock_s;
  others_s_ += share * clock_s;
  // The system's counters have a resolution of 0.01 s.
  if (has_warned_ || share <= kToleratedLoadOfOthers || clock_s < 0.2) return;
  has_warned_ = true;
  runtime_->log().add(2, format("calibration: other processes took {} % of the cores while it measured {}: prices will "
                                "be too high; measure again while nothing else runs",
                                std::llround(100 * share), piece));
}

Result<std::vector<MeasuredPoint>> Calibration::measure_probes(const std::vector<Probe>& probes,
                                                               double budget) {
  std::vector<MeasuredPoint> points(probes.size());
  TSR_ASSIGN_OR_RETURN(ProbeProgram alone, probe_program(probes, one_->catalog(), 1));
  if (alone.kept.empty()) return points;
  const double share = all_ != nullptr ? 0.4 : 1;
  TSR_ASSIGN_OR_RETURN(const MeasuredRun run,
                       measure_run(one_, std::move(alone.program), {share * budget, kRounds}, fill));
  for (size_t i = 0; i < alone.kept.size(); ++i)
    points[alone.kept[i]].seconds = points[alone.kept[i]].shared_seconds = run.seconds[0][i];
  if (all_ == nullptr) return points;
  TSR_ASSIGN_OR_RETURN(ProbeProgram shared, probe_program(probes, all_->catalog(), all_->size()));
  TSR_ASSIGN_OR_RETURN(const MeasuredRun busy,
                       measure_run(all_, std::move(shared.program), {0.6 * budget, kRounds}, fill));
  for (size_t i = 0; i < shared.kept.size(); ++i) {
    double sum = 0;
    for (const std::vector<double>& rank : busy.seconds) sum += rank[2 * i + 1];
    points[shared.kept[i]].shared_seconds = sum / static_cast<double>(busy.seconds.size());
  }
  return points;
}

namespace {

bool all_measured(const std::vector<MeasuredPoint>& points) {
  return std::ranges::all_of(points, [](const MeasuredPoint& point) { return point.seconds > 0; });
}

}  // namespace

Status Calibration::measure_grid(PriceGrid& grid, double budget) {
  TSR_ASSIGN_OR_RETURN(const std::vector<MeasuredPoint> points, measure_probes(grid.probes, budget));
  if (all_measured(points)) grid.passes.push_back(points);  // else the type has no kernel
  return {};
}

Status Calibration::measure_step(const StepProbe& probe, double budget) {
  const auto measure = [&](const std::shared_ptr<DeviceSet>& devices,
                           double seconds) -> Result<std::pair<Program, MeasuredRun>> {
    TSR_ASSIGN_OR_RETURN(const StepProgram made,
                         step_program(probe, one_->cluster(), devices->catalog(), devices->size()));
    TSR_ASSIGN_OR_RETURN(MeasuredRun run, measure_run(devices, made.program, {seconds, kRounds},
                                                      [&](Session& session, const std::string& entry) {
                                                        return fill_step(session, entry, made.program,
                                                                         made.step);
                                                      }));
    return std::pair(made.program, std::move(run));
  };
  TSR_ASSIGN_OR_RETURN(const auto alone, measure(one_, (all_ != nullptr ? 0.4 : 1) * budget));
  std::vector<double> shared = alone.second.seconds[0];
  if (all_ != nullptr) {
    TSR_ASSIGN_OR_RETURN(const auto busy, measure(all_, 0.6 * budget));
    for (size_t i = 0; i < shared.size(); ++i) {
      shared[i] = 0;
      for (const auto& rank : busy.second.seconds)
        shared[i] += rank[i] / static_cast<double>(busy.second.seconds.size());
    }
  }
  run_overheads_s_.push_back(alone.second.outside_s);
  StepPasses& passes = steps_[probe.model];
  passes.kernels.clear();
  std::vector<MeasuredPoint>& points = passes.passes.emplace_back();
  const RankProgram& rank = alone.first.ranks[0];
  const std::set<std::string> by_shape = ops_priced_by_shape();
  for (size_t i = 0; i < rank.entries[0].code.size(); ++i) {
    const auto* inst = std::get_if<KernelInst>(&rank.entries[0].code[i]);
    if (inst == nullptr) continue;
    const KernelDesc& kernel = rank.kernels[static_cast<size_t>(inst->kernel)];
    if (kernel.op->cost == nullptr || by_shape.contains(std::string(kernel.op->name))) continue;
    const OpCost cost = kernel.op->cost({kernel.attrs, kernel.inputs, kernel.outputs, kernel.factors});
    passes.kernels.emplace_back(kernel.op->name, kernel.outputs[0].dtype);
    points.push_back({cost.bytes_read + cost.bytes_written, alone.second.seconds[0][i], shared[i]});
  }
  return {};
}

void Calibration::fit() {
  for (const PriceGrid& grid : grids_)
    if (!grid.passes.empty())
      profile_.kernels.push_back(fill_table(grid.table, combine_passes(grid.passes), all_ != nullptr));
  std::vector<MeasuredPoint> any;
  std::map<std::pair<std::string, DType>, std::vector<MeasuredPoint>> by_bytes;
  for (const auto& [model, step] : steps_) {
    const std::vector<MeasuredPoint> points = combine_passes(step.passes);
    for (size_t i = 0; i < points.size(); ++i) by_bytes[step.kernels[i]].push_back(points[i]);
  }
  for (const auto& [name, points] : by_bytes) {
    profile_.kernels.push_back(fit_table(name.first, name.second, points, all_ != nullptr));
    any.insert(any.end(), points.begin(), points.end());
  }
  // Rounds work to half octaves, so that each value has many ops.
  for (MeasuredPoint& point : any)
    point.work = std::exp2(std::round(2 * std::log2(std::max(1.0, point.work))) / 2);
  if (!any.empty()) profile_.kernels.push_back(fit_table("", DType::kF32, any, all_ != nullptr));
  std::ranges::sort(profile_.kernels, {},
                    [](const PriceTable& table) { return std::tuple(table.op, table.form, table.dtype); });
  if (all_ == nullptr && profile_.cores > 0)  // with one core no other rank runs at the same time
    for (PriceTable& table : profile_.kernels) table.shared_seconds = table.seconds;
  for (auto& [key, points] : collectives_)
    profile_.collectives.push_back({key.first, key.second, fit_curve(std::move(points))});
  if (!messages_.empty()) profile_.messages = fit_curve(std::move(messages_));
  for (auto& [tiers, points] : copies_)
    profile_.copies.push_back({tiers.first, tiers.second, fit_curve(std::move(points))});
  profile_.run_s = lower_quartile(run_overheads_s_);
  profile_.stream_switch_s = median(stream_switches_s_);
  profile_.busy_stream_switch_s = std::max(profile_.stream_switch_s, median(busy_stream_switches_s_));
}

Status Calibration::measure_collectives(int32_t members, double budget) {
  const bool is_shared = profile_.cores > 0;
  TSR_ASSIGN_OR_RETURN(const auto devices,
                       runtime_->open_devices(is_shared ? format("{}:{}", backend_, members) : backend_));
  if (devices->size() < members) return {};
  std::vector<int64_t> sizes = kSizes;
  if (members > 4) sizes.pop_back();
  if (is_coarse_) sizes.resize(3);
  const Program program = collectives_program(members, sizes);
  TSR_ASSIGN_OR_RETURN(const MeasuredRun run, measure_run(devices, program, {budget, 9}, fill));
  const std::vector<Instruction>& code = program.ranks[0].entries[0].code;
  for (size_t i = 0; i < code.size(); ++i) {
    double longest = 0;
    for (const std::vector<double>& rank : run.seconds) longest = std::max(longest, rank[i]);
    const auto& collective = std::get<CollectiveInst>(code[i]);
    collectives_[{collective.kind, members}].push_back(
        {4.0 * static_cast<double>(collective.elements), longest, 0});
  }
  return {};
}

Status Calibration::measure_messages(double budget) {
  TSR_ASSIGN_OR_RETURN(const auto devices,
                       runtime_->open_devices(profile_.cores > 0 ? format("{}:2", backend_) : backend_));
  if (devices->size() != 2) return {};
  TSR_ASSIGN_OR_RETURN(const MeasuredRun run,
                       measure_run(devices, messages_program(kSizes), {budget, 9}, fill));
  for (size_t i = 0; i < kSizes.size(); ++i)
    messages_.push_back({static_cast<double>(kSizes[i]), std::max(run.seconds[0][i], run.seconds[1][i]), 0});
  return {};
}

Status Calibration::measure_copies(double budget) {
  for (int from = 0; from < 3; ++from)
    for (int to = 0; to < 3; ++to) {
      if (from == to && from != 0) continue;
      TSR_ASSIGN_OR_RETURN(
          const MeasuredRun run,
          measure_run(one_, copies_program(tier_at(from), tier_at(to), kSizes), {budget / 7, kRounds}, fill));
      std::vector<MeasuredPoint>& points = copies_[{tier_at(from), tier_at(to)}];
      for (size_t i = 0; i < kSizes.size(); ++i)
        points.push_back({static_cast<double>(kSizes[i]), run.seconds[0][i], 0});
    }
  return {};
}

// Each machine sends to the next and receives from the one before, as collectives do: messages of a byte, for the latency, and large ones, for the
// rate. The slowest machine counts, and of the rounds the median.
Status Calibration::measure_network(double budget) {
  constexpr int64_t kLarge = int64_t{8} << 20;
  constexpr int kRounds = 15;
  const tsr_transport_api& api = channel_->transport().api();
  std::vector<std::byte> out(static_cast<size_t>(kLarge)), in(out.size());
  tsr_transport_group* joined = nullptr;
  if (measures_devices_)
    TSR_RETURN_IF_ERROR(take_error(api.join(channel_->get(), host_leaders_.data(), static_cast<int32_t>(host_leaders_.size()), &joined)));
  const std::unique_ptr<tsr_transport_group, void (*)(tsr_transport_group*)> group(joined, api.leave);
  const auto hosts = static_cast<int32_t>(host_leaders_.size());
  const auto me = static_cast<int32_t>(std::ranges::find(host_leaders_, channel_->transport().process()) - host_leaders_.begin());
  const auto pass = [&](int64_t bytes) -> Status {
    if (group == nullptr) return {};
    const tsr_transport_part to{(me + 1) % hosts, out.data(), bytes}, from{(me + hosts - 1) % hosts, in.data(), bytes};
    return take_error(api.exchange(group.get(), &to, 1, &from, 1));
  };
  const auto begun = std::chrono::steady_clock::now();
  const auto seconds_since = [](std::chrono::steady_clock::time_point from) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  };
  const auto median_of = [&](int64_t bytes) -> Result<double> {
    std::vector<double> rounds;
    for (int round = 0; round < kRounds; ++round) {
      TSR_RETURN_IF_ERROR(pass(1));  // all begin together
      const auto at = std::chrono::steady_clock::now();
      TSR_RETURN_IF_ERROR(pass(bytes));
      const double mine = seconds_since(at);
      std::vector<double> all(static_cast<size_t>(channel_->transport().processes()));
      TSR_RETURN_IF_ERROR(channel_->gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))));
      if (round > 0) rounds.push_back(*std::ranges::max_element(all));
      // What one process decides about the time would not be the others' decision.
      double elapsed = seconds_since(begun);
      TSR_RETURN_IF_ERROR(channel_->broadcast(0, std::as_writable_bytes(std::span(&elapsed, 1))));
      if (rounds.size() >= 3 && elapsed > budget) break;
    }
    return median(std::move(rounds));
  };
  TSR_ASSIGN_OR_RETURN(const double small_s, median_of(1));
  TSR_ASSIGN_OR_RETURN(const double large_s, median_of(kLarge));
  profile_.network = {static_cast<double>(kLarge) / std::max(1e-9, large_s - small_s), small_s};
  return {};
}

Status Calibration::measure_stream_switch(double budget) {
  const auto measure = [&](const std::shared_ptr<DeviceSet>& devices) -> Result<double> {
    TSR_ASSIGN_OR_RETURN(const StepProgram made,
                         step_program(kOffloading, one_->cluster(), devices->catalog(), devices->size()));
    const auto fill = [&](Session& session, const std::string& entry) {
      return fill_step(session, entry, made.program, made.step);
    };
    TSR_ASSIGN_OR_RETURN(const MeasuredRun run,
                         measure_run(devices, made.program, {budget / 2, kRounds}, fill));
    return run.stream_switch_s;
  };
  TSR_ASSIGN_OR_RETURN(const double alone_s, measure(one_));
  stream_switches_s_.push_back(alone_s);
  if (all_ == nullptr) return {};
  TSR_ASSIGN_OR_RETURN(const double busy_s, measure(all_));
  busy_stream_switches_s_.push_back(busy_s);
  return {};
}

// Measures whole steps of one rank per core, all computing at once,
// and of twice as many ranks, which share cores or wait in turn.
Status Calibration::measure_oversubscription(double budget) {
  const int32_t cores = profile_.cores;
  if (cores > kMaxOversubscribedCores) return {};
  const int64_t batch = 4 * cores;
  if (oversubscribed_runs_.empty()) {
    const std::string model = format(kOversubscriptionModel, 2 * cores);
    oversubscribed_runs_ = {{cores, format("dp={}", cores)},
                            {2 * cores, format("dp={}", 2 * cores)},
                            {2 * cores, format("pp={}:1f1b", 2 * cores)}};
    // By name: as above.
    for (RankLoad& it : oversubscribed_runs_) {
      TSR_ASSIGN_OR_RETURN(it.devices, runtime_->open_devices(format("{}:{}", backend_, it.ranks)));
      TSR_ASSIGN_OR_RETURN(it.made, step_on_all({model, "adamw", batch, 64, it.parallel},
                                                it.devices->cluster(), it.devices->catalog()));
    }
  }
  constexpr int kTurns = 2;  // each configuration is measured this often in a pass, alternating
  const MeasureOptions brief{budget / (kTurns * static_cast<double>(oversubscribed_runs_.size())), 6, false};
  for (int turn = 0; turn < kTurns; ++turn)
    for (RankLoad& it : oversubscribed_runs_) {
      const auto fill = [&](Session& session, const std::string& entry) {
        return fill_step(session, entry, it.made.program, it.made.step);
      };
      TSR_ASSIGN_OR_RETURN(const MeasuredRun run, measure_run(it.devices, it.made.program, brief, fill));
      it.seconds.push_back(run.run_s);
    }
  return {};
}

// Fits the factors between measured and predicted steps. For more ranks than
// cores the largest loss over all strategies counts, so that close choices
// favour fewer ranks. The median over passes suppresses disturbances.
Status Calibration::fit_oversubscription() {
  const auto priced = std::make_shared<const DeviceProfile>(profile_);
  for (const RankLoad& it : oversubscribed_runs_) {
    Cluster cluster = it.devices->cluster();
    cluster.profile = priced;
    TSR_ASSIGN_OR_RETURN(const Simulation foretold,
                         simulate(it.made.program, it.made.program.ranks[0].entries[0].name, cluster));
    double& most = it.ranks == profile_.cores ? profile_.contention : profile_.oversubscription;
    most = std::max(most, median(it.seconds) / foretold.seconds());
  }
  profile_.oversubscription = std::max(profile_.oversubscription, profile_.contention);
  return {};
}

std::string Calibration::default_path() const {
  return default_profile_path(runtime_->cache_folder(), backend_);
}

Result<std::string> Calibration::text() const {
  TSR_ASSIGN_OR_RETURN(DeviceProfile made, profile());
  return device_profile_to_json(made);
}

Status Calibration::save(const std::string& path) const {
  TSR_ASSIGN_OR_RETURN(DeviceProfile made, profile());
  if (channel_ != nullptr && !(path.empty() ? measures_devices_ : runtime_->is_first_process())) return {};
  const std::string where = path.empty() ? default_path() : path;
  if (where.empty())
    return Status(StatusCode::kInvalidArgument,
                  "there is no cache folder (neither XDG_CACHE_HOME nor HOME is set): name a file");
  return write_profile(made, where);
}

Result<DeviceProfile> Calibration::profile() const {
  if (next_ < pieces_.size())
    return Status(StatusCode::kFailedPrecondition, format("calibration is not done: {} comes next", next()));
  return profile_;
}

}  // namespace tessera
