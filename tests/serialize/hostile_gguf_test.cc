// GGUF files that lie: each is an error with a reason, at once, and without memory beyond the file's size.
#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <new>
#include <vector>

#include "serialize/import/gguf_file.h"
#include "serialize/model.h"
#include "tests/serialize/address_limit.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/whole_model.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

struct Row {
  std::string_view what;
  std::string file;
  StatusCode code;
  std::string_view words;
};

// Imports the file, vocabulary and all.
Status import_all(const std::string& file) {
  TSR_ASSIGN_OR_RETURN(const Model model, import_gguf(source_of(file)));
  if (!model.tokenizer) return {};
  return Tokenizer::create(*model.tokenizer).status();
}

void check_rows(const std::vector<Row>& rows) {
  const AddressLimit limit;
  for (const Row& row : rows) {
    CAPTURE(std::string(row.what));
    const auto begin = std::chrono::steady_clock::now();
    const Status status = import_all(row.file);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    CAPTURE(status.to_string());
    CHECK(status.code() == row.code);
    CHECK(status.message().find(row.words) != std::string_view::npos);
    CHECK(elapsed.count() < 1);
  }
}

// Whether an allocation of `bytes` throws.
bool is_refused(size_t bytes) {
  try {
    return std::vector<char>(bytes).empty();
  } catch (const std::bad_alloc&) {
    return true;
  }
}

template <class... Numbers>
std::string packed(Numbers... numbers) {
  std::string bytes;
  const auto put = [&](auto number) {
    char raw[sizeof number];
    std::memcpy(raw, &number, sizeof number);
    bytes.append(raw, sizeof number);
  };
  (put(numbers), ...);
  return bytes;
}

std::string packed_text(std::string_view text) { return packed(uint64_t{text.size()}) + std::string(text); }

constexpr uint64_t k2to60 = uint64_t{1} << 60, k2to62 = uint64_t{1} << 62, k2to63 = uint64_t{1} << 63;
constexpr StatusCode kCorrupt = StatusCode::kCorrupt, kUnsupported = StatusCode::kUnsupported;

using Change = std::function<void(GgufBuilder&)>;

// The little llama, and what `change` adds.
std::string changed(const Change& change) {
  GgufBuilder w = small_llama(false);
  change(w);
  return w.finish();
}

// The little llama with `key` as `change` writes it.
std::string rekeyed(std::string_view key, const Change& change) {
  GgufBuilder w = small_llama_metadata(key);
  change(w);
  small_llama_tensors(false, &w);
  return w.finish();
}

std::string with_u64(std::string_view key, uint64_t value) {
  return rekeyed(key, [=](GgufBuilder& w) { w.scalar(key, 10, value); });
}

std::string with_tensor(const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
  return changed([&](GgufBuilder& w) { w.tensor_at("extra", type, dims, offset, ""); });
}

// The little llama with one of its tensors in another shape, whose data is there.
std::string reshaped(std::string_view name, const std::vector<uint64_t>& dims) {
  GgufBuilder w = small_llama(false, name);
  uint64_t count = 1;
  for (const uint64_t dim : dims) count *= dim;
  w.tensor_f32(name, dims, std::vector<float>(count));
  return w.finish();
}

// A model without tensors but with a vocabulary of three tokens, of which `change` may tell more.
Status tokenizer_status(std::string_view model, std::string_view left_out, const Change& change) {
  GgufBuilder w;
  w.text("tokenizer.ggml.model", model);
  if (left_out != "tokens") w.texts("tokenizer.ggml.tokens", {"<unk>", "a", "b"});
  if (left_out != "scores" && model == "llama")
    w.numbers("tokenizer.ggml.scores", 6, std::vector<float>{0, -1, -2});
  if (model == "gpt2") w.text("tokenizer.ggml.pre", "gpt-2");
  change(w);
  const std::string file = w.finish();
  const AddressLimit limit;
  TSR_ASSIGN_OR_RETURN(const GgufFile opened, GgufFile::open(source_of(file)));
  TSR_ASSIGN_OR_RETURN(const std::optional<TokenizerData> data, gguf_tokenizer(opened));
  TSR_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::create(*data));
  tokenizer->decode(*tokenizer->encode("ab <0x-1> <unk>"));  // what is accepted works
  return {};
}

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("the_limit_of_these_tests_refuses_what_is_too_large") {
  CHECK(!is_refused(size_t{96} << 20));
  const AddressLimit limit;
  CHECK(is_refused(size_t{96} << 20));
}
#endif

