#include "serialize/tensor_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "graph/base/text.h"

namespace tessera {

TensorSource source_in_memory(std::string name, HostTensor contents) {
  TensorSource source{std::move(name), contents.type, {}, 1, {}, contents};
  source.read = [contents = std::move(contents)](
                    int64_t offset, std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
    return contents.data.subspan(static_cast<size_t>(offset), buffer.size());
  };
  return source;
}

TensorReader::TensorReader(const TensorSource& source, bool wants_hash)
    : source_(source),
      bytes_(bytes(source.type)),
      slice_bytes_(std::max<int64_t>(1, source.slice_bytes / source.unit_bytes) * source.unit_bytes) {
  if (wants_hash || source.xxh3) hash_.emplace();
}

size_t TensorReader::next_bytes() const {
  return static_cast<size_t>(std::min(slice_bytes_, bytes_ - position_));
}

Result<std::span<const std::byte>> TensorReader::next(std::span<std::byte> buffer) {
  TSR_CHECK(!done_ && buffer.size() == next_bytes(), "a slice is read into a buffer of its size");
  std::span<const std::byte> slice;
  if (!buffer.empty()) {
    TSR_ASSIGN_OR_RETURN(slice, source_.read(position_, buffer));
  }
  const int64_t end = position_ + static_cast<int64_t>(slice.size());
  if (hash_) hash_->add(slice);
  if (end == bytes_ && source_.xxh3 && hash_->digest() != *source_.xxh3)
    return Status(StatusCode::kCorrupt,
                  format("tensor '{}': its checksum is wrong: the data is damaged", source_.name));
  position_ = end;
  done_ = end == bytes_;
  return slice;
}

Result<HostTensor> read_whole(const TensorSource& source) {
  if (!source.in_place.data.empty()) return source.in_place;
  std::span<std::byte> contents;
  HostTensor tensor = HostTensor::zeros(source.type, &contents);
  for (TensorReader reader(source, false); !reader.is_done();) {
    const auto into = contents.subspan(static_cast<size_t>(reader.position()), reader.next_bytes());
    TSR_ASSIGN_OR_RETURN(const std::span<const std::byte> slice, reader.next(into));
    if (slice.data() != into.data()) std::ranges::copy(slice, into.begin());
  }
  return tensor;
}

}  // namespace tessera
