#include "runtime/backends/cpu/kernels/quantized_panels.h"

#include <algorithm>
#include <cstring>

#include "graph/base/status.h"
#include "runtime/backends/cpu/kernels/quantized_codes.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/quantized_panels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/quantized_sinks-inl.h"

#ifndef TSR_QUANTIZED_PANELS_CC_ONCE_
#define TSR_QUANTIZED_PANELS_CC_ONCE_
namespace tessera::cpu {
namespace {

struct PanelFunctions {
  void (*unpack)(const std::byte* from, int64_t stride, int64_t count, int64_t block_bytes, std::byte* out,
                 const std::byte* next);
  void (*interleave)(const std::byte* rows, int64_t stride, int64_t count, std::byte* out);
};

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

template <class Unpack, DotForm kForm>
HWY_INLINE void unpack_block(const std::byte* panel, std::byte* out) {
  StoreSink<kForm> sink{out};
  Unpack::unpack(panel, sink);
}

// Blocks of rows `stride` bytes apart, or with stride 0 an interleaved panel.
template <class Unpack, DotForm kForm>
void unpack_blocks(const std::byte* from, int64_t stride, int64_t count, int64_t block_bytes, std::byte* out,
                   const std::byte* next) {
  constexpr int64_t kPanelBytes = kLanes * Unpack::kBlockBytes;
  if (stride == 0) {
    for (int64_t b = 0; b < count; ++b) {
      if (next != nullptr) prefetch_bytes(next + b * kPanelBytes, kPanelBytes);
      unpack_block<Unpack, kForm>(from + b * kPanelBytes, out + b * block_bytes);
    }
    return;
  }
  // Several blocks at a time: narrow stores have left for the cache when wide loads want them.
  constexpr int64_t kBatch = std::max<int64_t>(1, 160 / Unpack::kBlockBytes);
  alignas(64) std::byte panel[kBatch * kPanelBytes];
  for (int64_t first = 0; first < count; first += kBatch) {
    const int64_t batch = std::min(kBatch, count - first);
    if (next != nullptr)
      for (int64_t lane = 0; lane < kLanes; ++lane)
        prefetch_bytes(next + lane * stride + first * Unpack::kBlockBytes, batch * Unpack::kBlockBytes);
    for (int64_t b = 0; b < batch; ++b)
      Unpack::interleave(from + (first + b) * Unpack::kBlockBytes, stride, panel + b * kPanelBytes);
    for (int64_t b = 0; b < batch; ++b)
      unpack_block<Unpack, kForm>(panel + b * kPanelBytes, out + (first + b) * block_bytes);
  }
}

// Likewise for types that are unpacked from rows only.
template <class Unpack, DotForm kForm>
void unpack_row_blocks(const std::byte* rows, int64_t stride, int64_t count, int64_t block_bytes,
                       std::byte* out, const std::byte* next) {
  for (int64_t b = 0; b < count; ++b) {
    if (next != nullptr)
      for (int64_t lane = 0; lane < kLanes; ++lane)
        prefetch_bytes(next + lane * stride + b * Unpack::kBlockBytes, Unpack::kBlockBytes);
    StoreSink<kForm> sink{out + b * block_bytes};
    Unpack::unpack(rows + b * Unpack::kBlockBytes, stride, sink);
  }
}

template <class Unpack>
void interleave_blocks(const std::byte* rows, int64_t stride, int64_t count, std::byte* out) {
  for (int64_t b = 0; b < count; ++b)
    Unpack::interleave(rows + b * Unpack::kBlockBytes, stride, out + b * kLanes * Unpack::kBlockBytes);
}

template <class Unpack, DotForm kForm>
constexpr PanelFunctions functions_of() {
  return {unpack_blocks<Unpack, kForm>, interleave_blocks<Unpack>};
}

template <class Block, DecodeGrid* kDecode>
PanelFunctions functions_of_grid(bool wide) {
  using Unpack = UnpackGrid<Block, kDecode>;
  return {
      wide ? unpack_row_blocks<Unpack, DotForm::kWide256> : unpack_row_blocks<Unpack, DotForm::kSigned256>,
      nullptr};
}

PanelFunctions panel_functions(DType type, DotForm form) {
  const bool wide = form == DotForm::kWide32 || form == DotForm::kWide256;
  constexpr DotForm kU32 = DotForm::kUnsigned32, kS32 = DotForm::kSigned32, kU256 = DotForm::kUnsigned256;
  switch (type) {
    case DType::kQ4_0: return functions_of<UnpackQ4_0, kU32>();
    case DType::kQ4_1: return functions_of<UnpackQ4_1, kU32>();
    case DType::kQ5_0: return functions_of<UnpackQ5_0, kU32>();
    case DType::kQ5_1: return functions_of<UnpackQ5_1, kU32>();
    case DType::kQ8_0:
      return wide ? functions_of<UnpackQ8_0, DotForm::kWide32>() : functions_of<UnpackQ8_0, kS32>();
    case DType::kIQ4_NL:
      return wide ? functions_of<UnpackIq4Nl, DotForm::kWide32>() : functions_of<UnpackIq4Nl, kS32>();
    case DType::kMXFP4: return functions_of<UnpackMxfp4, kU32>();
    case DType::kQ2_K: return functions_of<UnpackQ2K, kU256>();
    case DType::kQ3_K: return functions_of<UnpackQ3K, kU256>();
    case DType::kQ4_K: return functions_of<UnpackQ4K, kU256>();
    case DType::kQ5_K: return functions_of<UnpackQ5K, kU256>();
    case DType::kQ6_K: return functions_of<UnpackQ6K, kU256>();
    case DType::kIQ4_XS:
      return wide ? functions_of<UnpackIq4Xs, DotForm::kWide256>()
                  : functions_of<UnpackIq4Xs, DotForm::kSigned256>();
    case DType::kTQ1_0:
      return wide ? functions_of<UnpackTq1_0, DotForm::kWide256>()
                  : functions_of<UnpackTq1_0, DotForm::kSigned256>();
    case DType::kTQ2_0:
      return wide ? functions_of<UnpackTq2_0, DotForm::kWide256>()
                  : functions_of<UnpackTq2_0, DotForm::kSigned256>();
    case DType::kIQ1_S: return functions_of_grid<BlockIq1S, decode_iq1_s>(wide);
    case DType::kIQ1_M: return functions_of_grid<BlockIq1M, decode_iq1_m>(wide);
    case DType::kIQ2_XXS: return functions_of_grid<BlockIq2Xxs, decode_iq2_xxs>(wide);
    case DType::kIQ2_XS: return functions_of_grid<BlockIq2Xs, decode_iq2_xs>(wide);
    case DType::kIQ2_S: return functions_of_grid<BlockIq2S, decode_iq2_s>(wide);
    case DType::kIQ3_XXS: return functions_of_grid<BlockIq3Xxs, decode_iq3_xxs>(wide);
    case DType::kIQ3_S: return functions_of_grid<BlockIq3S, decode_iq3_s>(wide);
    default: return {};
  }
}

int64_t panel_lanes() { return kLanes; }

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(panel_functions);
HWY_EXPORT(panel_lanes);

namespace {

constexpr int64_t kMostLanes = 16;

// One block of codes, split into unpacked blocks, goes to one lane of a panel.
void scatter_codes(const QuantizedLayout& layout, int64_t lanes, int64_t lane, const int16_t* codes,
                   const float* scales, int64_t count, std::byte* out) {
  const int64_t vector_bytes = 4 * lanes, elements = layout.elements();
  const int64_t block_bytes = unpacked_block_bytes(layout, lanes), scale_count = layout.half_scales ? 2 : 1;
  for (int64_t b = 0; b < count / elements;
       ++b, codes += elements, scales += scale_count, out += block_bytes) {
    std::byte* to = out + 4 * lane;
    for (int64_t u = 0; u < elements / 4; ++u, to += 2 * vector_bytes) {
      const int16_t words[4] = {codes[4 * u], codes[4 * u + 2], codes[4 * u + 1], codes[4 * u + 3]};
      std::memcpy(to, words, 4);
      std::memcpy(to + vector_bytes, words + 2, 4);
    }
    for (int64_t s = 0; s < scale_count; ++s, to += vector_bytes) std::memcpy(to, scales + s, sizeof(float));
  }
}

}  // namespace

PanelUnpacker::PanelUnpacker(const QuantizedLayout& layout, const BlockMatrix& w)
    : layout_(layout),
      w_(w),
      lanes_(interleaved_rows()),
      row_bytes_(dtype_bytes(w.type, w.K)),
      file_bytes_(info(w.type).block_bytes),
      block_bytes_(unpacked_block_bytes(layout, lanes_)),
      unpack_blocks_(HWY_DYNAMIC_DISPATCH(panel_functions)(w.type, layout.form).unpack) {}

const std::byte* PanelUnpacker::find_block(int64_t row, int64_t block) const {
  return w_.data + row * row_bytes_ + block * file_bytes_ * (w_.interleaved ? lanes_ : 1);
}

void PanelUnpacker::unpack(int64_t row, int64_t block_begin, int64_t block_count, std::byte* out,
                           const std::byte* next) const {
  if (unpack_blocks_ == nullptr) return unpack_rows(row, block_begin, block_count, out);
  if (row + lanes_ > w_.N) return unpack_last_rows(row, block_begin, block_count, out);
  unpack_blocks_(find_block(row, block_begin), w_.interleaved ? 0 : row_bytes_, block_count, block_bytes_,
                 out, next);
}

// Without a vector unpacker. A block of the file may be several unpacked ones.
void PanelUnpacker::unpack_rows(int64_t row, int64_t block_begin, int64_t block_count, std::byte* out) const {
  const int64_t elements = info(w_.type).block_elements, split = elements / layout_.elements();
  int16_t codes[128];
  float scales[4];
  for (int64_t lane = 0; lane < lanes_; ++lane) {
    const std::byte* blocks = w_.data + std::min(row + lane, w_.N - 1) * row_bytes_;
    for (int64_t b = 0; b < block_count; b += split) {
      decode_signed_codes(w_.type, blocks + (block_begin + b) / split * file_bytes_, codes, scales);
      scatter_codes(layout_, lanes_, lane, codes, scales, elements, out + b * block_bytes_);
    }
  }
}

// The last rows, fewer than a panel has.
void PanelUnpacker::unpack_last_rows(int64_t row, int64_t block_begin, int64_t block_count,
                                     std::byte* out) const {
  constexpr int64_t kBytes = 256;  // of a row at a time, and more than a block
  std::byte rows[kMostLanes * kBytes];
  const int64_t batch = kBytes / file_bytes_;
  for (int64_t b = 0; b < block_count; b += batch) {
    const int64_t count = std::min(batch, block_count - b);
    for (int64_t lane = 0; lane < lanes_; ++lane)
      std::memcpy(rows + lane * kBytes,
                  w_.data + std::min(row + lane, w_.N - 1) * row_bytes_ + (block_begin + b) * file_bytes_,
                  static_cast<size_t>(count * file_bytes_));
    unpack_blocks_(rows, kBytes, count, block_bytes_, out + b * block_bytes_, nullptr);
  }
}

int64_t interleaved_rows() { return HWY_DYNAMIC_DISPATCH(panel_lanes)(); }

bool can_multiply_blocks(DType type) { return find_quantized_layout(type) != nullptr; }

bool can_interleave_rows(DType type) {
  const QuantizedLayout* layout = find_quantized_layout(type);
  return layout != nullptr && layout->can_interleave();
}

void interleave_rows(DType type, int64_t N, int64_t K, const std::byte* from, std::byte* to,
                     int64_t panel_begin, int64_t panel_end) {
  const int64_t lanes = interleaved_rows(), row_bytes = dtype_bytes(type, K);
  const int64_t block_count = K / info(type).block_elements;
  const PanelFunctions functions = HWY_DYNAMIC_DISPATCH(panel_functions)(type, quantized_layout(type).form);
  TSR_CHECK(functions.interleave != nullptr, "interleave_rows: the type has only the file's layout");
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const int64_t row = panel * lanes, offset = row * row_bytes;
    if (row + lanes <= N) {
      functions.interleave(from + offset, row_bytes, block_count, to + offset);
    } else if (row < N) {
      std::memcpy(to + offset, from + offset, static_cast<size_t>((N - row) * row_bytes));
    }
  }
}

void copy_row(const BlockMatrix& w, int64_t row, std::byte* out) {
  const int64_t lanes = interleaved_rows(), lane = row % lanes, row_bytes = dtype_bytes(w.type, w.K);
  if (!w.interleaved || row - lane + lanes > w.N) {
    std::memcpy(out, w.data + row * row_bytes, static_cast<size_t>(row_bytes));
    return;
  }
  const std::byte* from = w.data + (row - lane) * row_bytes;
  for (int64_t block = 0; block < w.K / info(w.type).block_elements; ++block)
    for (const BlockField& field : quantized_layout(w.type).fields)
      for (int unit = 0; unit < field.units; ++unit, out += field.bytes, from += lanes * field.bytes)
        std::memcpy(out, from + lane * field.bytes, field.bytes);
}

}  // namespace tessera::cpu
#endif
