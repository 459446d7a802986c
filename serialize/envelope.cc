#include "serialize/envelope.h"

#include <xxhash.h>

#include <cstring>
#include <vector>

#include "graph/base/text.h"
#include "serialize/file_limits.h"

namespace tessera {
namespace {

constexpr size_t kHashedHeaderBytes = sizeof(Envelope) - sizeof(uint64_t);

uint64_t header_hash(const Envelope& envelope) {
  return xxh3(std::as_bytes(std::span(&envelope, 1)).first(kHashedHeaderBytes));
}

}  // namespace

uint64_t xxh3(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Envelope make_envelope(std::string_view magic, uint64_t file_bytes, uint64_t index_offset,
                       std::span<const std::byte> index, uint32_t version) {
  Envelope envelope{{}, version, sizeof(Envelope), file_bytes, index_offset, index.size(), xxh3(index), 0, 0};
  TSR_CHECK(magic.size() == sizeof envelope.magic, "a magic number has 8 bytes");
  std::memcpy(envelope.magic, magic.data(), magic.size());
  envelope.header_xxh3 = header_hash(envelope);
  return envelope;
}

Result<IndexBytes> read_index(std::shared_ptr<const ByteSource> source, std::string_view magic,
                              std::string_view what) {
  auto corrupt = [what](const std::string& why) {
    return Status(StatusCode::kCorrupt, format("{}: {}", what, why));
  };
  const auto size = static_cast<uint64_t>(source->size());
  Envelope envelope;
  if (size < sizeof envelope)
    return corrupt(format("{} bytes are too few for a header of {}", size, sizeof envelope));
  TSR_RETURN_IF_ERROR(source->read_at(0, std::as_writable_bytes(std::span(&envelope, 1))));
  if (std::memcmp(envelope.magic, magic.data(), sizeof envelope.magic) != 0) {
    return corrupt(format("it does not start with \"{}\"", magic));
  }
  if (envelope.header_xxh3 != header_hash(envelope)) return corrupt("the header's checksum is wrong");
  if (envelope.version == 0 || envelope.version > kFileVersion) {
    return Status(StatusCode::kUnsupported,
                  format("{}: written in format {}, this version reads up to {}: use a newer one", what,
                         envelope.version, kFileVersion));
  }
  if (envelope.header_bytes != sizeof envelope)
    return corrupt(format("header of {} bytes", envelope.header_bytes));
  if (envelope.file_bytes != size) {
    return corrupt(format("the file has {} bytes, its header says {}: it was cut or added to", size,
                          envelope.file_bytes));
  }
  if (envelope.index_offset % kDataAlignment != 0 || envelope.index_offset < sizeof envelope ||
      envelope.index_offset > size || envelope.index_bytes > size - envelope.index_offset ||
      envelope.index_bytes > kMaxIndexBytes) {
    return corrupt(
        format("index of {} bytes at {} in a file of {}", envelope.index_bytes, envelope.index_offset, size));
  }
  const auto offset = static_cast<int64_t>(envelope.index_offset);
  // A copy, since a mapping of a file truncated meanwhile would kill the process.
  const auto copy = std::make_shared<std::vector<uint64_t>>(envelope.index_bytes / 8 + 1);
  const auto writable = std::as_writable_bytes(std::span(*copy)).first(envelope.index_bytes);
  TSR_RETURN_IF_ERROR(source->read_at(offset, writable));
  const IndexBytes index{writable, copy, envelope.index_offset};
  if (xxh3(index.bytes) != envelope.index_xxh3) return corrupt("the index's checksum is wrong");
  return index;
}

}  // namespace tessera
