#include "serialize/quantization.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/text.h"
#include "graph/base/thread.h"
#include "graph/models/model_family.h"
#include "graph/transform/weight_storage.h"

namespace tessera {
namespace {

// A multiple of every block size; two float arrays of this size fit a small
// stack. Errors are summed per chunk, then in order, independent of threads.
constexpr int64_t kChunkElements = 2048;
constexpr int64_t kSliceElements = int64_t{1} << 18;

// Bytes [begin, begin + out.size()) of a source, extended to its units.
Result<std::span<const std::byte>> read_aligned(const TensorSource& source, int64_t begin, int64_t size,
                                                std::vector<std::byte>& buffer) {
  const int64_t unit = source.unit_bytes, all = bytes(source.type);
  const int64_t from = begin / unit * unit;
  const int64_t end = std::min(all, (begin + size + unit - 1) / unit * unit);
  buffer.resize(static_cast<size_t>(end - from));
  TSR_ASSIGN_OR_RETURN(const std::span<const std::byte> read, source.read(from, buffer));
  return read.subspan(static_cast<size_t>(begin - from), static_cast<size_t>(size));
}

// Encoder: decodes and encodes slices of one tensor.
class Encoder {
 public:
  Encoder(TensorSource source, DType to, std::vector<float> importance, int32_t threads,
          std::shared_ptr<EncodingError> error)
      : source_(std::move(source)),
        from_(source_.type.dtype),
        to_(to),
        columns_(source_.type.shape.rank() == 0 ? 1 : source_.type.shape.dims().back()),
        importance_(std::move(importance)),
        matrix_elements_(importance_.empty() ? 0
                                             : source_.type.shape.elements() /
                                                   (static_cast<int64_t>(importance_.size()) / columns_)),
        threads_(threads),
        error_(std::move(error)) {}

  // Elements of the smallest slice.
  int64_t unit_elements() const { return std::max(info(from_).block_elements, info(to_).block_elements); }

  Result<std::span<const std::byte>> read(int64_t offset, std::span<std::byte> out) {
    if (offset == 0) {
      *error_ = {};
      hash_.reset();
      if (source_.xxh3) hash_.emplace();
    }
    const int64_t first = offset / info(to_).block_bytes * info(to_).block_elements;
    const int64_t count = static_cast<int64_t>(out.size()) / info(to_).block_bytes * info(to_).block_elements;
    TSR_ASSIGN_OR_RETURN(
        const std::span<const std::byte> stored,
        read_aligned(source_, dtype_bytes(from_, first), dtype_bytes(from_, count), stored_));
    const bool is_last = first + count == source_.type.shape.elements();
    TSR_RETURN_IF_ERROR(check_hash(stored, is_last));
    const int64_t chunks = (count + kChunkElements - 1) / kChunkElements;
    errors_.assign(static_cast<size_t>(chunks), {});
    statuses_.assign(static_cast<size_t>(chunks), {});
    std::atomic<int64_t> next{0};
    const auto work = [&] {
      for (int64_t i = next++; i < chunks; i = next++) {
        const int64_t begin = i * kChunkElements, size = std::min(kChunkElements, count - begin);
        const auto at = static_cast<size_t>(i);
        statuses_[at] = catch_status([&] {
          return encode_chunk(first + begin, stored.data() + dtype_bytes(from_, begin), size,
                              out.data() + dtype_bytes(to_, begin), errors_[at]);
        });
      }
    };
    {
      std::vector<Thread> helpers;
      for (int64_t i = 1; i < std::min<int64_t>(threads_, chunks); ++i) helpers.emplace_back(work);
      work();
    }
    for (const Status& status : statuses_)
      if (!status.ok()) return status.with_context(format("tensor '{}'", source_.name));
    for (const EncodingError& it : errors_) {
      error_->squared_errors += it.squared_errors;
      error_->squares += it.squares;
    }
    if (is_last) {  // a model has many encoders, of which one is active
      stored_ = std::vector<std::byte>();
      errors_ = std::vector<EncodingError>();
      statuses_ = std::vector<Status>();
    }
    return std::span<const std::byte>(out);
  }

 private:
  // Hashes all old values, slice by slice.
  Status check_hash(std::span<const std::byte> stored, bool is_last) {
    if (!hash_) return {};
    hash_->add(stored);
    if (!is_last || hash_->digest() == *source_.xxh3) return {};
    return Status(StatusCode::kCorrupt,
                  format("tensor '{}': its checksum is wrong: the data is damaged", source_.name));
  }

