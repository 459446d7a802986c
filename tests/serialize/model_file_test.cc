#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "graph/base/text.h"
#include "serialize/envelope.h"
#include "serialize/model.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/serialize/test_data.h"
#include "tests/skip.h"
#include "tests/whole_model.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

Model small_model() {
  auto model = import_gguf(source_of(small_llama(false).finish()));
  REQUIRE_MESSAGE(model.ok(), model.status().to_string());
  return *model;
}

void check_equal(const Model& a, const Model& b) {
  CHECK(print(a.graph) == print(b.graph));
  CHECK(a.graph.fingerprint() == b.graph.fingerprint());
  CHECK(a.metadata == b.metadata);
  REQUIRE(a.parameters.size() == b.parameters.size());
  for (const auto& [name, tensor] : a.parameters) {
    CAPTURE(name);
    const HostTensor& other = b.parameters.at(name);
    CHECK(tensor.type == other.type);
    CHECK(std::ranges::equal(tensor.data, other.data));
  }
  REQUIRE(a.tokenizer.has_value() == b.tokenizer.has_value());
  if (a.tokenizer) {
    CHECK(a.tokenizer->tokens == b.tokenizer->tokens);
    CHECK(a.tokenizer->scores == b.tokenizer->scores);
    CHECK(a.tokenizer->types == b.tokenizer->types);
    CHECK(a.tokenizer->merges == b.tokenizer->merges);
    CHECK(a.tokenizer->bos == b.tokenizer->bos);
    CHECK(a.tokenizer->add_bos == b.tokenizer->add_bos);
    CHECK(a.tokenizer->add_space_prefix == b.tokenizer->add_space_prefix);
  }
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

// Runs `body` in a child process; its exit status.
template <class Body>
int in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

// A graph of a whole training step's nouns: states, updates, gradients, phases, a frozen parameter.
Graph rich_graph() {
  auto graph = parse_graph(
      "graph {\n"
      "  symbol B; symbol T <= 16\n"
      "  input x: f32[B, T, 8]\n"
      "  parameter w: f32[8, 4]\n"
      "  state m: f32[8, 4]\n"
      "  h = matmul(x, w) : f32[B, T, 4] @scope \"block.0\"\n"
      "  w2 = scale(w) {factor = 0.5} : f32[8, 4]\n"
      "  output y = h\n"
      "  update m <- w2\n"
      "}\n");
  REQUIRE_MESSAGE(graph.ok(), graph.status().to_string());
  return *graph;
}

}  // namespace

TEST_CASE("a_model_comes_back_as_it_was_saved") {
  const Model model = small_model();
  for (bool compress : {false, true}) {
    ScratchFolder folder;
    const std::string path = folder / "m.tsr";
    Status saved = save_model(model, path, {compress});
    REQUIRE_MESSAGE(saved.ok(), saved.to_string());
    auto loaded = load_model(path);
    REQUIRE_MESSAGE(loaded.ok(), loaded.status().to_string());
    check_equal(model, *loaded);
    CHECK(verify_checksums(path).ok());
    CHECK(names_in(folder.path()) == std::vector<std::string>{"m.tsr"});
    auto unmapped = load_model(std::make_shared<UnmappedSource>(read_text_file(path)));
    REQUIRE_MESSAGE(unmapped.ok(), unmapped.status().to_string());
    check_equal(model, *unmapped);
  }
}

TEST_CASE("tensor_data_is_mapped_and_outlives_the_model") {
  ScratchFolder folder;
  REQUIRE(save_model(small_model(), folder / "m.tsr").ok());
  HostTensor tensor;
  {
    auto loaded = load_model(folder / "m.tsr");
    REQUIRE(loaded.ok());
    tensor = loaded->parameters.at("block.1.up");
  }
  CHECK(reinterpret_cast<uintptr_t>(tensor.data.data()) % 64 == 0);
  std::filesystem::remove(folder / "m.tsr");
  CHECK(std::ranges::equal(tensor.data, small_model().parameters.at("block.1.up").data));
}

