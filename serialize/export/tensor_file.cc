#include "serialize/export/tensor_file.h"

namespace tessera {

Result<TensorFileWriter> TensorFileWriter::create(const TensorFile& contents, const std::string& path) {
  TSR_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  TSR_RETURN_IF_ERROR(file.append(std::as_bytes(std::span(contents.header))));
  return TensorFileWriter(contents, std::move(file));
}

Status TensorFileWriter::write_slice() {
  if (!reader_) {
    if (next_ == contents_->tensors.size()) {
      is_done_ = true;
      return file_.pad_to(contents_->bytes);
    }
    const PlacedTensor& tensor = contents_->tensors[next_++];
    TSR_RETURN_IF_ERROR(file_.pad_to(tensor.offset));
    TSR_CHECK(file_.position() == tensor.offset, "tensors of a file do not overlap");
    reader_ = std::make_unique<TensorReader>(tensor.source, false);
  }
  buffer_.resize(reader_->next_bytes());
  TSR_ASSIGN_OR_RETURN(const std::span<const std::byte> slice, reader_->next(buffer_));
  TSR_RETURN_IF_ERROR(file_.append(slice));
  if (reader_->is_done()) reader_.reset();
  return {};
}

}  // namespace tessera
