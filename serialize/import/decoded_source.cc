#include "serialize/import/decoded_source.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "graph/base/text.h"

namespace tessera {
namespace {

class DecodedSource final : public ByteSource {
 public:
  explicit DecodedSource(std::vector<DecodedTensor> tensors) : tensors_(std::move(tensors)) {
    for (const DecodedTensor& tensor : tensors_) ends_.push_back(size() + tensor.bytes);
  }

  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }

  Status read_at(int64_t offset, std::span<std::byte> out) const override {
    if (offset < 0 || offset > size() || std::ssize(out) > size() - offset)
      return Status(StatusCode::kCorrupt,
                    format("wanted {} bytes at {}, but there are {}", out.size(), offset, size()));
    while (!out.empty()) {
      const auto i = static_cast<size_t>(std::ranges::upper_bound(ends_, offset) - ends_.begin());
      const DecodedTensor& tensor = tensors_[i];
      const int64_t at = offset - (ends_[i] - tensor.bytes), chunk = at / tensor.chunk_bytes;
      const int64_t begin = at % tensor.chunk_bytes;
      const std::lock_guard lock(mutex_);
      if (tensor_ != i || chunk_ != chunk || kept_.empty()) {
        tensor_ = i;
        chunk_ = chunk;
        kept_.clear();
        std::vector<std::byte> made(
            static_cast<size_t>(std::min(tensor.chunk_bytes, tensor.bytes - chunk * tensor.chunk_bytes)));
        TSR_RETURN_IF_ERROR(tensor.decode(chunk, made));
        kept_ = std::move(made);
      }
      const auto count = std::min(out.size(), kept_.size() - static_cast<size_t>(begin));
      std::copy_n(kept_.begin() + begin, count, out.begin());
      out = out.subspan(count);
      offset += static_cast<int64_t>(count);
    }
    return {};
  }

  std::span<const std::byte> map(int64_t, int64_t) const override { return {}; }

 private:
  const std::vector<DecodedTensor> tensors_;
  std::vector<int64_t> ends_;
  mutable std::mutex mutex_;
  mutable size_t tensor_ = 0;
  mutable int64_t chunk_ = 0;
  mutable std::vector<std::byte> kept_;
};

}  // namespace

std::shared_ptr<const ByteSource> decoded_source(std::vector<DecodedTensor> tensors) {
  return std::make_shared<DecodedSource>(std::move(tensors));
}

}  // namespace tessera
