#include "engine/data/data_settings.h"

#include <cstdlib>

#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {
namespace {

// 26 July 2024, the date that Llama's templates print without a clock, so that tokens do not depend on the day.
constexpr int64_t kTemplateDate = 1'721'952'000;

Status fail(std::string message) {
  return Status(StatusCode::kInvalidArgument, "dataset: " + std::move(message));
}

Result<std::vector<DataFile>> read_files(const std::string& text) {
  Result<Json> list = parse_json(text, "dataset: option 'files'");
  if (!list.ok()) return Status(StatusCode::kInvalidArgument, std::string(list.status().message()));
  const auto wrong = [](const Json& found) {
    return fail(
        format("option 'files' has {}, wanted an array of paths, or of {\"path\": text, \"weight\": a number "
               "above 0, at most 1000}",
               quote_json(found)));
  };
  if (!list->is_array() || list->empty() || list->size() > 65'000) return wrong(*list);
  std::vector<DataFile> files;
  for (const Json& each : *list) {
    DataFile file;
    if (each.is_string()) {
      file.path = each.get<std::string>();
    } else {
      if (!each.is_object() || !each.contains("path") || !each["path"].is_string()) return wrong(each);
      file.path = each["path"].get<std::string>();
      for (const auto& [name, value] : each.items()) {
        if (name == "weight" && value.is_number())
          file.weight = value.get<double>();
        else if (name != "path")
          return wrong(each);
      }
    }
    if (file.path.empty() || !(file.weight > 0 && file.weight <= 1000)) return wrong(each);
    files.push_back(std::move(file));
  }
  return files;
}

Result<std::string> cache_folder(const std::string& option) {
  if (option != "auto") return option;
  const auto from = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string folder = from("XDG_CACHE_HOME"); folder.starts_with('/')) return folder + "/tessera";
  if (const std::string home = from("HOME"); !home.empty()) return home + "/.cache/tessera";
  return fail("option 'cache' is auto, and neither XDG_CACHE_HOME nor HOME names a folder: give one");
}

template <class T>
T chosen(const std::string& name, std::initializer_list<std::pair<std::string_view, T>> values) {
  for (const auto& [each, value] : values)
    if (name == each) return value;
  return values.begin()->second;
}

Status check(const DataSettings& settings, bool has_length) {
  if (settings.examples.max_length > settings.seq && settings.packing == Packing::kOff)
    return fail(format(
        "option 'max_length' is {}, a row has {} tokens (option 'seq'): wanted at most that, or packing "
        "bfd_split or wrapped",
        settings.examples.max_length, settings.seq));
  if (settings.packing == Packing::kBfd && settings.examples.max_length > settings.seq)
    return fail(format(
        "option 'max_length' is {} with packing bfd, a row has {} tokens (option 'seq'): wanted at most "
        "that, or packing bfd_split",
        settings.examples.max_length, settings.seq));
  if (settings.examples.truncation == Truncation::kDrop && !has_length && settings.examples.max_length == 0)
    return fail("option 'truncation' is drop, and packing cuts examples: wanted option 'max_length' too");
  if (!settings.eval_file.empty() && settings.eval_fraction > 0)
    return fail("give option 'eval_file' or 'eval_fraction', not both");
  return {};
}

}  // namespace

bool is_plain(const Options& options) {
  const auto kind = options.find("kind");
  const auto* const text = kind == options.end() ? nullptr : std::get_if<std::string>(&kind->second);
  return text != nullptr && *text == "plain";
}

Result<DataSettings> read_data_settings(const std::string& path, const Options& options) {
  OptionReader reader(options, "dataset");
  DataSettings settings;
  ExampleOptions& examples = settings.examples;
  const std::string kind = reader.choice(
      "kind", "auto",
      {"auto", "plain", "text", "prompt", "prompt_completion", "messages", "preference", "unpaired"});
  const std::string part = reader.choice("mask", "auto", {"auto", "assistant", "completion", "all"});
  const std::string packing = reader.choice("packing", "off", {"off", "bfd", "bfd_split", "wrapped"});
  const std::string truncation =
      reader.choice("truncation", "auto", {"auto", "keep_start", "keep_end", "drop", "error"});
  const std::string untrained = reader.choice("untrained", "drop", {"drop", "error"});
  settings.seq = reader.i64("seq", 128, 1, 1 << 24);
  examples.max_length = reader.i64("max_length", 0, 0, INT32_MAX);
  examples.special = reader.flag("special", false);
  examples.append_end = reader.flag("append_end", true);
  examples.now_s = reader.i64("now", kTemplateDate);
  settings.chat_template = reader.text("template");
  settings.skip_bad = reader.flag("skip_bad", false);
  settings.eval_file = reader.text("eval_file");
  settings.eval_fraction = reader.f64("eval_fraction", 0, 0, 1);
  settings.shuffle = reader.flag("shuffle", true);
  settings.seed = static_cast<uint64_t>(reader.i64("seed", 0));
  const std::string files = reader.text("files"), cache = reader.text("cache");
  if (kind == "plain" && !files.empty())
    return fail(
        "option 'kind' is plain, and option 'files' names several: wanted one file, or files of rows");
  TSR_RETURN_IF_ERROR(reader.finish());

  settings.kind = row_kind_of(kind);
  settings.packing = *packing_of(packing);
  examples.part = chosen<TrainedPart>(part, {{"auto", TrainedPart::kDefault},
                                             {"assistant", TrainedPart::kAssistant},
                                             {"completion", TrainedPart::kCompletion},
                                             {"all", TrainedPart::kAll}});
  examples.refuses_untrained = untrained == "error";
  // Packings that split examples need no limit.
  const bool splits = settings.packing == Packing::kBfdSplit || settings.packing == Packing::kWrapped;
  const bool has_length = examples.max_length > 0 || !splits;
  if (examples.max_length == 0 && !splits) examples.max_length = settings.seq;
  examples.truncation = chosen<Truncation>(truncation, {{"auto", Truncation::kKeepStart},
                                                        {"keep_end", Truncation::kKeepEnd},
                                                        {"drop", Truncation::kDrop},
                                                        {"error", Truncation::kError}});
  if (!has_length && truncation == "auto") examples.truncation = Truncation::kSplit;
  TSR_RETURN_IF_ERROR(check(settings, has_length));
  TSR_ASSIGN_OR_RETURN(settings.cache, cache_folder(cache));
  if (!files.empty()) {
    if (!path.empty()) return fail("give a path or option 'files', not both: the path then is \"\"");
    TSR_ASSIGN_OR_RETURN(settings.files, read_files(files));
  } else {
    if (path.empty()) return fail("there is no path, and no option 'files'");
    settings.files = {{path, 1}};
  }
  return settings;
}

}  // namespace tessera
