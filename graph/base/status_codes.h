// Codes of errors that a program acts on by itself. They continue those of StatusCode, in a header of their own because few
// files return them: a change here does not compile everything again. Values are part of the C ABI (tsr_code): append, never
// renumber.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "graph/base/status.h"

namespace tessera {

inline constexpr StatusCode kNotFinite{12};   // a loss, a gradient or a result is no finite number; nothing else is wrong
inline constexpr StatusCode kValuesLost{13};  // an earlier run failed or was cancelled midway: write, resume or make again
inline constexpr StatusCode kBusy{14};        // in use by another thread, handle or process; later it is not
inline constexpr StatusCode kExists{15};      // what is there would be overwritten, and is not ours to lose
inline constexpr StatusCode kChanged{16};     // a file in use was written to since it was opened
inline constexpr StatusCode kForked{17};      // a forked child: threads exist only in the parent

inline constexpr std::array<std::pair<StatusCode, std::string_view>, 6> kFurtherCodes = {{
    {kNotFinite, "not_finite"},
    {kValuesLost, "values_lost"},
    {kBusy, "busy"},
    {kExists, "exists"},
    {kChanged, "changed"},
    {kForked, "forked"},
}};

}  // namespace tessera
