// TensorWriter: writes one tensor to our files slice
// by slice, from a source that may exceed memory.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "serialize/atomic_file.h"
#include "serialize/tensor_record.h"
#include "serialize/tensor_source.h"

namespace tessera {

class TensorWriter {
 public:
  // At the next aligned position of `file`, which must outlive it; compressed only if that helps.
  TensorWriter(AtomicFile& file, TensorSource source, bool compress);
  TensorWriter(const TensorWriter&) = delete;
  TensorWriter& operator=(const TensorWriter&) = delete;

  // Writes the next slice. After a failure the file is unusable.
  Status write_slice();
  bool is_done() const { return reader_ && reader_->is_done(); }
  int64_t position() const {
    return reader_ ? reader_->position() : 0;
  }                                                       // contents written; reset to 0 if
                                                          // compression does not pay
  const TensorRecord& record() const { return record_; }  // after the last slice

 private:
  Status begin();
  Status append_frame(std::span<const std::byte> contents);

  AtomicFile& file_;
  const TensorSource source_;
  bool compress_;
  std::optional<TensorReader> reader_;
  std::vector<std::byte> buffer_, frame_;
  TensorRecord record_;
};

}  // namespace tessera
