#include "serialize/import/huggingface_scaling.h"

#include <algorithm>
#include <vector>

#include "graph/base/text.h"

namespace tessera {
namespace {

constexpr size_t kMostPairs = size_t{1} << 16;
constexpr double kMostTokens = 1 << 30;

double positive(JsonFields& rope, std::string_view key, std::optional<double> otherwise) {
  const double value = rope.real(key, otherwise);
  if (rope.status().ok() && !(value > 0))
    rope.fail(StatusCode::kCorrupt, format("{} is {}, wanted more than 0", key, value));
  return value;
}

std::vector<float> factors(JsonFields& rope, std::string_view key, const Rotation& rotation) {
  const std::vector<double> numbers = rope.reals(key, kMostPairs);
  if (static_cast<int64_t>(numbers.size()) != rotation.rotated / 2 ||
      !std::ranges::all_of(numbers, [](double number) { return number > 0; }))
    rope.fail(StatusCode::kCorrupt,
              format("{} has {} numbers, wanted {} positive ones: a pair of a head each", key, numbers.size(),
                     rotation.rotated / 2));
  return {numbers.begin(), numbers.end()};
}

std::optional<double> optional_real(JsonFields& rope, std::string_view key) {
  return rope.has(key) ? std::optional(rope.real(key)) : std::nullopt;
}

RopeScaling read_yarn(JsonFields& rope, const Rotation& rotation, const ScaledContext& context) {
  YarnScaling yarn;
  yarn.original_context = context.original;
  const double stretched = static_cast<double>(context.tokens) / context.original;
  yarn.factor = positive(rope, "factor", rope.is_given("factor") ? std::optional(stretched) : std::nullopt);
  yarn.attention_factor = optional_real(rope, "attention_factor");
  yarn.mscale = rope.real("mscale", 0.0);
  yarn.mscale_all_dim = rope.real("mscale_all_dim", 0.0);
  yarn.beta_fast = positive(rope, "beta_fast", 32.0);
  yarn.beta_slow = positive(rope, "beta_slow", 1.0);
  yarn.truncates = rope.flag("truncate", true);
  return yarn_scaling(rotation, yarn);
}

RopeScaling read_longrope(JsonFields& rope, const Rotation& rotation, const ScaledContext& context) {
  std::vector<float> shorter = factors(rope, "short_factor", rotation),
                     longer = factors(rope, "long_factor", rotation);
  const double ratio = rope.real("factor", static_cast<double>(context.tokens) / context.original);
  RopeScaling scaling =
      longrope_scaling(std::move(shorter), std::move(longer), static_cast<int64_t>(context.original), ratio,
                       optional_real(rope, "attention_factor"));
  // A context within the original length uses the short factors only.
  if (static_cast<int64_t>(context.original) >= context.tokens) {
    scaling.longer.clear();
    scaling.switch_at = 0;
  }
  return scaling;
}

}  // namespace

std::optional<RopeScaling> read_huggingface_scaling(JsonFields& rope, const std::string& type,
                                                    const Rotation& rotation, const ScaledContext& context) {
  if (type == "default") return std::nullopt;
  // Dynamic scaling starts beyond the context, so it never applies.
  if (type == "dynamic") return (void)positive(rope, "factor", {}), std::nullopt;
  if (!(context.original >= 1 && context.original <= kMostTokens)) {
    rope.fail(StatusCode::kCorrupt, format("original_max_position_embeddings is {}, wanted 1 to {}",
                                           context.original, kMostTokens));
    return std::nullopt;
  }
  RopeScaling scaling;
  if (type == "linear") {
    scaling = linear_scaling(rotation, positive(rope, "factor", {}));
  } else if (type == "llama3") {
    scaling = llama3_scaling(rotation, {.factor = positive(rope, "factor", {}),
                                        .low = positive(rope, "low_freq_factor", {}),
                                        .high = positive(rope, "high_freq_factor", {}),
                                        .original_context = context.original});
  } else if (type == "yarn") {
    scaling = read_yarn(rope, rotation, context);
  } else if (type == "longrope") {
    scaling = read_longrope(rope, rotation, context);
  } else if (type == "proportional") {
    const double part = rope.real("partial_rotary_factor", 1.0);
    if (!(part >= 0 && part <= 1))
      rope.fail(StatusCode::kCorrupt, format("partial_rotary_factor is {}, wanted 0 to 1", part));
    else
      scaling = proportional_scaling(rotation, part, positive(rope, "factor", 1.0));
  } else {
    rope.fail(StatusCode::kUnsupported,
              format("rope_type is '{}'; known: default, dynamic, linear, llama3, yarn, longrope, proportional", type));
  }
  if (!rope.status().ok() || scaling.is_neutral()) return std::nullopt;
  return scaling;
}

}  // namespace tessera
