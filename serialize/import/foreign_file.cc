// Placer finds each parameter's bytes by the family's table. They are used in place where type and layout agree and the file
// is mapped; else read, permuted or transposed on demand, slice by slice.
#include "serialize/import/foreign_file.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/cancellation.h"
#include "graph/base/text.h"
#include "graph/transform/scaled_products.h"
#include "graph/transform/weight_storage.h"

namespace tessera {
namespace {

constexpr std::string_view kExpert = "@";

Status unsupported(std::string message) { return Status(StatusCode::kUnsupported, std::move(message)); }
Status corrupt(std::string message) { return Status(StatusCode::kCorrupt, std::move(message)); }

// Place: a parameter's place in the file, one range of bytes or one per expert.
struct Place {
  DType dtype = DType::kF32;  // stored type
  ValueChange change = ValueChange::kNone;
  // For every `step`th column of theirs [matrices, columns, all_rows], from first_row, which becomes a row of ours:
  int64_t matrices = 1, rows = 0, columns = 0, first_row = 0, step = 1;
  int64_t all_rows = 0;  // 0: not transposed
  std::vector<int64_t> offsets;
  int64_t bytes = 0;  // of each range; unused for transposed tensors
};

std::string expert_name(std::string_view pattern, int64_t expert) {
  const size_t at = pattern.find(kExpert);
  return format("{}{}{}", pattern.substr(0, at), expert, pattern.substr(at + kExpert.size()));
}

// Extents without ones, which files add.
std::vector<int64_t> significant(const Shape& shape) {
  std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  std::erase(dims, 1);
  return dims;
}

class Placer {
 public:
  Placer(const ForeignFile& file, const ForeignPlaces& places, OpenedModel& opened)
      : file_(file),
        places_(places),
        model_(opened.model),
        opened_(opened),
        used_(places.used),
        product_scales_(places.product_scales) {}

  Status run() {
    TSR_RETURN_IF_ERROR(check_none_is_missing());
    WeightStorage storage;
    std::map<std::string, Place> found;
    for (const TensorId id : model_.graph.tensors_of_kind(TensorKind::kParameter)) {
      const Tensor& parameter = model_.graph.tensor(id);
      if (places_.computed.contains(parameter.name)) continue;
      TSR_ASSIGN_OR_RETURN(Place place, find(parameter.name, parameter.type.shape));
      // A changed value is computed in f32.
      const bool stays = !is_computed(place.change) && place.dtype != DType::kF64;
      storage.types.emplace(parameter.name, stays ? place.dtype : DType::kF32);
      found.emplace(parameter.name, std::move(place));
    }
    for (const auto& [name, tensor] : file_.tensors)
      if (!used_.contains(name))
        return unsupported(
            format("tensor '{}' has no place in a {} model: the file is a variant that is not supported",
                   name, family()));
    if (!product_scales_.empty()) {
      TSR_ASSIGN_OR_RETURN(model_.graph, with_scaled_products(model_.graph, product_scales_));
      model_.metadata.erase("description");  // it would build a graph without them
    }
    TSR_ASSIGN_OR_RETURN(model_.graph, with_stored_weights(model_.graph, storage));
    for (const TensorId id : model_.graph.tensors_of_kind(TensorKind::kParameter)) {
      const Tensor& parameter = model_.graph.tensor(id);
      const auto computed = places_.computed.find(parameter.name);
      if (computed != places_.computed.end()) {
        opened_.parameters.push_back(computed->second);
        continue;
      }
      TSR_ASSIGN_OR_RETURN(TensorSource source, source_of(parameter, found.at(parameter.name)));
      opened_.parameters.push_back(std::move(source));
    }
    return {};
  }

 private:
  std::string_view family() const {
    const auto text = model_.metadata.find("architecture");
    return text == model_.metadata.end() ? std::string_view() : std::string_view(text->second);
  }

  // The tensors that form a parameter.
  std::vector<std::string> tensors_of(const std::string& parameter, const Shape& shape) const {
    const std::optional<ForeignName> name = places_.names.find(parameter);
    if (!name) return {};
    if (name->tensor.find(kExpert) == std::string::npos) return {name->tensor};
    std::vector<std::string> tensors;
    for (int64_t expert = 0; expert < shape[0]; ++expert)
      tensors.push_back(expert_name(name->tensor, expert));
    return tensors;
  }

