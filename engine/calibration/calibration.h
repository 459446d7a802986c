// Calibration: measures a backend's devices step by step, and makes their
// profile. One thread at a time; the machine should be idle otherwise.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/cpu_load.h"
#include "engine/base/runtime.h"
#include "engine/base/work_progress.h"
#include "engine/program/fitted_prices.h"
#include "engine/program/price_grids.h"
#include "engine/program/probe_program.h"
#include "graph/device_profile.h"
#include "runtime/transport.h"

namespace tessera {

class Calibration {
 public:
  // `devices`: "cpu", "cuda", "cuda:0,1". `seconds`: approximate total time.
  static Result<std::unique_ptr<Calibration>> create(std::shared_ptr<Runtime> runtime,
                                                     const std::string& devices, double seconds);

  double done() const;                         // share of the steps; 1: the profile is complete
  WorkProgress progress() const;
  std::string next() const;                    // the next measurement's name: "matrix products"
  Status step();                               // makes the next measurement
  Result<DeviceProfile> profile() const;       // kFailedPrecondition before the last step
  Result<std::string> text() const;            // contents of the profile's file
  Status save(const std::string& path) const;  // empty path: default_path()
  std::string default_path() const;

 private:
  struct Piece {
    std::string name;
    double weight = 1;  // share of the time
    std::function<Status()> measure;
  };
  Calibration() = default;

  Status find_leaders();
  void list_pieces();
  double budget_s(const Piece& piece) const;
  // Seconds of every probe alone and shared; empty if no kernel accepts one.
  Result<std::vector<MeasuredPoint>> measure_probes(const std::vector<Probe>& probes, double budget_s);
  Status measure_grid(PriceGrid& grid, double budget_s);
  Status measure_step(const StepProbe& probe, double budget_s);
  Status measure_collectives(int32_t members, double budget_s);
  Status measure_messages(double budget_s);
  Status measure_copies(double budget_s);
  Status measure_stream_switch(double budget_s);
  Status measure_network(double budget_s);
  Status share_profile();
  Status measure_oversubscription(double budget_s);
  void note_others(const CpuLoad& before, const std::string& piece);
  void fit();
  Status fit_oversubscription();

  std::shared_ptr<Runtime> runtime_;
  std::unique_ptr<Channel> channel_;   // to the other processes; null: there are none
  std::vector<int32_t> host_leaders_;  // the first process of each machine, where there are several
  bool measures_devices_ = true;       // the first process of a machine does so for all of it
  std::string backend_;
  std::shared_ptr<DeviceSet> one_,
      all_;  // all_: one device per shared core; null if cores are not shared
  int32_t most_members_ = 1;
  double seconds_ = 60;
  double clock_s_ = 0, others_s_ = 0;  // totals; others_s_: weighted by the load of others
  bool has_warned_ = false;
  bool is_coarse_ = false;  // too little time for the full grids
  std::vector<Piece> pieces_;
  double all_weights_ = 0;
  size_t next_ = 0;
  // StepPasses: the kernels of a training step that are
  // priced by bytes, in order, with their times in each pass.
  struct StepPasses {
    std::vector<std::pair<std::string, DType>> kernels;
    std::vector<std::vector<MeasuredPoint>> passes;
  };
  std::map<std::string_view, StepPasses> steps_;  // by model
  std::vector<PriceGrid> grids_;
  // Points of all passes, by kind and number of members.
  std::map<std::pair<CollectiveKind, int32_t>, std::vector<MeasuredPoint>> collectives_;  // and members
  std::vector<MeasuredPoint> messages_;
  std::map<std::pair<Tier, Tier>, std::vector<MeasuredPoint>> copies_;
  // RankLoad: several concurrent ranks, and the seconds of their steps.
  struct RankLoad {
    int32_t ranks;
    std::string parallel;
    std::shared_ptr<DeviceSet> devices = nullptr;
    StepProgram made = {};
    std::vector<double> seconds = {};
  };
  std::vector<RankLoad> oversubscribed_runs_;
  std::vector<double> run_overheads_s_, stream_switches_s_, busy_stream_switches_s_;
  DeviceProfile profile_;
};

}  // namespace tessera
