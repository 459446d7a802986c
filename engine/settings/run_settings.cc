#include "engine/settings/run_settings.h"

#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "engine/base/run_outputs.h"
#include "graph/base/status_codes.h"
#include "graph/base/text.h"
#include "serialize/checkpoint_folder.h"
#include "text/json.h"

namespace tessera {

namespace {

constexpr const char* kLogOptions[] = {"metrics", "tensorboard", "report", "report_seconds",
                                       "model",   "data",        "settings"};

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

Status refuse(std::string message) { return Status(StatusCode::kInvalidArgument, "run: " + std::move(message)); }

// A text, or a JSON array of texts.
Result<std::vector<std::string>> read_texts(const char* key, const std::string& value) {
  if (!value.starts_with('[')) return value.empty() ? std::vector<std::string>() : std::vector{value};
  const Result<Json> list = parse_json(value, format("option '{}'", key));
  if (!list.ok()) return refuse(format("{}; wanted a text, or a JSON array of texts", list.status().message()));
  std::vector<std::string> texts;
  for (const Json& item : *list) {
    if (!item.is_string() || item.get_ref<const std::string&>().empty())
      return refuse(format("option '{}' holds {}, wanted texts that are not empty", key, quote_json(item)));
    texts.push_back(item);
  }
  return texts;
}

// Checks that all outputs of a run have distinct places.
Status check_names(const RunSettings& settings) {
  std::map<std::filesystem::path, std::string> taken;
  const auto take = [&](const char* key, const std::string& path) -> Status {
    if (path.empty()) return {};
    std::error_code failed;
    const std::filesystem::path name = without_slash(path), place = std::filesystem::weakly_canonical(name, failed);
    const auto [found, is_new] = taken.emplace(failed ? name : place, key);
    return is_new ? Status()
                  : refuse(format("options '{}' and '{}' both are {}, wanted a name for each", found->second, key, path));
  };
  TSR_RETURN_IF_ERROR(take("out", settings.out));
  TSR_RETURN_IF_ERROR(take("checkpoint", settings.checkpoint));
  for (const char* key : {"metrics", "tensorboard", "report"})
    if (const auto found = settings.log.find(key); found != settings.log.end())
      if (const auto* path = std::get_if<std::string>(&found->second)) TSR_RETURN_IF_ERROR(take(key, *path));
  return {};
}

Status check_evaluations(const RunSettings& settings) {
  if (settings.min_delta > 0 && settings.patience == 0)
    return refuse("option 'min_delta' belongs to option 'patience', which is missing");
  if (settings.eval_every == 0 && settings.keeps_best)
    return refuse(format("option '{}' needs option 'eval_every': evaluations say which step is best",
                         settings.patience > 0 ? "patience" : "keep_best"));
  return {};
}

Status check_checkpoints(const RunSettings& settings) {
  if (!settings.checkpoint.empty()) return {};
  constexpr const char* kWays =
      "a checkpoint, and none is written: option 'out' or 'checkpoint' says where, 'checkpoint_every' how often";
  if (settings.keep > 1) return refuse(format("option 'keep' is of {}", kWays));
  if (settings.keeps_best) return refuse(format("options 'keep_best' and 'patience' keep {}", kWays));
  return {};
}

// True also after a save that was interrupted between two renames.
bool holds_checkpoint(const std::string& folder) {
  std::error_code ignored;
  return !folder.empty() && std::filesystem::is_directory(readable_folder(folder), ignored);
}

// The remedies that the error about an earlier run names.
std::string ways_on(const RunSettings& settings) {
  std::string ways = "option 'overwrite' begins again and replaces it";
  if (holds_checkpoint(settings.checkpoint))
    ways = format("option 'resume' {} goes on with it, {}", settings.checkpoint, ways);
  return ways;
}

}  // namespace

Result<std::string> resumed_folder(const std::string& text) {
  const std::string name = without_slash(text);
  std::error_code ignored;
  const bool holds_adapters = std::filesystem::exists(text + "/adapter_config.json", ignored);
  if (holds_checkpoint(name) && !holds_adapters) return name;
  if (holds_checkpoint(name + ".checkpoint")) return name + ".checkpoint";
  return Status(StatusCode::kNotFound,
                format("run: option 'resume' is {}: there is no such folder, nor {}.checkpoint; wanted a checkpoint's "
                       "folder, or the model or adapters that it lies next to",
                       text, name));
}

Result<RunSettings> read_run_settings(const Options& options) {
  OptionReader reader(options, "run");
  RunSettings settings;
  settings.out = reader.text("out");
  settings.merge = reader.flag("merge", false);
  settings.overwrite = reader.flag("overwrite", false);
  settings.resume = reader.text("resume");
  settings.steps = reader.i64("steps", 0, 0);
  settings.checkpoint = without_slash(reader.text("checkpoint"));
  if (reader.has("checkpoint_every")) settings.checkpoint_every = reader.i64("checkpoint_every", 0, 0);
  settings.keep = reader.i64("keep", 1, 1);
  settings.eval_every = reader.i64("eval_every", 0, 0);
  settings.patience = reader.i64("patience", 0, 0);
  settings.keeps_best = reader.flag("keep_best", false) || settings.patience > 0;
  settings.min_delta = reader.f64("min_delta", 0, 0);
  const std::string samples = reader.text("samples"), messages = reader.text("sample_messages");
  settings.sample_tokens = reader.i64("sample_tokens", 48, 1);
  reader.accept({"metrics", "tensorboard", "report", "report_seconds", "model", "data", "settings"});
  TSR_RETURN_IF_ERROR(reader.finish());
  for (const char* key : kLogOptions)
    if (const auto found = options.find(key); found != options.end()) settings.log[key] = found->second;
  TSR_ASSIGN_OR_RETURN(settings.samples, read_texts("samples", samples));
  TSR_ASSIGN_OR_RETURN(settings.sample_messages, read_texts("sample_messages", messages));
  if (settings.merge && settings.out.empty())
    return refuse("option 'merge' writes a model, and nothing says where: option 'out' is missing");
  if (settings.out == "-") return refuse("option 'out' is -, wanted the name of a file or folder (./- for that one)");

  settings.resumes_if_there = settings.resume == "auto";
  if (settings.resumes_if_there) {
    if (settings.out.empty() && settings.checkpoint.empty())
      return refuse("option 'resume' is auto, which means the run's own checkpoint, and nothing says where that is: option 'out' or 'checkpoint' is missing");
    settings.resume = settings.checkpoint.empty() ? without_slash(settings.out) + ".checkpoint" : settings.checkpoint;
    if (!holds_checkpoint(settings.resume)) settings.resume.clear();
  } else if (!settings.resume.empty()) {
    TSR_ASSIGN_OR_RETURN(settings.resume, resumed_folder(settings.resume));
  }
  if (settings.checkpoint_every == 0)
    settings.checkpoint.clear();
  else if (settings.checkpoint.empty())
    settings.checkpoint = settings.out.empty() ? settings.resume : without_slash(settings.out) + ".checkpoint";
  TSR_RETURN_IF_ERROR(check_names(settings));
  TSR_RETURN_IF_ERROR(check_evaluations(settings));
  TSR_RETURN_IF_ERROR(check_checkpoints(settings));
  if (settings.overwrite) return settings;
  const Status earlier = check_no_earlier_run(settings.out, settings.checkpoint, settings.resume);
  if (earlier.code() != kExists) {
    TSR_RETURN_IF_ERROR(earlier);
    return settings;
  }
  return Status(earlier.code(), format("{} ({})", earlier.message(), ways_on(settings)));
}

}  // namespace tessera
