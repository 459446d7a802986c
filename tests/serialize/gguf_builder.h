// GgufBuilder: small GGUF files for tests, valid unless asked otherwise.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/base/dtype.h"
#include "serialize/import/gguf_file.h"
#include "serialize/model.h"

namespace tessera::testing {

class GgufBuilder {
 public:
  uint32_t version = 3;
  uint32_t alignment = 32;
  std::string magic = "GGUF";

  GgufBuilder& text(std::string_view key, std::string_view value) {
    head(key, 8);
    put_text(metadata_, value);
    return *this;
  }
  template <class T>
  GgufBuilder& scalar(std::string_view key, uint32_t type, T value) {
    head(key, type);
    put(metadata_, value);
    return *this;
  }
  GgufBuilder& u32(std::string_view key, uint32_t value) { return scalar(key, 4, value); }
  GgufBuilder& f32(std::string_view key, float value) { return scalar(key, 6, value); }
  GgufBuilder& flag(std::string_view key, bool value) { return scalar(key, 7, static_cast<uint8_t>(value)); }
  GgufBuilder& texts(std::string_view key, const std::vector<std::string>& values) {
    array_head(key, 8, values.size());
    for (const std::string& value : values) put_text(metadata_, value);
    return *this;
  }
  template <class T>
  GgufBuilder& numbers(std::string_view key, uint32_t type, const std::vector<T>& values) {
    array_head(key, type, values.size());
    for (T value : values) put(metadata_, value);
    return *this;
  }
  // Any bytes as an array's contents.
  void array_head(std::string_view key, uint32_t element, uint64_t count) {
    head(key, 9);
    put(metadata_, element);
    put(metadata_, count);
  }

  // Any bytes as an entry of the metadata, or of the tensors' table.
  GgufBuilder& metadata_bytes(std::string_view bytes) {
    metadata_ += bytes;
    ++value_count;
    return *this;
  }
  GgufBuilder& tensor_bytes(std::string_view bytes) {
    tensors_ += bytes;
    ++tensor_count;
    return *this;
  }

