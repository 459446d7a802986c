// Files that are cut shorter between the opening of a source and its reading: an error, never a signal.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "serialize/checkpoint.h"
#include "serialize/model.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/serialize/test_data.h"
#include "tests/whole_model.h"

namespace tessera {
namespace {

using namespace tessera::testing;
namespace fs = std::filesystem;

// Opens `path`, cuts it to `bytes`, then reads.
template <class Read>
void check_cut(const std::string& path, uint64_t bytes, Read read) {
  auto source = open_file(path);
  REQUIRE(source.ok());
  fs::resize_file(path, bytes);
  const Status status = read(*source);
  CHECK_MESSAGE(status.code() == StatusCode::kCorrupt, status.to_string());
}

}  // namespace

TEST_CASE("a_file_that_is_cut_while_its_index_is_read_is_corrupt") {
  const ScratchFolder scratch;
  const std::string path = scratch / "file";
  const auto load = [](const std::shared_ptr<const ByteSource>& source) {
    return load_model(source).status();
  };
  const auto import = [](const std::shared_ptr<const ByteSource>& source) {
    return import_gguf(source).status();
  };
  GgufBuilder writer;
  std::vector<std::string> tokens(20000, "a token of some length");
  writer.text("general.architecture", "llama").texts("tokenizer.ggml.tokens", tokens);
  for (const uint64_t kept : {0, 64, 4096}) {
    fs::copy_file(TSR_SOURCE_DIR "/tests/data/model-1.tsr", path,
                  fs::copy_options::overwrite_existing);
    check_cut(path, std::min<uint64_t>(kept, fs::file_size(path) / 2), load);
    write_text_file(path, writer.finish());
    check_cut(path, kept, import);
  }
}

TEST_CASE("a_file_that_was_replaced_by_renaming_is_read_as_it_was") {
  const ScratchFolder scratch;
  const std::string path = scratch / "file";
  fs::copy_file(TSR_SOURCE_DIR "/tests/data/model-1.tsr", path);
  auto source = open_file(path);
  REQUIRE(source.ok());
  write_text_file(scratch / "other", "short");
  fs::rename(scratch / "other", path);
  CHECK(load_model(*source).ok());
}

TEST_CASE("a_mapping_that_no_memory_is_left_for_is_out_of_memory") {
  const ScratchFolder scratch;
  const std::string path = scratch / "large";
  write_text_file(path, "x");
  fs::resize_file(path, uint64_t{1} << 33);  // sparse
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit little{uint64_t{1} << 32, uint64_t{1} << 32};
    setrlimit(RLIMIT_AS, &little);
    _exit(static_cast<int>(open_file(path).status().code()));
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == static_cast<int>(StatusCode::kOutOfMemory));
}

}  // namespace tessera
