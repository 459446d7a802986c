#include "serialize/atomic_file.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "serialize/checkpoint.h"
#include "tests/serialize/folder_names.h"
#include "tests/serialize/test_data.h"

namespace tessera {
namespace {

using namespace tessera::testing;
namespace fs = std::filesystem;

Status write(const std::string& path, std::string_view text) {
  TSR_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  TSR_RETURN_IF_ERROR(file.append(std::as_bytes(std::span(text))));
  return file.commit();
}

// Runs `body` in a child that is killed in its midst.
template <class Body>
void killed_while(Body body) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    body();
    raise(SIGKILL);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
}

}  // namespace

TEST_CASE("what_a_killed_writer_left_goes_with_the_next_and_what_another_is_writing_stays") {
  const ScratchFolder scratch;
  const std::string path = scratch / "out.tsr";
  std::optional<AtomicFile> other;
  for (int i = 0; i < 3; ++i)
    killed_while([&] {
      auto file = AtomicFile::create(path);
      if (file.ok()) (void)file->append(std::as_bytes(std::span("half a model", 12)));
      if (file.ok()) raise(SIGKILL);
    });
  CHECK(names_in(scratch.path()).size() == 1);
  auto first = AtomicFile::create(path);
  REQUIRE(first.ok());
  other.emplace(std::move(*first));
  CHECK(names_in(scratch.path()).size() == 1);  // the killed one's is gone
  CHECK(write(path, "whole").ok());
  CHECK(names_in(scratch.path()).size() == 2);
  CHECK(other->commit().ok());
  CHECK(names_in(scratch.path()) == std::set<std::string>{"out.tsr"});
}

TEST_CASE("any_number_of_temporary_files_is_no_obstacle_and_foreign_names_stay") {
  const ScratchFolder scratch;
  const std::string path = scratch / "out.tsr", pid = std::to_string(getpid());
  for (int i = 0; i < 150; ++i) write_text_file(path + ".tmp-" + pid + "-" + std::to_string(i), "left");
  write_text_file(path + ".tmp-notes", "mine");
  write_text_file(scratch / "another.tsr.tmp-1-0", "of another");
  CHECK(write(path, "whole").ok());
  CHECK(names_in(scratch.path()) ==
        std::set<std::string>{"another.tsr.tmp-1-0", "out.tsr", "out.tsr.tmp-notes"});
}

TEST_CASE("a_name_is_as_long_as_the_system_takes_or_refused_at_once") {
  const ScratchFolder scratch;
  const std::string longest = scratch / std::string(255, 'n');
  CHECK(AtomicFile::check(longest).ok());
  CHECK(write(longest, "whole").ok());
  CHECK(read_text_file(longest) == "whole");
  CHECK(AtomicFile::check(scratch / std::string(256, 'n')).code() == StatusCode::kIo);
  CHECK(AtomicFile::check(scratch / "none" + "/out.tsr").code() == StatusCode::kNotFound);
  CHECK(AtomicFile::check(scratch.path()).code() == StatusCode::kInvalidArgument);
  CHECK(names_in(scratch.path()).size() == 1);
}

TEST_CASE("a_checkpoint_folder_is_checked_before_anything_is_computed") {
  const ScratchFolder scratch;
  const std::string folder = scratch / "run";
  CHECK(check_checkpoint_folder(folder).ok());
  CHECK(names_in(scratch.path()).empty());
  fs::create_directory(folder);
  write_text_file(folder + "/notes.txt", "mine");
  CHECK(check_checkpoint_folder(folder).message().find("'notes.txt' in it is no part of a checkpoint") !=
        std::string::npos);
  fs::remove(folder + "/notes.txt");
  // A killed save's.
  fs::create_directory(folder + ".saving");
  write_text_file(folder + ".saving/shard-00000.tmp-12-0", "half");
  CHECK(check_checkpoint_folder(folder).ok());
  CHECK(names_in(scratch.path()) == std::set<std::string>{"run"});
  CHECK_FALSE(check_checkpoint_folder(scratch / std::string(250, 'n')).ok());
  CHECK_FALSE(check_checkpoint_folder(scratch / "none" + "/run").ok());
}

}  // namespace tessera
