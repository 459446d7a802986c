// Models in several GGUF files.
#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include "graph/base/status_codes.h"
#include "graph/base/text.h"
#include "serialize/import/gguf_file.h"
#include "serialize/model.h"
#include "serialize/opened_model.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/serialize/test_data.h"
#include "tests/whole_model.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

std::string part_name(size_t number, size_t count) {
  return format("small-0000{}-of-0000{}.gguf", number, count);
}

void write_parts(const ScratchFolder& folder, const std::vector<GgufBuilder>& parts) {
  for (size_t i = 0; i < parts.size(); ++i)
    write_text_file(folder / part_name(i + 1, parts.size()), parts[i].finish());
}

Result<OpenedModel> open_path(const std::string& path) {
  TSR_ASSIGN_OR_RETURN(auto source, open_file(path));
  return open_model(std::move(source));
}

bool same_bytes(const HostTensor& a, const HostTensor& b) {
  return a.type == b.type && a.data.size() == b.data.size() &&
         std::memcmp(a.data.data(), b.data.data(), a.data.size()) == 0;
}

}  // namespace

TEST_CASE("a_model_in_several_files_opens_from_any_of_them_and_stays_mapped") {
  const auto whole = import_gguf(source_of(small_llama(false).finish()));
  REQUIRE(whole.ok());
  for (const bool no_tensor_first : {false, true}) {
    const ScratchFolder folder;
    write_parts(folder, small_llama_parts(3, no_tensor_first));
    for (size_t given = 1; given <= 3; ++given) {
      CAPTURE(given);
      auto opened = open_path(folder / part_name(given, 3));
      REQUIRE_MESSAGE(opened.ok(), opened.status().to_string());
      const auto source = opened->model.source;
      int64_t bytes = 0;
      std::vector<std::string> paths;
      for (size_t i = 1; i <= 3; ++i) {
        paths.push_back(folder / part_name(i, 3));
        bytes += static_cast<int64_t>(std::filesystem::file_size(paths.back()));
      }
      CHECK(source->paths() == paths);
      CHECK(source->size() == bytes);
      CHECK(opened->model.graph.fingerprint() == whole->graph.fingerprint());
      CHECK(opened->model.metadata == whole->metadata);
      CHECK(opened->model.origin.files == 3);
      REQUIRE(opened->model.origin.stored.size() == 1);
      CHECK(opened->model.origin.stored[0].tensors == 21);
      CHECK(opened->model.origin.stored[0].bytes == whole->origin.stored[0].bytes);
      CHECK(opened->model.tokenizer->tokens == whole->tokenizer->tokens);
      REQUIRE(opened->parameters.size() == whole->parameters.size());
      for (const TensorSource& parameter : opened->parameters) {
        CAPTURE(parameter.name);
        CHECK(parameter.in_place.keep_alive == source);
        CHECK(same_bytes(parameter.in_place, whole->parameters.at(parameter.name)));
        std::vector<std::byte> read(parameter.in_place.data.size());
        REQUIRE(parameter.read(0, read).ok());
        CHECK(std::memcmp(read.data(), parameter.in_place.data.data(), read.size()) == 0);
        source->drop(parameter.in_place.data);
        CHECK(same_bytes(parameter.in_place, whole->parameters.at(parameter.name)));
      }
      auto metadata = open_gguf_metadata(*open_file(folder / part_name(given, 3)));
      REQUIRE_MESSAGE(metadata.ok(), metadata.status().to_string());
      CHECK(metadata->has("tokenizer.ggml.tokens"));
    }
  }
}

TEST_CASE("a_part_alone_in_memory_is_refused_with_the_remedy") {
  for (const GgufBuilder& part : small_llama_parts(2)) {
    const auto opened = open_model(source_of(part.finish()));
    CHECK(opened.status().code() == StatusCode::kUnsupported);
    CHECK(opened.status().message().find("load it by its path, or merge") != std::string_view::npos);
  }
  // A model whose file says that it is not split.
  for (const uint16_t count : {0, 1}) {
    GgufBuilder w = small_llama(false);
    CHECK(open_model(source_of(put_split_keys(w, {0, count, 21}).finish())).ok());
  }
}

