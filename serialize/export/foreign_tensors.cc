#include "serialize/export/foreign_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "graph/base/text.h"
#include "graph/transform/weight_storage.h"
#include "serialize/export/source_stream.h"
#include "serialize/quantization.h"

namespace tessera {
namespace {

using Stream = std::shared_ptr<SourceStream>;

constexpr std::string_view kExpert = "@";

class ForeignTensorMaker {
 public:
  ForeignTensorMaker(const Graph& graph, const ForeignLayout& layout) : graph_(graph), layout_(layout) {
    if (layout.heads) order_ = row_order(*layout.heads);
  }

  Result<std::vector<TensorSource>> run(std::vector<TensorSource> parameters) {
    for (TensorSource& parameter : parameters) {
      std::string name = parameter.name;
      sources_.emplace(std::move(name), std::move(parameter));
    }
    for (const TensorId id : graph_.tensors_of_kind(TensorKind::kParameter)) {
      const std::string& parameter = graph_.tensor(id).name;
      if (layout_.left_out.contains(parameter) || done_.contains(parameter)) continue;
      TSR_RETURN_IF_ERROR(add(parameter));
    }
    return std::move(made_);
  }

 private:
  Status add(const std::string& parameter) {
    const std::optional<ForeignName> name = layout_.names.find(parameter);
    if (!name)
      return Status(StatusCode::kUnsupported,
                    format("parameter '{}' has no name in {} files", parameter, layout_.format));
    std::vector<TensorSource> parts;
    if (name->parts[0].empty()) {
      TSR_ASSIGN_OR_RETURN(TensorSource part, take(parameter));
      parts.push_back(std::move(part));
    }
    for (const std::string& each : name->parts) {
      if (each.empty()) break;
      TSR_ASSIGN_OR_RETURN(TensorSource part, take(each));
      parts.push_back(std::move(part));
    }
    if (parts[0].type.shape.rank() < 2) return add_vector(*name, parts);
    if (name->tensor.find(kExpert) != std::string::npos) return add_experts(*name, std::move(parts[0]));
    for (const TensorSource& part : parts)
      if (part.type.dtype != parts[0].type.dtype) {
        for (TensorSource& each : parts)
          if (each.type.dtype != DType::kF32) each = encode_source(std::move(each), DType::kF32);
        break;
      }
    for (TensorSource& part : parts)
      if (!order_.empty() && has_rotated_rows(part.name)) part = reordered(std::move(part));
    const int64_t turns = parts[0].type.shape.rank() == 3            ? parts[0].type.shape[0]
                          : name->change == ValueChange::kByKeyHead ? layout_.states.G
                                                                    : 1;
    TensorSource tensor = is_alternating(name->change)  ? as_columns(std::move(parts))
                          : is_transposed(name->change) ? as_columns(joined(std::move(parts), 1))
                                                        : std::move(joined(std::move(parts), turns)[0]);
    if (name->change == ValueChange::kPlusOne)
      return Status(StatusCode::kUnsupported,
                    format("matrix '{}' is stored less one in {} files", parameter, layout_.format));
    tensor.name = name->tensor;
    if (name->change == ValueChange::kApart) tensor.type.shape = {tensor.type.shape[0], 1, tensor.type.shape[1]};
    made_.push_back(std::move(tensor));
    return {};
  }

  Result<TensorSource> take(const std::string& parameter) {
    const auto found = sources_.find(parameter);
    if (found == sources_.end())
      return Status(StatusCode::kInvalidArgument, format("parameter '{}' has no value", parameter));
    done_.insert(parameter);
    return with_heads_in_order(std::move(found->second), layout_.states);
  }

  // ---- what has one dim: computed at once

