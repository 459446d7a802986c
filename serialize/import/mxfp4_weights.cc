#include "serialize/import/mxfp4_weights.h"

#include <array>

#include "graph/base/cancellation.h"
#include "graph/base/quote.h"
#include "graph/base/text.h"

namespace tessera {
namespace {

constexpr std::string_view kBlocks = "_blocks", kScales = "_scales", kGateUp = "gate_up_proj";
constexpr int64_t kElements = 32, kCodes = 16, kBlockBytes = 17;

struct Mxfp4Experts {
  std::shared_ptr<const ByteSource> source;
  int64_t blocks, scales;  // offsets
  int64_t rows, columns;   // of an expert, as stored: rows, and blocks per row
  int64_t first, step;     // of rows

  // One expert.
  Status decode(int64_t expert, std::span<std::byte> out) const {
    const int64_t count = rows * columns;
    std::vector<uint8_t> codes(static_cast<size_t>(count * kCodes)), exponents(static_cast<size_t>(count));
    TSR_RETURN_IF_ERROR(
        source->read_at(blocks + expert * count * kCodes, std::as_writable_bytes(std::span(codes))));
    TSR_RETURN_IF_ERROR(
        source->read_at(scales + expert * count, std::as_writable_bytes(std::span(exponents))));
    auto* to = reinterpret_cast<uint8_t*>(out.data());
    for (int64_t row = first; row < rows; row += step) {
      cancellation_point();
      for (int64_t block = row * columns; block < (row + 1) * columns; ++block) {
        *to++ = exponents[static_cast<size_t>(block)];
        const uint8_t* from = codes.data() + block * kCodes;
        const auto code = [&](int64_t i) { return from[i / 2] >> (i % 2 * 4) & 15; };
        for (int64_t i = 0; i < kCodes; ++i) *to++ = static_cast<uint8_t>(code(i) | code(i + kCodes) << 4);
      }
    }
    return {};
  }
};

constexpr NameRule kNames[] = {
    {"block.#.experts.gate", "model.layers.#.mlp.experts.gate_proj.weight"},
    {"block.#.experts.up", "model.layers.#.mlp.experts.up_proj.weight"},
    {"block.#.experts.down", "model.layers.#.mlp.experts.down_proj.weight"},
};

}  // namespace

constexpr std::span<const NameRule> kMxfp4ExpertNames = kNames;

Result<std::vector<DecodedWeight>> mxfp4_weights(const ForeignFile& file) {
  std::vector<DecodedWeight> weights;
  for (const auto& [name, blocks] : file.tensors) {
    if (!name.ends_with(kBlocks)) continue;
    const std::string stem = name.substr(0, name.size() - kBlocks.size());
    const std::string scale_name = stem + std::string(kScales);
    const auto scales = file.tensors.find(scale_name);
    if (scales == file.tensors.end())
      return Status(StatusCode::kCorrupt,
                    format("tensor '{}' is missing next to '{}'", quote(scale_name), quote(name)));
    const Shape& shape = blocks.shape;
    if (blocks.type != "u8" || scales->second.type != "u8" || shape.rank() != 4 || shape[3] != kCodes ||
        shape.elements() == 0 || scales->second.shape != Shape{shape[0], shape[1], shape[2]})
      return Status(
          StatusCode::kCorrupt,
          format("tensor '{}' is {} [{}] and '{}' {} [{}]; wanted u8 [E, N, K / 32, 16] and [E, N, K / 32]",
                 quote(name), blocks.type, shape, quote(scale_name), scales->second.type,
                 scales->second.shape));
    const bool alternates = stem.ends_with(kGateUp);
    if (alternates && shape[1] % 2 != 0)
      return Status(StatusCode::kCorrupt,
                    format("tensor '{}' has {} rows, wanted gate and up by turns", quote(name), shape[1]));
    const std::string_view layer =
        alternates ? std::string_view(stem).substr(0, stem.size() - kGateUp.size()) : std::string_view(stem);
    const int64_t step = alternates ? 2 : 1;
    for (int64_t first = 0; first < step; ++first) {
      const Mxfp4Experts experts{file.source, blocks.offset, scales->second.offset, shape[1], shape[2],
                                 first,       step};
      const int64_t rows = shape[1] / step, one = rows * shape[2] * kBlockBytes;
      DecodedWeight made{format("{}{}.weight", layer,
                                !alternates  ? ""
                                : first == 0 ? "gate_proj"
                                             : "up_proj"),
                         {DType::kMXFP4, {shape[0], rows, shape[2] * kElements}},
                         {},
                         {name, scale_name}};
      made.decoded = {shape[0] * one, one,
                      [experts](int64_t at, std::span<std::byte> out) { return experts.decode(at, out); }};
      weights.push_back(std::move(made));
    }
  }
  return weights;
}

}  // namespace tessera