TEST_CASE("parts_that_do_not_belong_together_are_refused_by_name") {
  struct Row {
    const char* what;
    std::function<void(const ScratchFolder&)> spoil;
    size_t given;  // number of the part that is opened
    StatusCode code;
    std::vector<std::string> words;
  };
  const auto rewrite = [](size_t number, const std::function<void(std::vector<GgufBuilder>&)>& change) {
    return [=](const ScratchFolder& folder) {
      std::vector<GgufBuilder> parts = small_llama_parts(3);
      change(parts);
      write_text_file(folder / part_name(number, 3), parts[number - 1].finish());
    };
  };
  const auto with_keys = [&](size_t number, SplitKeys keys) {
    return rewrite(number, [=](std::vector<GgufBuilder>& parts) {
      parts[number - 1] = number == 1 ? small_llama_metadata() : GgufBuilder();
      put_split_keys(parts[number - 1], keys);
    });
  };
  const std::string second = part_name(2, 3), first = part_name(1, 3);
  const Row rows[] = {
      {"a missing part",
       [&](const ScratchFolder& folder) { std::filesystem::remove(folder / second); },
       1,
       StatusCode::kNotFound,
       {"part 2 of 3 of the model is missing: wanted ", second}},
      {"a missing first part",
       [&](const ScratchFolder& folder) { std::filesystem::remove(folder / first); },
       3,
       StatusCode::kNotFound,
       {"part 1 of 3 of the model is missing: wanted ", first}},
      {"a folder in a part's place",
       [&](const ScratchFolder& folder) {
         std::filesystem::remove(folder / second);
         std::filesystem::create_directory(folder / second);
       },
       1,
       StatusCode::kInvalidArgument,
       {second, "is a folder"}},
      {"a part cut short",
       [&](const ScratchFolder& folder) {
         std::filesystem::resize_file(folder / second, std::filesystem::file_size(folder / second) - 1);
       },
       1,
       StatusCode::kCorrupt,
       {second, "but the file has "}},
      {"no GGUF file",
       [&](const ScratchFolder& folder) { write_text_file(folder / second, "gone"); },
       1,
       StatusCode::kCorrupt,
       {second, "not a GGUF file"}},
      {"another count",
       with_keys(2, {1, 4, 21}),
       1,
       StatusCode::kCorrupt,
       {second, "part 2 of 4", "split.count 4", "wanted part 2 of 3"}},
      {"another number",
       with_keys(2, {2, 3, 21}),
       1,
       StatusCode::kCorrupt,
       {second, "part 3 of 3", "split.no 2", "wanted part 2 of 3"}},
      {"no part at all",
       rewrite(2, [](std::vector<GgufBuilder>& parts) { parts[1] = GgufBuilder(); }),
       1,
       StatusCode::kCorrupt,
       {second, "part 1 of 1", "wanted part 2 of 3"}},
      {"a number beyond the count",
       with_keys(2, {3, 3, 21}),
       1,
       StatusCode::kCorrupt,
       {second, "split.no is 3 of 3 parts", "wanted 0 to 2"}},
      {"the number of another name",
       with_keys(1, {1, 3, 21}),
       1,
       StatusCode::kInvalidArgument,
       {first, "is part 2 of a model in 3 files", "wanted a name that ends with -00002-of-00003.gguf"}},
      {"a tensor twice",
       rewrite(2, [](std::vector<GgufBuilder>& parts) { parts[1].tensor_f32("token_embd.weight", {1}, {1}); }),
       1,
       StatusCode::kCorrupt,
       {"tensor 'token_embd.weight' is in two parts of the model: ", first, second}},
      {"a tensor more",
       rewrite(2, [](std::vector<GgufBuilder>& parts) { parts[1].tensor_f32("more", {1}, {1}); }),
       1,
       StatusCode::kCorrupt,
       {first, "split.tensors.count is 21, but the 3 parts hold 22 tensors together"}},
      {"a tensor in the place of another",
       rewrite(2,
               [](std::vector<GgufBuilder>& parts) {
                 parts[1] = GgufBuilder();
                 put_split_keys(parts[1], {1, 3, 21});
                 for (int i = 0; i < 6; ++i) parts[1].tensor_f32(format("x{}", i), {1}, {1});
                 parts[1].tensor_f32("token_embd.weight", {1}, {1});
               }),
       1,
       StatusCode::kCorrupt,
       {"tensor 'token_embd.weight' is in two parts of the model: ", first, second}},
      {"another count of tensors",
       with_keys(2, {1, 3, 14}),
       1,
       StatusCode::kCorrupt,
       {first, "split.tensors.count is 21, but the 3 parts hold 14 tensors"}},
      {"parts that count otherwise",
       rewrite(3,
               [](std::vector<GgufBuilder>& parts) {
                 GgufBuilder w;
                 put_split_keys(w, {2, 3, 20});
                 for (int i = 0; i < 7; ++i) w.tensor_f32(format("x{}", i), {1}, {1});
                 parts[2] = w;
               }),
       1,
       StatusCode::kCorrupt,
       {part_name(3, 3), "split.tensors.count is 20, but the 3 parts hold 21 tensors"}},
      {"no count of tensors",
       rewrite(1,
               [](std::vector<GgufBuilder>& parts) {
                 parts[0] = small_llama_metadata();
                 parts[0].scalar("split.no", 2, uint16_t{0}).scalar("split.count", 2, uint16_t{3});
               }),
       1,
       StatusCode::kCorrupt,
       {first, "'split.tensors.count' is missing"}},
      {"a count that is text",
       rewrite(1,
               [](std::vector<GgufBuilder>& parts) {
                 parts[0] = small_llama_metadata();
                 parts[0].text("split.count", "three");
               }),
       1,
       StatusCode::kCorrupt,
       {"'split.count' is not an integer"}},
      {"a count below zero",
       rewrite(1,
               [](std::vector<GgufBuilder>& parts) {
                 parts[0] = small_llama_metadata();
                 parts[0].scalar("split.count", 5, int32_t{-3});
               }),
       1,
       StatusCode::kCorrupt,
       {"split.count is -3; wanted 0 to 65535"}},
      {"the most parts",
       rewrite(1,
               [](std::vector<GgufBuilder>& parts) {
                 parts[0] = small_llama_metadata();
                 put_split_keys(parts[0], {0, 65535, 21});
               }),
       1,
       StatusCode::kInvalidArgument,
       {"wanted a name that ends with -00001-of-65535.gguf"}},
  };
  for (const Row& row : rows) {
    CAPTURE(std::string(row.what));
    const ScratchFolder folder;
    write_parts(folder, small_llama_parts(3));
    row.spoil(folder);
    const auto opened = open_path(folder / part_name(row.given, 3));
    CAPTURE(opened.status().to_string());
    CHECK(opened.status().code() == row.code);
    for (const std::string& words : row.words) {
      CAPTURE(words);
      CHECK(opened.status().message().find(words) != std::string_view::npos);
    }
  }
}

