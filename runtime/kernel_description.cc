#include "runtime/kernel_description.h"

#include <cinttypes>
#include <cstdio>
#include <variant>

#include "graph/base/hash.h"
#include "graph/base/status.h"
#include "graph/base/text.h"

namespace tessera {

namespace {

tsr_abi_tensor to_abi(const TensorType& type) {
  static_assert(kMaxRank <= TSR_ABI_MAX_RANK);
  tsr_abi_tensor tensor{};
  tensor.dtype = static_cast<int32_t>(type.dtype);
  tensor.rank = type.shape.rank();
  for (int dim = 0; dim < tensor.rank; ++dim) tensor.dims[dim] = type.shape[dim];
  return tensor;
}

tsr_abi_attr to_abi(const Attr& attr) {
  tsr_abi_attr abi{};
  abi.name = attr.name.c_str();
  abi.type = static_cast<int32_t>(attr.value.index());
  if (const auto* i64 = std::get_if<int64_t>(&attr.value)) abi.i64 = *i64;
  if (const auto* f64 = std::get_if<double>(&attr.value)) abi.f64 = *f64;
  if (const auto* text = std::get_if<std::string>(&attr.value)) abi.string = text->c_str();
  if (const auto* list = std::get_if<std::vector<int64_t>>(&attr.value)) {
    abi.ints = list->data();
    abi.count = static_cast<int32_t>(list->size());
  }
  return abi;
}

tsr_abi_factor to_abi(const FactorView& factor) {
  tsr_abi_factor abi{};
  abi.name = static_cast<unsigned char>(factor.name);
  abi.range_count = factor.range_count;
  abi.global_extent = factor.global_extent;
  abi.unit = factor.unit;
  for (int i = 0; i < 2; ++i) {
    abi.begin[i] = factor.begin[i];
    abi.end[i] = factor.end[i];
  }
  return abi;
}

class KeyWriter {
 public:
  template <class T>
  requires std::is_arithmetic_v<T>
  void add(T value) { key_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void add(std::string_view text) {
    add(text.size());
    key_ += text;
  }
  void add(std::span<const TensorType> types) {
    add(types.size());
    for (const TensorType& type : types) {
      add(static_cast<uint8_t>(type.dtype));
      add(static_cast<uint8_t>(type.shape.rank()));
      for (const int64_t extent : type.shape.dims()) add(extent);
    }
  }
  void add(const Attr& attr) {
    add(std::string_view(attr.name));
    add(static_cast<uint8_t>(attr.value.index()));
    if (const auto* i64 = std::get_if<int64_t>(&attr.value)) add(*i64);
    if (const auto* f64 = std::get_if<double>(&attr.value)) add(*f64);
    if (const auto* text = std::get_if<std::string>(&attr.value)) add(std::string_view(*text));
    if (const auto* list = std::get_if<std::vector<int64_t>>(&attr.value)) {
      add(list->size());
      for (const int64_t item : *list) add(item);
    }
  }
  std::string take() { return std::move(key_); }

 private:
  std::string key_;
};

}  // namespace

KernelDescription::KernelDescription(const OpDef& op, const OpView& view, std::string variant)
    : variant_(std::move(variant)) {
  for (const Attr& attr : view.attrs) attrs_.push_back(to_abi(attr));
  for (const TensorType& type : view.inputs) inputs_.push_back(to_abi(type));
  for (const TensorType& type : view.outputs) outputs_.push_back(to_abi(type));
  for (const FactorView& factor : view.factors) factors_.push_back(to_abi(factor));
  TSR_CHECK(op.name.data()[op.name.size()] == '\0', "op names are literals");
  desc_.struct_size = sizeof(desc_);
  desc_.op = op.name.data();
  desc_.op_version = op.version;
  desc_.attr_count = static_cast<int32_t>(attrs_.size());
  desc_.input_count = static_cast<int32_t>(inputs_.size());
  desc_.output_count = static_cast<int32_t>(outputs_.size());
  desc_.factor_count = static_cast<int32_t>(factors_.size());
  desc_.attrs = attrs_.data();
  desc_.inputs = inputs_.data();
  desc_.outputs = outputs_.data();
  desc_.factors = factors_.data();
  desc_.variant = variant_.empty() ? nullptr : variant_.c_str();
}

std::string question_key(const OpDef& op, const OpView& view) {
  KeyWriter key;
  key.add(op.name);
  key.add(op.version);
  key.add(view.inputs);
  key.add(view.outputs);
  for (const Attr& attr : view.attrs)
    if (!is_implied(op, attr)) key.add(attr);
  for (const FactorView& factor : view.factors) {
    key.add(factor.name);
    key.add(factor.global_extent);
    key.add(factor.unit);
    key.add(factor.range_count);
    for (int i = 0; i < factor.range_count && i < 2; ++i) {
      key.add(factor.begin[i]);
      key.add(factor.end[i]);
    }
  }
  return key.take();
}

std::string question_text(const OpDef& op, const OpView& view) {
  const auto types = [](std::span<const TensorType> all) {
    std::vector<std::string> texts;
    for (const TensorType& type : all) texts.push_back(to_text(type));
    return join(texts, ", ");
  };
  Hash hash;  // of attributes and the shard's position, without types
  hash.add(question_key(op, view));
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016" PRIx64, hash.value());
  return format("{} {} -> {} #{}", op.name, types(view.inputs), types(view.outputs), digits);
}

}  // namespace tessera
