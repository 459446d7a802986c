#include "engine/base/compute_settings.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/plan_pins_json.h"

namespace tessera {
namespace {

// Storage types of matrices: those that values can be converted to.
std::vector<std::string> kept_types() {
  std::vector<std::string> names;
  for (int i = 0; i < kDTypeCount; ++i)
    if (const auto type = static_cast<DType>(i); is_narrow_type(type) && can_encode(type))
      names.push_back(to_text(type));
  return names;
}

}  // namespace

ComputeSettings read_compute(OptionReader& reader) {
  ComputeSettings compute;
  compute.devices = reader.text("devices", compute.devices);
  compute.parallel = reader.text("parallel");
  compute.plan_file = reader.text("plan_file");
  compute.profile = reader.text("profile");
  if (const std::string pins = reader.text("pins"); !pins.empty()) {
    Result<PlanPins> read = plan_pins_from_json(pins);
    if (read.ok())
      compute.pins = std::move(read).value();
    else
      reader.fail(read.status());
  }
  compute.measure = reader.i64("measure", 0, 0, 64);
  compute.tune = reader.flag("tune", false);
  compute.memory_limit = reader.bytes("memory_limit", 0);
  compute.host_memory_limit = reader.bytes("host_memory_limit", 0);
  return compute;
}

std::optional<DType> read_kept_type(OptionReader& reader, std::string_view consumer) {
  const std::string word = reader.word("weights", "model");
  if (word == "model") return std::nullopt;
  const std::vector<std::string> known = kept_types();
  if (std::ranges::find(known, word) != known.end()) return dtype_from_name(word);
  if (word == "int8" || word == "int4") {
    reader.fail(Status(StatusCode::kInvalidArgument,
                       format("{}: option 'weights' is '{}', which block types have replaced: wanted {}",
                              consumer, word, word == "int8" ? "q8_0" : "q4_0")));
  } else {
    reader.fail(
        Status(StatusCode::kInvalidArgument, format("{}: option 'weights' is '{}', wanted one of model, {}",
                                                    consumer, quote(word), join(known, ", "))));
  }
  return std::nullopt;
}

Activations read_activations(OptionReader& reader, const std::string& otherwise) {
  const std::string activations = reader.choice("activations", otherwise, {"auto", "f32", "q8", "bf16"});
  return activations == "f32"    ? Activations::kF32
         : activations == "q8"   ? Activations::kQ8
         : activations == "bf16" ? Activations::kBF16
                                 : Activations::kAuto;
}

InferenceSettings read_inference(OptionReader& reader, std::string_view consumer) {
  InferenceSettings settings;
  const std::string precision = reader.choice("precision", "f32", {"f32", "tf32", "bf16"});
  settings.precision = precision == "bf16" ? DType::kBF16 : DType::kF32;
  settings.tf32_matmuls = precision == "tf32";
  settings.weights = read_kept_type(reader, consumer);
  // Casting every weight in every step would cost more than it saves.
  if (settings.precision == DType::kBF16 && !settings.weights) settings.weights = DType::kBF16;
  settings.activations = read_activations(reader, "auto");
  settings.repack = reader.choice("repack", "auto", {"auto", "off"}) == "auto";
  return settings;
}

std::string remedy_for_length(int64_t tokens, int64_t context, int64_t longest) {
  if (longest == 0 || tokens <= longest) return ": shorten it or raise option 'context'";
  const std::string held = context < longest ? format(" and the model {}", longest) : ", as many as the model does";
  return format("{}: shorten it{}", held, kLongerContext);
}

Result<int64_t> tokens_at_once(int64_t given, int64_t longest, std::string_view what) {
  constexpr int64_t kMost = 2048;
  if (longest > 0 && given > longest)
    return Status(StatusCode::kInvalidArgument,
                  format("{} is {}, the model's context holds {}{}", what, given, longest, kLongerContext));
  return given > 0 ? given : longest > 0 ? std::min(longest, kMost) : kMost;
}

}  // namespace tessera