  // Reports missing tensors before reading any.
  Status check_none_is_missing() const {
    std::vector<std::string> missing;
    for (const TensorId id : model_.graph.tensors_of_kind(TensorKind::kParameter)) {
      const Tensor& parameter = model_.graph.tensor(id);
      if (places_.computed.contains(parameter.name)) continue;
      if (!places_.names.find(parameter.name))
        return unsupported(
            format("parameter '{}' of the model has no name in {} files", parameter.name, places_.format));
      const int64_t experts = parameter.type.shape.rank() == 3 ? parameter.type.shape[0] : 1;
      if (experts > static_cast<int64_t>(file_.tensors.size()) &&
          places_.names.find(parameter.name)->tensor.find(kExpert) != std::string::npos)
        return corrupt(format("'{}' has {} experts, a tensor each; the file has {} tensors in all",
                              parameter.name, experts, file_.tensors.size()));
      for (std::string& tensor : tensors_of(parameter.name, parameter.type.shape))
        if (!file_.tensors.contains(tensor) && (missing.empty() || missing.back() != tensor))
          missing.push_back(std::move(tensor));
    }
    if (missing.empty()) return {};
    constexpr size_t kNamed = 3;
    const std::string more =
        missing.size() > kNamed ? format(" and {} more", missing.size() - kNamed) : std::string();
    const auto named = std::span(missing).first(std::min(missing.size(), kNamed));
    const std::string remedy = file_.tensors.empty() && model_.tokenizer
                                   ? "; the file holds a vocabulary alone, which can be used as a tokenizer"
                                   : "";
    return corrupt(format("{} '{}'{} {} missing{}", missing.size() == 1 ? "tensor" : "tensors",
                          join(named, "', '"), more, missing.size() == 1 ? "is" : "are", remedy));
  }

  Result<Place> find(const std::string& parameter, const Shape& shape) {
    const ForeignName name = *places_.names.find(parameter);
    const std::vector<std::string> tensors = tensors_of(parameter, shape);
    Place place;
    place.change = name.change;
    const bool is_scaled = scales_products(parameter, tensors, name.change);
    for (const std::string& tensor : tensors) {
      const ForeignTensor& found = file_.tensors.find(tensor)->second;
      const ForeignTensor& stored = found.scaled && !is_scaled ? *found.scaled : found;
      if (!place.offsets.empty() && stored.dtype != place.dtype)
        return unsupported(
            format("tensor '{}' is stored as {} and '{}' as {}; experts of one layer want one type",
                   tensors[0], file_.tensors.find(tensors[0])->second.type, tensor, stored.type));
      place.dtype = stored.dtype;
      TSR_RETURN_IF_ERROR(add_range(name, tensor, stored, parameter, shape, place));
      used_.insert(tensor);
    }
    return place;
  }

  // Notes the factor of the parameter's products, if its tensors have one, the same, and the graph has a place for it.
  bool scales_products(const std::string& parameter, const std::vector<std::string>& tensors, ValueChange change) {
    const auto scale_of = [&](const std::string& tensor) { return file_.tensors.find(tensor)->second.product_scale; };
    const auto is_scale = [&](float scale) { return [&, scale](const std::string& tensor) { return scale_of(tensor) == scale; }; };
    if (std::ranges::all_of(tensors, is_scale(1))) return true;
    const float scale = scale_of(tensors.front());
    if (is_transposed(change) || !std::ranges::all_of(tensors, is_scale(scale)) || !can_scale_products(model_.graph, parameter))
      return false;
    product_scales_.emplace(parameter, scale);
    return true;
  }

  // Appends the parameter's range (for experts, the next one's) in the tensor.
  Status add_range(const ForeignName& name, const std::string& tensor, const ForeignTensor& stored,
                   const std::string& parameter, const Shape& shape, Place& place) const {
    if (is_alternating(name.change) || (is_transposed(name.change) && shape.rank() == 3))
      return add_columns(name, tensor, stored, parameter, shape, place);
    if (shape.rank() == 3 && !name.parts[0].empty()) return add_stacked(name, tensor, stored, parameter, shape, place);
    if (name.change == ValueChange::kByKeyHead) return add_by_head(name, tensor, stored, parameter, shape, place);
    std::vector<int64_t> wanted(shape.dims().begin(), shape.dims().end());
    if (name.tensor.find(kExpert) != std::string::npos) wanted.erase(wanted.begin());
    const int64_t rows = wanted[0];
    TSR_ASSIGN_OR_RETURN(const auto part, part_of(name, tensor, parameter, 0, rows));
    const auto [first, all] = part;
    wanted[0] = all;
    const bool turned = is_transposed(name.change) && wanted.size() == 2;
    if (turned) std::swap(wanted[0], wanted[1]);
    const bool is_flat = name.change == ValueChange::kGroups && stored.shape.rank() == 2 && stored.shape.elements() == shape.elements();
    if (!is_flat && significant(stored.shape) != significant(Shape(wanted)))
      return corrupt(
          format("tensor '{}' is [{}], the model wants [{}]", tensor, stored.shape, Shape(wanted)));
    const int64_t elements =
        shape.elements() / (name.tensor.find(kExpert) == std::string::npos ? 1 : shape[0]);
    place.bytes = dtype_bytes(stored.dtype, elements);
    if (turned) {
      if (is_block_type(stored.dtype))
        return unsupported(format("tensor '{}' is stored as {} and transposed", tensor, stored.type));
      place.rows = rows;
      place.columns = elements / rows;
      place.first_row = first;
      place.all_rows = all;
      place.offsets.push_back(stored.offset);
      return {};
    }
    if (elements % info(stored.dtype).block_elements != 0)
      return corrupt(format("tensor '{}' cannot be split between blocks", tensor));
    place.offsets.push_back(stored.offset + dtype_bytes(stored.dtype, first * (elements / rows)));
    return {};
  }

