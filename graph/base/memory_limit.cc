#include "graph/base/memory_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <vector>

#include "graph/base/text.h"

namespace tessera {
namespace {

std::string contents_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A mounted hierarchy of control groups that limits memory.
struct Hierarchy {
  std::string root, mount;  // the group that is visible at the path `mount`
  bool is_v2 = false;
};

std::vector<std::string> words_of(std::string_view line) {
  std::istringstream stream{std::string(line)};
  return {std::istream_iterator<std::string>(stream), {}};
}

bool lists(std::string_view list, std::string_view word) {
  return std::ranges::any_of(split(list, ','), [&](const std::string& part) { return part == word; });
}

// "36 35 0:30 /docker/x /sys/fs/cgroup ro,nosuid - cgroup2 cgroup2 rw": fields, a dash, type, source, options.
std::vector<Hierarchy> hierarchies_of(std::string_view mounts) {
  std::vector<Hierarchy> found;
  for (const std::string& line : split(mounts, '\n')) {
    const std::vector<std::string> words = words_of(line);
    const auto dash = std::ranges::find(words, "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    const bool is_v2 = dash[1] == "cgroup2";
    if (is_v2 || (dash[1] == "cgroup" && lists(dash[3], "memory"))) found.push_back({words[3], words[4], is_v2});
  }
  return found;
}

// Reads the limit of one group; without a limit files hold "max", or a number beyond any memory.
int64_t limit_in(const std::string& folder, bool is_v2) {
  const std::string text = contents_of(folder + (is_v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const std::optional<int64_t> limit = parse_i64(trim(text));
  return limit && *limit > 0 ? *limit : INT64_MAX;
}

int64_t limit_under(const Hierarchy& hierarchy, std::string group, const std::string& root) {
  // A group outside of the mount (another namespace's) appears as the mount itself.
  if (hierarchy.root != "/" && group.starts_with(hierarchy.root)) group.erase(0, hierarchy.root.size());
  if (group.find("/..") != std::string::npos) group.clear();
  int64_t least = INT64_MAX;
  for (;;) {
    while (group.ends_with('/')) group.pop_back();
    least = std::min(least, limit_in(root + hierarchy.mount + group, hierarchy.is_v2));
    if (group.empty()) return least;
    group.erase(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

// Returns the kibibytes of a line such as "VmSize:   123 kB" in /proc/self/status, as bytes; 0 where it is absent.
int64_t status_bytes(std::string_view status, std::string_view name) {
  for (const std::string& line : split(status, '\n'))
    if (line.starts_with(name)) {
      const std::vector<std::string> words = words_of(line);
      return words.size() < 2 ? 0 : parse_i64(words[1]).value_or(0) * 1024;
    }
  return 0;
}

int64_t left_of_limits() {
  const std::string status = contents_of("/proc/self/status");
  int64_t least = INT64_MAX;
  const auto consider = [&](auto resource, std::string_view used) {
    struct rlimit limit {};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    const auto bytes = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT64_MAX));
    least = std::min(least, std::max<int64_t>(1, bytes - status_bytes(status, used)));
  };
  consider(RLIMIT_AS, "VmSize:");
  consider(RLIMIT_DATA, "VmData:");
  return least;
}

}  // namespace

int64_t cgroup_memory_limit(std::string_view groups, std::string_view mounts, const std::string& root) {
  int64_t least = INT64_MAX;
  const std::vector<Hierarchy> hierarchies = hierarchies_of(mounts);
  for (const std::string& line : split(groups, '\n')) {  // "0::/user.slice", "9:cpu,memory:/docker/x"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    for (const Hierarchy& hierarchy : hierarchies)
      if (hierarchy.is_v2 ? controllers.empty() : lists(controllers, "memory"))
        least = std::min(least, limit_under(hierarchy, line.substr(second + 1), root));
  }
  return least;
}

int64_t process_memory_limit() {
  const int64_t machine = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const int64_t groups =
      cgroup_memory_limit(contents_of("/proc/self/cgroup"), contents_of("/proc/self/mountinfo"), "");
  return std::min({machine, groups, left_of_limits()});
}

}  // namespace tessera