TEST_CASE("compression_shrinks_what_is_compressible") {
  Model model;
  auto weight = model.graph.add_tensor("w", {DType::kF32, {1000, 1000}}, TensorKind::kParameter);
  REQUIRE(weight.ok());
  std::vector<float> values(1000000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 2654435761u >> 20 & 63);
  model.parameters["w"] = HostTensor::copy_of<float>({DType::kF32, {1000, 1000}}, values);
  ScratchFolder folder;
  REQUIRE(save_model(model, folder / "raw.tsr").ok());
  REQUIRE(save_model(model, folder / "packed.tsr", {true}).ok());
  CHECK(std::filesystem::file_size(folder / "packed.tsr") * 4 <
        std::filesystem::file_size(folder / "raw.tsr"));
  auto loaded = load_model(folder / "packed.tsr");
  REQUIRE_MESSAGE(loaded.ok(), loaded.status().to_string());
  check_equal(model, *loaded);
}

TEST_CASE("state_updates_scopes_and_frozen_parameters_survive") {
  Model model;
  model.graph = rich_graph();
  model.graph.set_trainable(*model.graph.find_tensor("w"), false);
  ScratchFolder folder;
  Status saved = save_model(model, folder / "g.tsr");
  REQUIRE_MESSAGE(saved.ok(), saved.to_string());
  auto loaded = load_model(folder / "g.tsr");
  REQUIRE_MESSAGE(loaded.ok(), loaded.status().to_string());
  check_equal(model, *loaded);
  CHECK(!loaded->graph.tensor(*loaded->graph.find_tensor("w")).trainable);
  CHECK(loaded->graph.nodes()[0].scope == "block.0");
}