  // PartRows: where a parameter's rows begin in their tensor, and the tensor's rows in all.
  struct PartRows {
    int64_t first = 0, all = 0;
  };
  // `dim`: of rows.
  Result<PartRows> part_of(const ForeignName& name, const std::string& tensor, const std::string& parameter, int dim,
                           int64_t rows) const {
    if (name.parts[0].empty()) return PartRows{0, rows};
    PartRows found;
    for (const std::string& part : name.parts) {
      if (part.empty()) break;
      if (part == parameter) found.first = found.all;
      const auto id = model_.graph.find_tensor(part);
      if (!id) return unsupported(format("tensor '{}' has a part '{}', which the model has not", tensor, part));
      found.all += model_.graph.type(*id).shape[dim];
    }
    return found;
  }

  // Ours [N, K] from N / G rows of each of the G heads of keys of theirs.
  Status add_by_head(const ForeignName& name, const std::string& tensor, const ForeignTensor& stored, const std::string& parameter,
                     const Shape& shape, Place& place) const {
    const int64_t heads = places_.key_heads, rows = shape[0], K = shape[1];
    TSR_ASSIGN_OR_RETURN(const PartRows part, part_of(name, tensor, parameter, 0, rows));
    const Shape wanted{part.all, K};
    if (significant(stored.shape) != significant(wanted) || rows % heads != 0 || part.first % heads != 0)
      return corrupt(format("tensor '{}' is [{}], the model wants [{}] of {} heads of keys", tensor, stored.shape, wanted, heads));
    if (K % info(stored.dtype).block_elements != 0) return corrupt(format("tensor '{}' cannot be split between blocks", tensor));
    place.bytes = dtype_bytes(stored.dtype, rows / heads * K);
    for (int64_t head = 0; head < heads; ++head)
      place.offsets.push_back(stored.offset + dtype_bytes(stored.dtype, (head * (part.all / heads) + part.first / heads) * K));
    return {};
  }

  // Ours [E, N, K] from rows of each matrix of theirs [E, all rows, K].
  Status add_stacked(const ForeignName& name, const std::string& tensor, const ForeignTensor& stored, const std::string& parameter,
                     const Shape& shape, Place& place) const {
    const int64_t E = shape[0], rows = shape[1], K = shape[2];
    TSR_ASSIGN_OR_RETURN(const PartRows part, part_of(name, tensor, parameter, 1, rows));
    const Shape wanted{E, part.all, K};
    if (significant(stored.shape) != significant(wanted))
      return corrupt(format("tensor '{}' is [{}], the model wants [{}]", tensor, stored.shape, wanted));
    if (rows * K % info(stored.dtype).block_elements != 0 || K * part.first % info(stored.dtype).block_elements != 0)
      return corrupt(format("tensor '{}' cannot be split between blocks", tensor));
    place.bytes = dtype_bytes(stored.dtype, rows * K);
    for (int64_t expert = 0; expert < E; ++expert)
      place.offsets.push_back(stored.offset + dtype_bytes(stored.dtype, (expert * part.all + part.first) * K));
    return {};
  }

