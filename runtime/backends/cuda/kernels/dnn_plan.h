// DnnPlan: one fused cuDNN kernel for a graph of its operations.
#pragma once

#include <compare>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/backends/cuda/kernels/dnn_graph.h"

namespace tessera::cuda {

// The device that plans are made for: that of a handle, or one that is only described (`properties`, a
// finished descriptor of the caller's).
struct DnnDevice {
  cudnnHandle_t handle = nullptr;
  const DnnDescriptor* properties = nullptr;
};

// DnnEngine: the library's kernel for a graph, by its number and settings.
struct DnnEngine {
  int64_t index = 0;
  std::vector<std::pair<cudnnBackendKnobType_t, int64_t>> knobs;

  std::string text() const;  // "engine 2 (24=7)"
  auto operator<=>(const DnnEngine&) const = default;
};

// Used by any number of threads once it is compiled.
class DnnPlan {
 public:
  // Chooses the first engine that the library's heuristic proposes, supports, and does not call
  // nondeterministic. Compiles nothing (some milliseconds).
  static Result<DnnPlan> propose(const DnnDevice& device, DnnGraph graph);
  static Result<DnnPlan> with_engine(const DnnDevice& device, DnnGraph graph, const DnnEngine& engine);

  const DnnEngine& engine() const { return engine_; }
  int64_t workspace_bytes() const { return workspace_bytes_; }

  // Compiles the kernel, which takes tenths of a second.
  Status compile();

  struct Binding {
    int64_t id;
    void* address;
  };
  // Issues to the stream of `handle`, which no other thread uses meanwhile. The workspace is at a multiple of
  // 256 bytes.
  Status execute(cudnnHandle_t handle, std::span<const Binding> bindings, void* workspace) const;

 private:
  DnnPlan(const DnnDevice& device, DnnGraph graph);
  Status read_configuration();

  DnnDevice device_;
  DnnGraph graph_;
  std::vector<DnnDescriptor> choices_;  // an engine and its settings, which the configuration names
  DnnDescriptor configuration_, plan_;
  DnnEngine engine_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace tessera::cuda
