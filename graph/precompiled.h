// What most files of the layers include, compiled once (TSR_PRECOMPILED_HEADERS). No file includes this one.
// Standard headers above all: a noun of the project seen by every file would clash with names local to some.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "graph/base/text.h"
