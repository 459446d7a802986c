#include "graph/transform/weight_storage.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "graph/base/half.h"
#include "graph/base/text.h"
#include "graph/transform/graph_copy.h"

namespace tessera {

namespace {

constexpr int64_t kInt8Group = 64, kSmallGroup = 32;

bool is_half(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

// Uses: the readers of a parameter, directly or through a cast to 16 bits.
struct Uses {
  int products = 0, tables = 0;
  int others = 0;  // of the parameter itself
  int others_of_cast = 0;
  std::optional<DType> cast_to;
  bool two_casts = false;
};

class Storing {
 public:
  Storing(const Graph& source, WeightFormat format) : copy_(source), format_(format) {}

  Result<Graph> run() {
    const Graph& source = copy_.source();
    find_uses();
    stored_.resize(source.tensors().size());
    scales_.assign(source.tensors().size(), kNoTensor);
    for (size_t i = 0; i < source.tensors().size(); ++i) {
      const TensorId id{static_cast<uint32_t>(i)};
      const Tensor& tensor = source.tensor(id);
      if (tensor.producer == kNoNode) {
        TSR_RETURN_IF_ERROR(tensor.kind == TensorKind::kParameter ? add_parameter(id)
                                                                  : copy_.copy_tensor(id));
      } else if (tensor.output_index == 0) {
        TSR_RETURN_IF_ERROR(add_node(tensor.producer));
      }
    }
    TSR_RETURN_IF_ERROR(copy_.copy_results());
    return std::move(copy_.graph());
  }

 private:
  // The parameter that a tensor is, or is a cast to 16 bits of; kNoTensor for others.
  TensorId parameter_of(TensorId id) const {
    const Graph& source = copy_.source();
    const Tensor* tensor = &source.tensor(id);
    if (tensor->producer != kNoNode && source.node(tensor->producer).op->name == "cast" &&
        is_half(tensor->type.dtype)) {
      id = source.node(tensor->producer).inputs[0];
      tensor = &source.tensor(id);
    }
    return tensor->kind == TensorKind::kParameter && tensor->type.dtype == DType::kF32 ? id : kNoTensor;
  }

  void find_uses() {
    const Graph& source = copy_.source();
    uses_.resize(source.tensors().size());
    const auto note_other = [&](TensorId id) {
      if (const TensorId parameter = parameter_of(id); parameter != kNoTensor)
        ++(parameter == id ? uses_[index(parameter)].others : uses_[index(parameter)].others_of_cast);
    };
    for (const Node& node : source.nodes())
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const TensorId parameter = parameter_of(node.inputs[i]);
        if (parameter == kNoTensor) continue;
        Uses& uses = uses_[index(parameter)];
        if (node.op->name == "matmul" && i == 1 && attr_i64(node.attrs, "trans_w") == 1) {
          ++uses.products;
        } else if (node.op->name == "embedding" && i == 0) {
          ++uses.tables;
        } else if (parameter == node.inputs[i] && node.op->name == "cast" &&
                   is_half(source.type(node.outputs[0]).dtype)) {
          const DType to = source.type(node.outputs[0]).dtype;
          uses.two_casts |= uses.cast_to && *uses.cast_to != to;
          uses.cast_to = to;
        } else {
          note_other(node.inputs[i]);
        }
      }
    for (const NamedTensor& output : source.outputs()) note_other(output.tensor);
    for (const Update& update : source.updates()) {
      note_other(update.target);
      note_other(update.value);
    }
  }

  // The type in which the parameter is stored; its own where it stays.
  DType storage_of(TensorId id) const {
    const Tensor& tensor = copy_.source().tensor(id);
    const Uses& uses = uses_[index(id)];
    if (tensor.type.dtype != DType::kF32 || uses.others > 0 || uses.two_casts) return tensor.type.dtype;
    if (uses.products + uses.tables == 0 && !uses.cast_to) return tensor.type.dtype;
    const bool only_products = uses.products > 0 && uses.tables + uses.others_of_cast == 0;
    if (only_products && tensor.type.shape.is_concrete() && tensor.type.shape[1] > 0 &&
        tensor.type.shape[1] % kSmallGroup == 0) {
      if (format_ == WeightFormat::kInt8) return DType::kI8;
      if (format_ == WeightFormat::kInt4) return DType::kU8;
    }
    return uses.cast_to.value_or(DType::kBF16);
  }

  Status add_parameter(TensorId id) {
    const Tensor& tensor = copy_.source().tensor(id);
    const DType dtype = storage_of(id);
    if (dtype == tensor.type.dtype) return copy_.copy_tensor(id);
    Graph& graph = copy_.graph();
    TensorType type{dtype, tensor.type.shape};
    if (dtype == DType::kU8) type.shape.set(1, tensor.type.shape[1] / 2);
    TSR_ASSIGN_OR_RETURN(const TensorId numbers, graph.add_tensor(tensor.name, type, TensorKind::kParameter));
    graph.set_trainable(numbers, false);
    copy_.replace(id, numbers);
    stored_[index(id)] = true;
    if (is_half(dtype)) return {};
    const int64_t row = tensor.type.shape[1];
    const int64_t group = dtype == DType::kI8 && row % kInt8Group == 0 ? kInt8Group : kSmallGroup;
    TSR_ASSIGN_OR_RETURN(
        scales_[index(id)],
        graph.add_tensor(scale_name(tensor.name), {DType::kF16, {tensor.type.shape[0], row / group}},
                         TensorKind::kParameter));
    graph.set_trainable(scales_[index(id)], false);
    return {};
  }

  Status add_node(NodeId id) {
    const Node& node = copy_.source().node(id);
    if (node.phase != Phase::kForward)
      return Status(StatusCode::kFailedPrecondition,
                    "how weights are stored is settled for a graph that only runs: this one has gradients");
    const auto is_stored = [&](size_t input) {
      const TensorId parameter = parameter_of(node.inputs[input]);
      return parameter != kNoTensor && stored_[index(parameter)];
    };
    const auto is_direct = [&](size_t input) {
      return parameter_of(node.inputs[input]) == node.inputs[input];
    };
    if (node.op->name == "cast" && is_stored(0) && is_direct(0)) {
      // The stored weight replaces its cast.
      copy_.replace(node.outputs[0], copy_.mapped(node.inputs[0]));
      return {};
    }
    if (node.op->name == "matmul" && is_stored(1)) return add_product(id);
    if (node.op->name == "embedding" && is_stored(0) && is_direct(0)) return add_look_up(id);
    return copy_.copy_node(id);
  }

  // With an activation, the value before it is a result too.
  Status add_product(NodeId id) {
    const Node& node = copy_.source().node(id);
    Graph& graph = copy_.graph();
    const TensorId parameter = parameter_of(node.inputs[1]);
    const TensorId x = copy_.mapped(node.inputs[0]), w = copy_.mapped(parameter);
    if (graph.type(x).dtype == graph.type(w).dtype) return copy_.copy_node(id);
    std::vector<TensorId> inputs = {x, w};
    if (scales_[index(parameter)] != kNoTensor) inputs.push_back(scales_[index(parameter)]);
    if (node.inputs.size() == 3) inputs.push_back(copy_.mapped(node.inputs[2]));
    graph.set_scope(node.scope);
    TSR_ASSIGN_OR_RETURN(std::vector<TensorId> results, graph.add_node("quantized_matmul", inputs));
    if (const std::string& activation = attr_string(node.attrs, "activation"); activation != "none") {
      TSR_ASSIGN_OR_RETURN(const TensorId active, graph.add(activation, {results[0]}));
      results = {active, results[0]};
    }
    graph.set_scope("");
    return replace_results(node, results);
  }

  Status add_look_up(NodeId id) {
    const Node& node = copy_.source().node(id);
    Graph& graph = copy_.graph();
    graph.set_scope(node.scope);
    TSR_ASSIGN_OR_RETURN(const TensorId rows, graph.add("embedding", {copy_.mapped(node.inputs[0]),
                                                                      copy_.mapped(node.inputs[1])}));
    const DType wanted = copy_.source().type(node.outputs[0]).dtype;
    TSR_ASSIGN_OR_RETURN(const TensorId result, graph.add("cast", {rows}, {{"dtype", to_text(wanted)}}));
    graph.set_scope("");
    return replace_results(node, {result});
  }

  Status replace_results(const Node& node, const std::vector<TensorId>& results) {
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      copy_.replace(node.outputs[i], results[i]);
      const std::string& name = copy_.source().tensor(node.outputs[i]).name;
      if (!name.starts_with('%')) TSR_RETURN_IF_ERROR(copy_.graph().rename(results[i], name));
    }
    return {};
  }

