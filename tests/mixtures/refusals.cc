#include "tests/mixtures/refusals.h"

namespace mixtures {

namespace {

struct Reason {
  std::string_view words, name;
};

constexpr Reason kReasons[] = {
    {"are fewer than the", "fewer sequences in a micro-batch than parts of the batch"},
    {"cannot be split", "fewer tokens in a sequence than parts of it"},
    {"stages a device wants", "fewer blocks than pipeline stages"},
    {"whole units of", "fewer heads than parts"},
    {"whole KV heads are left", "fewer KV heads than parts of cp=ulysses"},
    {"leave mb out, as ranks get unequal shares", "a batch that mb does not divide"},
    {"experts; the nearest that fits", "fewer experts than parts"},
};

}  // namespace

std::string reason_of(std::string_view message, bool limited) {
  if (limited && message.starts_with("out_of_memory")) return "no plan within the memory limit";
  for (const Reason& reason : kReasons)
    if (message.find(reason.words) != std::string_view::npos) return std::string(reason.name);
  return {};
}

}  // namespace mixtures
