#include "engine/base/run_outputs.h"

#include <filesystem>
#include <system_error>

#include "graph/base/status_codes.h"
#include "graph/base/text.h"
#include "serialize/checkpoint.h"
#include "serialize/checkpoint_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

// "of step 6", or another description of the checkpoint.
std::string step_text(const std::string& folder) {
  const Result<CheckpointReader> checkpoint = CheckpointReader::open(folder);
  if (!checkpoint.ok()) return format("unreadable ({})", checkpoint.status().message());
  return format("of step {}", checkpoint->info().step);
}

// Whether `resumed` is the checkpoint in `folder`, or another of the same run.
bool is_of_run(const std::string& resumed, const std::string& folder) {
  if (resumed.empty() || folder.empty()) return false;
  std::error_code ignored;
  const std::string from = fs::weakly_canonical(without_slash(resumed), ignored).string();
  const std::string to = fs::weakly_canonical(folder, ignored).string();
  return !from.empty() && (from == to || from == to + ".best" || from.starts_with(to + ".step-"));
}

}  // namespace

bool is_result_of_run(const std::string& out, const std::string& resumed) {
  return is_of_run(resumed, without_slash(out) + ".checkpoint");
}

Status check_no_earlier_run(const std::string& out, const std::string& checkpoint,
                            const std::string& resumed) {
  const std::string folder = without_slash(checkpoint), result = without_slash(out);
  if (is_of_run(resumed, folder)) return {};
  // A planted link next to it is no earlier run.
  if (const std::string found = folder.empty() ? "" : readable_folder(folder); is_there(found + "/manifest"))
    return Status(kExists,
                  format("{} is the checkpoint of an earlier run, {}, and would be lost: resume that run, or say "
                         "that it may be overwritten",
                         found, step_text(found)));
  // A resumed run without its own checkpoints replaces the result next to its checkpoint.
  if (is_result_of_run(result, resumed)) return {};
  std::error_code ignored;
  // Any folder other than adapters is refused later, as not replaceable.
  const bool is_result = fs::is_regular_file(result, ignored) || fs::exists(result + "/adapter_config.json", ignored);
  if (!result.empty() && is_result)
    return Status(
        kExists,
        format("{} is there, and would be lost: give another name, or say that it may be overwritten",
               result));
  return {};
}

}  // namespace tessera