  Status add_vector(const ForeignName& name, const std::vector<TensorSource>& parts) {
    std::vector<float> values;
    for (const TensorSource& part : parts) {
      TSR_ASSIGN_OR_RETURN(const HostTensor stored, read_whole(part));
      TSR_ASSIGN_OR_RETURN(const HostTensor wide, widen_weight(stored));
      std::vector<float> own(wide.as<float>().begin(), wide.as<float>().end());
      if (!order_.empty() && has_rotated_rows(part.name)) own = reordered(own);
      values.insert(values.end(), own.begin(), own.end());
    }
    if (name.change == ValueChange::kPlusOne)
      for (float& value : values) value -= 1;
    const bool is_log = name.change == ValueChange::kLogNegated || name.change == ValueChange::kLogNegatedColumn;
    if (is_log)
      for (float& value : values) value = -std::exp(value);
    const auto count = static_cast<int64_t>(values.size());
    Shape shape = parts[0].type.shape;
    if (parts.size() > 1) shape = {count};
    if (name.change == ValueChange::kColumn || name.change == ValueChange::kLogNegatedColumn) shape = {count, 1};
    if (name.change == ValueChange::kGroups) shape = {layout_.states.G, count / layout_.states.G};
    TSR_ASSIGN_OR_RETURN(HostTensor tensor,
                         in_type(HostTensor::copy_of<float>({DType::kF32, shape}, values), name.tensor));
    made_.push_back(source_in_memory(name.tensor, std::move(tensor)));
    return {};
  }

  Result<HostTensor> in_type(HostTensor wide, const std::string& tensor) const {
    const DType type = layout_.vector_type;
    if (type == DType::kF32) return wide;
    Result<HostTensor> quantized = quantize_weight(wide, {type, wide.type.shape});
    if (!layout_.only_exact) {
      if (!quantized.ok()) return quantized.status().with_context(tensor);
      return quantized;
    }
    if (!quantized.ok()) return wide;
    TSR_ASSIGN_OR_RETURN(const HostTensor again, widen_weight(*quantized));
    return std::ranges::equal(again.data, wide.data) ? quantized : wide;
  }

  std::vector<float> reordered(const std::vector<float>& values) const {
    std::vector<float> out(values.size());
    const size_t D = order_.size();
    for (size_t i = 0; i < values.size(); ++i)
      out[i] = values[i / D * D + static_cast<size_t>(order_[i % D])];
    return out;
  }

  // ---- matrices: slice by slice

  // One head at a time.
  TensorSource reordered(TensorSource from) const {
    const int64_t row_bytes = bytes(from.type) / from.type.shape[0];
    const auto head_bytes = static_cast<size_t>(row_bytes) * order_.size();
    TensorSource out{from.name, from.type, {}, static_cast<int64_t>(head_bytes), {}, {}};
    out.read = [stream = std::make_shared<SourceStream>(std::move(from)), order = order_, head_bytes,
                row = static_cast<size_t>(row_bytes)](
                   int64_t, std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
      std::vector<std::byte> head(head_bytes);
      for (size_t at = 0; at < buffer.size(); at += head_bytes) {
        TSR_RETURN_IF_ERROR(stream->read(head));
        for (size_t i = 0; i < order.size(); ++i)
          std::memcpy(buffer.data() + at + i * row, head.data() + static_cast<size_t>(order[i]) * row, row);
      }
      return std::span<const std::byte>(buffer);
    };
    return out;
  }

  // Concatenates the rows of the parts, in so many turns: those of each expert, or of each head of keys.
  static std::vector<TensorSource> joined(std::vector<TensorSource> parts, int64_t turns) {
    if (parts.size() == 1) return parts;
    Shape shape = parts[0].type.shape;
    const bool is_stacked = shape.rank() == 3;
    int64_t rows = 0, turn = 0;  // rows of all parts, and bytes of a turn
    std::vector<std::pair<Stream, int64_t>> streams;  // with the bytes of each
    for (TensorSource& part : parts) {
      rows += part.type.shape[is_stacked ? 1 : 0];
      const int64_t size = bytes(part.type) / turns;
      turn += size;
      streams.emplace_back(nullptr, size);
    }
    std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
    dims[is_stacked ? 1 : 0] = rows;
    TensorSource out{{}, {parts[0].type.dtype, Shape(std::span<const int64_t>(dims))}, {}, 1, {}, {}};
    for (size_t i = 0; i < parts.size(); ++i)
      streams[i].first = std::make_shared<SourceStream>(std::move(parts[i]));
    out.read = [streams = std::move(streams), turn](
                   int64_t offset, std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
      std::span<std::byte> rest = buffer;
      offset = turn > 0 ? offset % turn : 0;
      for (size_t i = 0; !rest.empty(); i = (i + 1) % streams.size()) {
        const auto& [stream, size] = streams[i];
        if (offset >= size) {
          offset -= size;
          continue;
        }
        const auto part =
            static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(rest.size()), size - offset));
        TSR_RETURN_IF_ERROR(stream->read(rest.first(part)));
        rest = rest.subspan(part);
        offset = 0;
      }
      return std::span<const std::byte>(buffer);
    };
    return {std::move(out)};
  }

