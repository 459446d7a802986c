#include "serialize/token_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>
#include <vector>

#include "graph/base/philox.h"
#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "graph/transform/adapters.h"
#include "graph/transform/weight_storage.h"

namespace tessera {
namespace {

constexpr std::string_view kTable = "token_embedding";
constexpr double kSpread = 1e-9;  // of the covariance of rows, and of the deviation of biases

uint64_t salt_of(std::string_view name) {  // FNV-1a
  uint64_t hash = 14695981039346656037u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

double normal(uint64_t seed, uint64_t salt, uint64_t index) {  // Box-Muller
  const auto bits = philox_bits(seed, salt, index);
  const double u = 1 - uniform_from_bits(bits[0], bits[1]), v = uniform_from_bits(bits[2], bits[3]);
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

// New rows of a table [V, C], or elements of a bias [V]. The sum of normal
// numbers times the old rows' deviations from their mean has their covariance.
std::vector<float> draw_rows(std::span<const float> old, int64_t rows, int64_t width, int64_t added,
                             double factor, uint64_t seed, std::string_view name) {
  const auto C = static_cast<size_t>(width);
  std::vector<double> mean(C);
  for (size_t i = 0; i < old.size(); ++i) mean[i % C] += old[i];
  for (double& value : mean) value /= static_cast<double>(rows);
  std::vector<float> drawn;
  drawn.reserve(static_cast<size_t>(added) * C);
  const uint64_t salt = salt_of(name);
  std::vector<double> sum(C);
  for (int64_t row = 0; row < added; ++row) {
    std::ranges::fill(sum, 0.0);
    for (int64_t i = 0; i < rows; ++i) {
      const double weight = normal(seed, salt, static_cast<uint64_t>(row * rows + i));
      const float* const from = old.data() + static_cast<size_t>(i) * C;
      for (size_t c = 0; c < C; ++c) sum[c] += weight * (from[c] - mean[c]);
    }
    for (size_t c = 0; c < C; ++c)
      drawn.push_back(static_cast<float>(mean[c] + factor / std::sqrt(static_cast<double>(rows)) * sum[c]));
  }
  return drawn;
}

Result<HostTensor> resized(const std::string& name, const HostTensor& value, const TensorType& type,
                           uint64_t seed) {
  const Shape& shape = type.shape;
  const int64_t before = value.type.shape[0], rows = shape[0], added = std::max<int64_t>(0, rows - before);
  const int64_t width = shape.rank() == 1 ? 1 : shape[1];
  std::span<std::byte> out;
  HostTensor made = HostTensor::zeros(type, &out);
  const size_t row_bytes = out.size() / static_cast<size_t>(rows),
               kept = row_bytes * static_cast<size_t>(std::min(before, rows));
  std::memcpy(out.data(), value.data.data(), kept);
  if (added == 0) return made;
  TSR_ASSIGN_OR_RETURN(const HostTensor wide, widen_weight(value));
  if (wide.type.dtype != DType::kF32)
    return Status(StatusCode::kUnsupported,
                  format("'{}' is {}: rows can be added to tables of f32, 16 bits and block types", name,
                         to_text(value.type)));
  const std::vector<float> drawn =
      draw_rows(wide.as<float>(), before, width, added, shape.rank() == 1 ? kSpread : std::sqrt(kSpread), seed, name);
  const Shape new_shape = shape.rank() == 1 ? Shape{added} : Shape{added, width};
  HostTensor rows_added = HostTensor::copy_of<float>({DType::kF32, new_shape}, drawn);
  if (type.dtype != DType::kF32) {
    TSR_ASSIGN_OR_RETURN(rows_added, quantize_weight(rows_added, {type.dtype, new_shape}));
  }
  std::memcpy(out.data() + kept, rows_added.data.data(), out.size() - kept);
  return made;
}

// The shape with `rows` instead of `before` rows.
bool is_resized(const Shape& from, const Shape& to, int64_t before, int64_t rows) {
  if (from.rank() != to.rank() || from.rank() == 0 || from.rank() > 2) return false;
  return from[0] == before && to[0] == rows && (from.rank() == 1 || from[1] == to[1]);
}

}  // namespace

int64_t token_rows(const Model& model) {
  const std::optional<TensorId> table = model.graph.find_tensor(kTable);
  return table ? model.graph.type(*table).shape[0] : 0;
}

Result<Model> with_token_rows(const Model& model, int64_t rows, uint64_t seed) {
  const auto description = model.metadata.find("description");
  const int64_t before = token_rows(model);
  if (description == model.metadata.end() || before == 0)
    return Status(StatusCode::kUnsupported,
                  "the model is of no known family with a token table: its rows cannot be changed");
  if (rows < 1 || rows > INT32_MAX)
    return Status(StatusCode::kInvalidArgument, format("{} rows of tokens, wanted 1 to {}", rows, INT32_MAX));
  TSR_ASSIGN_OR_RETURN(const LogicalGraph logical, with_logical_weights(model.graph));
  if (!find_adapters(logical.graph).empty())
    return Status(StatusCode::kFailedPrecondition,
                  "the model has adapters: change the rows of its base, or merge them first");
  TSR_ASSIGN_OR_RETURN(ModelConfig config, parse_shorthand(description->second));
  config.sizes["V"] = rows;
  if (const auto layer_rows = config.sizes.find("PV"); layer_rows != config.sizes.end() && layer_rows->second == before)
    layer_rows->second = rows;
  TSR_ASSIGN_OR_RETURN(Graph graph, build_model(config));
  for (const TensorId id : logical.graph.tensors_of_kind(TensorKind::kParameter)) {
    const Tensor& old = logical.graph.tensor(id);
    const std::optional<TensorId> found = graph.find_tensor(old.name);
    const bool fits = found && (graph.type(*found).shape == old.type.shape ||
                                is_resized(old.type.shape, graph.type(*found).shape, before, rows));
    if (!fits)
      return Status(StatusCode::kUnsupported,
                    format("parameter '{}' is [{}], which {} rows of tokens do not follow from", old.name,
                           old.type.shape, rows));
    graph.set_trainable(*found, old.trainable);
  }
  Model made = model;
  TSR_ASSIGN_OR_RETURN(made.graph, with_stored_weights(graph, {.types = logical.stored}));
  made.metadata["description"] = to_text(config);
  for (auto& [name, value] : made.parameters) {
    const std::optional<TensorId> id = made.graph.find_tensor(name);
    if (!id) continue;
    const TensorType& type = made.graph.type(*id);
    if (value.type.shape == type.shape && value.type.dtype == type.dtype) continue;
    if (value.type.dtype != type.dtype) {
      TSR_ASSIGN_OR_RETURN(value, widen_weight(value));
    }
    if (value.type.dtype != type.dtype)
      return Status(StatusCode::kUnsupported,
                    format("parameter '{}' is {}, wanted {}", name, to_text(value.type), to_text(type)));
    if (value.type.shape == type.shape) continue;
    TSR_ASSIGN_OR_RETURN(value, resized(name, value, type, seed));
  }
  return made;
}

}  // namespace tessera
