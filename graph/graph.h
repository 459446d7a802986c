// Graph: a model or a whole training step in SSA form. Append-only, in topological order: a node's inputs exist
// before it. Plain data with one invariant (every node was accepted by its op's `infer`), owned by one thread while
// it is built and read freely after.
//
// Extents may be symbols ("B" batch, "T" sequence); `bind` replaces them before lowering.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/attr.h"
#include "graph/base/result.h"
#include "graph/base/shape.h"
#include "graph/op_def.h"

namespace tessera {

enum class TensorId : uint32_t {};
enum class NodeId : uint32_t {};
inline constexpr NodeId kNoNode = NodeId{0xffffffff};
inline constexpr TensorId kNoTensor = TensorId{0xffffffff};  // no tensor; never in Node::inputs: an absent optional operand is left out
inline constexpr size_t index(TensorId id) { return static_cast<size_t>(id); }
inline constexpr size_t index(NodeId id) { return static_cast<size_t>(id); }

// Stored in model files: append, never renumber.
enum class TensorKind : uint8_t { kInput = 0, kParameter = 1, kConstant = 2, kState = 3, kActivation = 4 };

// backward_input and backward_weight are separate nodes, which zero-bubble schedules need.
enum class Phase : uint8_t { kForward = 0, kBackwardInput = 1, kBackwardWeight = 2, kUpdate = 3 };

struct Tensor {
  std::string name;  // unique in the graph; activations are named "%<n>" unless the builder names them
  TensorType type;
  TensorKind kind = TensorKind::kActivation;
  NodeId producer = kNoNode;
  uint32_t output_index = 0;
  bool trainable = true;  // parameters only: a frozen parameter carries no gradient and no optimizer state
};

struct Node {
  const OpDef* op = nullptr;
  std::vector<Attr> attrs;  // complete: defaults filled in, in the order of op->attrs
  std::vector<TensorId> inputs, outputs;
  std::string scope;        // "block.3.attention"; for messages, traces and stage cuts
  Phase phase = Phase::kForward;
  NodeId forward = kNoNode;  // backward nodes: the forward node whose vjp emitted this one
};

struct Symbol {
  std::string name;       // "B"
  int64_t capacity = 0;   // largest value, 0 when unbounded until bound
};

// An in-place change of a parameter or state after its last reader: target <- value.
struct Update {
  TensorId target, value;
};

// The gradient of a parameter. Summed over micro-batches before any kUpdate node reads it.
struct Gradient {
  TensorId parameter, gradient;
};

struct NamedTensor {
  std::string name;
  TensorId tensor;
};

class Graph {
 public:
  // Declares a symbol, or finds the existing one; returns the extent to write into shapes.
  int64_t symbol(std::string_view name, int64_t capacity = 0);
  std::span<const Symbol> symbols() const { return symbols_; }

  // A graph input, parameter, constant or state. Fails on an empty or repeated name.
  Result<TensorId> add_tensor(std::string name, TensorType type, TensorKind kind);

  // Appends a node: checks attributes (errors name the nearest known
  // name), fills in defaults, runs infer. Outputs are new activations.
  Result<std::vector<TensorId>> add_node(std::string_view op, std::span<const TensorId> inputs,
                                         std::vector<Attr> attrs = {});
  // The same for ops with one output.
  Result<TensorId> add(std::string_view op, std::initializer_list<TensorId> inputs, std::vector<Attr> attrs = {});

  // Sets the scope of nodes appended from here on.
  void set_scope(std::string scope) { scope_ = std::move(scope); }
  const std::string& scope() const { return scope_; }
  void set_phase(Phase phase, NodeId forward = kNoNode) { phase_ = phase; forward_ = forward; }

  // Sets the phase of an existing node: autodiff distinguishes
  // weight gradients from input gradients after all uses.
  void set_phase_of(NodeId node, Phase phase);

  Status rename(TensorId tensor, std::string name);
  void set_trainable(TensorId parameter, bool trainable);
  Status add_output(std::string name, TensorId tensor);  // a name for fetches; replaces an output of the same name
  void clear_outputs() { outputs_.clear(); }
  void add_update(TensorId target, TensorId value) { updates_.push_back({target, value}); }
  void add_gradient(TensorId parameter, TensorId gradient) { gradients_.push_back({parameter, gradient}); }

  std::span<const Node> nodes() const { return nodes_; }
  std::span<const Tensor> tensors() const { return tensors_; }
  const Node& node(NodeId id) const { return nodes_[tessera::index(id)]; }
  const Tensor& tensor(TensorId id) const { return tensors_[tessera::index(id)]; }
  const TensorType& type(TensorId id) const { return tensor(id).type; }
  std::span<const NamedTensor> outputs() const { return outputs_; }
  std::span<const Update> updates() const { return updates_; }
  std::span<const Gradient> gradients() const { return gradients_; }
  std::optional<TensorId> find_tensor(std::string_view name) const;
  std::optional<TensorId> find_output(std::string_view name) const;
  std::vector<TensorId> tensors_of_kind(TensorKind kind) const;  // in id order

  // The same graph with symbols replaced by values; requires every symbol that a shape uses.
  Result<Graph> bind(std::span<const std::pair<std::string, int64_t>> values) const;

  // The same, keeping the symbols that `values` does not name ("B" while the planner still chooses it).
  Result<Graph> bind_partly(std::span<const std::pair<std::string, int64_t>> values) const;

  // Checks everything that a reader of an untrusted file relies on: topology,
  // names, kinds, attributes, types equal to infer's, updates type-equal to
  // their targets, gradients to their parameters (or f32 for bf16 ones).
  Status verify() const;

  // A hash of structure, types and attributes (not of names); equal graphs hash equal on every machine.
  uint64_t fingerprint() const;

 private:
  struct NameHash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };

  std::vector<Symbol> symbols_;
  std::vector<Tensor> tensors_;
  // All names except "%<n>", which is tensor n.
  std::unordered_map<std::string, TensorId, NameHash, std::equal_to<>> named_;
  std::vector<Node> nodes_;
  std::vector<NamedTensor> outputs_;
  std::vector<Update> updates_;
  std::vector<Gradient> gradients_;
  std::string scope_;
  Phase phase_ = Phase::kForward;
  NodeId forward_ = kNoNode;
};

// Text form, exact both ways (graph/print.cc, graph/parse.cc):
//   graph {
//     symbol B; symbol T <= 1024
//     input x: f32[B, T, 64]
//     parameter w: f32[64, 128]
//     h = matmul(x, w) : f32[B, T, 128]
//     y, z = op(h) {axis = 1} @scope "block.0" @phase backward_input
//     output logits = h
//     update w <- w2
//     gradient w = dw
//   }
std::string print(const Graph& graph);
Result<Graph> parse_graph(std::string_view text);

}  // namespace tessera