TEST_CASE("headers_and_keys_that_lie_are_refused_at_once") {
  std::string deep = packed_text("deep") + packed(uint32_t{9});
  for (int i = 0; i < 10000; ++i) deep += packed(uint32_t{9}, uint64_t{1});
  deep += packed(uint32_t{0}, uint64_t{0});
  const auto array = [](uint32_t element, uint64_t count) {
    return changed([=](GgufBuilder& w) { w.array_head("many", element, count); });
  };
  const auto alignment = [](uint64_t value) {
    return changed([=](GgufBuilder& w) { w.scalar("general.alignment", 10, value); });
  };
  GgufBuilder future = small_llama(false);
  future.version = 4;
  GgufBuilder old = small_llama(false);
  old.version = 0;
  GgufBuilder tensors = small_llama(false);
  tensors.tensor_count = ~uint64_t{0};
  check_rows({
      {"version 4", future.finish(), kUnsupported, "GGUF version 4; versions 2 and 3"},
      {"version 0", old.finish(), kUnsupported, "GGUF version 0; versions 2 and 3"},
      {"2^64 - 1 tensors", tensors.finish(), kCorrupt, "18446744073709551615 tensors do not fit"},
      {"a key of 2^64 - 1 bytes", changed([](GgufBuilder& w) { w.metadata_bytes(packed(~uint64_t{0})); }),
       kCorrupt, "names have 1 to 65535"},
      {"an empty key", changed([](GgufBuilder& w) { w.u32("", 1); }), kCorrupt, "has 0 bytes"},
      {"a key of 65536 bytes", changed([](GgufBuilder& w) { w.u32(std::string(65536, 'k'), 1); }), kCorrupt,
       "has 65536 bytes"},
      {"2^60 bytes", array(0, k2to60), kCorrupt, "'many' has 1152921504606846976 elements of 1 bytes"},
      {"numbers whose bytes wrap to 0", array(12, uint64_t{1} << 61), kCorrupt, "elements of 8 bytes"},
      {"2^60 strings", array(8, k2to60), kCorrupt, "'many'"},
      {"2^60 arrays", array(9, k2to60), kCorrupt, "'many'"},
      {"2^60 elements of no known type", array(13, k2to60), kCorrupt, "'many'"},
      {"elements of no known type", array(13, 2), kCorrupt, "unknown type 13"},
      {"10,000 nested arrays", changed([&](GgufBuilder& w) { w.metadata_bytes(deep); }), kCorrupt,
       "'deep' nests more than 4 arrays"},
      {"a text of 2^60 bytes",
       changed([](GgufBuilder& w) { w.metadata_bytes(packed_text("long") + packed(uint32_t{8}, k2to60)); }),
       kCorrupt, "long at offset"},
      {"a text whose end wraps", changed([](GgufBuilder& w) {
         w.metadata_bytes(packed_text("long") + packed(uint32_t{8}, ~uint64_t{7}));
       }),
       kCorrupt, "long at offset"},
      {"alignment 0", alignment(0), kCorrupt, "general.alignment is 0; wanted a power of two up to 1048576"},
      {"alignment 13", alignment(13), kCorrupt, "general.alignment is 13"},
      {"alignment 2^31", alignment(uint64_t{1} << 31), kCorrupt, "general.alignment is 2147483648"},
      {"alignment 2^62", alignment(k2to62), kCorrupt, "general.alignment is 4611686018427387904"},
      {"alignment 2^63", alignment(k2to63), kCorrupt, "'general.alignment' is not an integer"},
      {"alignment below 0", changed([](GgufBuilder& w) { w.scalar("general.alignment", 5, int32_t{-32}); }),
       kCorrupt, "general.alignment is -32"},
      {"alignment in words", changed([](GgufBuilder& w) { w.text("general.alignment", "32"); }), kCorrupt,
       "'general.alignment' is not an integer"},
      {"alignment of many", changed([](GgufBuilder& w) { w.array_head("general.alignment", 4, 0); }), kCorrupt,
       "'general.alignment' is not an integer"},
  });
}

