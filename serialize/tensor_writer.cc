#include "serialize/tensor_writer.h"

#include <zstd.h>

#include <utility>

#include "serialize/envelope.h"

namespace tessera {
namespace {

constexpr int kCompressionLevel = 3;

}  // namespace

TensorWriter::TensorWriter(AtomicFile& file, TensorSource source, bool compress)
    : file_(file), source_(std::move(source)), compress_(compress) {
  record_.name = source_.name;
  record_.type = source_.type;
}

Status TensorWriter::begin() {
  TSR_RETURN_IF_ERROR(file_.pad_to(align_data(file_.position())));
  record_.offset = file_.position();
  reader_.emplace(source_, true);
  return {};
}

Status TensorWriter::write_slice() {
  if (!reader_) TSR_RETURN_IF_ERROR(begin());
  buffer_.resize(reader_->next_bytes());
  TSR_ASSIGN_OR_RETURN(const std::span<const std::byte> contents, reader_->next(buffer_));
  TSR_RETURN_IF_ERROR(compress_ ? append_frame(contents) : file_.append(contents));
  if (!is_done()) return {};
  record_.xxh3 = reader_->xxh3();
  record_.stored_bytes = file_.position() - record_.offset;
  record_.codec = compress_ ? TensorCodec::kZstd : TensorCodec::kRaw;
  record_.chunk_bytes = compress_ ? static_cast<uint64_t>(reader_->slice_bytes()) : 0;
  return {};
}

Status TensorWriter::append_frame(std::span<const std::byte> contents) {
  frame_.resize(ZSTD_compressBound(contents.size()));
  const size_t size =
      ZSTD_compress(frame_.data(), frame_.size(), contents.data(), contents.size(), kCompressionLevel);
  const auto whole = static_cast<uint64_t>(bytes(source_.type));
  const uint64_t stored = file_.position() - record_.offset + (ZSTD_isError(size) ? whole : size);
  if (stored >= whole || (reader_->is_done() && whole / kMaxPackingRatio >= stored)) {
    compress_ = false;  // restarts without compression
    record_.chunks.clear();
    reader_.emplace(source_, true);
    return file_.truncate_to(record_.offset);
  }
  record_.chunks.push_back(size);
  return file_.append(std::span(frame_).first(size));
}

}  // namespace tessera
