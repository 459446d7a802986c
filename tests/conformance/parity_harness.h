// The parity harness: a model trained under a plan on CPU virtual devices, held against one device.
//
// Measures: loss relative; gradients max|dg| over the model's max|g|; weights after AdamW per tensor ||dw|| /
// ||w||, except for tensors whose gradient norm is far under the model's (a mathematically zero gradient is
// noise, and Adam normalises it), which are listed by name; weights after SGD with momentum per tensor
// max|dw| / max|w|.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/plan.h"
#include "graph/program.h"
#include "runtime/session.h"
#include "runtime/transport.h"

namespace tessera::parity {

struct Job {
  std::string model;  // a shorthand: "gpt2:L=2,C=32,H=8,V=61,T=16"; or "block", "masked"
  DType dtype = DType::kF64;
  int64_t batch = 12, tokens = 13;
  bool tied = true;
  std::string optimizer = "adamw";
  double lr = 1e-3;
  int steps = 5;
  double clip_norm = 0;
  double loss_scaling = 0;  // the first factor on the loss; 0: none
  double dropout = 0;
  // Parameters whose name contains one of these train; all when empty (low-rank adapters freeze the rest).
  std::vector<std::string> trainable = {};
  int64_t lora = 0;       // > 0: adapters of this rank on the matmuls of every block, the rest frozen
  bool gradients = true;  // fetch every gradient of the first step: one output each
  // Not 0: random short waits, everything that may overlap on a stream of its own, and a watchdog.
  uint64_t perturbation_seed = 0;
  uint32_t reordered = 0;  // not 0: the model written down in a random order of its nodes
  bool evaluates = false;  // an evaluation of the trained weights next to the step, on the same mesh
  // Weights are rounded to it where they are used, which any backend can do; kF32: they are not.
  DType rounded_weights = DType::kF32;
  // Weights of matmuls that do not train are stored so; kF32: as they are computed.
  DType stored_weights = DType::kF32;
  DType precision = DType::kF32;      // bf16, or f16, which the CPU does not compute: mixed precision
  bool fp8_matmuls = false;           // linear layers of blocks in 8 bits
  bool tf32_matmuls = false;          // products of f32 in TF32
  bool fused_gelu_gradients = false;  // gradients through gelu in their products; one device has them apart
  bool fuses_kernels = false;         // joins what it can when lowering; one device has it apart
  bool fused_loss = false;  // head and loss as one op; one device, against which it is held, keeps the logits
  bool squares_losses = false;  // the sum of squares of tokens' losses, which reads each of them
  // The ranks live in so many processes, which are threads here; as many as there are ranks, if these are fewer.
  int32_t processes = 1;
};

struct Outcome {
  StatusCode code = StatusCode::kOk;
  std::string error = "ok";
  std::vector<double> losses;                            // of the steps, then of the evaluation
  std::map<std::string, std::vector<double>> gradients;  // of the first step
  std::map<std::string, std::vector<double>> weights;    // after the last
  std::vector<MemoryReport> memory;
  std::vector<CommReport> sent;  // by the first step
  Program program;
  int64_t allocations_after_first_step = 0;
  bool ok() const { return code == StatusCode::kOk; }
};

// forward, backward and update in the job's element type; symbols unbound.
Result<Graph> step_graph(const Job& job);

// The plan of words of --parallel, and a change made to it by hand.
using PlanEdit = std::function<Status(const Graph& step, Plan& plan)>;
Result<Plan> plan_of(const Graph& step, const Job& job, std::string_view words, const PlanEdit& edit = {});

// With several processes: the values of the first, the memory and the bytes of all.
Outcome run(const Job& job, std::string_view words, const PlanEdit& edit = {});
// This process' part of it, in a world of which every process calls this at once.
Outcome run_in_world(const Job& job, std::string_view words, const std::shared_ptr<Transport>& transport);
Outcome run_plan(const Job& job, const Graph& step, const Plan& plan);

// The same on one device, without fused loss, made once a job.
const Outcome& on_one_device(const Job& job);

// Why two outcomes of one plan differ in their bits or in the bytes that were sent; empty: they do not.
std::string difference_of(const Outcome& a, const Outcome& b);

struct Deviation {
  double loss = 0, gradient = 0, weights = 0;
  std::vector<std::string> noise;  // tensors left out of `weights`
};
Deviation deviation(const Job& job, const Outcome& single, const Outcome& other);

inline double tolerance(DType dtype) { return dtype == DType::kF64 ? 1e-12 : 1e-5; }

// One line of the table: what was run, how far it was from one device, and its memory.
struct Row {
  std::string form, model;
  int32_t devices = 0;
  DType dtype = DType::kF64;
  bool ran = false;
  std::string refused;  // the message, when it did not run
  StatusCode code = StatusCode::kOk;
  double loss = 0, gradient = 0, adamw = 0, sgd = 0;
  int64_t arena = 0;  // largest over the devices
  bool arena_exact = true;
  bool bytes_exact = true;  // what the communicators counted is what the program says
  int64_t allocations = 0;
  std::vector<std::string> noise;
  bool good() const;
};

// Trains with AdamW (gradients fetched) and with SGD with momentum, both held against one device.
Row measure(const Job& job, std::string_view words, const PlanEdit& edit = {}, std::string_view label = {});
std::string to_text(const Row& row);
void print_header();
// Prints the line and checks it.
void check(const Row& row);

}  // namespace tessera::parity
