#include "parallel/strategy.h"

#include <algorithm>
#include <array>

#include "graph/base/text.h"

namespace tessera {

namespace {

constexpr std::string_view kExample = "an example: \"dp=2,tp=2,sp,zero=1,mb=4\"";

// Words of --parallel that the algebra covers and this version does not carry out yet.
constexpr std::array<std::string_view, 6> kLater = {"cp", "ep", "pp", "chunks", "recompute", "offload"};

Result<int64_t> count_of(std::string_view word, std::string_view value, int64_t least, int64_t most) {
  const auto number = parse_i64(value);
  if (number && *number >= least && *number <= most) return *number;
  return Status(StatusCode::kInvalidArgument,
                format("parallel: {}={} where a number from {} to {} is wanted; {}", word, value, least, most,
                       kExample));
}

Status read_word(std::string_view word, std::string_view value, bool has_value, StrategyPins& pins) {
  constexpr int64_t kMany = 1 << 16;
  if (word == "sp" && !has_value) {
    pins.spec.sp = pins.sp = true;
  } else if (word == "dp") {
    TSR_ASSIGN_OR_RETURN(const int64_t n, count_of(word, value, 1, kMany));
    pins.spec.dp = static_cast<int32_t>(n);
    pins.dp = true;
  } else if (word == "tp") {
    if (value.starts_with("2d:") || value.starts_with("2.5d:") || value.starts_with("3d:"))
      return Status(StatusCode::kUnsupported,
                    format("parallel: tp={} is not carried out yet; tp=1d:P (or tp=P) is", value));
    if (value.starts_with("1d:")) value.remove_prefix(3);
    TSR_ASSIGN_OR_RETURN(const int64_t n, count_of(word, value, 1, kMany));
    pins.spec.tp = static_cast<int32_t>(n);
    pins.tp = true;
  } else if (word == "mb") {
    TSR_ASSIGN_OR_RETURN(pins.spec.micro_batch, count_of(word, value, 1, kMany));
    pins.micro_batch = true;
  } else if (word == "zero") {
    const size_t colon = value.find(':');
    TSR_ASSIGN_OR_RETURN(const int64_t level, count_of(word, value.substr(0, colon), 0, 3));
    pins.spec.zero = static_cast<int32_t>(level);
    if (colon != std::string_view::npos) {
      TSR_ASSIGN_OR_RETURN(const int64_t group, count_of("zero group", value.substr(colon + 1), 1, kMany));
      pins.spec.zero_group = static_cast<int32_t>(group);
    }
    pins.zero = true;
  } else {
    const std::vector<std::string> known = {"dp", "tp", "sp", "zero", "mb"};
    if (std::ranges::find(kLater, word) != kLater.end())
      return Status(StatusCode::kUnsupported,
                    format("parallel: '{}' is not carried out yet; known: {}", word, join(known, ", ")));
    return Status(StatusCode::kInvalidArgument, format("parallel: unknown word '{}'; nearest: {}; {}", word,
                                                       join(nearest_names(word, known), ", "), kExample));
  }
  return {};
}

}  // namespace

Result<StrategyPins> parse_parallel(std::string_view text) {
  StrategyPins pins;
  text = trim(text);
  if (text.empty()) return pins;
  if (text == "single") {
    pins.dp = pins.tp = true;
    return pins;
  }
  for (const std::string& part : split(text, ',')) {
    const std::string_view trimmed = trim(part);
    const size_t equals = trimmed.find('=');
    const bool has_value = equals != std::string_view::npos;
    const std::string_view word = trim(trimmed.substr(0, equals));
    const std::string_view value = has_value ? trim(trimmed.substr(equals + 1)) : std::string_view{};
    TSR_RETURN_IF_ERROR(read_word(word, value, has_value, pins));
  }
  // Only what is given is pinned, but for words that mean nothing without another.
  if (pins.spec.sp && pins.tp && pins.spec.tp == 1)
    return Status(StatusCode::kInvalidArgument,
                  "parallel: sp splits the sequence over tp, and tp=1 is given; use tp=2 or more");
  if (pins.spec.zero_group > 0 && pins.dp && pins.spec.dp % pins.spec.zero_group != 0)
    return Status(StatusCode::kInvalidArgument, format("parallel: zero groups of {} do not divide dp={}",
                                                       pins.spec.zero_group, pins.spec.dp));
  return pins;
}

std::string to_text(const StrategySpec& spec) {
  std::vector<std::string> words;
  if (spec.dp > 1) words.push_back(format("dp={}", spec.dp));
  if (spec.tp > 1) words.push_back(format("tp={}", spec.tp));
  if (spec.sp && spec.tp > 1) words.push_back("sp");
  if (spec.zero > 0 && spec.dp > 1)
    words.push_back(spec.zero_group > 0 ? format("zero={}:{}", spec.zero, spec.zero_group)
                                        : format("zero={}", spec.zero));
  if (spec.micro_batch > 0) words.push_back(format("mb={}", spec.micro_batch));
  return words.empty() ? "single" : join(words, ",");
}

}  // namespace tessera