  // dims: ne0 first.
  GgufBuilder& tensor(std::string_view name, uint32_t type, const std::vector<uint64_t>& dims,
                     std::string_view bytes) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment, '\0');
    return tensor_at(name, type, dims, data_.size(), bytes);
  }
  GgufBuilder& tensor_at(std::string_view name, uint32_t type, const std::vector<uint64_t>& dims,
                        uint64_t offset, std::string_view bytes) {
    put_text(tensors_, name);
    put(tensors_, static_cast<uint32_t>(dims.size()));
    for (uint64_t dim : dims) put(tensors_, dim);
    put(tensors_, type);
    put(tensors_, offset);
    ++tensor_count;
    data_ += bytes;
    return *this;
  }
  GgufBuilder& tensor_f32(std::string_view name, const std::vector<uint64_t>& dims,
                         const std::vector<float>& values) {
    return tensor(name, 0, dims,
                  {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }

  std::string finish() const {
    std::string file = magic;
    put(file, version);
    put(file, tensor_count);
    put(file, value_count);
    file += metadata_ + tensors_;
    file.resize((file.size() + alignment - 1) / alignment * alignment, '\0');
    return file + data_;
  }

  uint64_t tensor_count = 0, value_count = 0;

 private:
  template <class T>
  static void put(std::string& out, T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out.append(bytes, sizeof(T));
  }
  static void put_text(std::string& out, std::string_view value) {
    put(out, uint64_t{value.size()});
    out += value;
  }
  void head(std::string_view key, uint32_t type) {
    put_text(metadata_, key);
    put(metadata_, type);
    ++value_count;
  }

  std::string metadata_, tensors_, data_;
};

inline std::shared_ptr<const ByteSource> source_of(std::string_view bytes) {
  auto owner = std::make_shared<std::string>(bytes);
  return bytes_in_memory(std::as_bytes(std::span(owner->data(), owner->size())), owner);
}

// A source that cannot be mapped, like a read callback.
class UnmappedSource final : public ByteSource {
 public:
  explicit UnmappedSource(std::string bytes) : bytes_(std::move(bytes)) {}
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  Status read_at(int64_t offset, std::span<std::byte> out) const override {
    if (offset < 0 || offset > size() || static_cast<int64_t>(out.size()) > size() - offset) {
      return Status(StatusCode::kIo, "read outside the file");
    }
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }
  std::span<const std::byte> map(int64_t, int64_t) const override { return {}; }

 private:
  std::string bytes_;
};

// A little llama: 2 layers, C 8, H 2, KV 1, F 16, V 12, T 16, with a SentencePiece vocabulary. `left_out`: a
// key that the metadata lacks.
inline GgufBuilder small_llama_metadata(std::string_view left_out = {}) {
  GgufBuilder w;
  w.text("general.architecture", "llama").text("general.name", "small");
  const auto u32 = [&](std::string_view key, uint32_t value) {
    if (key != left_out) w.u32(key, value);
  };
  u32("llama.block_count", 2);
  u32("llama.embedding_length", 8);
  u32("llama.attention.head_count", 2);
  u32("llama.attention.head_count_kv", 1);
  u32("llama.feed_forward_length", 16);
  u32("llama.context_length", 16);
  w.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  u32("llama.rope.dimension_count", 4);
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁ab", "c", "d", "e", "f"};
  std::vector<float> scores = {0, 0, 0, -3, -4, -5, -1, -2, -6, -7, -8, -9};
  std::vector<int32_t> types = {2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  w.text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", tokens);
  w.numbers("tokenizer.ggml.scores", 6, scores).numbers("tokenizer.ggml.token_type", 5, types);
  return w;
}

// Calls `add` with name, dims and values of each of its tensors.
template <class Add>
void for_each_small_llama_tensor(bool tied, Add&& add) {
  float next = 0;
  auto tensor = [&](const std::string& name, std::vector<uint64_t> dims) {
    size_t count = 1;
    for (uint64_t dim : dims) count *= dim;
    std::vector<float> values(count);
    for (float& value : values) value = (next += 1.0f) / 1024;
    add(name, dims, values);
  };
  tensor("token_embd.weight", {8, 12});
  for (std::string block : {"blk.0.", "blk.1."}) {
    tensor(block + "attn_norm.weight", {8});
    tensor(block + "attn_q.weight", {8, 8});
    tensor(block + "attn_k.weight", {8, 4});
    tensor(block + "attn_v.weight", {8, 4});
    tensor(block + "attn_output.weight", {8, 8});
    tensor(block + "ffn_norm.weight", {8});
    tensor(block + "ffn_gate.weight", {8, 16});
    tensor(block + "ffn_up.weight", {8, 16});
    tensor(block + "ffn_down.weight", {16, 8});
  }
  tensor("output_norm.weight", {8});
  if (!tied) tensor("output.weight", {8, 12});
}

// Names of its tensors, which are added to `w` where it is given, except `left_out`.
inline std::vector<std::string> small_llama_tensors(bool tied, GgufBuilder* w = nullptr,
                                                    std::string_view left_out = {}) {
  std::vector<std::string> names;
  for_each_small_llama_tensor(tied, [&](const std::string& name, const std::vector<uint64_t>& dims,
                                        const std::vector<float>& values) {
    names.push_back(name);
    if (w != nullptr && name != left_out) w->tensor_f32(name, dims, values);
  });
  return names;
}

inline GgufBuilder small_llama(bool tied, std::string_view left_out = {}) {
  GgufBuilder w = small_llama_metadata();
  small_llama_tensors(tied, &w, left_out);
  return w;
}

// SplitKeys: what a part says of itself.
struct SplitKeys {
  uint16_t number = 0, count = 1;
  int32_t tensors = 0;
};
inline GgufBuilder& put_split_keys(GgufBuilder& w, const SplitKeys& keys) {
  return w.scalar("split.no", 2, keys.number)
      .scalar("split.count", 2, keys.count)
      .scalar("split.tensors.count", 5, keys.tensors);
}

// The little llama in `count` files, as gguf-split cuts it: the metadata in the first, 21 tensors in all. The
// first holds no tensors where `no_tensor_first`, as its option has it.
inline std::vector<GgufBuilder> small_llama_parts(uint16_t count, bool no_tensor_first = false) {
  std::vector<GgufBuilder> parts(count);
  parts[0] = small_llama_metadata();
  const size_t first = no_tensor_first ? 1 : 0;
  const auto tensors = static_cast<int32_t>(small_llama_tensors(false).size());
  const size_t each = (static_cast<size_t>(tensors) + count - first - 1) / (count - first);
  for (uint16_t i = 0; i < count; ++i) put_split_keys(parts[i], {i, count, tensors});
  size_t next = 0;
  for_each_small_llama_tensor(false, [&](const std::string& name, const std::vector<uint64_t>& dims,
                                         const std::vector<float>& values) {
    parts[first + next++ / each].tensor_f32(name, dims, values);
  });
  return parts;
}

// Bytes of any kind as so many elements of a GGUF type of weights.
inline std::string block_bytes(uint32_t type, int64_t elements) {
  std::string bytes(static_cast<size_t>(dtype_bytes(*gguf_tensor_type(type), elements)), '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 37 + i / 251);
  return bytes;
}

// A llama of one layer whose weights have the GGUF types `types` in turn: C 256, H 2, KV 1, F 256, V 8.
inline GgufBuilder block_llama(const std::vector<uint32_t>& types) {
  GgufBuilder w;
  w.text("general.architecture", "llama");
  w.u32("llama.block_count", 1).u32("llama.embedding_length", 256).u32("llama.attention.head_count", 2);
  w.u32("llama.attention.head_count_kv", 1)
      .u32("llama.feed_forward_length", 256)
      .u32("llama.context_length", 16);
  w.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f).u32("llama.rope.dimension_count", 128);
  const std::vector<float> ones(256, 1.0f);
  for (const char* name : {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"})
    w.tensor_f32(name, {256}, ones);
  size_t next = 0;
  const std::pair<const char*, uint64_t> weights[] = {
      {"blk.0.attn_k", 128},   {"blk.0.attn_v", 128}, {"blk.0.attn_q", 256},   {"blk.0.attn_output", 256},
      {"blk.0.ffn_gate", 256}, {"blk.0.ffn_up", 256}, {"blk.0.ffn_down", 256}, {"token_embd", 8}};
  for (const auto& [name, rows] : weights) {
    const uint32_t type = types[next++ % types.size()];
    w.tensor(std::string(name) + ".weight", type, {256, rows},
             block_bytes(type, static_cast<int64_t>(256 * rows)));
  }
  return w;
}

}  // namespace tessera::testing
