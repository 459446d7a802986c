#include "engine/base/device_profiles.h"

#include <filesystem>
#include <map>

#include "engine/base/text_file.h"
#include "graph/base/text.h"
#include "runtime/algorithms.h"
#include "serialize/atomic_file.h"
#include "serialize/device_profile_json.h"

namespace tessera {

namespace {

Status check_devices(const DeviceProfile& profile, const DeviceSet& devices) {
  const Cluster cluster = devices.cluster();
  const std::string& kind = cluster.kinds[0].name;
  if (profile.device != kind)
    return Status(StatusCode::kInvalidArgument,
                  format("the profile is of '{}', these devices are '{}': run `tessera calibrate` here",
                         profile.device, kind));
  const int32_t cores = cluster.shared_cores / devices.hosts();  // of one machine
  if (profile.cores != cores)
    return Status(
        StatusCode::kInvalidArgument,
        format("the profile was measured with {} threads, this runtime has {}: run `tessera calibrate` with "
               "as many",
               profile.cores, cores));
  return {};
}

Result<std::shared_ptr<const DeviceProfile>> read_for(const std::string& path, const DeviceSet& devices) {
  TSR_ASSIGN_OR_RETURN(DeviceProfile profile, read_profile(path));
  TSR_RETURN_IF_ERROR(check_devices(profile, devices).with_context(format("profile '{}'", path)));
  return std::shared_ptr<const DeviceProfile>(std::make_shared<DeviceProfile>(std::move(profile)));
}

}  // namespace

std::string default_profile_path(const std::string& cache_folder, std::string_view devices) {
  if (cache_folder.empty()) return {};
  return format("{}/profile-{}.json", cache_folder, trim(devices.substr(0, devices.find(':'))));
}

Result<DeviceProfile> read_profile(const std::string& path) {
  constexpr size_t kMostBytes = size_t{16} << 20;
  const Result<std::string> text = read_text_file(path, "profile", kMostBytes);
  if (!text.ok())
    return Status(text.status().code(),
                  format("{}; `tessera calibrate --out {}` makes it", text.status().message(), path));
  Result<DeviceProfile> profile = device_profile_from_json(*text);
  if (!profile.ok()) return profile.status().with_context(format("'{}'", path));
  return profile;
}

Status write_profile(DeviceProfile& profile, const std::string& path) {
  const std::string text = device_profile_to_json(profile);
  std::error_code error;
  if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty())
    std::filesystem::create_directories(folder, error);
  TSR_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  TSR_RETURN_IF_ERROR(file.append(std::as_bytes(std::span(text))));
  return file.commit();
}

Result<std::shared_ptr<const DeviceProfile>> find_profile(ProfileChoice& choice, const DeviceSet& devices) {
  const std::shared_ptr<const DeviceProfile> none;
  if (choice.name.empty() || choice.name == "none") return none;
  if (choice.name != "auto") {
    choice.path = choice.name;
    return read_for(choice.name, devices);
  }
  const std::string path = default_profile_path(choice.cache_folder, devices.text());
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) return none;
  Result<std::shared_ptr<const DeviceProfile>> found = read_for(path, devices);
  if (found.ok()) {
    choice.path = path;
    return found;
  }
  choice.ignored = format("built-in rates are used: {}", found.status().message());
  return none;
}

Status keep_fastest_algorithms(const Program& program, DeviceSet& devices) {
  if (!can_time_algorithms(devices)) return {};
  const std::string& path = devices.profile_path();
  if (path.empty())
    return Status(
        StatusCode::kFailedPrecondition,
        format("algorithms are timed for a device profile to keep, and '{}' has none: run `tessera calibrate "
               "--devices {}` once, or name a profile (option 'profile')",
               devices.text(), devices.text()));
  TSR_ASSIGN_OR_RETURN(const DeviceProfile before, read_profile(path));
  TSR_ASSIGN_OR_RETURN(AlgorithmChoices timed, time_algorithms(program, before.algorithms, devices));
  if (timed != before.algorithms) {
    TSR_ASSIGN_OR_RETURN(DeviceProfile now, read_profile(path));
    std::map<std::string, std::string>
        all;  // the first writer's choices win, since it has computed with them
    if (now.algorithms.backend == timed.backend)
      for (AlgorithmChoice& choice : now.algorithms.choices)
        all.emplace(std::move(choice.kernel), std::move(choice.variant));
    for (AlgorithmChoice& choice : timed.choices)
      all.emplace(std::move(choice.kernel), std::move(choice.variant));
    timed.choices.clear();
    for (const auto& [kernel, variant] : all) timed.choices.push_back({kernel, variant});
    now.algorithms = timed;
    TSR_RETURN_IF_ERROR(write_profile(now, path));
  }
  if (use_algorithms(timed, devices)) return {};
  return Status(StatusCode::kInternal, "the devices' libraries have changed while they were timed");
}

}  // namespace tessera