  // Transposes our rows to columns, alternating between parts: theirs [K, N] from ours [N, K], per
  // expert [K, n N] from n times [N, K], or [n N] from n times [N]. Holds one matrix in memory.
  static TensorSource as_columns(std::vector<TensorSource> parts) {
    const TensorType type = parts[0].type;
    const int rank = type.shape.rank();
    const auto count = std::ssize(parts);
    const bool is_bias = rank == 2 && count > 1;
    const int64_t E = rank == 3 || is_bias ? type.shape[0] : 1, N = type.shape[is_bias || rank == 3 ? 1 : 0];
    const int64_t K = is_bias ? 1 : type.shape[rank - 1];
    const Shape shape = is_bias     ? Shape{E, count * N}
                        : rank == 3 ? Shape{E, K, count * N}
                                    : Shape{K, count * N};
    std::vector<Stream> streams;
    for (TensorSource& part : parts) streams.push_back(std::make_shared<SourceStream>(std::move(part)));
    TensorSource out{{}, {type.dtype, shape}, {}, count * bytes(type) / E, {}, {}};
    out.read = [streams = std::move(streams), N, K, one = static_cast<size_t>(out.unit_bytes),
                item = static_cast<size_t>(dtype_bytes(type.dtype, 1))](
                   int64_t, std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
      std::vector<std::byte> row(static_cast<size_t>(K) * item);
      const auto turns = std::ssize(streams);
      for (std::byte* matrix = buffer.data(); matrix != buffer.data() + buffer.size(); matrix += one)
        for (int64_t turn = 0; turn < turns; ++turn)
          for (int64_t n = 0; n < N; ++n) {
            TSR_RETURN_IF_ERROR(streams[static_cast<size_t>(turn)]->read(row));
            for (int64_t k = 0; k < K; ++k)
              std::memcpy(matrix + static_cast<size_t>((k * N + n) * turns + turn) * item,
                          row.data() + static_cast<size_t>(k) * item, item);
          }
      return std::span<const std::byte>(buffer);
    };
    return out;
  }

  // One tensor per expert.
  Status add_experts(const ForeignName& name, TensorSource from) {
    const Shape shape = from.type.shape;
    const TensorType type{from.type.dtype, Shape(shape.dims().subspan(1))};
    const auto stream = std::make_shared<SourceStream>(std::move(from));
    const size_t at = name.tensor.find(kExpert);
    for (int64_t expert = 0; expert < shape[0]; ++expert) {
      TensorSource tensor{
          format("{}{}{}", name.tensor.substr(0, at), expert, name.tensor.substr(at + kExpert.size())),
          type,
          {},
          1,
          {},
          {}};
      tensor.read = [stream](int64_t, std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
        TSR_RETURN_IF_ERROR(stream->read(buffer));
        return std::span<const std::byte>(buffer);
      };
      made_.push_back(std::move(tensor));
    }
    return {};
  }

  const Graph& graph_;
  const ForeignLayout& layout_;
  std::vector<int64_t> order_;  // row permutation within a head; empty: none
  std::map<std::string, TensorSource, std::less<>> sources_;
  std::set<std::string, std::less<>> done_;
  std::vector<TensorSource> made_;
};

}  // namespace

Result<std::vector<TensorSource>> foreign_tensors(const Graph& graph, std::vector<TensorSource> parameters,
                                                  const ForeignLayout& layout) {
  return ForeignTensorMaker(graph, layout).run(std::move(parameters));
}

}  // namespace tessera
