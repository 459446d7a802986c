#include "serialize/export/source_stream.h"

#include <algorithm>

namespace tessera {

Status SourceStream::read(std::span<std::byte> out) {
  while (!out.empty()) {
    if (rest_.empty()) {
      buffer_.resize(reader_.next_bytes());
      TSR_ASSIGN_OR_RETURN(rest_, reader_.next(buffer_));
    }
    const size_t part = std::min(out.size(), rest_.size());
    std::copy_n(rest_.begin(), part, out.begin());
    out = out.subspan(part);
    rest_ = rest_.subspan(part);
  }
  return {};
}

}  // namespace tessera
