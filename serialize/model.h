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

// Metadata: the token of padding, of causal models that tell the classes of texts: they are read at the last other one.
inline constexpr const char* kPaddingKey = "padding_token";

struct StoredTensors {
  std::string type;  // the file's word for it: "q8_0"; of compressed ones "f32, compressed"
  int64_t tensors = 0, bytes = 0;
};

// ModelOrigin: the contents of a model's file, for people. Empty for a model without a file.
struct ModelOrigin {
  std::string format;  // "gguf", "tsr"
  std::vector<StoredTensors> stored;
  std::vector<std::pair<std::string, std::string>> used, unused;  // keys of its metadata, with their values
  int64_t files = 1;                // parts of a split model
  std::vector<std::string> unread;  // names of files next to them that hold another copy of the weights
};

struct Model {
  Graph graph;  // forward; inputs "tokens" i32[B, T] and "positions" i32[B, T] for language models; output
                // "logits"
  std::map<std::string, std::string> metadata;  // "architecture", "name", "context_length", "license", …
  std::optional<TokenizerData> tokenizer;
  std::map<std::string, HostTensor, std::less<>>
      parameters;                            // by name; absent for a description without weights
  std::shared_ptr<const ByteSource> source;  // that keeps alive those of a file; null for a model of none
  ModelOrigin origin;
};

// ByteSource: random access to the bytes of a file, for models from a path, from memory or through a
// callback.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual int64_t size() const = 0;
  // kCorrupt where a file has been cut shorter since it was opened; never through a mapping.
  virtual Status read_at(int64_t offset, std::span<std::byte> out) const = 0;
  // The bytes without a copy where possible (a mapping, memory); empty otherwise. Valid while the source
  // exists.
  virtual std::span<const std::byte> map(int64_t offset, int64_t bytes) const = 0;
  // kFailedPrecondition if a mapped file was written to since: its values no longer belong to one file, and
  // reading beyond a nearer end would kill the process.
  virtual Status unchanged() const { return {}; }
  // Gives back the memory of bytes that `map` returned, after a copy of them: they are read again when used.
  virtual void drop(std::span<const std::byte>) const {}
  // Paths of the files that it reads, as open_file was given them; none for memory and callbacks.
  virtual std::vector<std::string> paths() const { return {}; }
};
Result<std::shared_ptr<const ByteSource>> open_file(const std::string& path);  // mmap
std::shared_ptr<const ByteSource> bytes_in_memory(std::span<const std::byte> bytes,
                                                  std::shared_ptr<const void> owner);
// Several sources as one: the bytes of each follow those of the one before. A range within one is mapped.
Result<std::shared_ptr<const ByteSource>> join_sources(
    std::vector<std::shared_ptr<const ByteSource>> sources);

struct SaveOptions {
  bool compress = false;  // zstd frames
};

// Checks structure and offsets of an untrusted file; tensor data are read later, on demand.
Result<Model> load_model(std::shared_ptr<const ByteSource> source);
Result<Model> load_model(const std::string& path);
// Checks every xxh3; kCorrupt names the tensor.
Status verify_checksums(const std::string& path);
// Writes to a temporary name next to `path`, fsynced, renamed: `path` holds the old or the new file, never a
// part.
Status save_model(const Model& model, const std::string& path, SaveOptions options = {});
// Saves the parameters that `read` returns, one at a time: memory stays at the largest.
using ReadParameter = std::function<Result<HostTensor>(const std::string& name)>;
Status save_model(const Model& model, const ReadParameter& read, const std::string& path,
                  SaveOptions options = {});

Result<Model> import_gguf(std::shared_ptr<const ByteSource> source);

}  // namespace tessera
