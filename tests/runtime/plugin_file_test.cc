// Files that are loaded as plugins. The planted one (planted/planted.c) reports whether its constructor ran.
#include "runtime/plugin_file.h"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/runtime/test_devices.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// A folder of a planted libtessera_cuda.so.
class PlantedFolder {
 public:
  PlantedFolder() {
    std::string pattern = (fs::temp_directory_path() / "tessera_planted_XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
    fs::copy_file(fs::read_symlink("/proc/self/exe").parent_path() / "libplanted.so", plugin());
    fs::permissions(plugin(), fs::perms(0755));
  }
  ~PlantedFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  PlantedFolder(const PlantedFolder&) = delete;
  PlantedFolder& operator=(const PlantedFolder&) = delete;

  const fs::path& path() const { return path_; }
  fs::path plugin() const { return path_ / "libtessera_cuda.so"; }
  fs::path mark() const { return path_ / "mark"; }
  bool ran() const { return fs::exists(mark()); }

 private:
  fs::path path_;
};

std::string reason_of_cuda(const std::string& plugin_path) {
  RegistryOptions options;
  options.built_in = {tsr_cpu_backend_entry};
  options.plugin_path = plugin_path;
  BackendRegistry registry(options);
  for (const BackendInfo& backend : registry.list())
    if (backend.name == "cuda") return backend.reason;
  return "not listed";
}

// The program of the next test's child; by itself it finds no plugin either.
TEST_CASE("list_backends_of_the_default_folder") {
  CHECK(reason_of_cuda("").find("libtessera_cuda.so") != std::string::npos);
}

TEST_CASE("a_program_started_by_its_bare_name_loads_nothing_from_the_working_directory") {
  const PlantedFolder planted;
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const bool there = chdir(planted.path().c_str()) == 0;
    setenv("PLANTED_MARK", planted.mark().c_str(), 1);
    const char* arguments[] = {"test_runtime", "-tc=list_backends_of_the_default_folder", nullptr};
    if (there) execv("/proc/self/exe", const_cast<char**>(arguments));
    _exit(127);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK_FALSE(planted.ran());
}

TEST_CASE("a_plugin_that_others_can_write_is_refused_with_the_reason") {
  const PlantedFolder planted;
  setenv("PLANTED_MARK", planted.mark().c_str(), 1);
  const auto refuses = [&](const fs::path& named) {
    const std::string reason = reason_of_cuda(planted.path().string());
    CHECK_MESSAGE(reason.find("can be written by others than its owner (chmod go-w " + named.string() +
                              ")") != std::string::npos,
                  reason);
    CHECK_FALSE(planted.ran());
  };
  fs::permissions(planted.plugin(), fs::perms(0757));
  refuses(planted.plugin());
  fs::permissions(planted.plugin(), fs::perms(0755));
  fs::permissions(planted.path(), fs::perms(0777));
  refuses(planted.path());
  fs::permissions(planted.path(), fs::perms(01777));
  refuses(planted.path());
  fs::permissions(planted.path(), fs::perms(0700));
  const fs::path elsewhere = planted.path() / "elsewhere";
  fs::create_directory(elsewhere);
  fs::rename(planted.plugin(), elsewhere / "plugin.so");
  fs::create_symlink(elsewhere / "plugin.so", planted.plugin());
  fs::permissions(elsewhere, fs::perms(0777));
  refuses(elsewhere);
  // Whatever it holds, this one was asked for.
  fs::permissions(elsewhere, fs::perms(0755));
  const std::string reason = reason_of_cuda(planted.path().string());
  CHECK_MESSAGE(reason.find("has no symbol") != std::string::npos, reason);
  CHECK(planted.ran());
  unsetenv("PLANTED_MARK");
}

TEST_CASE("the_folder_of_this_library_is_absolute") {
  CHECK(folder_of_this_library() == fs::read_symlink("/proc/self/exe").parent_path());
}

}  // namespace
}  // namespace tessera
