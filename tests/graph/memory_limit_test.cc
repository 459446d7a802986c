#include "graph/base/memory_limit.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

using namespace tessera;

namespace {

// A folder of made-up control groups.
class Groups {
 public:
  Groups() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera-groups.XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    root_ = name;
  }
  ~Groups() { std::filesystem::remove_all(root_); }
  void limit(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ + path).substr(0, (root_ + path).rfind('/')));
    std::ofstream(root_ + path) << text << '\n';
  }
  int64_t of(std::string_view groups, std::string_view mounts) const {
    return cgroup_memory_limit(groups, mounts, root_);
  }

 private:
  std::string root_;
};

constexpr std::string_view kV2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";

}  // namespace

TEST_CASE("the_smallest_limit_of_a_control_group_and_those_above_it_counts") {
  Groups groups;
  CHECK(groups.of("0::/a/b/c\n", kV2) == INT64_MAX);  // nothing is there
  groups.limit("/sys/fs/cgroup/a/b/c/memory.max", "max");
  CHECK(groups.of("0::/a/b/c\n", kV2) == INT64_MAX);
  groups.limit("/sys/fs/cgroup/a/memory.max", "3000000");
  CHECK(groups.of("0::/a/b/c\n", kV2) == 3000000);
  groups.limit("/sys/fs/cgroup/a/b/c/memory.max", "5000000");
  CHECK(groups.of("0::/a/b/c\n", kV2) == 3000000);
  groups.limit("/sys/fs/cgroup/a/b/memory.max", "2000000");
  CHECK(groups.of("0::/a/b/c\n", kV2) == 2000000);
  CHECK(groups.of("0::/a\n", kV2) == 3000000);
  CHECK(groups.of("0::/elsewhere\n", kV2) == INT64_MAX);
  groups.limit("/sys/fs/cgroup/memory.max", "1000000");  // a namespace shows its own group as the root
  CHECK(groups.of("0::/\n", kV2) == 1000000);
  CHECK(groups.of("0::/../../elsewhere\n", kV2) == 1000000);
}

TEST_CASE("version_1_of_control_groups_counts_too") {
  Groups groups;
  const std::string_view mounts =
      "30 29 0:27 /docker/x /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
      "31 29 0:28 / /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"
      "32 29 0:29 / /sys/fs/cgroup/unified ro - cgroup2 cgroup2 rw\n";
  const std::string_view of = "7:cpu:/docker/x/job\n5:memory:/docker/x/job\n0::/docker/x/job\n";
  groups.limit("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712");
  CHECK(groups.of(of, mounts) == 9223372036854771712);
  groups.limit("/sys/fs/cgroup/memory/memory.limit_in_bytes", "700000");
  CHECK(groups.of(of, mounts) == 700000);
  groups.limit("/sys/fs/cgroup/cpu/docker/x/job/memory.limit_in_bytes", "1");
  CHECK(groups.of(of, mounts) == 700000);
  groups.limit("/sys/fs/cgroup/unified/docker/x/job/memory.max", "600000");
  CHECK(groups.of(of, mounts) == 600000);
}

TEST_CASE("files_of_other_shapes_limit_nothing") {
  Groups groups;
  for (const std::string_view mounts : {"", "\n", "a b\n", "1 2 3 4 5 6 7 - cgroup2\n", "- - - - - - - -\n"})
    for (const std::string_view text : {"", ":", "::", "0:", "0::", "0::a", "nonsense\n"})
      CHECK(groups.of(text, mounts) == INT64_MAX);
  groups.limit("/sys/fs/cgroup/memory.max", "-5");
  CHECK(groups.of("0::/\n", kV2) == INT64_MAX);
  groups.limit("/sys/fs/cgroup/memory.max", "99999999999999999999");
  CHECK(groups.of("0::/\n", kV2) == INT64_MAX);
}

TEST_CASE("a_limit_of_the_address_space_counts_by_what_is_left_of_it") {
  const int64_t before = process_memory_limit();
  CHECK(before > 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    struct rlimit limit {};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = rlim_t{1} << 30;
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
    const int64_t left = process_memory_limit();
    _exit(left > 0 && left < (int64_t{1} << 30) ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