TEST_CASE("tensors_that_lie_are_refused_at_once") {
  const uint64_t largest = static_cast<uint64_t>(INT64_MAX) / 256 * 256;
  const std::string named = packed_text("extra");
  // 24 bytes of header, and a tensor of 41: nothing else.
  GgufBuilder zero;
  zero.alignment = 1;
  zero.tensor_bytes(packed(uint64_t{9}) + "tensor.xy" +
                    packed(uint32_t{1}, uint64_t{0}, uint32_t{2}, uint64_t{0}));
  REQUIRE(zero.finish().size() == 65);
  const auto two_large = changed([](GgufBuilder& w) {
    w.tensor_at("first", 0, {uint64_t{1} << 60}, 0, "");
    w.tensor_at("second", 0, {uint64_t{1} << 60}, k2to62, "");
  });
  check_rows({
      {"65 bytes with a dimension of 0", zero.finish(), kCorrupt,
       "'tensor.xy' is 0 bytes at 96, but the file has 65"},
      {"a dimension of 0", with_tensor({0}, 0, 0), kUnsupported, "'extra' has no place"},
      {"a dimension of 0 under blocks", with_tensor({0, 5}, 8, 0), kUnsupported, "'extra' has no place"},
      {"0 of the largest dimension", with_tensor({0, INT64_MAX, INT64_MAX}, 12, 0), kUnsupported, "no place"},
      {"a dimension of 2^63", with_tensor({k2to63}, 0, 0), kCorrupt, "too many elements: dim 0"},
      {"a dimension of 2^64 - 1", with_tensor({~uint64_t{0}}, 0, 0), kCorrupt, "too many elements"},
      {"dimensions whose product wraps to 0", with_tensor({uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0),
       kCorrupt, "too many elements: dim 1"},
      {"bytes that wrap to 0", with_tensor({k2to62}, 0, 0), kCorrupt, "too many bytes"},
      {"bytes of blocks that wrap", with_tensor({largest}, 8, 0), kCorrupt, "too many bytes"},
      {"the most blocks", with_tensor({largest}, 12, 0), kCorrupt, "but the file has"},
      {"two tensors whose sum wraps", two_large, kCorrupt, "but the file has"},
      {"rows of 31 in blocks of 32", with_tensor({31, 32}, 2, 0), kCorrupt,
       "rows of 31 elements; q4_0 comes in blocks of 32"},
      {"rows of 128 in blocks of 256", with_tensor({128, 2}, 12, 0), kCorrupt, "q4_k comes in blocks of 256"},
      {"rows of 32 in blocks of 64", with_tensor({32, 2}, 40, 0), kCorrupt, "nvfp4 comes in blocks of 64"},
      {"no row in blocks", with_tensor({}, 8, 0), kCorrupt, "rows of 1 elements"},
      {"an offset past the end", with_tensor({8}, 0, 1 << 20), kCorrupt, "but the file has"},
      {"an offset that wraps with the data's", with_tensor({8}, 0, uint64_t{INT64_MAX} - 31), kCorrupt,
       "beyond the file"},
      {"an offset of 2^63", with_tensor({8}, 0, k2to63), kCorrupt, "'extra' starts at 9223372036854775808"},
      {"an offset that is no multiple", with_tensor({8}, 0, 16), kCorrupt, "no multiple of 32"},
      {"a name of 2^64 - 1 bytes", changed([](GgufBuilder& w) { w.tensor_bytes(packed(~uint64_t{0})); }),
       kCorrupt, "names have 1 to"},
      {"2^32 - 1 dimensions", changed([&](GgufBuilder& w) {
         w.tensor_bytes(named + packed(~uint32_t{0}, uint64_t{1}, uint64_t{1}));
       }),
       kCorrupt, "4294967295 dims; at most 4"},
      {"layer 2^29", changed([](GgufBuilder& w) {
         w.tensor_f32("blk.536870912.attn_q.weight", {8, 8}, std::vector<float>(64));
       }),
       kUnsupported, "'blk.536870912.attn_q.weight' has no place"},
      {"layer -1", changed([](GgufBuilder& w) {
         w.tensor_f32("blk.-1.attn_q.weight", {8, 8}, std::vector<float>(64));
       }),
       kUnsupported, "'blk.-1.attn_q.weight' has no place"},
      {"no token", reshaped("token_embd.weight", {8, 0}), StatusCode::kInvalidArgument,
       "size V is 0, wanted 1 to"},
      {"tokens of no width", reshaped("token_embd.weight", {0, 12}), kCorrupt, "token_embd.weight"},
      {"an embedding of one dim", reshaped("token_embd.weight", {96}), kCorrupt, "token_embd.weight"},
      {"another output", reshaped("output.weight", {8, 11}), kCorrupt, "output.weight"},
      {"heads of another size", reshaped("blk.0.attn_k.weight", {8, 8}), kCorrupt, "blk.0.attn_k.weight"},
  });
}

TEST_CASE("hyperparameters_that_lie_are_refused_at_once") {
  const auto blocks = [](const Change& change) { return rekeyed("llama.block_count", change); };
  const std::string_view key = "llama.block_count";
  std::vector<Row> rows = {
      {"no block", with_u64(key, 0), kCorrupt, "llama.block_count is 0; wanted 1 to 1024"},
      {"2^29 blocks", with_u64(key, 1 << 29), kUnsupported, "block_count is 536870912"},
      {"2^63 blocks", with_u64(key, k2to63), kCorrupt, "'llama.block_count' is not an integer"},
      {"-1 blocks", blocks([=](GgufBuilder& w) { w.scalar(key, 5, int32_t{-1}); }), kCorrupt,
       "block_count is -1"},
      {"2.0 blocks", blocks([=](GgufBuilder& w) { w.f32(key, 2); }), kCorrupt,
       "'llama.block_count' is not an integer"},
      {"blocks in words", blocks([=](GgufBuilder& w) { w.text(key, "2"); }), kCorrupt, "not an integer"},
      {"blocks true", blocks([=](GgufBuilder& w) { w.flag(key, true); }), kCorrupt, "not an integer"},
      {"blocks by layer", blocks([=](GgufBuilder& w) {
         w.numbers(key, 4, std::vector<uint32_t>{2, 2});
       }),
       kCorrupt, "not an integer"},
      {"3 blocks of 2", with_u64(key, 3), kCorrupt, "'blk.2.attn_norm.weight'"},
      {"1 block of 2", with_u64(key, 1), kUnsupported, "'blk.1.attn_k.weight' has no place"},
      {"a value by layer for a million layers",
       rekeyed("llama.attention.head_count",
               [](GgufBuilder& w) {
                 w.numbers("llama.attention.head_count", 4, std::vector<uint32_t>(1000000, 2));
               }),
       kCorrupt, "has 1000000 values, the model has 2 layers"},
      {"a value by layer in words",
       rekeyed("llama.feed_forward_length",
               [](GgufBuilder& w) {
                 w.texts("llama.feed_forward_length", {"16", "16"});
               }),
       kCorrupt, "not an array of integers"},
  };
  for (const std::string_view size :
       {"llama.embedding_length", "llama.attention.head_count", "llama.attention.head_count_kv",
        "llama.feed_forward_length", "llama.context_length", "llama.rope.dimension_count"}) {
    for (const uint64_t value : {uint64_t{0}, uint64_t{7}, uint64_t{1} << 31, k2to62, uint64_t{INT64_MAX}}) {
      CAPTURE(std::string(size));
      CAPTURE(value);
      if (size == "llama.context_length" && value != 0) continue;  // no tensor depends on it
      const std::string file = with_u64(size, value);
      const AddressLimit limit;
      const auto begin = std::chrono::steady_clock::now();
      const Status status = import_all(file);
      CAPTURE(status.to_string());
      CHECK(!status.ok());
      CHECK(status.code() != StatusCode::kInternal);
      CHECK(status.code() != StatusCode::kOutOfMemory);
      CHECK(!status.message().empty());
      CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < 1);
    }
    rows.push_back({size, rekeyed(size, [=](GgufBuilder& w) { w.text(size, "8"); }), kCorrupt, size});
  }
  check_rows(rows);
}

