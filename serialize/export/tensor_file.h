// TensorFile: a header followed by tensors at fixed offsets, as in safetensors and GGUF.
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
  std::string name;    // relative to its folder; empty: the export is this file
  std::string header;  // the bytes before the first tensor
  std::vector<PlacedTensor> tensors;
  uint64_t bytes = 0;  // size of the file, padded with zeros after the last tensor
};

// ExportContents: everything an export writes, one file or a folder.
struct ExportContents {
  bool is_folder = false;
  std::vector<TensorFile> files;
  std::vector<std::pair<std::string, std::string>> texts;  // names and contents of further files
  std::vector<std::string> notes;                          // omitted parts with reasons, for the user
};

// TensorFileWriter: writes a TensorFile slice by slice, under a temporary name until `commit`; otherwise removes it.
class TensorFileWriter {
 public:
  // `contents` must outlive it.
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
  std::unique_ptr<TensorReader> reader_;  // of the previous tensor
  std::vector<std::byte> buffer_;
};

}  // namespace tessera