  GraphCopy copy_;
  const WeightFormat format_;
  std::vector<Uses> uses_;        // by tensor of the source
  std::vector<bool> stored_;      // a parameter that is stored in another type than its own
  std::vector<TensorId> scales_;  // the same: of the new graph
};

Status not_storable(float value) {
  return Status(
      StatusCode::kInvalidArgument,
      format("a weight is {}: numbers in groups with an f16 scale are finite and below 65504 times the "
             "largest integer",
             static_cast<double>(value)));
}

// Stores `count` numbers with one scale: i8 symmetric around 0. Returns the scale as it is stored.
Result<uint16_t> store_int8(const float* from, int64_t count, int8_t* to) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(from[i])) return not_storable(from[i]);
    largest = std::max(largest, std::fabs(from[i]));
  }
  const uint16_t bits = f16_from_f32(largest / 127);
  const float scale = f32_from_f16(bits);
  if (!std::isfinite(scale)) return not_storable(largest);
  for (int64_t i = 0; i < count; ++i) {
    const float number = scale == 0 ? 0 : std::nearbyint(from[i] / scale);
    to[i] = static_cast<int8_t>(std::clamp(number, -127.0f, 127.0f));
  }
  return bits;
}

// Stores 4-bit numbers. The one furthest from 0 becomes -8 exactly, so the scale may be negative and all 16
// values are used.
Result<uint16_t> store_int4(const float* from, int64_t count, uint8_t* to) {
  float furthest = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(from[i])) return not_storable(from[i]);
    if (std::fabs(from[i]) > std::fabs(furthest)) furthest = from[i];
  }
  const uint16_t bits = f16_from_f32(furthest / -8);
  const float scale = f32_from_f16(bits);
  if (!std::isfinite(scale)) return not_storable(furthest);
  const auto number = [&](int64_t i) {
    const float steps = scale == 0 ? 0 : std::nearbyint(from[i] / scale);
    return static_cast<uint8_t>(std::clamp(steps, -8.0f, 7.0f) + 8);
  };
  for (int64_t unit = 0; unit < count; unit += 32)
    for (int64_t i = 0; i < 16; ++i)
      to[unit / 2 + i] = static_cast<uint8_t>(number(unit + i) | number(unit + 16 + i) << 4);
  return bits;
}

}  // namespace

