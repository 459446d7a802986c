// Names that others planted, files that are none, and permissions: what is derived is neither followed nor removed, what is
// no plain file is refused by name, and a file that is written again keeps its mode.
#include "serialize/import/tokenizer_folder.h"
#include "serialize/plain_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "graph/base/status_codes.h"
#include "serialize/atomic_file.h"
#include "serialize/atomic_folder.h"
#include "serialize/checkpoint.h"
#include "serialize/run_log/line_file.h"
#include "serialize/training_data/reference_file.h"
#include "serialize/training_data/token_file.h"
#include "tests/saved_checkpoint.h"
#include "tests/serialize/folder_names.h"
#include "tests/serialize/test_data.h"
#include "text/tokenizer/hugging_face.h"

namespace {

int exchange_error = 0;  // what renameat2 of this process answers; 0: what the system does

}  // namespace

// Takes the place of the C library's, so that a file system that cannot exchange two names can be tried.
extern "C" int renameat2(int old_folder, const char* old_name, int new_folder, const char* new_name,
                         unsigned flags) noexcept {
  if (exchange_error == 0)
    return static_cast<int>(syscall(SYS_renameat2, old_folder, old_name, new_folder, new_name, flags));
  errno = exchange_error;
  return -1;
}

namespace tessera {
namespace {

using namespace tessera::testing;
namespace fs = std::filesystem;

mode_t mode_of(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 ? found.st_mode & 0777 : 0;
}

Status write(Result<AtomicFile> file, std::string_view text) {
  TSR_RETURN_IF_ERROR(file.status());
  TSR_RETURN_IF_ERROR(file->append(std::as_bytes(std::span(text))));
  return file->commit();
}

Status save(const std::string& folder, int64_t step) {
  CheckpointInfo info;
  info.step = step;
  info.tensors = {{"w", {DType::kF32, {4}}}};
  return save_checkpoint(folder, info, [](std::string_view, std::span<std::byte> out) {
    std::ranges::fill(out, std::byte{0});
    return Status();
  });
}

int64_t step_of(const std::string& folder) {
  const auto reader = CheckpointReader::open(folder);
  return reader.ok() ? reader->info().step : -1;
}

void make_socket(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  REQUIRE(path.size() < sizeof name.sun_path);
  path.copy(name.sun_path, path.size());
  const int made = socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(bind(made, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0);
  close(made);
}

// Everything that a name may lead to and that is no file.
struct Kind {
  const char* name;
  std::function<void(const std::string&)> make;
};
const Kind kKinds[] = {{"a pipe", [](const std::string& path) { REQUIRE(mkfifo(path.c_str(), 0600) == 0); }},
                       {"a folder", [](const std::string& path) { fs::create_directory(path); }},
                       {"a socket", make_socket},
                       {"a device", [](const std::string& path) { fs::create_symlink("/dev/zero", path); }},
                       {"a link to", [](const std::string& path) { fs::create_symlink("/none/there", path); }}};

}  // namespace

TEST_CASE("planted_names_of_a_save_are_neither_followed_nor_removed") {
  for (const char* derived : {"c.previous", "c.saving", "c.saving/replaced"}) {
    CAPTURE(derived);
    const ScratchFolder scratch;
    REQUIRE(save(scratch / "victim", 7).ok());
    REQUIRE(save(scratch / "c", 1).ok());
    if (std::string_view(derived) == "c.saving/replaced") fs::create_directory(scratch / "c.saving");
    fs::create_directory_symlink(scratch / "victim", scratch / derived);
    (void)check_checkpoint_folder(scratch / "c");
    (void)save(scratch / "c", 2);
    (void)save(scratch / "new", 3);
    CHECK(step_of(scratch / "victim") == 7);
    CHECK(step_of(scratch / "c") == (std::string_view(derived) == "c.previous" ? 2 : 1));
    CHECK(fs::is_symlink(scratch / derived));
    fs::remove_all(scratch / "c");
    CHECK(step_of(scratch / "c") == -1);  // a link is no earlier checkpoint
  }
}

TEST_CASE("a_checkpoint_that_was_moved_away_to_a_name_of_ours_stays") {
  const ScratchFolder scratch;
  REQUIRE(save(scratch / "c", 1).ok());
  fs::rename(scratch / "c", scratch / "c.previous");
  CHECK(step_of(scratch / "c") == 1);  // earlier versions left it so, where they were cut
  for (const int error : {0, ENOSYS, EINVAL}) {
    exchange_error = error;
    CHECK(save(scratch / "c", 2).ok());
    CHECK(save(scratch / "c", 3).ok());
    exchange_error = 0;
    CHECK(step_of(scratch / "c") == 3);
    CHECK(step_of(scratch / "c.previous") == 1);
    CHECK(names_in(scratch.path()) == std::set<std::string>{"c", "c.previous"});
    fs::remove_all(scratch / "c");
  }
}

TEST_CASE("a_save_that_was_cut_where_names_cannot_be_exchanged_is_ended_by_the_next") {
  const ScratchFolder scratch;
  const auto cut = [&](bool after_second) {
    REQUIRE(save(scratch / "c", 1).ok());
    REQUIRE(save(scratch / "next", 2).ok());
    fs::rename(scratch / "c", scratch / "next/replaced");
    fs::rename(scratch / "next", scratch / (after_second ? "c" : "c.saving"));
  };
  for (const bool after_second : {false, true}) {
    cut(after_second);
    CHECK(step_of(scratch / "c") == 2);
    CHECK(check_checkpoint_folder(scratch / "c").ok());
    CHECK(step_of(scratch / "c") == 2);
    for (const int error : {0, ENOSYS}) {
      exchange_error = error;
      CHECK(save(scratch / "c", 3).ok());
      exchange_error = 0;
      CHECK(step_of(scratch / "c") == 3);
      CHECK(names_in(scratch.path()) == std::set<std::string>{"c"});
      CHECK(names_in(scratch / "c") == std::set<std::string>{"manifest", "shard-00000"});
    }
    fs::remove_all(scratch / "c");
  }
}

TEST_CASE("a_folder_with_names_like_ours_that_is_no_checkpoint_is_not_replaced") {
  for (const char* name : {"manifest", "manifest.json", "manifesto", "shard-list", "shard-1.csv", "replaced"}) {
    CAPTURE(name);
    const ScratchFolder scratch;
    fs::create_directory(scratch / "c");
    write_text_file(scratch / "c/" + name, "years of work");
    const Status saved = save(scratch / "c", 1);
    CHECK(saved.code() == kExists);
    CHECK(saved.message().find(name) != std::string_view::npos);
    CHECK(read_text_file(scratch / "c/" + name) == "years of work");
  }
  const ScratchFolder scratch;
  REQUIRE(save(scratch / "c", 1).ok());
  fs::create_directory_symlink(scratch / "c", scratch / "link");  // a user's own link is followed
  CHECK(save(scratch / "link", 2).ok());
  CHECK(step_of(scratch / "c") == 2);
  fs::create_symlink("manifest", scratch / "c/shard-00001");
  CHECK(save(scratch / "c", 3).code() == kExists);
}

TEST_CASE("what_is_written_again_keeps_its_mode_and_what_is_new_obeys_the_umask") {
  const mode_t before = umask(027);
  const ScratchFolder scratch;
  CHECK(write(AtomicFile::create(scratch / "a"), "new").ok());
  CHECK(mode_of(scratch / "a") == 0640);
  for (const mode_t mode : {0600, 0400, 0664, 0755, 0000}) {
    REQUIRE(chmod((scratch / "a").c_str(), mode) == 0);
    auto file = AtomicFile::create(scratch / "a");
    REQUIRE(file.ok());
    CHECK((mode_of(file->temporary_path()) & 077) == 0);  // not wider on the way
    CHECK(write(std::move(file), "again").ok());
    CHECK(mode_of(scratch / "a") == mode);
  }
  REQUIRE(save(scratch / "c", 1).ok());
  CHECK(mode_of(scratch / "c") == 0750);
  for (const int error : {0, ENOSYS}) {
    REQUIRE(chmod((scratch / "c").c_str(), 0700) == 0);
    REQUIRE(chmod((scratch / "c/shard-00000").c_str(), 0600) == 0);
    exchange_error = error;
    REQUIRE(save(scratch / "c", 2).ok());
    exchange_error = 0;
    CHECK(mode_of(scratch / "c") == 0700);
    CHECK(mode_of(scratch / "c/shard-00000") == 0600);
    CHECK(mode_of(scratch / "c/manifest") == 0640);
  }
  for (int time = 0; time < 2; ++time) {
    auto folder = AtomicFolder::create(scratch / "f", [](const std::string&) { return Status(); });
    REQUIRE(folder.ok());
    fs::create_directory(folder->temporary_path() + "/1_Pooling");
    write_text_file(folder->temporary_path() + "/1_Pooling/config.json", "{}");
    write_text_file(folder->temporary_path() + "/model.safetensors", "weights");
    REQUIRE(folder->commit().ok());
    if (time == 0) {
      REQUIRE(chmod((scratch / "f").c_str(), 0700) == 0);
      REQUIRE(chmod((scratch / "f/model.safetensors").c_str(), 0600) == 0);
      REQUIRE(chmod((scratch / "f/1_Pooling/config.json").c_str(), 0444) == 0);
    }
  }
  CHECK(mode_of(scratch / "f") == 0700);
  CHECK(mode_of(scratch / "f/model.safetensors") == 0600);
  CHECK(mode_of(scratch / "f/1_Pooling/config.json") == 0444);
  umask(before);
}

TEST_CASE("files_that_came_into_a_folder_while_its_successor_was_written_stay") {
  const ScratchFolder scratch;
  const auto may_replace = [](const std::string& folder) {
    return fs::exists(folder + "/notes") ? Status(StatusCode::kInvalidArgument, "has notes") : Status();
  };
  fs::create_directory(scratch / "f");
  write_text_file(scratch / "f/old", "old");
  auto folder = AtomicFolder::create(scratch / "f", may_replace);
  REQUIRE(folder.ok());
  write_text_file(scratch / "f/notes", "mine");
  CHECK(folder->commit().message() == "has notes");
  CHECK(read_text_file(scratch / "f/notes") == "mine");
}

TEST_CASE("a_planted_link_in_a_cache_is_replaced_and_not_written_through") {
  const ScratchFolder scratch;
  write_text_file(scratch / "victim", "mine");
  for (const char* name : {"x.tokens", "x.reference"}) fs::create_symlink("victim", scratch / name);
  auto writer = TokenFileWriter::create(scratch / "x.tokens");
  REQUIRE(writer.ok());
  CHECK(writer->finish("", true).ok());
  CHECK(write_reference_file(scratch / "x.reference", 1, std::vector<double>{1, 2}).ok());
  CHECK(read_reference_file(scratch / "x.reference", 1, 1).ok());
  CHECK(read_text_file(scratch / "victim") == "mine");
  fs::create_symlink("victim", scratch / "own");
  CHECK(write(AtomicFile::create(scratch / "own"), "theirs").ok());  // a user's own link is written through
  CHECK(read_text_file(scratch / "victim") == "theirs");
}

TEST_CASE("what_is_no_file_is_refused_by_name_and_nothing_waits") {
  const ScratchFolder scratch;
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.name);
    const std::string path = scratch / "it";
    kind.make(path);
    const auto refused = has_plain_file(path);
    REQUIRE(!refused.ok());
    CHECK(refused.status().code() == StatusCode::kInvalidArgument);
    CHECK(refused.status().message().find(path + ": is " + kind.name) != std::string_view::npos);
    CHECK(!TokenFile::open(path).ok());
    CHECK(!read_reference_file(path, 1, 1).ok());
    if (std::string_view(kind.name) == "a link to") {
      fs::remove(path);
      continue;
    }
    CHECK(!TokenFileWriter::create(path).ok() == !fs::is_symlink(path));
    const auto lines = LineFile::open(path, 0, [](const Json&) {});
    CHECK(lines.ok() == fs::is_symlink(path));  // a device is written to; nobody reads the pipe
    if (!lines.ok()) CHECK(lines.status().message().find(path) != std::string_view::npos);
    fs::remove(path);
  }
  CHECK(!*has_plain_file(scratch / "none"));
  CHECK(!*has_plain_file(scratch / "none/there"));
  write_text_file(scratch / "file", "");
  CHECK(*has_plain_file(scratch / "file"));
  CHECK(!*has_plain_file(scratch / "file/there"));
}

