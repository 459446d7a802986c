#include "serialize/training_data/packing.h"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>

namespace tessera {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"off", "bfd", "bfd_split", "wrapped"};

std::vector<ExamplePiece> cut_pieces(std::span<const uint32_t> lengths, uint32_t seq, bool split) {
  std::vector<ExamplePiece> pieces;
  pieces.reserve(lengths.size());
  for (uint32_t i = 0; i < lengths.size(); ++i)
    for (uint32_t begin = 0; begin < lengths[i]; begin += seq) {
      pieces.push_back({i, begin, std::min(seq, lengths[i] - begin)});
      if (!split || lengths[i] - begin <= seq) break;
    }
  return pieces;
}

// Best fit decreasing: each piece, longest first, goes to the row with
// the least sufficient space; ties: the row that reached it first.
std::vector<std::vector<ExamplePiece>> fit(std::vector<ExamplePiece> pieces, uint32_t seq) {
  std::ranges::stable_sort(pieces, std::greater<>(), &ExamplePiece::count);
  std::vector<std::vector<ExamplePiece>> rows;
  std::map<uint32_t, std::deque<size_t>> by_space;
  for (const ExamplePiece& piece : pieces) {
    auto found = by_space.lower_bound(piece.count);
    size_t row = rows.size();
    uint32_t space = seq;
    if (found == by_space.end()) {
      rows.emplace_back();
    } else {
      space = found->first;
      row = found->second.front();
      found->second.pop_front();
      if (found->second.empty()) by_space.erase(found);
    }
    rows[row].push_back(piece);
    if (space > piece.count) by_space[space - piece.count].push_back(row);
  }
  return rows;
}

}  // namespace

std::optional<Packing> packing_of(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Packing>(found - kNames.begin());
}

std::string_view name_of(Packing packing) { return kNames[static_cast<size_t>(packing)]; }

void PackedRows::add_row(std::span<const ExamplePiece> pieces) {
  pieces_.insert(pieces_.end(), pieces.begin(), pieces.end());
  begins_.push_back(pieces_.size());
}

PackedRows PackedRows::pack(std::span<const uint32_t> lengths, uint32_t seq, Packing packing) {
  PackedRows packed;
  if (packing == Packing::kOff) {
    for (const ExamplePiece& piece : cut_pieces(lengths, seq, false)) packed.add_row({&piece, 1});
  } else if (packing != Packing::kWrapped) {
    for (const std::vector<ExamplePiece>& row :
         fit(cut_pieces(lengths, seq, packing == Packing::kBfdSplit), seq))
      packed.add_row(row);
  } else {
    std::vector<ExamplePiece> row;
    uint32_t space = seq;
    for (uint32_t i = 0; i < lengths.size(); ++i)
      for (uint32_t begin = 0; begin < lengths[i];) {
        const uint32_t count = std::min(space, lengths[i] - begin);
        row.push_back({i, begin, count});
        begin += count, space -= count;
        if (space > 0) continue;
        packed.add_row(row);
        row.clear(), space = seq;
      }
    if (!row.empty()) packed.add_row(row);
  }
  return packed;
}

int64_t PackedRows::tokens() const {
  int64_t sum = 0;
  for (const ExamplePiece& piece : pieces_) sum += piece.count;
  return sum;
}

}  // namespace tessera
