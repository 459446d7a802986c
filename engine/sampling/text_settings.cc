#include "engine/sampling/text_settings.h"

#include <algorithm>
#include <climits>
#include <string_view>
#include <utility>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {
namespace {

// One text, or a JSON array of texts.
Result<std::vector<std::string>> parse_stop(const std::string& stop) {
  if (!stop.starts_with('[')) return stop.empty() ? std::vector<std::string>() : std::vector{stop};
  const Result<Json> list = parse_json(stop, "generator: option 'stop'");
  if (!list.ok())
    return Status(StatusCode::kInvalidArgument,
                  format("{}; wanted a text, or a JSON array of texts", list.status().message()));
  std::vector<std::string> texts;
  for (const Json& item : *list) {
    if (!item.is_string() || item.get<std::string>().empty())
      return Status(
          StatusCode::kInvalidArgument,
          format("generator: option 'stop' holds {}, wanted texts that are not empty", quote_json(item)));
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

Result<std::vector<int64_t>> parse_stop_ids(const std::string& stop_ids) {
  std::vector<int64_t> ids;
  if (trim(stop_ids).empty()) return ids;
  for (const std::string& part : split(stop_ids, ',')) {
    const std::optional<int64_t> id = parse_i64(trim(part));
    if (!id || *id < 0)
      return Status(StatusCode::kInvalidArgument,
                    format("generator: option 'stop_ids' holds '{}', wanted token ids such as 2,13", part));
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace

TextSettings read_text(OptionReader& reader, const TextSettings& otherwise) {
  TextSettings text = otherwise;
  text.max_tokens = reader.i64("max_tokens", otherwise.max_tokens, 0);
  text.temperature = reader.f64("temperature", otherwise.temperature, 0, 1e6);
  text.top_k = reader.i64("top_k", otherwise.top_k, 0, INT32_MAX);
  text.top_p = reader.f64("top_p", otherwise.top_p, 0, 1);
  const int64_t seed = reader.i64("seed", 0);
  if (reader.has("seed")) text.seed = seed;
  text.echo = reader.flag("echo", otherwise.echo);
  text.special = reader.flag("special", otherwise.special);
  const auto take = [&](auto parsed, auto& out) {
    if (parsed.ok())
      out = std::move(parsed).value();
    else
      reader.fail(parsed.status());
  };
  const std::string stop = reader.text("stop"), stop_ids = reader.text("stop_ids");
  if (reader.has("stop")) take(parse_stop(stop), text.stop);
  if (reader.has("stop_ids")) take(parse_stop_ids(stop_ids), text.stop_ids);
  return text;
}

Result<TextSettings> read_text_settings(const Options& options, const TextSettings& otherwise) {
  OptionReader reader(options, "text");
  TextSettings text = read_text(reader, otherwise);
  TSR_RETURN_IF_ERROR(reader.finish());
  return text;
}

const std::vector<std::string>& text_option_names() {
  static const std::vector<std::string> names = [] {
    const Options none;
    OptionReader reader(none, "text");
    (void)read_text(reader, {});
    return reader.known();
  }();
  return names;
}

}  // namespace tessera