TEST_CASE("a_part_written_to_after_it_was_opened_is_told_apart") {
  const ScratchFolder folder;
  write_parts(folder, small_llama_parts(3));
  const auto opened = open_path(folder / part_name(1, 3));
  REQUIRE(opened.ok());
  CHECK(opened->model.source->unchanged().ok());
  write_text_file(folder / part_name(3, 3), "other");
  const Status status = opened->model.source->unchanged();
  CHECK(status.code() == kChanged);
  CHECK(status.message().find(part_name(3, 3)) != std::string_view::npos);
}

TEST_CASE("joined_sources_read_across_their_ends_and_map_within_them") {
  const auto joined = join_sources({source_of("abc"), source_of(""), source_of("defg")});
  REQUIRE(joined.ok());
  const auto read = [&](int64_t offset, size_t bytes) {
    std::string text(bytes, '\0');
    const Status status = (*joined)->read_at(offset, std::as_writable_bytes(std::span(text)));
    return status.ok() ? text : "error";
  };
  CHECK((*joined)->size() == 7);
  CHECK((*joined)->paths().empty());
  CHECK(read(0, 7) == "abcdefg");
  CHECK(read(2, 2) == "cd");
  CHECK(read(3, 4) == "defg");
  CHECK(read(7, 0).empty());
  CHECK(read(4, 4) == "error");
  CHECK(read(-1, 2) == "error");
  CHECK((*joined)->map(3, 4).size() == 4);
  CHECK((*joined)->map(0, 3).size() == 3);
  CHECK((*joined)->map(2, 2).empty());
  CHECK((*joined)->map(6, 2).empty());
}
