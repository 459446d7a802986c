#include "engine/settings/window_settings.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera {
namespace {

constexpr int64_t kMostWindowTokens = 1 << 24;

WindowBos read_bos(OptionReader& reader) {
  const std::string bos = reader.choice("bos", "auto", {"auto", "always", "none"});
  return bos == "auto"     ? WindowBos::kAuto
         : bos == "always" ? WindowBos::kAlways
                           : WindowBos::kNone;
}

// Reads devices, window length and batch.
template <class Settings>
void read_windows(OptionReader& reader, Settings& settings) {
  settings.compute = read_compute(reader);
  settings.seq = reader.i64("seq", 0, 0, kMostWindowTokens);
  settings.batch = reader.i64("batch", 0, 0, kMostWindowTokens);
}

}  // namespace

Result<ImportanceSettings> read_importance_settings(const Options& options) {
  OptionReader reader(options, "imatrix");
  ImportanceSettings settings;
  read_windows(reader, settings);
  settings.bos = read_bos(reader);
  settings.name = reader.text("name");
  TSR_RETURN_IF_ERROR(reader.finish());
  return settings;
}

Result<ScorerSettings> read_scorer_settings(const Options& options) {
  OptionReader reader(options, "scorer");
  ScorerSettings settings;
  read_windows(reader, settings);
  settings.stride = reader.i64("stride", 0, 0, kMostWindowTokens);
  settings.bos = read_bos(reader);
  settings.inference = read_inference(reader, "scorer");
  settings.share_prefixes = reader.flag("share_prefixes", false);
  settings.measure_memory = reader.flag("measure_memory", false);
  TSR_RETURN_IF_ERROR(reader.finish());
  return settings;
}

Status finalize_windows(ScorerSettings& settings, int64_t longest, int32_t devices) {
  TSR_ASSIGN_OR_RETURN(settings.seq, tokens_at_once(settings.seq, longest, "scorer: option 'seq'"));
  if (settings.stride == 0) settings.stride = std::max<int64_t>(1, settings.seq / 2);
  if (settings.stride > settings.seq)
    return Status(StatusCode::kInvalidArgument,
                  format("scorer: option 'stride' is {}, a window has {} tokens (option 'seq'): tokens between "
                         "windows would not be scored",
                         settings.stride, settings.seq));
  if (settings.batch == 0) settings.batch = devices;
  return {};
}

}  // namespace tessera
