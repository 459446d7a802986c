// TensorFile: a file of a header and, behind it, tensors each at a place of its own; safetensors and GGUF are such.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "serialize/atomic_file.h"
#include "serialize/tensor_source.h"

namespace tessera {

struct PlacedTensor {
  TensorSource source;
  uint64_t offset = 0;  // in the file; ascending
};

struct TensorFile {
  std::string name;    // within its folder; empty for a file that is all of an export
  std::string header;  // the bytes before the first tensor
  std::vector<PlacedTensor> tensors;
  uint64_t bytes = 0;  // of the file: zeros follow the last tensor up to here
};

// Everything that an export writes: one file, or a folder of files.
struct ExportContents {
  bool is_folder = false;
  std::vector<TensorFile> files;
  std::vector<std::pair<std::string, std::string>> texts;  // names and contents of further files
  std::vector<std::string> notes;                          // what was left out and why, for people
};

// Writes a TensorFile slice by slice. Until `commit` it has a temporary name, under which it is removed with the writer.
class TensorFileWriter {
 public:
  // `contents` outlives it.
  static Result<TensorFileWriter> create(const TensorFile& contents, const std::string& path);

  Status write_slice();
  bool is_done() const { return is_done_; }
  uint64_t position() const { return file_.position(); }  // of contents.bytes
  Status commit() { return file_.commit(); }

 private:
  TensorFileWriter(const TensorFile& contents, AtomicFile file)
      : contents_(&contents), file_(std::move(file)) {}

  const TensorFile* contents_;
  AtomicFile file_;
  bool is_done_ = false;
  size_t next_ = 0;                       // tensor
  std::unique_ptr<TensorReader> reader_;  // of the tensor before it
  std::vector<std::byte> buffer_;
};

}  // namespace tessera
