// Sequences as values: forked, rewound, saved and restored they go on as if never interrupted; files from anyone are an
// error or a sequence, and the server serves on.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "serialize/envelope.h"
#include "serialize/sequence_file.h"
#include "tests/capi/c_api.h"
#include "tests/capi/hybrid_models.h"
#include "tests/capi/test_server.h"
#include "tests/full.h"

namespace tessera::serving_tests {

namespace {

using Bytes = std::vector<char>;

Bytes contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

void write(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
}

// Returns the bytes with their matching checksum.
Bytes checked(Bytes bytes) {
  if (bytes.size() < 8) return bytes;
  const uint64_t hash = xxh3(std::as_bytes(std::span(bytes)).first(bytes.size() - 8));
  std::memcpy(bytes.data() + bytes.size() - 8, &hash, 8);
  return bytes;
}

KeptSequence restored(TestServer& server, const std::string& path) {
  auto sequence = server.core().restore_sequence(path);
  REQUIRE_MESSAGE(sequence.ok(), sequence.status().to_string());
  return *sequence;
}

void save(TestServer& server, const Tokens& tokens, uint64_t root, const std::string& path) {
  const Status status = server.core().save_sequence(tokens, root, path);
  REQUIRE_MESSAGE(status.ok(), status.to_string());
}

std::string refusal(TestServer& server, const std::string& path, std::optional<uint64_t> root = {}) {
  const auto sequence = server.core().restore_sequence(path, root);
  REQUIRE(!sequence.ok());
  return sequence.status().to_string();
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A text of 30 tokens and 6 more, of which the last has no keys and values yet.
Tokens serve_text(TestServer& server, uint64_t root = 0) {
  uint32_t seed = 21;
  const Tokens prompt = random_tokens(seed, 30, 96);
  return joined(prompt, server.serve({prompt, 6, root}));
}

}  // namespace

TEST_CASE("kept sequences: forks and rewinds go on as texts of their own do") {
  for (const ServingLayout& layout : {kServingLayouts[0], kBlockLayout}) {
    TestServer server(layout.model, settings_of(layout));
    const KeptSequence kept{3, serve_text(server, 3)};
    uint32_t seed = 1;
    for (const size_t size : {36, 33, 32, 31, 9, 8, 7, 1}) {
      CAPTURE(size);
      const Tokens prompt = joined(first(kept.tokens, size), random_tokens(seed, 3, 96));
      const int64_t before = server.counts().reused;
      const Tokens given = server.serve({prompt, 5, kept.root});
      CHECK(server.counts().reused - before >= static_cast<int64_t>(std::min<size_t>(size, 35)));
      CHECK(given == server.serve_alone({prompt, 5}));
    }
  }
}

TEST_CASE(
    "kept sequences: saved and restored they go on as if never interrupted, without being computed again") {
  const capi_test::Scratch folder;
  for (const ServingLayout& layout : kServingLayouts) {
    CAPTURE(std::string(layout.parallel));
    TestServer first_server(layout.model, settings_of(layout));
    const Tokens text = serve_text(first_server, 7);
    save(first_server, text, 7, folder / "a");
    const Tokens more = joined(text, {1, 2, 3});
    const Tokens wanted = first_server.serve({more, 8, 7});

    TestServer second(layout.model, settings_of(layout));
    const KeptSequence sequence = restored(second, folder / "a");
    CHECK(sequence.root == 7);
    CHECK(sequence.tokens == text);
    CHECK(second.counts().free_pages == second.counts().pages);
    CHECK(second.serve({more, 8, 7}) == wanted);
    CHECK(second.counts().reused == 35);
    CHECK(second.counts().tokens == 4 + 7);
  }
}

TEST_CASE("kept sequences: a file fits pages of other sizes and other devices, bit for bit") {
  const capi_test::Scratch folder;
  for (const auto& [cache, model] :
       {std::pair(std::optional<DType>(), kServedModel), std::pair(std::optional(DType::kBF16), kServedModel),
        std::pair(std::optional(DType::kF16), kServedModel),
        std::pair(std::optional(DType::kQ8_0), kBlockModel)}) {
    TestServer origin(model, settings_of({"cpu:1", "", cache}));
    const Tokens text = serve_text(origin);
    save(origin, text, 0, folder / "a");
    const Bytes wanted = contents(folder / "a");
    const std::tuple<const char*, const char*, int64_t> others[] = {
        {"cpu:1", "", 5}, {"cpu:2", "tp=2", 64}, {"cpu:3", "tp=3", 7}, {"cpu:2", "pp=2", 8}};
    for (const auto& [devices, parallel, page_size] : others) {
      CAPTURE(std::string(parallel));
      TestServer other(model, settings_of({devices, parallel, cache}, page_size));
      CHECK(restored(other, folder / "a").tokens == text);
      save(other, text, 0, folder / "b");
      CHECK(contents(folder / "b") == wanted);
    }
  }
}

TEST_CASE("kept sequences: what pages no longer hold is computed again") {
  const capi_test::Scratch folder;
  uint32_t seed = 2;
  TestServer server(kServedModel, settings_of(kServingLayouts[0], 8, 10));
  const Tokens text = serve_text(server);
  const Tokens more = joined(text, {4, 5});
  server.serve({random_tokens(seed, 60, 96), 2});  // in 8 of the 10 pages
  save(server, text, 0, folder / "a");
  auto file = SequenceFileReader::open(folder / "a");
  REQUIRE(file.ok());
  CHECK(file->header().tokens == text);
  CHECK(file->header().cached < 35);
  TestServer other(kServedModel, settings_of(kServingLayouts[0]));
  restored(other, folder / "a");
  CHECK(other.serve({more, 6}) == other.serve_alone({more, 6}));
  CHECK(server.serve({more, 6}) == other.serve_alone({more, 6}));
}

TEST_CASE("kept sequences: restoring leaves pages in use as they are, and takes what is left") {
  const capi_test::Scratch folder;
  TestServer origin(kServedModel, settings_of(kServingLayouts[0]));
  const Tokens text = serve_text(origin);
  save(origin, text, 0, folder / "a");
  uint32_t seed = 3;
  const Asking running{random_tokens(seed, 30, 96), 30};
  for (const int64_t pages : {8, 7, 6, 5, 4}) {
    CAPTURE(pages);
    ServingSettings settings = settings_of(kServingLayouts[0], 8, pages);
    settings.context = 8 * pages < 256 ? 8 * pages : 256;
    TestServer server(kServedModel, settings);
    Asking asked = running;
    asked.count = std::min<int64_t>(30, 8 * pages - 30);
    const int64_t number = server.submit(asked);
    server.step();
    const int64_t free = server.counts().free_pages;
    restored(server, folder / "a");
    CHECK(server.counts().free_pages == free);
    server.finish();
    CHECK(server.given(number) == first(origin.serve_alone(running), static_cast<size_t>(asked.count)));
    restored(server, folder / "a");
    if (pages >= 5) CHECK(server.serve({text, 2}) == origin.serve_alone({text, 2}));
  }
}

TEST_CASE(
    "kept sequences: files of other models, layouts and roots are refused with what was found and wanted") {
  const capi_test::Scratch folder;
  const std::string path = folder / "a";
  TestServer server(kServedModel, settings_of(kServingLayouts[0]));
  save(server, serve_text(server), 5, path);
  TestServer trained(kServedModel, settings_of(kServingLayouts[0]), 1);
  CHECK(has(refusal(trained, path), "it is of the model with fingerprint"));
  TestServer f16_server(kServedModel, settings_of(kServingLayouts[1]));
  CHECK(has(refusal(f16_server, path), "f32[3, 8], wanted 'block.0.attention.k_pages' f16[3, 8]"));
  TestServer blocks(kBlockModel, settings_of(kBlockLayout));
  save(blocks, serve_text(blocks), 5, folder / "q8_0");
  TestServer wide(kBlockModel, settings_of(kServingLayouts[0]));
  CHECK(has(refusal(wide, folder / "q8_0"), "q8_0[3, 32], wanted 'block.0.attention.k_pages' f32[3, 32]"));
  TestServer deep("llama:L=3,C=48,H=6,KV=3,F=48,V=96,T=256", settings_of(kServingLayouts[0]));
  CHECK(has(refusal(deep, path), "4 tensors, wanted 6"));
  CHECK(has(refusal(server, path, 6), "it is of root 5, wanted 6"));
  CHECK(server.core().restore_sequence(path, 5).ok());
  CHECK(has(refusal(server, folder / "none"), "not_found"));

  auto file = SequenceFileReader::open(path);
  REQUIRE(file.ok());
  const auto written = [&](const std::function<void(SequenceHeader&)>& change) {
    SequenceHeader header = file->header();
    header.cached = 0;
    change(header);
    auto other = SequenceFileWriter::create(folder / "b", header);
    REQUIRE(other.ok());
    REQUIRE(other->commit().ok());
    return folder / "b";
  };
  CHECK(has(refusal(server, written([](SequenceHeader& it) { it.tokens[3] = 96; })), "token id 96"));
  CHECK(has(refusal(server, written([](SequenceHeader& it) { it.tokens[3] = -1; })), "token id -1"));
  CHECK(has(refusal(server, written([](SequenceHeader& it) { it.tokens.clear(); })), "no tokens"));
  CHECK(restored(server, written([](SequenceHeader&) {})).root == 5);

  CHECK(has(server.core().save_sequence({}, 0, path).to_string(), "at least one token"));
  CHECK(has(server.core().save_sequence(Tokens{1, 96}, 0, path).to_string(), "token id 96"));
  CHECK(!server.core().save_sequence(Tokens{1}, 0, folder / "no/such").ok());
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) ==
        3);  // nothing is left that is half-written
}