std::optional<WeightFormat> weight_format_from_name(std::string_view name) {
  if (name == "model") return WeightFormat::kModel;
  if (name == "bf16") return WeightFormat::kBF16;
  if (name == "int8") return WeightFormat::kInt8;
  if (name == "int4") return WeightFormat::kInt4;
  return std::nullopt;
}

Result<Graph> with_stored_weights(const Graph& graph, WeightFormat format) {
  if (format == WeightFormat::kModel) return graph;
  return Storing(graph, format).run();
}

Result<StoredWeight> quantize_weight(const HostTensor& value, const TensorType& numbers,
                                     const TensorType* scales) {
  const bool packed = numbers.dtype == DType::kU8;
  const int64_t count = value.type.dtype == DType::kF32 ? value.type.shape.elements() : -1;
  if (count < 0 || count != numbers.shape.elements() * (packed ? 2 : 1))
    return Status(StatusCode::kInvalidArgument,
                  format("a weight {} cannot be stored as {}", to_text(value.type), to_text(numbers)));
  const float* from = value.as<float>().data();
  std::span<std::byte> bytes;
  StoredWeight stored{HostTensor::zeros(numbers, &bytes), std::nullopt};
  if (is_half(numbers.dtype)) {
    auto* to = reinterpret_cast<uint16_t*>(bytes.data());
    const bool brain = numbers.dtype == DType::kBF16;
    for (int64_t i = 0; i < count; ++i) to[i] = brain ? bf16_from_f32(from[i]) : f16_from_f32(from[i]);
    return stored;
  }
  if (scales == nullptr || (numbers.dtype != DType::kI8 && !packed))
    return Status(StatusCode::kInvalidArgument, format("a weight {} cannot be stored as {} without scales",
                                                       to_text(value.type), to_text(numbers)));
  std::span<std::byte> scale_bytes;
  stored.scales = HostTensor::zeros(*scales, &scale_bytes);
  auto* scale = reinterpret_cast<uint16_t*>(scale_bytes.data());
  const int64_t groups = scales->shape.elements(), group = groups == 0 ? 0 : count / groups;
  for (int64_t g = 0; g < groups; ++g) {
    std::byte* to = bytes.data() + (packed ? g * group / 2 : g * group);
    TSR_ASSIGN_OR_RETURN(scale[g], packed
                                       ? store_int4(from + g * group, group, reinterpret_cast<uint8_t*>(to))
                                       : store_int8(from + g * group, group, reinterpret_cast<int8_t*>(to)));
  }
  return stored;
}

}  // namespace tessera
