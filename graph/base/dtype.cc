#include "graph/base/dtype.h"

#include <array>

#include "graph/base/status.h"

namespace tessera {

namespace {
constexpr std::array<DTypeInfo, kDTypeCount> kInfos = {{
    {"f32", 1, 4, true},
    {"f64", 1, 8, true},
    {"f16", 1, 2, true},
    {"bf16", 1, 2, true},
    {"i32", 1, 4, false},
    {"i64", 1, 8, false},
    {"i8", 1, 1, false},
    {"u8", 1, 1, false},
    {"q8_0", 32, 34, false},
    {"q4_0", 32, 18, false},
    {"e4m3", 1, 1, false},
    {"e5m2", 1, 1, false},
    {"q4_1", 32, 20, false},
    {"q5_0", 32, 22, false},
    {"q5_1", 32, 24, false},
    {"q2_k", 256, 84, false},
    {"q3_k", 256, 110, false},
    {"q4_k", 256, 144, false},
    {"q5_k", 256, 176, false},
    {"q6_k", 256, 210, false},
    {"iq1_s", 256, 50, false},
    {"iq1_m", 256, 56, false},
    {"iq2_xxs", 256, 66, false},
    {"iq2_xs", 256, 74, false},
    {"iq2_s", 256, 82, false},
    {"iq3_xxs", 256, 98, false},
    {"iq3_s", 256, 110, false},
    {"iq4_nl", 32, 18, false},
    {"iq4_xs", 256, 136, false},
    {"tq1_0", 256, 54, false},
    {"tq2_0", 256, 66, false},
    {"mxfp4", 32, 17, false},
    {"nvfp4", 64, 36, false},
    {"q1_0", 128, 18, false},
    {"q2_0", 64, 18, false},
    {"nf4", 64, 36, false},
}};
}  // namespace

const DTypeInfo& info(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  TSR_CHECK(index < kInfos.size(), "dtype out of range");
  return kInfos[index];
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kInfos.size(); ++i)
    if (kInfos[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}

int64_t dtype_bytes(DType dtype, int64_t count) {
  const DTypeInfo& d = info(dtype);
  TSR_CHECK(count % d.block_elements == 0, "count is not a whole number of blocks");
  return count / d.block_elements * d.block_bytes;
}

}  // namespace tessera