TEST_CASE("a_flipped_byte_in_the_data_is_found_by_verify_and_names_the_tensor") {
  ScratchFolder folder;
  const std::string path = folder / "m.tsr";
  REQUIRE(save_model(small_model(), path).ok());
  std::string bytes = read_text_file(path);
  auto loaded = load_model(path);
  REQUIRE(loaded.ok());
  const std::string needle(reinterpret_cast<const char*>(loaded->parameters.at("block.0.gate").data.data()),
                           16);
  const size_t at = bytes.find(needle);
  REQUIRE(at != std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  write_text_file(path, bytes);
  CHECK(load_model(path).ok());  // lazy
  const Status status = verify_checksums(path);
  CHECK(status.code() == StatusCode::kCorrupt);
  CHECK(status.message().find("block.0.gate") != std::string_view::npos);
}

TEST_CASE("a_flipped_byte_anywhere_else_is_refused_on_load") {
  ScratchFolder folder;
  const std::string path = folder / "m.tsr";
  REQUIRE(save_model(small_model(), path).ok());
  const std::string bytes = read_text_file(path);
  Envelope envelope;
  std::memcpy(&envelope, bytes.data(), sizeof envelope);
  auto refused = [&](size_t at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    return !load_model(source_of(damaged)).ok();
  };
  for (size_t at = 0; at < sizeof envelope; ++at) CHECK(refused(at));
  for (size_t at = envelope.index_offset; at < bytes.size(); at += 13) CHECK(refused(at));
}

TEST_CASE("a_model_file_cut_anywhere_is_refused") {
  ScratchFolder folder;
  REQUIRE(save_model(small_model(), folder / "m.tsr").ok());
  const std::string bytes = read_text_file(folder / "m.tsr");
  for (size_t size = 0; size < bytes.size(); size += 31) {
    CHECK(!load_model(source_of(std::string_view(bytes).substr(0, size))).ok());
  }
  CHECK(!load_model(source_of(bytes + "x")).ok());
}

TEST_CASE("a_file_of_a_newer_format_asks_for_a_newer_version") {
  ScratchFolder folder;
  REQUIRE(save_model(small_model(), folder / "m.tsr").ok());
  std::string bytes = read_text_file(folder / "m.tsr");
  Envelope envelope;
  std::memcpy(&envelope, bytes.data(), sizeof envelope);
  envelope.version = kFileVersion + 1;
  envelope.header_xxh3 = xxh3(std::as_bytes(std::span(&envelope, 1)).first(56));
  std::memcpy(bytes.data(), &envelope, sizeof envelope);
  auto loaded = load_model(source_of(bytes));
  REQUIRE(!loaded.ok());
  CHECK(loaded.status().code() == StatusCode::kUnsupported);
  CHECK(loaded.status().message().find("newer") != std::string_view::npos);
}

TEST_CASE("missing_files_and_folders_are_errors_that_name_the_path") {
  auto loaded = load_model("/no/such/file.tsr");
  REQUIRE(!loaded.ok());
  CHECK(loaded.status().code() == StatusCode::kNotFound);
  CHECK(loaded.status().message().find("/no/such/file.tsr") != std::string_view::npos);
  CHECK(!load_model("/tmp").ok());
  CHECK(save_model(small_model(), "/no/such/folder/m.tsr").code() == StatusCode::kNotFound);
}

TEST_CASE("a_file_is_written_where_a_file_may_lie_and_nowhere_else") {
  ScratchFolder folder;
  const Model model = small_model();
  CHECK(save_model(model, "").code() == StatusCode::kInvalidArgument);
  CHECK(save_model(model, folder / "").message().find("is a folder") != std::string::npos);
  // A rename would put a file in the place of a device or pipe.
  const std::string pipe = folder / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(save_model(model, pipe).message().find("device, pipe or socket") != std::string::npos);
  CHECK(std::filesystem::is_fifo(pipe));
  alarm(20);  // reading does not wait for somebody to write
  CHECK(load_model(pipe).status().message().find("is a device, pipe or socket") != std::string::npos);
  alarm(0);
  // A link stays one, and what it leads to is replaced.
  REQUIRE(save_model(model, folder / "real.tsr").ok());
  std::filesystem::resize_file(folder / "real.tsr", 3);
  std::filesystem::create_symlink("real.tsr", folder / "link.tsr");
  REQUIRE(save_model(model, folder / "link.tsr").ok());
  CHECK(std::filesystem::is_symlink(folder / "link.tsr"));
  CHECK(std::filesystem::file_size(folder / "real.tsr") > 3);
}

TEST_CASE("values_that_are_not_the_graphs_are_not_saved") {
  ScratchFolder folder;
  Model model = small_model();
  model.parameters["stranger"] = model.parameters.at("final_norm");
  CHECK(save_model(model, folder / "m.tsr").code() == StatusCode::kInvalidArgument);
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("a_write_that_fails_leaves_the_old_file_and_no_other") {
  ScratchFolder folder;
  const std::string path = folder / "m.tsr";
  const Model model = small_model();
  REQUIRE(save_model(model, path).ok());
  const std::string before = read_text_file(path);
  const int status = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{2048, 2048};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    const Status saved = save_model(model, path);
    return saved.code() == StatusCode::kIo && saved.message().find("cannot write") != std::string_view::npos
               ? 0
               : 1;
  });
  CHECK(status == 0);
  CHECK(read_text_file(path) == before);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"m.tsr"});
}

TEST_CASE("a_full_disk_leaves_the_old_file_and_no_other") {
  ScratchFolder folder;
  const Model model = small_model();
  const int status = in_child([&] {
    if (unshare(CLONE_NEWNS) != 0) return 77;
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
    if (mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=28k") != 0) return 77;
    const std::string path = folder / "m.tsr";
    if (!save_model(model, path).ok()) return 2;
    const std::string before = read_text_file(path);
    const Status saved = save_model(model, path);
    if (saved.code() != StatusCode::kIo || saved.message().find("No space left") == std::string_view::npos)
      return 3;
    if (read_text_file(path) != before) return 4;
    return names_in(folder.path()) == std::vector<std::string>{"m.tsr"} ? 0 : 5;
  });
  if (status == 77) {
    test::skip("mounting a small file system needs privileges");
    return;
  }
  CHECK(status == 0);
}
