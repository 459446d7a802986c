// Token files: tokenized examples in row order. Little-endian: a header, tokens
// (u32: the id, and bit 31 if trained), a record per example, weights other than
// 1, and a description of the inputs. The format is described in COMPATIBILITY.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "serialize/atomic_file.h"
#include "serialize/hash_stream.h"
#include "serialize/training_data/example.h"

namespace tessera {

// TokenRecord: one example of the file.
struct TokenRecord {
  uint64_t begin = 0;    // index of its first token in the file
  uint32_t count = 0;    // tokens
  uint32_t prompt = 0;   // number of first tokens that are the prompt
  uint32_t trained = 0;  // number of trained tokens, without the first
  uint32_t row = 0;      // row number, shared by a row's examples; ascending
  uint32_t line = 0;     // line of the row in its file, saturating
  uint8_t kind = 0;      // RowKind
  uint8_t role = 0;      // ExampleRole
  uint16_t file = 0;     // index of the input file
};
static_assert(sizeof(TokenRecord) == 32);

// WeightRun: consecutive tokens with one loss weight other than 1.
struct WeightRun {
  uint64_t begin = 0;
  uint32_t count = 0;
  float weight = 1;
};
static_assert(sizeof(WeightRun) == 16);

inline constexpr uint32_t kTrainedBit = uint32_t{1} << 31;
inline constexpr int32_t token_id(uint32_t token) { return static_cast<int32_t>(token & ~kTrainedBit); }
inline constexpr bool is_trained(uint32_t token) { return (token & kTrainedBit) != 0; }

// TokenFile: an open token file. Immutable; any thread.
class TokenFile {
 public:
  // Opens an untrusted file: numbers are checked against its
  // size, checksums against its bytes. kNotFound, kIo, kCorrupt.
  static Result<std::shared_ptr<const TokenFile>> open(const std::string& path);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  std::span<const TokenRecord> records() const { return records_; }
  // Reads tokens [begin, begin + out.size()) of an example. kIo, also if the file was truncated.
  Status read(const TokenRecord& record, uint32_t begin, std::span<uint32_t> out) const;
  bool has_weights() const { return !runs_.empty(); }
  // The weights of the same tokens.
  void fill_weights(const TokenRecord& record, uint32_t begin, std::span<float> out) const;

  int64_t tokens() const { return static_cast<int64_t>(tokens_); }
  int32_t largest_token() const { return largest_; }
  uint64_t fingerprint() const { return fingerprint_; }  // hash of tokens and records
  const std::string& about() const { return about_; }

 private:
  TokenFile() = default;
  Status load();

  std::string path_;
  int descriptor_ = -1;
  uint64_t tokens_ = 0, fingerprint_ = 0;
  int32_t largest_ = 0;
  std::vector<TokenRecord> records_;
  std::vector<WeightRun> runs_;  // ascending, disjoint
  std::string about_;
};

// TokenFileWriter: writes a token file. Memory: 32 bytes per example, 16 per weight run, and a block. One thread.
class TokenFileWriter {
 public:
  // The path is unchanged until `commit`.
  static Result<TokenFileWriter> create(const std::string& path);
  Status add(const TokenExample& example,
             TokenRecord record);  // begin, count, prompt, trained and role are taken from the example
  // Finishes and opens the file. `keep`: moves it to its name; else it has no name from then on.
  Result<std::shared_ptr<const TokenFile>> finish(std::string_view about, bool keep);
  uint64_t tokens() const { return tokens_; }

 private:
  explicit TokenFileWriter(AtomicFile file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}
  Status flush();
  Status add_weights(const TokenExample& example);

  AtomicFile file_;
  std::string path_;
  std::vector<uint32_t> buffer_;
  std::vector<TokenRecord> records_;
  std::vector<WeightRun> runs_;
  HashStream hash_;
  uint64_t tokens_ = 0;
};

}  // namespace tessera
