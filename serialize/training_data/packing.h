// Packing: the assignment of pieces of examples to rows of a batch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tessera {

// kOff: one padded example per row. kBfd: whole examples by best fit decreasing; long ones are
// truncated. kBfdSplit: long ones are split instead. kWrapped: consecutive examples, split at row ends.
enum class Packing : uint8_t { kOff, kBfd, kBfdSplit, kWrapped };
std::optional<Packing> packing_of(std::string_view name);  // off, bfd, bfd_split, wrapped
std::string_view name_of(Packing packing);

// Tokens [begin, begin + count) of an example.
struct ExamplePiece {
  uint32_t example = 0, begin = 0, count = 0;
  bool operator==(const ExamplePiece&) const = default;
};

class PackedRows {
 public:
  // Packs examples of these lengths, in order, into rows of `seq` tokens, as TRL's pack_dataset.
  static PackedRows pack(std::span<const uint32_t> lengths, uint32_t seq, Packing packing);

  size_t size() const { return begins_.size() - 1; }
  std::span<const ExamplePiece> row(size_t i) const {
    return std::span(pieces_).subspan(begins_[i], begins_[i + 1] - begins_[i]);
  }
  int64_t tokens() const;  // of all rows

 private:
  void add_row(std::span<const ExamplePiece> pieces);

  std::vector<ExamplePiece> pieces_;
  std::vector<uint64_t> begins_ = {0};
};

}  // namespace tessera