TEST_CASE("vocabularies_that_lie_are_refused_at_once") {
  struct VocabularyRow {
    std::string_view what, model, left_out;
    Change change;
    std::string_view words;  // "" where it is accepted
  };
  const VocabularyRow rows[] = {
      {"scores as bytes", "llama", "scores",
       [](GgufBuilder& w) {
         w.numbers("tokenizer.ggml.scores", 0, std::vector<uint8_t>{0, 1, 2});
       },
       "'tokenizer.ggml.scores' is not an array of f32"},
      {"a score alone", "llama", "scores", [](GgufBuilder& w) { w.f32("tokenizer.ggml.scores", 1); },
       "not an array of f32"},
      {"too few scores", "llama", "scores",
       [](GgufBuilder& w) {
         w.numbers("tokenizer.ggml.scores", 6, std::vector<float>{0, 1});
       },
       "2 scores for 3 tokens"},
      {"no token types", "llama", "", [](GgufBuilder&) {}, ""},
      {"too few token types", "llama", "",
       [](GgufBuilder& w) { w.numbers("tokenizer.ggml.token_type", 5, std::vector<int32_t>{1}); },
       "1 token types for 3 tokens"},
      {"a token type of 2^31 - 1", "llama", "",
       [](GgufBuilder& w) {
         w.numbers("tokenizer.ggml.token_type", 5, std::vector<int32_t>{1, 1, INT32_MAX});
       },
       "token_type has a 2147483647"},
      {"token types as texts", "llama", "",
       [](GgufBuilder& w) {
         w.texts("tokenizer.ggml.token_type", {"1", "1", "1"});
       },
       "not an array of integers"},
      {"tokens as numbers", "llama", "tokens",
       [](GgufBuilder& w) {
         w.numbers("tokenizer.ggml.tokens", 4, std::vector<uint32_t>{1, 2, 3});
       },
       "'tokenizer.ggml.tokens' is not an array of strings"},
      {"no tokens", "llama", "tokens", [](GgufBuilder&) {}, "3 scores for 0 tokens"},
      {"a million tokens of 2^31 bytes", "llama", "tokens",
       [](GgufBuilder& w) {
         std::string entry =
             packed_text("tokenizer.ggml.tokens") + packed(uint32_t{9}, uint32_t{8}, uint64_t{1000000});
         for (int i = 0; i < 1000000; ++i) entry += packed(uint64_t{1} << 31);
         w.metadata_bytes(entry);
       },
       "tokenizer.ggml.tokens at offset"},
      {"merges of unknown tokens", "gpt2", "",
       [](GgufBuilder& w) { w.texts("tokenizer.ggml.merges", {"a b"}); }, ""},
      {"a merge of one word", "gpt2", "", [](GgufBuilder& w) { w.texts("tokenizer.ggml.merges", {"ab"}); },
       "ab"},
      {"a byte token below 0", "llama", "tokens",
       [](GgufBuilder& w) {
         w.texts("tokenizer.ggml.tokens", {"<unk>", "<0x-1>", "b"});
         w.numbers("tokenizer.ggml.token_type", 5, std::vector<int32_t>{2, 6, 1});
       },
       ""},
      {"an id past the vocabulary", "llama", "",
       [](GgufBuilder& w) { w.u32("tokenizer.ggml.bos_token_id", 3); },
       "bos_token_id is 3, the vocabulary has 3 tokens"},
      {"an id below -1", "llama", "",
       [](GgufBuilder& w) { w.scalar("tokenizer.ggml.eos_token_id", 5, int32_t{-2}); }, "eos_token_id is -2"},
      {"an id of 2^32", "llama", "",
       [](GgufBuilder& w) { w.scalar("tokenizer.ggml.eos_token_id", 10, uint64_t{1} << 32); },
       "eos_token_id is 4294967296"},
      {"an id in words", "llama", "", [](GgufBuilder& w) { w.text("tokenizer.ggml.bos_token_id", "1"); },
       "not an integer"},
  };
  for (const VocabularyRow& row : rows) {
    CAPTURE(std::string(row.what));
    const auto begin = std::chrono::steady_clock::now();
    const Status status = tokenizer_status(row.model, row.left_out, row.change);
    CAPTURE(status.to_string());
    CHECK(status.ok() == row.words.empty());
    CHECK(status.message().find(row.words) != std::string_view::npos);
    CHECK(status.code() != StatusCode::kInternal);
    CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < 1);
  }
}
