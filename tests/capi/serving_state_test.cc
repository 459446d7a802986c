// Recurrent layers: a request yields the same as alone, however its prompt is cut, from a snapshot, in a mixed step, with drafts, and
// from a saved sequence; rows of state are never cleared, and hold what the last text left. Random mixes: serving_mixes_test.cc.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/transform/serving.h"
#include "tests/capi/batched_serving.h"
#include "tests/capi/hybrid_models.h"
#include "tests/capi/test_server.h"
#include "tests/full.h"

namespace tessera::serving_tests {

namespace {

std::unique_ptr<ServingCore> core_of(const char* model, const ServingSettings& settings) {
  return new_core(new_runtime(), new_model(model), settings);
}

ServingSettings without_prefixes(ServingSettings settings) {
  settings.shares_prefixes = false;
  return settings;
}

ServingSettings with_drafts(ServingSettings settings) {
  settings.speculates = settings.always_speculates = true;
  return settings;
}

// Few tokens, so that drafts of repetitions are often right.
Tokens repetitions(uint32_t& seed, size_t count) { return random_tokens(seed, count, 3); }

// The bytes of every row of state.
std::vector<std::vector<float>> rows_of(ServingCore& core) {
  std::vector<std::vector<float>> rows;
  for (const std::string& name : row_states(*core.runner().record().entries.front().graph)) {
    const auto state = core.runner().session().read(name);
    REQUIRE_MESSAGE(state.ok(), state.status().to_string());
    const auto values = state->as<float>();
    const auto count = static_cast<size_t>(state->type.shape[0]);
    for (size_t row = 0; row < count; ++row) {
      const auto part = values.subspan(row * (values.size() / count), values.size() / count);
      rows.emplace_back(part.begin(), part.end());
    }
  }
  return rows;
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("serving state: a prompt gives the same tokens however it is cut") {
  uint32_t seed = 3;
  for (const char* const model : kHybrids)
    for (const size_t size : {1, 2, 63, 64, 65, 129}) {
      CAPTURE(std::string(model));
      CAPTURE(size);
      const Asked asked = greedy(random_tokens(seed, static_cast<uint32_t>(size), 96), 8);
      std::vector<Tokens> given;
      for (const int64_t step : {256, 48, 7, 1}) {
        ServingSettings settings = settings_of({"cpu:1", "", {}});
        settings.step_tokens = step;
        settings.rows = 1;
        given.push_back(serve_alone(*core_of(model, settings), asked).tokens);
      }
      for (const Tokens& other : given) CHECK(other == given[0]);
    }
}

TEST_CASE("serving state: a text that goes on from a snapshot, a fork or a beginning has the tokens of its run alone") {
  for (const char* const model : kHybrids) {
    CAPTURE(std::string(model));
    TestServer server(model, settings_of({"cpu:1", "", {}}, 8, 128));
    TestServer alone(model, without_prefixes(settings_of({"cpu:1", "", {}}, 8, 128)));
    uint32_t seed = 9;
    const Tokens prompt = random_tokens(seed, 90, 96);
    const Tokens text = joined(prompt, server.serve({prompt, 30}));
    for (const size_t size : {120, 119, 100, 90, 64, 33, 9, 1}) {
      CAPTURE(size);
      const Tokens asked = joined(first(text, size), random_tokens(seed, 3, 96));
      CHECK(server.serve({asked, 12}) == alone.serve({asked, 12}));
    }
  }
}

TEST_CASE("serving state: the next turn computes its own tokens, and a common beginning is found where requests part") {
  ServingSettings settings = settings_of({"cpu:1", "", {}}, 8, 256);
  settings.snapshots = 16;
  TestServer server(kDelta, settings);
  uint32_t seed = 5;
  const Tokens prompt = random_tokens(seed, 90, 96);
  const Tokens text = joined(prompt, server.serve({prompt, 30}));
  int64_t before = server.counts().reused;
  server.serve({joined(text, {1, 2, 3}), 4});
  CHECK(server.counts().reused - before == std::ssize(text) - 1);  // all that was computed
  // The turn's answer is rendered otherwise: what follows the prompt is computed.
  before = server.counts().reused;
  server.serve({joined(first(prompt, 86), random_tokens(seed, 30, 96)), 4});
  CHECK(server.counts().reused - before == 80);  // 89 - 8, in units of 16
  // Three requests with one beginning: the second finds where the first two part, the third begins there.
  const Tokens common = random_tokens(seed, 57, 96);
  server.serve({joined(common, random_tokens(seed, 20, 96)), 2});
  server.serve({joined(common, random_tokens(seed, 20, 96)), 2});
  before = server.counts().reused;
  server.serve({joined(common, random_tokens(seed, 20, 96)), 2});
  CHECK(server.counts().reused - before >= std::ssize(common) - 1);
}

TEST_CASE("serving state: rows are not cleared, and what they held is not read") {
  for (const char* const model : kHybrids) {
    CAPTURE(std::string(model));
    const auto core = core_of(model, settings_of({"cpu:1", "", {}})), fresh = core_of(model, settings_of({"cpu:1", "", {}}));
    REQUIRE(count_rows(*core) > 0);
    poison_rows(*core, 0, count_rows(*core));
    const std::vector<Asked> asked = requests_alike(4, 8, {100, 50, 30});
    check_each_alone(*fresh, asked, serve(*core, asked));
  }
}

TEST_CASE("serving state: pages whose snapshot is gone are computed again") {
  for (const int64_t snapshots : {0, 1}) {
    ServingSettings settings = settings_of({"cpu:1", "", {}}, 8, 128);
    settings.snapshots = snapshots;
    TestServer server(kDelta, settings), alone(kDelta, without_prefixes(settings_of({"cpu:1", "", {}}, 8, 128)));
    uint32_t seed = 6;
    const Tokens prompt = random_tokens(seed, 60, 96), text = joined(prompt, server.serve({prompt, 9}));
    const Tokens more = joined(text, {1, 2, 3});
    server.serve({random_tokens(seed, 40, 96), 2});  // whose snapshots replace all others
    const int64_t before = server.counts().reused;
    CHECK(server.core().count_cached(0, more) == std::ssize(text) - 1);  // keys and values are there
    CHECK(server.serve({more, 12}) == alone.serve({more, 12}));
    CHECK(server.counts().reused == before);
  }
}

TEST_CASE("serving state: with drafts, a snapshot has the state of its tokens and of no draft") {
  int64_t accepted = 0;
  for (const char* const model : kHybrids) {
    CAPTURE(std::string(model));
    TestServer server(model, with_drafts(settings_of({"cpu:1", "", {}}, 8, 256)));
    TestServer alone(model, without_prefixes(settings_of({"cpu:1", "", {}}, 8, 256)));
    uint32_t seed = 11;
    // Shorter than a page, and one token more than 64: the last step of the prompt is padded.
    for (const size_t size : {1, 3, 7, 8, 9, 63, 64, 65}) {
      CAPTURE(size);
      const Tokens prompt = repetitions(seed, size), given = server.serve({prompt, 21});
      CHECK(given == alone.serve({prompt, 21}));
      for (const size_t taken : {size_t{21}, size_t{20}, size_t{12}, size_t{0}}) {
        const Tokens more = joined(joined(prompt, first(given, taken)), repetitions(seed, 2));
        const int64_t before = server.counts().reused;
        CHECK(server.serve({more, 12}) == alone.serve({more, 12}));
        if (taken == 21) CHECK(server.counts().reused - before >= std::ssize(prompt) - 1);
      }
    }
    CHECK(server.counts().drafted > server.counts().accepted);
    accepted += server.counts().accepted;
  }
  CHECK(accepted > 0);  // of some model: sampled tokens are seldom those drafted
}

TEST_CASE("serving state: padding and waiting requests leave every row as it is") {
  for (const char* const model : kHybrids) {
    CAPTURE(std::string(model));
    TestServer server(model, settings_of({"cpu:1", "", {}}, 8, 128));
    uint32_t seed = 12;
    server.submit({random_tokens(seed, 5, 96), 30});
    server.step();  // up to the last token of the prompt
    server.step();  // which copies the state to a snapshot
    for (int step = 0; step < 6; ++step) {
      const auto before = rows_of(server.core());
      server.step();
      const auto after = rows_of(server.core());
      const auto states = row_states(*server.core().runner().record().entries.front().graph).size();
      size_t changed = 0;
      for (size_t row = 0; row < before.size(); ++row)
        changed += std::memcmp(before[row].data(), after[row].data(), before[row].size() * sizeof(float)) != 0;
      CHECK(changed == states);  // its own
    }
    server.finish();
  }
}

TEST_CASE("serving state: a prompt in pieces, in steps with others' tokens, leaves its snapshots") {
  for (const char* const model : kHybrids) {
    CAPTURE(std::string(model));
    ServingSettings settings = settings_of({"cpu:1", "", {}}, 8, 256);
    settings.step_tokens = 10;
    settings.snapshots = 24;
    TestServer server(model, settings), alone(model, without_prefixes(settings_of({"cpu:1", "", {}}, 8, 256)));
    uint32_t seed = 13;
    const Asking talking{random_tokens(seed, 9, 96), 60};
    const Tokens left = random_tokens(seed, 77, 96), right = random_tokens(seed, 53, 96);
    const int64_t number = server.submit(talking);
    server.step();
    server.step();
    const int64_t of_left = server.submit({left, 3}), of_right = server.submit({right, 3});
    server.finish();
    CHECK(server.given(number) == alone.serve(talking));
    CHECK(server.given(of_left) == alone.serve({left, 3}));
    CHECK(server.given(of_right) == alone.serve({right, 3}));
    for (const Tokens& prompt : {left, right}) {
      const int64_t before = server.counts().reused;
      const Tokens more = joined(prompt, random_tokens(seed, 4, 96));
      CHECK(server.serve({more, 8}) == alone.serve({more, 8}));
      CHECK(server.counts().reused - before >= std::ssize(prompt) - 1);
    }
  }
}

TEST_CASE("serving state: a text goes on from every token around a page's border") {
  for (const char* const model : kHybrids) {
    CAPTURE(std::string(model));
    ServingSettings settings = settings_of({"cpu:1", "", {}}, 8, 256);
    settings.snapshots = 64;
    TestServer server(model, settings), alone(model, without_prefixes(settings));
    uint32_t seed = 14;
    for (size_t count = 7; count <= 18; ++count) {
      CAPTURE(count);
      const Tokens prompt = random_tokens(seed, count, 96), text = joined(prompt, server.serve({prompt, 4}));
      for (const size_t size : {text.size(), text.size() - 1, prompt.size(), prompt.size() - 1}) {
        const Tokens more = joined(first(text, size), {5, 6});
        CHECK(server.serve({more, 4}) == alone.serve({more, 4}));
      }
    }
  }
}

TEST_CASE("serving state: saved and restored, sequences go on without being computed again, anywhere") {
  const capi_test::Scratch folder;
  uint32_t seed = 15;
  const ServingLayout layouts[] = {{"cpu:1", "", {}}, {"cpu:2", "tp=2", {}}, {"cpu:3", "tp=3", {}}, {"cpu:2", "pp=2", {}}};
  for (const char* const model : kHybrids) {
    CAPTURE(std::string(model));
    TestServer origin(model, settings_of(layouts[0], 8, 128));
    const Tokens prompt = random_tokens(seed, 43, 96);
    const int64_t number = origin.submit({prompt, 12});
    for (int step = 0; step < 6; ++step) origin.step();  // in the middle of the text
    REQUIRE(origin.core().save_sequence(joined(prompt, origin.given(number)), 0, folder / "middle").ok());
    origin.finish();
    const Tokens text = joined(prompt, origin.given(number)), more = joined(text, {1, 2, 3});
    REQUIRE(origin.core().save_sequence(text, 0, folder / "end").ok());
    const Tokens wanted = origin.serve({more, 20});
    for (const auto& [file, cached] : {std::pair("middle", 42), std::pair("end", 54)}) {
      CAPTURE(std::string(file));
      const auto opened = SequenceFileReader::open(folder / file);
      REQUIRE(opened.ok());
      CHECK(opened->header().cached == cached);
      CHECK(!opened->header().rows.empty());
      for (size_t i = 0; i < std::size(layouts); ++i) {
        if (i > 0 && model != kDelta && (i > 1 || !test::full())) continue;
        CAPTURE(std::string(layouts[i].parallel));
        TestServer other(model, settings_of(layouts[i], i == 0 ? 8 : 5, 128));
        poison_rows(other.core(), 0, count_rows(other.core()));
        const auto restored = other.core().restore_sequence(folder / file);
        REQUIRE_MESSAGE(restored.ok(), restored.status().to_string());
        CHECK(other.counts().free_pages == other.counts().pages);
        REQUIRE(other.core().save_sequence(restored->tokens, 0, folder / "again").ok());
        CHECK(contents(folder / "again") == contents(folder / file));
        CHECK(other.serve({more, 20}) == wanted);
        CHECK(other.counts().reused == cached);
        CHECK(other.counts().tokens == std::ssize(more) - cached + 19);
      }
    }
  }
}

TEST_CASE("serving state: files of other states are refused, and files without states are computed") {
  const capi_test::Scratch folder;
  TestServer server(kStates, settings_of({"cpu:1", "", {}}));
  uint32_t seed = 16;
  const Tokens prompt = random_tokens(seed, 30, 96), text = joined(prompt, server.serve({prompt, 6}));
  REQUIRE(server.core().save_sequence(text, 0, folder / "a").ok());
  const auto refusal = [&](TestServer& other) {
    const auto restored = other.core().restore_sequence(folder / "a");
    REQUIRE(!restored.ok());
    return restored.status().to_string();
  };
  TestServer wide("granitehybrid:L=3,C=48,H=6,KV=6,F=48,HS=6,GS=6,VS=8,KS=8,V=96,T=256,recurrent=1|1|0,conv_bias",
                  settings_of({"cpu:1", "", {}}));
  const std::string sizes = refusal(wide);
  const char* const wanted = "'block.0.recurrence.conv_rows' f32[3, 24], wanted 'block.0.recurrence.conv_rows' f32[3, 48]";
  CHECK_MESSAGE(sizes.find(wanted) != std::string::npos, sizes);  // six groups of 4, and of 8
  TestServer fewer("granitehybrid:L=3,C=48,H=6,KV=6,F=48,HS=6,GS=6,VS=8,KS=4,V=96,T=256,recurrent=1|0|0,conv_bias",
                   settings_of({"cpu:1", "", {}}));
  const std::string layers = refusal(fewer);
  CHECK_MESSAGE(layers.find("wanted") != std::string::npos, layers);
  TestServer trained(kStates, settings_of({"cpu:1", "", {}}), 1);
  CHECK(refusal(trained).find("it is of the model with fingerprint") != std::string::npos);

  // As earlier versions wrote it: without states.
  auto file = SequenceFileReader::open(folder / "a");
  REQUIRE(file.ok());
  SequenceHeader header = file->header();
  header.rows.clear();
  std::vector<std::byte> rows(static_cast<size_t>(header.all_row_bytes()));
  REQUIRE(file->read_rows(rows).ok());
  auto old = SequenceFileWriter::create(folder / "old", header);
  REQUIRE(old.ok());
  REQUIRE(old->append(rows).ok());
  REQUIRE(old->commit().ok());
  TestServer other(kStates, settings_of({"cpu:1", "", {}}));
  REQUIRE(other.core().restore_sequence(folder / "old").ok());
  const Tokens more = joined(text, {1, 2});
  CHECK(other.serve({more, 9}) == server.serve({more, 9}));
  CHECK(other.counts().reused == 0);
}

TEST_CASE("serving state: what cannot be kept with recurrent layers is refused by name") {
  ServingSettings settings = settings_of({"cpu:1", "", {}});
  settings.speculates = true;
  settings.draft = new_model(kDelta, 3);
  const auto drafted = ServingCore::create(new_runtime(), new_model(kDelta), settings);
  REQUIRE(!drafted.ok());
  CHECK(drafted.status().message().find("draft_model") != std::string::npos);
  settings = settings_of({"cpu:1", "", {}});
  settings.snapshots = 4;
  const auto plain = ServingCore::create(new_runtime(), new_model("llama:L=1,C=48,H=6,F=48,V=96,T=64"), settings);
  REQUIRE(!plain.ok());
  CHECK(plain.status().message().find("state_snapshots") != std::string::npos);
}

}  // namespace tessera::serving_tests
