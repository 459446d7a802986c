#include "serialize/checkpoint.h"

#include <doctest/doctest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>

#include "graph/base/status_codes.h"
#include "serialize/envelope.h"
#include "serialize/model.h"
#include "tests/saved_checkpoint.h"
#include "tests/serialize/test_data.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

int flock_error = 0;  // what flock of this process answers; 0: what the system does

}  // namespace

// A replacement of the C library's function.
extern "C" int flock(int descriptor, int operation) noexcept {
  if (flock_error == 0) return static_cast<int>(syscall(SYS_flock, descriptor, operation));
  errno = flock_error;
  return -1;
}

namespace {

CheckpointInfo info_at(int64_t step) {
  CheckpointInfo info;
  info.step = step;
  info.values = {{"data_position", std::to_string(step * 8)}, {"seed", "7"}};
  info.tensors = {{"w", {DType::kF32, {3, 5}}},
                  {"w.m", {DType::kF32, {3, 5}}},
                  {"empty", {DType::kF32, {0, 4}}},
                  {"step", {DType::kI64, {}}}};
  return info;
}

// Bytes that depend on name and step.
ReadTensor bytes_at(int64_t step) {
  return [step](std::string_view name, std::span<std::byte> out) -> Status {
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<std::byte>(static_cast<size_t>(step) * 31 + name.size() * 7 + i);
    }
    return {};
  };
}

void save(const std::string& folder, int64_t step) {
  const Status saved = save_checkpoint(folder, info_at(step), bytes_at(step));
  REQUIRE_MESSAGE(saved.ok(), saved.to_string());
}

void check_holds(const std::string& folder, int64_t step) {
  auto reader = CheckpointReader::open(folder);
  REQUIRE_MESSAGE(reader.ok(), reader.status().to_string());
  const CheckpointInfo wanted = info_at(step);
  CHECK(reader->info().step == step);
  CHECK(reader->info().values == wanted.values);
  CHECK(reader->info().tensors == wanted.tensors);
  for (const auto& [name, type] : wanted.tensors) {
    auto tensor = reader->read(name);
    REQUIRE_MESSAGE(tensor.ok(), tensor.status().to_string());
    CHECK(tensor->type == type);
    std::vector<std::byte> expected(tensor->data.size());
    REQUIRE(bytes_at(step)(name, expected).ok());
    CHECK(std::ranges::equal(tensor->data, expected));
  }
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

}  // namespace

TEST_CASE("a_checkpoint_comes_back_as_it_was_saved_and_replaces_the_one_before") {
  ScratchFolder scratch;
  save(scratch / "c", 1);
  check_holds(scratch / "c", 1);
  save(scratch / "c/", 2);
  check_holds(scratch / "c", 2);
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"c"});
  CHECK(names_in(scratch / "c") == std::vector<std::string>{"manifest", "shard-00000"});
}

TEST_CASE("a_tensor_that_is_absent_is_an_error_that_names_the_nearest") {
  ScratchFolder scratch;
  save(scratch / "c", 1);
  auto reader = CheckpointReader::open(scratch / "c");
  REQUIRE(reader.ok());
  auto tensor = reader->read("w.n");
  REQUIRE(!tensor.ok());
  CHECK(tensor.status().code() == StatusCode::kNotFound);
  CHECK(tensor.status().message().find("w.m") != std::string_view::npos);
}

TEST_CASE("an_error_while_saving_leaves_the_old_checkpoint_and_nothing_else") {
  ScratchFolder scratch;
  save(scratch / "c", 1);
  const ReadTensor failing = [](std::string_view name, std::span<std::byte>) -> Status {
    return name == "w.m" ? Status(StatusCode::kIo, "device lost") : Status();
  };
  CHECK(save_checkpoint(scratch / "c", info_at(2), failing).message() == "device lost");
  check_holds(scratch / "c", 1);
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"c"});
}

TEST_CASE("a_write_that_fails_leaves_the_old_checkpoint_and_nothing_else") {
  ScratchFolder scratch;
  save(scratch / "c", 1);
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    _exit(save_checkpoint(scratch / "c", info_at(2), bytes_at(2)).code() == StatusCode::kIo ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  check_holds(scratch / "c", 1);
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"c"});
}

TEST_CASE("a_save_killed_at_any_tensor_loses_nothing_and_the_next_one_cleans_up") {
  ScratchFolder scratch;
  save(scratch / "c", 1);
  for (const char* last : {"w", "w.m", "empty", "step"}) {
    const pid_t child = fork();
    if (child == 0) {
      (void)save_checkpoint(scratch / "c", info_at(2),
                            [last](std::string_view name, std::span<std::byte> out) {
                              if (name == last) kill(getpid(), SIGKILL);
                              return bytes_at(2)(name, out);
                            });
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));
    check_holds(scratch / "c", 1);
    CHECK(names_in(scratch.path()) == std::vector<std::string>{"c", "c.saving"});
  }
  save(scratch / "c", 3);
  check_holds(scratch / "c", 3);
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"c"});
}

TEST_CASE("a_folder_that_is_no_checkpoint_is_never_replaced") {
  ScratchFolder scratch;
  std::filesystem::create_directory(scratch / "home");
  write_text_file(scratch / "home/thesis.txt", "years of work");
  const Status saved = save_checkpoint(scratch / "home", info_at(1), bytes_at(1));
  CHECK(saved.code() == kExists);
  CHECK(saved.message().find("thesis.txt") != std::string_view::npos);
  CHECK(read_text_file(scratch / "home/thesis.txt") == "years of work");
}

