// A ByteSource that concatenates others.
#include <algorithm>
#include <iterator>
#include <utility>

#include "graph/base/text.h"
#include "serialize/model.h"

namespace tessera {
namespace {

class JoinedSource final : public ByteSource {
 public:
  // `ends[i]`: end of source i in the joined bytes, ascending.
  JoinedSource(std::vector<std::shared_ptr<const ByteSource>> sources, std::vector<int64_t> ends)
      : sources_(std::move(sources)), ends_(std::move(ends)) {}

  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }

  Status read_at(int64_t offset, std::span<std::byte> out) const override {
    if (!is_inside(offset, static_cast<int64_t>(out.size())))
      return Status(StatusCode::kCorrupt,
                    format("wanted {} bytes at {}, but there are {}", out.size(), offset, size()));
    while (!out.empty()) {
      const size_t i = source_at(offset);
      const auto count =
          static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(out.size()), ends_[i] - offset));
      TSR_RETURN_IF_ERROR(sources_[i]->read_at(offset - begin_of(i), out.first(count)));
      out = out.subspan(count);
      offset += static_cast<int64_t>(count);
    }
    return {};
  }

  std::span<const std::byte> map(int64_t offset, int64_t bytes) const override {
    if (bytes <= 0 || !is_inside(offset, bytes)) return {};
    const size_t i = source_at(offset);
    if (bytes > ends_[i] - offset) return {};
    return sources_[i]->map(offset - begin_of(i), bytes);
  }

  Status unchanged() const override {
    for (const auto& source : sources_) TSR_RETURN_IF_ERROR(source->unchanged());
    return {};
  }

  // Forwards to the source that mapped the bytes, which owns the pages.
  void drop(std::span<const std::byte> bytes) const override {
    for (size_t i = 0; i < sources_.size(); ++i) {
      const std::span<const std::byte> mapped = sources_[i]->map(0, ends_[i] - begin_of(i));
      const auto begin = reinterpret_cast<uintptr_t>(mapped.data());
      const auto at = reinterpret_cast<uintptr_t>(bytes.data());
      if (at >= begin && at - begin < mapped.size()) return sources_[i]->drop(bytes);
    }
  }

  std::vector<std::string> paths() const override {
    std::vector<std::string> paths;
    for (const auto& source : sources_) std::ranges::move(source->paths(), std::back_inserter(paths));
    return paths;
  }

 private:
  bool is_inside(int64_t offset, int64_t bytes) const {
    return offset >= 0 && bytes >= 0 && offset <= size() && bytes <= size() - offset;
  }
  // The source that holds byte `offset`, which must exist.
  size_t source_at(int64_t offset) const {
    return static_cast<size_t>(std::ranges::upper_bound(ends_, offset) - ends_.begin());
  }
  int64_t begin_of(size_t i) const { return i == 0 ? 0 : ends_[i - 1]; }

  const std::vector<std::shared_ptr<const ByteSource>> sources_;
  const std::vector<int64_t> ends_;
};

}  // namespace

Result<std::shared_ptr<const ByteSource>> join_sources(
    std::vector<std::shared_ptr<const ByteSource>> sources) {
  std::vector<int64_t> ends;
  int64_t end = 0;
  for (const auto& source : sources) {
    if (__builtin_add_overflow(end, source->size(), &end))
      return Status(StatusCode::kUnsupported,
                    format("{} files have more bytes together than 64 bits count", sources.size()));
    ends.push_back(end);
  }
  return std::shared_ptr<const ByteSource>(
      std::make_shared<JoinedSource>(std::move(sources), std::move(ends)));
}

}  // namespace tessera