TEST_CASE("side_files_that_are_no_files_are_refused_and_not_left_out") {
  for (const char* name : {"tokenizer_config.json", "generation_config.json", "chat_template.jinja",
                           "1_Pooling/config.json", "additional_chat_templates", "added_tokens.json"})
    for (const Kind& kind : kKinds) {
      CAPTURE(name);
      CAPTURE(kind.name);
      if (std::string_view(name) == "additional_chat_templates" && kind.name == kKinds[1].name) continue;
      const ScratchFolder scratch;
      CHECK(check_side_files(scratch.path()).ok());
      if (const auto parent = fs::path(name).parent_path(); !parent.empty())
        fs::create_directory(scratch / parent.string());
      kind.make(scratch / name);
      const Status status = check_side_files(scratch.path());
      CHECK(status.code() == StatusCode::kInvalidArgument);
      CHECK(status.message().find(scratch / name) != std::string_view::npos);
    }
  const ScratchFolder scratch;
  REQUIRE(mkfifo((scratch / "tokenizer.json").c_str(), 0600) == 0);
  CHECK(hf_folder_tokenizer(scratch.path()).status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("a_pipe_that_is_full_or_closed_does_not_hold_up_a_run") {
  const ScratchFolder scratch;
  const std::string path = scratch / "pipe";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  {
    auto lines = LineFile::open(path, 0, [](const Json&) {});
    REQUIRE(lines.ok());
    const Json line = std::string(size_t{1} << 20, 'x');
    CHECK(lines->append(line).ok());  // more than a pipe holds: the rest waits
    char buffer[1 << 16];
    size_t got = 0;
    for (ssize_t part; (part = read(reader, buffer, sizeof buffer)) > 0;) got += static_cast<size_t>(part);
    CHECK(got < (size_t{1} << 20));
    CHECK(lines->append("end").ok());
    close(reader);
    CHECK(lines->append("more").code() == StatusCode::kIo);  // and no signal
  }
}

}  // namespace tessera