TEST_CASE("two_savers_of_one_checkpoint_do_not_meet") {
  ScratchFolder scratch;
  Status inner;
  const Status outer =
      save_checkpoint(scratch / "c", info_at(1), [&](std::string_view name, std::span<std::byte> out) {
        if (name == "w") inner = save_checkpoint(scratch / "c", info_at(2), bytes_at(2));
        return bytes_at(1)(name, out);
      });
  CHECK(outer.ok());
  CHECK(inner.code() == kBusy);
  check_holds(scratch / "c", 1);
}

TEST_CASE("damage_to_a_checkpoint_is_found") {
  ScratchFolder scratch;
  save(scratch / "c", 1);
  const std::string manifest = read_text_file(scratch / "c/manifest"),
                    shard = read_text_file(scratch / "c/shard-00000");
  std::string damaged = shard;
  damaged[70] = static_cast<char>(damaged[70] ^ 1);
  write_text_file(scratch / "c/shard-00000", damaged);
  auto reader = CheckpointReader::open(scratch / "c");
  REQUIRE(reader.ok());
  CHECK(reader->read("w").ok());
  auto tensor = reader->read("w.m");
  REQUIRE(!tensor.ok());
  CHECK(tensor.status().code() == StatusCode::kCorrupt);

  write_text_file(scratch / "c/shard-00000", shard.substr(1));
  CHECK(!CheckpointReader::open(scratch / "c").ok());
  std::filesystem::remove(scratch / "c/shard-00000");
  CHECK(!CheckpointReader::open(scratch / "c").ok());
  write_text_file(scratch / "c/shard-00000", shard);
  for (size_t at = 0; at < manifest.size(); at += 3) {
    damaged = manifest;
    damaged[at] = static_cast<char>(damaged[at] ^ 8);
    write_text_file(scratch / "c/manifest", damaged);
    CHECK(!CheckpointReader::open(scratch / "c").ok());
  }
  std::filesystem::remove(scratch / "c/manifest");
  auto gone = CheckpointReader::open(scratch / "c");
  REQUIRE(!gone.ok());
  CHECK(gone.status().code() == StatusCode::kNotFound);
}

TEST_CASE("names_given_twice_and_symbols_are_not_saved") {
  ScratchFolder scratch;
  CheckpointInfo info = info_at(1);
  info.tensors.push_back(info.tensors[0]);
  CHECK(!save_checkpoint(scratch / "c", info, bytes_at(1)).ok());
  info = info_at(1);
  info.tensors[0].second.shape.set(0, symbol_extent(0));
  CHECK(save_checkpoint(scratch / "c", info, bytes_at(1)).code() == StatusCode::kInvalidArgument);
  CHECK(names_in(scratch.path()).empty());
}

TEST_CASE("parameters_that_are_left_out_are_named_with_their_hashes") {
  ScratchFolder scratch;
  CheckpointInfo info = info_at(1);
  const auto version = [&] {
    const std::string manifest = read_text_file(scratch / "c/manifest");
    Envelope envelope;
    std::memcpy(&envelope, manifest.data(), sizeof envelope);
    return envelope.version;
  };
  REQUIRE(save_checkpoint(scratch / "c", info, bytes_at(1)).ok());
  CHECK(version() == 1);  // earlier readers know it
  info.base = {{"a", {DType::kQ8_0, {4, 64}}, 17}, {"b", {DType::kF32, {}}, ~uint64_t{0}}};
  REQUIRE(save_checkpoint(scratch / "c", info, bytes_at(1)).ok());
  CHECK(version() == 3);
  auto reader = CheckpointReader::open(scratch / "c");
  REQUIRE(reader.ok());
  CHECK(reader->info().base == info.base);
  check_holds(scratch / "c", 1);
  CHECK(reader->read("a").status().code() == StatusCode::kNotFound);

  const uint64_t fingerprint = base_fingerprint(info.base);
  for (const auto& change : {std::function([](BaseTensor& it) { it.name = "c"; }),
                             std::function([](BaseTensor& it) { it.type.dtype = DType::kQ4_0; }),
                             std::function([](BaseTensor& it) {
                               it.type.shape = {8, 32};
                             }),
                             std::function([](BaseTensor& it) { ++it.xxh3; })}) {
    std::vector<BaseTensor> changed = info.base;
    change(changed[0]);
    CHECK(base_fingerprint(changed) != fingerprint);
  }
  for (const char* name : {"w", "b"}) {  // given twice
    CheckpointInfo twice = info;
    twice.base[0].name = name;
    CHECK(save_checkpoint(scratch / "c", twice, bytes_at(1)).code() == StatusCode::kCorrupt);
  }
}

TEST_CASE("a_file_system_without_locks_holds_checkpoints_all_the_same") {
  ScratchFolder scratch;
  const std::string folder = scratch / "checkpoint";
  for (int error : {ENOSYS, ENOLCK, ENOTSUP}) {
    flock_error = error;
    save(folder, 1);
    save(folder, 2);
    flock_error = 0;
    check_holds(folder, 2);
  }
  flock_error = EWOULDBLOCK;
  const Status taken = save_checkpoint(folder, info_at(3), bytes_at(3));
  flock_error = 0;
  CHECK(taken.code() == kBusy);
  CHECK(taken.message().find("another process is saving") != std::string_view::npos);
  check_holds(folder, 2);
}
