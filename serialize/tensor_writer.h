// TensorWriter: writes one tensor to a file of ours, slice by slice, from a source that may be larger than
// memory.
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
  // At the next aligned position of `file`, which outlives it; compressed only where that helps.
  TensorWriter(AtomicFile& file, TensorSource source, bool compress);
  TensorWriter(const TensorWriter&) = delete;
  TensorWriter& operator=(const TensorWriter&) = delete;

  // Writes the next slice. After a failure the file is of no use.
  Status write_slice();
  bool is_done() const { return reader_ && reader_->is_done(); }
  int64_t position() const {
    return reader_ ? reader_->position() : 0;
  }                                                       // contents written; back to 0 once, where
                                                          // compression does not pay
  const TensorRecord& record() const { return record_; }  // of a tensor that is done

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