  // `first`: index of its first element.
  Status encode_chunk(int64_t first, const std::byte* stored, int64_t count, std::byte* out,
                      EncodingError& error) const {
    float values[kChunkElements], decoded[kChunkElements];
    decode_blocks(from_, stored, values, count);
    // Importance is per column of each expert's matrix; processes parts of rows.
    for (int64_t done = 0; done < count;) {
      const int64_t column = (first + done) % columns_;
      const int64_t part = importance_.empty() ? count : std::min(count - done, columns_ - column);
      const auto weights =
          importance_.empty()
              ? std::span<const float>()
              : std::span(importance_)
                    .subspan(static_cast<size_t>((first + done) / matrix_elements_ * columns_ + column),
                             static_cast<size_t>(part));
      const Status status = encode_blocks(to_, values + done, part, out + dtype_bytes(to_, done), weights);
      if (!status.ok())
        return first + done == 0 ? status : status.with_context(format("from element {} on", first + done));
      done += part;
    }
    decode_blocks(to_, out, decoded, count);
    for (int64_t i = 0; i < count; ++i) {
      const double value = values[i], difference = static_cast<double>(decoded[i]) - value;
      error.squared_errors += difference * difference;
      error.squares += value * value;
    }
    return {};
  }

  const TensorSource source_;
  const DType from_, to_;
  const int64_t columns_;
  const std::vector<float> importance_;  // per column, concatenated for several matrices
  const int64_t matrix_elements_;        // elements of each matrix
  const int32_t threads_;
  const std::shared_ptr<EncodingError> error_;
  std::optional<HashStream> hash_;
  std::vector<std::byte> stored_;
  std::vector<EncodingError> errors_;  // by chunk
  std::vector<Status> statuses_;
};

std::string family_of(const Model& model) {
  const auto family = model.metadata.find("architecture");
  return family == model.metadata.end() ? "" : family->second;
}

}  // namespace

TensorSource encode_source(TensorSource source, DType type, EncodeSettings settings) {
  const TensorType to{type, source.type.shape};
  TensorSource encoded{source.name, to, {}, 1, {}, {}};
  if (settings.error == nullptr) settings.error = std::make_shared<EncodingError>();
  const auto encoder = std::make_shared<Encoder>(std::move(source), type, std::move(settings.importance),
                                                 settings.threads, std::move(settings.error));
  encoded.unit_bytes = dtype_bytes(type, encoder->unit_elements());
  encoded.slice_bytes = dtype_bytes(type, kSliceElements);
  encoded.read = [encoder](int64_t offset, std::span<std::byte> buffer) {
    return encoder->read(offset, buffer);
  };
  return encoded;
}

double EncodingError::relative() const { return squares > 0 ? std::sqrt(squared_errors / squares) : 0; }

Result<Quantization> Quantization::create(const Model& model, const QuantizationSettings& settings) {
  Quantization result;
  result.threads_ = settings.threads;
  TSR_ASSIGN_OR_RETURN(LogicalGraph logical, with_logical_weights(model.graph));
  TSR_ASSIGN_OR_RETURN(result.choices_, choose_types(logical.graph, family_of(model), settings.mix));
  WeightStorage storage{.types = std::move(logical.stored)};
  for (const auto& [name, choice] : result.choices_) storage.types[name] = choice.type;
  TSR_ASSIGN_OR_RETURN(result.graph_, with_stored_weights(logical.graph, storage));
  if (settings.importance) TSR_RETURN_IF_ERROR(result.find_importance(model, *settings.importance));
  return result;
}

Status Quantization::find_importance(const Model& model, const ImportanceMatrix& importance) {
  const std::string family = family_of(model);
  for (const auto& [parameter, choice] : choices_) {
    const std::optional<ForeignName> name = gguf_name(family, parameter);
    const std::span<const float> values = name ? importance.find(name->tensor) : importance.find(parameter);
    if (values.empty()) continue;
    const Shape& shape = graph_.type(*graph_.find_tensor(parameter)).shape;
    const int64_t columns = shape.dims().back(), matrices = shape.rank() == 3 ? shape[0] : 1;
    const auto count = static_cast<int64_t>(values.size());
    if (count != columns && count != matrices * columns)
      return Status(
          StatusCode::kInvalidArgument,
          format("the importance matrix has {} numbers for '{}', whose rows are {}{}: it is another "
                 "model's",
                 count, parameter, columns,
                 matrices > 1 ? format(" in {} matrices", matrices) : std::string()));
    importance_.emplace(parameter, std::vector<float>(values.begin(), values.end()));
  }
  if (importance_.empty())
    return Status(
        StatusCode::kInvalidArgument,
        format("none of the {} names in the importance matrix is a weight of this model", importance.size()));
  return {};
}

TensorSource Quantization::encode(TensorSource parameter) {
  const auto id = graph_.find_tensor(parameter.name);
  const TensorType to = id ? graph_.type(*id) : parameter.type;
  QuantizedTensor record{parameter.name, parameter.type, to, to.dtype, false, nullptr};
  if (const auto choice = choices_.find(parameter.name); choice != choices_.end())
    record.wanted = choice->second.wanted;
  if (to == parameter.type) {
    tensors_.push_back(std::move(record));
    return parameter;
  }
  record.error = std::make_shared<EncodingError>();
  std::vector<float> importance;
  if (const auto found = importance_.find(parameter.name); found != importance_.end())
    importance = found->second;
  record.is_weighted = !importance.empty();
  TensorSource source =
      encode_source(std::move(parameter), to.dtype, {std::move(importance), threads_, record.error});
  tensors_.push_back(std::move(record));
  return source;
}

}  // namespace tessera
