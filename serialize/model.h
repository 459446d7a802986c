// Model: a forward Graph, its parameter values (lazy, mapped), a tokenizer and metadata; and the `.tsr` file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/host_tensor.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

class ByteSource;

// Metadata: the padding token of causal classifiers, which read the last other token.
inline constexpr const char* kPaddingKey = "padding_token";

struct StoredTensors {
  std::string type;  // the file's name: "q8_0"; "f32, compressed"
  int64_t tensors = 0, bytes = 0;
};

// ModelOrigin: a description of a model's file, for the user. Empty without a file.
struct ModelOrigin {
  std::string format;  // "gguf", "tsr"
  std::vector<StoredTensors> stored;
  std::vector<std::pair<std::string, std::string>> used, unused;  // metadata keys with their values
  int64_t files = 1;                // parts of a split model
  std::vector<std::string> unread;  // weight files next to it that hold another copy
};

struct Model {
  Graph graph;  // forward; inputs "tokens" i32[B, T] and "positions" i32[B, T] for language models; output
                // "logits"
  std::map<std::string, std::string> metadata;  // "architecture", "name", "context_length", "license", …
  std::optional<TokenizerData> tokenizer;
  std::map<std::string, HostTensor, std::less<>>
      parameters;                            // by name; absent without weights
  std::shared_ptr<const ByteSource> source;  // keeps values of a file alive; null without a file
  ModelOrigin origin;
};

// ByteSource: random access to the bytes of
// a file, from a path, memory or a callback.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual int64_t size() const = 0;
  // kCorrupt if the file was truncated since it was opened; never reads a mapping.
  virtual Status read_at(int64_t offset, std::span<std::byte> out) const = 0;
  // The bytes in place if possible (mapping, memory),
  // else empty. Valid while the source exists.
  virtual std::span<const std::byte> map(int64_t offset, int64_t bytes) const = 0;
  // kFailedPrecondition if a mapped file was modified: its values are
  // inconsistent, and reading past a nearer end would kill the process.
  virtual Status unchanged() const { return {}; }
  // Releases pages of bytes returned by `map`, after copying; they are reread on use.
  virtual void drop(std::span<const std::byte>) const {}
  // Paths of its files, as given to open_file; none for memory and callbacks.
  virtual std::vector<std::string> paths() const { return {}; }
};
Result<std::shared_ptr<const ByteSource>> open_file(const std::string& path);  // mmap
std::shared_ptr<const ByteSource> bytes_in_memory(std::span<const std::byte> bytes,
                                                  std::shared_ptr<const void> owner);
// Concatenates sources. A range within one source is mapped.
Result<std::shared_ptr<const ByteSource>> join_sources(
    std::vector<std::shared_ptr<const ByteSource>> sources);

struct SaveOptions {
  bool compress = false;  // zstd frames
};

// Checks every xxh3; kCorrupt names the tensor.
Status verify_checksums(const std::string& path);
// Writes the file atomically: under a
// temporary name, fsynced, renamed.
Status save_model(const Model& model, const std::string& path, SaveOptions options = {});
// Saves the parameters returned by `read` one at a time; memory stays at the largest.
using ReadParameter = std::function<Result<HostTensor>(const std::string& name)>;
Status save_model(const Model& model, const ReadParameter& read, const std::string& path,
                  SaveOptions options = {});

}  // namespace tessera
