// Headers that most files include, compiled once (TSR_PRECOMPILED_HEADERS). No file includes this one. Mostly
// standard headers: a type of the project visible in every file would clash with local names.
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
