#include "engine/base/byte_sources.h"

#include "graph/base/text.h"

namespace tessera {
namespace {

class CallbackSource : public ByteSource {
 public:
  explicit CallbackSource(ReadCallback callback) : callback_(std::move(callback)) {}

  int64_t size() const override { return callback_.size; }

  Status read_at(int64_t offset, std::span<std::byte> out) const override {
    const int64_t bytes = static_cast<int64_t>(out.size());
    if (offset < 0 || bytes > callback_.size || offset > callback_.size - bytes)
      return Status(StatusCode::kCorrupt, format("wanted {} bytes at offset {} of a model of {} bytes", bytes,
                                                 offset, callback_.size));
    const int32_t code = callback_.read_at(callback_.context, offset, out.data(), out.size());
    if (code == 0) return {};
    return Status(StatusCode::kIo,
                  format("the read callback returned {} for {} bytes at offset {}", code, bytes, offset));
  }

  std::span<const std::byte> map(int64_t, int64_t) const override { return {}; }

 private:
  ReadCallback callback_;
};

}  // namespace

std::shared_ptr<const void> releasing(void (*release)(void* context), void* context) {
  if (!release) return nullptr;
  // The pointer only has to be non-null; the deleter does the work.
  return std::shared_ptr<const void>(context ? context : reinterpret_cast<const void*>(release),
                                     [release, context](const void*) { release(context); });
}

std::shared_ptr<const ByteSource> callback_source(ReadCallback callback) {
  return std::make_shared<CallbackSource>(std::move(callback));
}

}  // namespace tessera