  // Ours [E, N, K] from theirs [E, K, N], from adjacent columns of [E, K, all columns], or from [E, K, 2N] with alternating
  // columns; ours [E, N] from theirs [E, 2N].
  Status add_columns(const ForeignName& name, const std::string& tensor, const ForeignTensor& stored, const std::string& parameter,
                     const Shape& shape, Place& place) const {
    place.step = is_alternating(name.change) ? 2 : 1;
    place.first_row = is_odd(name.change) ? 1 : 0;
    place.matrices = shape[0];
    place.rows = shape[1];
    place.columns = shape.rank() == 3 ? shape[2] : 1;
    place.all_rows = place.step * place.rows;
    if (!is_alternating(name.change)) {
      TSR_ASSIGN_OR_RETURN(const PartRows part, part_of(name, tensor, parameter, 1, place.rows));
      place.first_row = part.first;
      place.all_rows = part.all;
    }
    const Shape wanted = shape.rank() == 3 ? Shape{place.matrices, place.columns, place.all_rows}
                                           : Shape{place.matrices, place.all_rows};
    if (significant(stored.shape) != significant(wanted))
      return corrupt(format("tensor '{}' is [{}], the model wants [{}]", tensor, stored.shape, wanted));
    if (is_block_type(stored.dtype))
      return unsupported(format("tensor '{}' is stored as {} and transposed", tensor, stored.type));
    place.offsets.push_back(stored.offset);
    return {};
  }

  // The value in the graph's type and layout.
  Result<TensorSource> source_of(const Tensor& parameter, const Place& place) const {
    const TensorType& type = parameter.type;
    const bool as_stored = place.dtype == type.dtype && !is_computed(place.change);
    if (!as_stored && (type.dtype != DType::kF32 || !can_decode(place.dtype)) && place.dtype != DType::kF64)
      return unsupported(format("tensor '{}' is stored as {}, the model wants {}", parameter.name,
                                to_text(place.dtype), to_text(type.dtype)));
    if (place.all_rows > 0) return transposed(parameter, place);
    return as_stored ? source_as_stored(parameter, place) : source_computed(parameter, place);
  }

  // Alignment required by the type's fields.
  static size_t alignment_of(DType dtype) {
    return is_block_type(dtype) ? 2 : static_cast<size_t>(dtype_bytes(dtype, 1));
  }

  // The file's bytes in place, if they are mapped, aligned and contiguous.
  TensorSource source_as_stored(const Tensor& parameter, const Place& place) const {
    TensorSource tensor{parameter.name, parameter.type, {}, 1, {}, {}};
    const auto count = static_cast<int64_t>(place.offsets.size());
    bool is_contiguous = true;
    for (size_t i = 1; i < place.offsets.size(); ++i)
      is_contiguous = is_contiguous && place.offsets[i] == place.offsets[i - 1] + place.bytes;
    const std::span<const std::byte> mapped = is_contiguous && count > 0
                                                  ? file_.source->map(place.offsets[0], count * place.bytes)
                                                  : std::span<const std::byte>();
    const bool aligned = reinterpret_cast<uintptr_t>(mapped.data()) % alignment_of(place.dtype) == 0;
    if (static_cast<int64_t>(mapped.size()) == count * place.bytes && aligned)
      tensor.in_place = HostTensor{parameter.type, mapped, file_.source};
    tensor.read = [source = file_.source, place](
                      int64_t begin, std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
      TSR_RETURN_IF_ERROR(read_ranges(*source, place, begin, buffer));
      return std::span<const std::byte>(buffer);
    };
    return tensor;
  }

  // Reads bytes [begin, begin + buffer.size()) of the concatenated ranges.
  static Status read_ranges(const ByteSource& source, const Place& place, int64_t begin,
                            std::span<std::byte> buffer) {
    while (!buffer.empty()) {
      const int64_t at = begin % place.bytes;
      const auto part = std::min<size_t>(buffer.size(), static_cast<size_t>(place.bytes - at));
      TSR_RETURN_IF_ERROR(
          source.read_at(place.offsets[static_cast<size_t>(begin / place.bytes)] + at, buffer.first(part)));
      buffer = buffer.subspan(part);
      begin += static_cast<int64_t>(part);
    }
    return {};
  }

  static void widen(DType stored, const std::byte* from, float* to, int64_t count) {
    if (stored == DType::kF64) {
      const auto* values = reinterpret_cast<const double*>(from);
      std::transform(values, values + count, to, [](double value) { return static_cast<float>(value); });
    } else if (stored == DType::kF32) {
      std::copy_n(reinterpret_cast<const float*>(from), count, to);
    } else {
      decode_blocks(stored, from, to, count);
    }
  }

  static void change_values(ValueChange change, std::span<float> values) {
    if (change == ValueChange::kPlusOne)
      for (float& value : values) value += 1;
    if (change == ValueChange::kLogNegated || change == ValueChange::kLogNegatedColumn)
      for (float& value : values) value = std::log(-value);
  }

