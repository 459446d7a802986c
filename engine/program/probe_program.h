// Probe programs for measurements: kernels, collectives
// and copies by size, and whole training steps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/kernel_catalog.h"
#include "graph/program.h"
#include "runtime/session.h"

namespace tessera {

struct Probe {
  std::string op;
  std::vector<Attr> attrs;
  std::vector<TensorType> inputs;
};

// ProbeProgram: one instruction per probe, in order, equal on `ranks` ranks,
// with a barrier before each if there are several. `kept` lists the probes that
// a kernel accepts; probe kept[i] is instruction i on 1 rank, else 2 i + 1.
struct ProbeProgram {
  Program program;
  std::vector<size_t> kept;
};
Result<ProbeProgram> probe_program(const std::vector<Probe>& probes, const KernelCatalog& catalog,
                                   int32_t ranks);
// Writes small numbers to all inputs, also of collectives, messages and copies.
Status fill_probes(Session& session);

// StepProbe: a training step of one device, the same on `ranks` independent ranks.
struct StepProbe {
  std::string_view model;  // "gpt2:L=1,C=64,..."
  std::string_view optimizer;
  int64_t batch, seq;
  std::string_view parallel = "dp=1";
};
struct StepProgram {
  Program program;
  Graph step;
};
Result<StepProgram> step_program(const StepProbe& probe, const Cluster& one_device,
                                 const KernelCatalog& catalog, int32_t ranks);
// The step on all devices of `cluster`, parallel as `probe.parallel`.
Result<StepProgram> step_on_all(const StepProbe& probe, const Cluster& cluster, const KernelCatalog& catalog);
Status fill_step(Session& session, const std::string& entry, const Program& program, const Graph& step);

// Every kind of collective at every size (bytes of the whole tensor), kind by kind.
Program collectives_program(int32_t ranks, const std::vector<int64_t>& sizes);
// Messages from rank 0 to rank 1.
Program messages_program(const std::vector<int64_t>& sizes);
Program copies_program(Tier from, Tier to, const std::vector<int64_t>& sizes);

}  // namespace tessera
