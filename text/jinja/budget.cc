#include "text/jinja/budget.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera::jinja {

Limits limits_for(size_t input_bytes) {
  Limits limits;
  const auto input = static_cast<int64_t>(input_bytes);
  // Covers some passes over each character and nested loops over
  // messages; more would let templates run for seconds on long messages.
  constexpr int64_t kLongInput = 1'250'000;
  limits.steps += 12 * std::min(input, kLongInput) + 4 * std::max<int64_t>(input - kLongInput, 0);
  limits.bytes += 64 * input;
  limits.output += 16 * input;
  return limits;
}

Status Budget::spend(int64_t steps) {
  steps_left_ -= steps;
  if (steps_left_ >= 0) return {};
  return Status(StatusCode::kInvalidArgument,
                format("the template takes more than {} steps: it may not end", limits_.steps));
}

Result<Lease> Budget::lease(size_t bytes) {
  if (bytes > static_cast<size_t>(limits_.bytes) || live_ + static_cast<int64_t>(bytes) > limits_.bytes)
    return Status(StatusCode::kInvalidArgument,
                  format("the template's values take more than {}", bytes_text(limits_.bytes)));
  live_ += static_cast<int64_t>(bytes);
  return Lease(&live_, static_cast<int64_t>(bytes));
}

Status Budget::check_output(size_t bytes) const {
  if (bytes <= static_cast<size_t>(limits_.output)) return {};
  return Status(StatusCode::kInvalidArgument,
                format("the text that the template makes is longer than {}", bytes_text(limits_.output)));
}

}  // namespace tessera::jinja