  // Computed as f32, slice by slice.
  TensorSource source_computed(const Tensor& parameter, const Place& place) const {
    TensorSource tensor{parameter.name,
                        parameter.type,
                        {},
                        info(place.dtype).block_elements * int64_t{sizeof(float)},
                        {},
                        {}};
    tensor.read = [source = file_.source, place](
                      int64_t begin, std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
      const auto count = static_cast<int64_t>(buffer.size() / sizeof(float));
      const int64_t from = dtype_bytes(place.dtype, begin / int64_t{sizeof(float)});
      std::vector<double> copy(static_cast<size_t>(dtype_bytes(place.dtype, count) + 7) /
                               8);  // aligned for any type
      const std::span<std::byte> bytes =
          std::as_writable_bytes(std::span(copy)).first(static_cast<size_t>(dtype_bytes(place.dtype, count)));
      TSR_RETURN_IF_ERROR(read_ranges(*source, place, from, bytes));
      auto* const values = reinterpret_cast<float*>(buffer.data());
      widen(place.dtype, bytes.data(), values, count);
      change_values(place.change, std::span(values, static_cast<size_t>(count)));
      return std::span<const std::byte>(buffer);
    };
    return tensor;
  }

  // Transposes. Reads their whole matrix for each parameter.
  TensorSource transposed(const Tensor& parameter, const Place& place) const {
    const int64_t one = bytes(parameter.type) / place.matrices;
    TensorSource tensor{parameter.name, parameter.type, {}, one, {}, {}};
    tensor.read = [source = file_.source, place, to = parameter.type.dtype, one](
                      int64_t begin, std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
      const int64_t count = place.all_rows * place.columns, item = dtype_bytes(place.dtype, 1);
      std::vector<double> copy(static_cast<size_t>(count * item + 7) / 8);
      const std::span<std::byte> theirs =
          std::as_writable_bytes(std::span(copy)).first(static_cast<size_t>(count * item));
      const int64_t ours = dtype_bytes(to, 1);
      std::byte* out = buffer.data();
      for (int64_t at = begin; at < begin + std::ssize(buffer); at += one) {
        TSR_RETURN_IF_ERROR(source->read_at(place.offsets[0] + at / one * count * item, theirs));
        for (int64_t row = 0; row < place.rows; ++row) {
          cancellation_point();
          const std::byte* value = theirs.data() + (place.first_row + row * place.step) * item;
          for (int64_t column = 0; column < place.columns; ++column, out += ours, value += place.all_rows * item)
            if (to == place.dtype)
              std::copy_n(value, item, out);
            else
              widen(place.dtype, value, reinterpret_cast<float*>(out), 1);
        }
      }
      return std::span<const std::byte>(buffer);
    };
    return tensor;
  }

  const ForeignFile& file_;
  const ForeignPlaces& places_;
  Model& model_;
  OpenedModel& opened_;
  std::set<std::string, std::less<>> used_;
  ProductScales product_scales_;
};

}  // namespace

Status place_parameters(const ForeignFile& file, const ForeignPlaces& places, OpenedModel& opened) {
  return Placer(file, places, opened).run();
}

std::vector<StoredTensors> stored_tensors(const ForeignTensors& tensors) {
  std::map<std::string, StoredTensors> by_type;
  for (const auto& [name, tensor] : tensors) {
    StoredTensors& stored = by_type[tensor.type];
    stored.type = tensor.type;
    ++stored.tensors;
    stored.bytes += tensor.bytes;
  }
  std::vector<StoredTensors> all;
  for (auto& [type, stored] : by_type) all.push_back(std::move(stored));
  return all;
}

Result<bool> same_contents(const ForeignFile& file, const ForeignTensor& a, const ForeignTensor& b) {
  if (a.dtype != b.dtype || a.shape != b.shape || a.product_scale != b.product_scale) return false;
  std::vector<std::byte> left(size_t{1} << 18), right(left.size());
  for (int64_t done = 0; done < a.bytes;) {
    const auto part =
        static_cast<size_t>(std::min<int64_t>(a.bytes - done, static_cast<int64_t>(left.size())));
    cancellation_point();
    TSR_RETURN_IF_ERROR(file.source->read_at(a.offset + done, std::span(left).first(part)));
    TSR_RETURN_IF_ERROR(file.source->read_at(b.offset + done, std::span(right).first(part)));
    if (!std::equal(left.begin(), left.begin() + static_cast<ptrdiff_t>(part), right.begin())) return false;
    done += static_cast<int64_t>(part);
  }
  return true;
}

}  // namespace tessera
