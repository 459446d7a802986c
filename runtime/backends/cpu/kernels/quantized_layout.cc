#include "runtime/backends/cpu/kernels/quantized_layout.h"

#include <cstring>

#include "graph/base/status.h"

namespace tessera::cpu {
namespace {

constexpr DotForm kU32 = DotForm::kUnsigned32, kS32 = DotForm::kSigned32, kU256 = DotForm::kUnsigned256,
                  kS256 = DotForm::kSigned256;

// Fields as in block_layout.h.
constexpr QuantizedLayout kLayouts[] = {
    {DType::kQ4_0, kU32, 8, false, false, {{2, 1}, {4, 4}}},
    {DType::kQ4_1, kU32, 0, true, false, {{2, 1}, {2, 1}, {4, 4}}},
    {DType::kQ5_0, kU32, 16, false, false, {{2, 1}, {4, 1}, {4, 4}}},
    {DType::kQ5_1, kU32, 0, true, false, {{2, 1}, {2, 1}, {4, 1}, {4, 4}}},
    {DType::kQ8_0, kS32, 0, false, false, {{2, 1}, {4, 8}}},
    {DType::kIQ4_NL, kS32, 0, false, false, {{2, 1}, {4, 4}}},
    {DType::kMXFP4, kU32, 12, false, false, {{1, 1}, {4, 4}}},
    {DType::kNVFP4, kS32, 0, false, true, {}},
    {DType::kQ1_0, kS32, 0, false, false, {}},
    {DType::kQ2_0, kS32, 0, false, false, {}},
    {DType::kNF4, DotForm::kTable64, 0, false, false, {}},
    {DType::kQ2_K, kU256, 0, true, false, {{4, 4}, {4, 16}, {2, 1}, {2, 1}}},
    {DType::kQ3_K, kU256, 4, false, false, {{4, 8}, {4, 16}, {4, 3}, {2, 1}}},
    {DType::kQ4_K, kU256, 0, true, false, {{2, 1}, {2, 1}, {4, 3}, {4, 32}}},
    {DType::kQ5_K, kU256, 0, true, false, {{2, 1}, {2, 1}, {4, 3}, {4, 8}, {4, 32}}},
    {DType::kQ6_K, kU256, 32, false, false, {{4, 32}, {4, 16}, {4, 4}, {2, 1}}},
    {DType::kIQ4_XS, kS256, 0, false, false, {{2, 1}, {2, 1}, {4, 1}, {4, 32}}},
    {DType::kIQ1_S, kS256, 0, false, false, {}},
    {DType::kIQ1_M, kS256, 0, false, false, {}},
    {DType::kIQ2_XXS, kS256, 0, false, false, {}},
    {DType::kIQ2_XS, kS256, 0, false, false, {}},
    {DType::kIQ2_S, kS256, 0, false, false, {}},
    {DType::kIQ3_XXS, kS256, 0, false, false, {}},
    {DType::kIQ3_S, kS256, 0, false, false, {}},
    {DType::kTQ1_0, kS256, 0, false, false, {{4, 12}, {4, 1}, {2, 1}}},
    {DType::kTQ2_0, kS256, 0, false, false, {{4, 16}, {2, 1}}},
};

constexpr QuantizedLayout kWideLayouts[] = {
    {DType::kQ8_0, DotForm::kWide32, 128, false, false, {{2, 1}, {4, 8}}},
    {DType::kIQ4_NL, DotForm::kWide32, 128, false, false, {{2, 1}, {4, 4}}},
    {DType::kIQ4_XS, DotForm::kWide256, 128, false, false, {{2, 1}, {2, 1}, {4, 1}, {4, 32}}},
    {DType::kIQ1_S, DotForm::kWide256, 128, false, false, {}},
    {DType::kIQ1_M, DotForm::kWide256, 128, false, false, {}},
    {DType::kIQ2_XXS, DotForm::kWide256, 128, false, false, {}},
    {DType::kIQ2_XS, DotForm::kWide256, 128, false, false, {}},
    {DType::kIQ2_S, DotForm::kWide256, 128, false, false, {}},
    {DType::kIQ3_XXS, DotForm::kWide256, 128, false, false, {}},
    {DType::kIQ3_S, DotForm::kWide256, 128, false, false, {}},
    {DType::kTQ1_0, DotForm::kWide256, 128, false, false, {{4, 12}, {4, 1}, {2, 1}}},
    {DType::kTQ2_0, DotForm::kWide256, 128, false, false, {{4, 16}, {2, 1}}},
};

}  // namespace

const QuantizedLayout* find_quantized_layout(DType type) {
  for (const QuantizedLayout& layout : kLayouts)
    if (layout.type == type) return &layout;
  return nullptr;
}

const QuantizedLayout& quantized_layout(DType type) {
  const QuantizedLayout* layout = find_quantized_layout(type);
  TSR_CHECK(layout != nullptr, "quantized_layout: the type has no blocks");
  return *layout;
}

const QuantizedLayout& wide_quantized_layout(DType type) {
  for (const QuantizedLayout& layout : kWideLayouts)
    if (layout.type == type) return layout;
  return quantized_layout(type);
}

int64_t unpacked_block_bytes(const QuantizedLayout& layout, int64_t lanes) {
  switch (layout.form) {
    case DotForm::kWide32:
    case DotForm::kUnsigned32: return lanes * 4 * (layout.has_min ? 10 : 9);
    case DotForm::kSigned32: return lanes * 4 * (layout.half_scales ? 18 : 17);
    case DotForm::kWide256:
    case DotForm::kUnsigned256: return lanes * 4 * (64 + 16 + 1 + (layout.has_min ? 9 : 0));
    case DotForm::kSigned256: return lanes * 4 * (128 + 1);
    case DotForm::kTable64: return 0;
  }
  return 0;
}

int64_t activation_block_bytes(const QuantizedLayout& layout) {
  switch (layout.form) {
    case DotForm::kWide32:
    case DotForm::kUnsigned32: return 32 + 16;
    case DotForm::kSigned32: return 64 + 16;
    case DotForm::kWide256:
    case DotForm::kUnsigned256: return 256 + 64 + 32 + 16 + 64;
    case DotForm::kSigned256: return 512 + 16;
    case DotForm::kTable64: return 0;
  }
  return 0;
}

}  // namespace tessera::cpu
