// GgufFile: the table of contents of a GGUF file (versions 2 and 3):
// metadata and tensor places. Opening checks every length, offset,
// alignment and name; arrays stay in the file until they are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "graph/base/dtype.h"
#include "graph/base/result.h"
#include "serialize/model.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

struct GgufArray {
  GgufType element = GgufType::kU8;
  uint64_t count = 0;
  int64_t offset = 0;  // of the first element in the file
};

using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string, GgufArray>;
// The value as display text: long strings are truncated, arrays show count and type.
std::string value_text(const GgufValue& value);

struct GgufTensor {
  std::string name;
  uint32_t type = 0;          // ggml_type, see gguf_tensor_type
  std::vector<int64_t> dims;  // ne0 first: the fastest varying dim
  int64_t offset = 0;         // absolute
  int64_t bytes = 0;
};

// The element type of a ggml_type; nullopt for types that weights do not have.
std::optional<DType> gguf_tensor_type(uint32_t id);

class GgufFile {
 public:
  static Result<GgufFile> open(std::shared_ptr<const ByteSource> source);
  // Joins several files: metadata of the first, tensors and
  // sources of all. kCorrupt for a duplicate tensor. At least one.
  static Result<GgufFile> join(const std::vector<GgufFile>& parts);

  const std::shared_ptr<const ByteSource>& source() const { return source_; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  const std::map<std::string, GgufTensor, std::less<>>& tensors() const { return tensors_; }

  bool has(std::string_view key) const { return metadata_.contains(key); }
  bool has_array(std::string_view key) const;
  // Whether a getter below was called with the key. Getters record this, so they are not thread-safe.
  bool was_read(std::string_view key) const { return read_.contains(key); }
  // `fallback` replaces a missing key; without it a missing key, another type or a value out of range is an error.
  Result<int64_t> integer(std::string_view key, std::optional<int64_t> fallback = {}) const;
  Result<double> real(std::string_view key, std::optional<double> fallback = {}) const;
  Result<bool> flag(std::string_view key, std::optional<bool> fallback = {}) const;
  Result<std::string> text(std::string_view key, std::optional<std::string> fallback = {}) const;
  // Empty when the key is missing.
  Result<std::vector<std::string>> texts(std::string_view key) const;
  Result<std::vector<int64_t>> integers(std::string_view key) const;  // also flags, as 0 and 1
  Result<std::vector<float>> floats(std::string_view key) const;

 private:
  std::shared_ptr<const ByteSource> source_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::map<std::string, GgufTensor, std::less<>> tensors_;
  // The value; null: absent.
  const GgufValue* find(std::string_view key) const;
  mutable std::set<std::string, std::less<>> read_;
};

// Opens a model's file, or all parts of a split model
// (PREFIX-00001-of-00003.gguf ...) in the folder of the given part.
Result<GgufFile> open_gguf_parts(std::shared_ptr<const ByteSource> source);
// The file with the metadata: the given one, or the first part of a split model.
Result<GgufFile> open_gguf_metadata(std::shared_ptr<const ByteSource> source);

// Reads the vocabulary: "llama" (SentencePiece), "gpt2" (byte-level BPE), "bert"
// (WordPiece). nullopt without one. Tokenizer::create checks the contents.
Result<std::optional<TokenizerData>> gguf_tokenizer(const GgufFile& file);

}  // namespace tessera