namespace {

void try_mutants(const ServingLayout& layout, int mutants) {
  const capi_test::Scratch folder;
  TestServer server(layout.model, settings_of(layout, 8, 40));
  save(server, serve_text(server), 5, folder / "a");
  const Bytes original = contents(folder / "a");
  uint32_t seed = 99;
  const auto pick = [&](size_t count) { return (size_t{next(seed)} << 20 ^ next(seed)) % count; };
  // Most of the file is rows; the numbers are before them.
  const auto opened = SequenceFileReader::open(folder / "a");
  REQUIRE(opened.ok());
  const SequenceHeader& header = opened->header();
  const size_t numbers = original.size() - static_cast<size_t>(header.all_row_bytes() + header.state_bytes()) - 8;
  int refused = 0;
  for (int i = 0; i < mutants; ++i) {
    CAPTURE(i);
    Bytes bytes = original;
    const uint32_t kind = next(seed) % 5;
    const auto place = [&] { return next(seed) % 4 == 0 ? pick(bytes.size()) : pick(numbers); };
    if (kind == 0)
      for (uint32_t flips = 1 + next(seed) % 3; flips > 0; --flips)
        bytes[place()] ^= static_cast<char>(1 << next(seed) % 8);
    else if (kind == 1)
      bytes.resize(next(seed) % 2 == 0 ? place() : bytes.size() + 1 + pick(100));
    else {
      const uint64_t values[] = {0,
                                 1,
                                 2,
                                 7,
                                 255,
                                 65536,
                                 0x7fffffff,
                                 0x80000000,
                                 0xffffffff,
                                 ~0ull,
                                 ~0ull - 7,
                                 1ull << 63,
                                 1ull << 62,
                                 1ull << 40,
                                 pick(100),
                                 original.size(),
                                 original.size() / 4};
      const size_t width = next(seed) % 2 == 0 ? 4 : 8, at = std::min(place() / 4 * 4, bytes.size() - width);
      const uint64_t value = values[pick(std::size(values))];
      std::memcpy(bytes.data() + at, &value, width);
      if (kind == 3) {  // and the size that the header says
        if (next(seed) % 2 == 0) bytes.resize(std::max<size_t>(24, pick(bytes.size())));
        const uint64_t size = bytes.size();
        std::memcpy(bytes.data() + 16, &size, 8);
      }
      bytes = checked(std::move(bytes));
    }
    write(folder / "m", bytes);
    const auto sequence = server.core().restore_sequence(folder / "m");
    refused += !sequence.ok();
    if (kind < 2 && bytes != original) CHECK(!sequence.ok());
    const ServingCore::Counts counts = server.counts();
    CHECK(counts.free_pages == counts.pages);
    if (i % 50 == 0) {
      const Asking asked{random_tokens(seed, 20, 96), 5};
      CHECK(server.serve_alone(asked) == server.serve_alone(asked));
    }
  }
  CHECK(refused > mutants / 2);
  TestServer fresh(layout.model, settings_of(layout));
  const Asking asked{random_tokens(seed, 40, 96), 8};
  CHECK(server.serve_alone(asked) == fresh.serve(asked));
  CHECK(restored(server, folder / "a").root == 5);
}

}  // namespace

TEST_CASE("kept sequences: mutants of a file are an error or a sequence, and the server serves on") {
  const int mutants = test::full() ? 2500 : 100;  // of each type of pages
  for (const ServingLayout& layout : {kServingLayouts[0], kBlockLayout, ServingLayout{"cpu:1", "", {}, kStates}})
    try_mutants(layout, mutants);
}

}  // namespace tessera::serving_tests
