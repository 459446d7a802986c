// Constraints: masks equal trying every token byte by byte; copies, rewinding, ends and errors.
#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/serialize/schema_samples.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera::grammar {
namespace {

using testing::below;
using testing::ids_of;
using testing::mask_of;
using testing::Random;

constexpr int32_t kEnd = 256;

std::shared_ptr<MaskCache> cache_of(Result<Grammar::Shared> grammar,
                                    std::shared_ptr<const TokenBytes> tokens = testing::byte_vocabulary()) {
  return std::make_shared<MaskCache>(test::ok(std::move(grammar)), std::move(tokens));
}

// Walks at random, and compares each mask with a constraint over bytes.
void check_masks(const Grammar::Shared& grammar, const std::shared_ptr<const TokenBytes>& tokens,
                 Random& random, int steps) {
  const auto cache = std::make_shared<MaskCache>(grammar, tokens);
  const auto bytes = std::make_shared<MaskCache>(grammar, testing::byte_vocabulary());
  Constraint constraint(cache), reference(bytes);
  for (int step = 0; step < steps; ++step) {
    const auto mask = mask_of(constraint);
    std::vector<int32_t> expected;
    for (int32_t id = 0; id < tokens->vocabulary_size(); ++id) {
      const std::string_view text = tokens->bytes(id);
      const bool is_allowed = text.empty() ? id == kEnd && reference.can_end()
                                           : testing::feed(reference, text).accepted == text.size();
      if (is_allowed) expected.push_back(id);
    }
    REQUIRE(ids_of(mask) == expected);
    CHECK(constraint.can_end() == reference.can_end());
    CHECK(constraint.must_end() == (expected == std::vector<int32_t>{kEnd}));
    const int32_t id = expected[below(random, expected.size())];
    REQUIRE(constraint.accept(id).ok());
    if (constraint.has_ended()) return;
    for (const char each : tokens->bytes(id)) REQUIRE(reference.accept(static_cast<uint8_t>(each)).ok());
  }
}

}  // namespace

TEST_CASE("masks_equal_trying_every_token_byte_by_byte") {
  Random random(7);
  const auto small = testing::made_vocabulary(500, 3), large = testing::made_vocabulary(1000, 4);
  for (uint32_t seed = 0; seed < 40; ++seed) {
    testing::SchemaSamples samples(seed + 5000);
    const Json schema = samples.schema();
    const auto grammar = test::ok(Grammar::from_json_schema(dump(schema)));
    for (int i = 0; i < 4; ++i) check_masks(grammar, i < 3 ? small : large, random, 25);
  }
  for (const char* pattern : {"(\"[a-z]{20,60}\": |id){3,50}", "[^x]{100,}", "(a|b|\\d){18}x*", ".*",
                              "(é|日|😀)*(name)?", "(?:[a-z]{1,40},){1,40}"})
    for (int i = 0; i < 4; ++i) check_masks(test::ok(Grammar::from_regex(pattern)), small, random, 40);
  for (const char* grammar :
       {"root ::= \"a\" root \"b\" | \"a\" root \"1\" | \"x\"", "root ::= [a-b] root | \"\"",
        "root ::= x{3,90}\nx ::= \"[\" x* \"]\" | [a-z0-9\"]"})
    for (int i = 0; i < 4; ++i) check_masks(test::ok(Grammar::from_gbnf(grammar)), small, random, 40);
}

TEST_CASE("masks_of_long_counted_strings_are_exact_at_both_ends") {
  Random random(8);
  const auto tokens = testing::made_vocabulary(600, 5);
  for (const char* schema :
       {R"({"type":"string","minLength":90,"maxLength":130})", R"({"type":"string","maxLength":70})",
        R"({"type":"string","minLength":60})",
        R"({"type":"array","items":{"type":"string","maxLength":50},"minItems":30,"maxItems":50})"})
    for (int i = 0; i < 4; ++i) check_masks(test::ok(Grammar::from_json_schema(schema)), tokens, random, 70);
}

TEST_CASE("constraint_ends_where_the_text_may") {
  Constraint constraint(cache_of(Grammar::from_regex("ab?")));
  CHECK_FALSE(constraint.can_end());
  CHECK(ids_of(mask_of(constraint)) == std::vector<int32_t>{'a'});
  CHECK(constraint.accept(kEnd).to_string() ==
        "failed_precondition: token 256, which ends the text, is not allowed after 0 tokens; wanted a");
  REQUIRE(constraint.accept('a').ok());
  CHECK(constraint.can_end());
  CHECK_FALSE(constraint.must_end());
  CHECK(ids_of(mask_of(constraint)) == std::vector<int32_t>{'b', kEnd});
  REQUIRE(constraint.accept('b').ok());
  CHECK(constraint.must_end());
  CHECK(ids_of(mask_of(constraint)) == std::vector<int32_t>{kEnd});
  CHECK(constraint.accept('b').to_string() ==
        "failed_precondition: token 98, 'b', is not allowed after 2 tokens; wanted the end");
  REQUIRE(constraint.accept(kEnd).ok());
  CHECK(constraint.has_ended());
  CHECK(ids_of(mask_of(constraint)).empty());
  CHECK(constraint.accept('a').code() == StatusCode::kFailedPrecondition);
  CHECK(constraint.accept(257).to_string() == "invalid_argument: token 257 is outside the vocabulary of 257");
  constraint.rewind(1);
  CHECK_FALSE(constraint.has_ended());
  CHECK(ids_of(mask_of(constraint)) == std::vector<int32_t>{'b', kEnd});
}

TEST_CASE("constraint_copies_go_their_own_ways_and_rewinding_comes_back") {
  const auto cache = cache_of(Grammar::from_json_schema(R"({"type":"array","minItems":50})"),
                              testing::made_vocabulary(300, 6));
  Random random(9);
  Constraint constraint(cache);
  std::vector<std::vector<uint32_t>> masks;
  std::vector<int32_t> ids;
  while (constraint.size() < 40) {
    masks.push_back(mask_of(constraint));
    auto allowed = ids_of(masks.back());
    std::erase(allowed, kEnd);
    if (allowed.empty()) break;
    ids.push_back(allowed[below(random, allowed.size())]);
    Constraint copy = constraint;
    REQUIRE(copy.accept(ids.back()).ok());
    CHECK(mask_of(constraint) == masks.back());
    constraint = copy;
  }
  for (size_t size = constraint.size(); size-- > 0;) {
    constraint.rewind(size);
    CHECK(mask_of(constraint) == masks[size]);
    Constraint again = constraint;
    REQUIRE(again.accept(ids[size]).ok());
  }
}

TEST_CASE("constraint_errors_say_what_was_wanted") {
  Constraint constraint(cache_of(Grammar::from_regex("[a-c]{2}\\n|x1"), testing::made_vocabulary(0, 1)));
  CHECK(constraint.accept('d').to_string() ==
        "failed_precondition: token 100, 'd', is not allowed after 0 tokens; wanted a to c, x");
  std::vector<uint32_t> mask(3);
  CHECK(constraint.write_allowed(mask).to_string() ==
        "invalid_argument: the mask has 3 words of 32 bits, wanted 9 for 257 tokens");
  // A vocabulary that cannot write the text.
  const auto tokens = test::ok(TokenBytes::create({"ab", "c", ""}, {2}));
  Constraint stuck(cache_of(Grammar::from_regex("abd"), tokens));
  REQUIRE(stuck.accept(0).ok());
  CHECK(stuck.write_allowed(std::span(mask).first(1)).to_string() ==
        "unsupported: no token of the vocabulary may come next; wanted one that begins with d");
  CHECK(stuck.accept(2).code() == StatusCode::kFailedPrecondition);
  Constraint partly(cache_of(Grammar::from_regex("ac"), tokens));
  CHECK(partly.accept(0).to_string() ==
        "failed_precondition: token 0, 'ab', from its byte 1 on is not allowed after 0 tokens; wanted c");
  CHECK(TokenBytes::create({"a"}, {1}).status().to_string() ==
        "invalid_argument: the end token 1 is outside the vocabulary of 1");
}

TEST_CASE("constraints_outlive_what_their_cache_forgets") {
  const auto grammar = test::ok(Grammar::json());
  const auto tokens = testing::made_vocabulary(300, 6);
  const auto small = std::make_shared<MaskCache>(grammar, tokens, MaskCacheLimits{3000, 3000});
  const auto large = std::make_shared<MaskCache>(grammar, tokens);
  Random random(10);
  Constraint constraint(small), other(small), reference(large);
  for (int step = 0; step < 300; ++step) {
    const auto mask = mask_of(constraint);
    REQUIRE(mask == mask_of(reference));
    auto allowed = ids_of(mask);
    std::erase(allowed, kEnd);
    if (allowed.empty() || below(random, 20) == 0) {
      const size_t size = below(random, constraint.size() + 1);
      constraint.rewind(size);
      reference.rewind(size);
      continue;
    }
    const int32_t id = allowed[below(random, allowed.size())];
    REQUIRE(constraint.accept(id).ok());
    REQUIRE(reference.accept(id).ok());
  }
  CHECK(mask_of(other) == mask_of(Constraint(large)));  // of the first generation
}

TEST_CASE("constraint_of_an_ambiguous_grammar_fails_and_harms_no_other") {
  // Each a may begin counts of its own, within each other: more than a step may visit.
  const auto cache = cache_of(Grammar::from_regex("(?:(?:a{1,99}b?){1,99}c?){1,99}"));
  Constraint constraint(cache);
  Status status;
  for (int i = 0; i < 3000 && status.ok(); ++i) status = constraint.accept('a');
  CHECK(status.to_string() ==
        "unsupported: the grammar is too ambiguous: the text can be read in more than 16384 ways at once");
  Constraint other(cache);
  CHECK(other.accept('a').ok());
  CHECK(ids_of(mask_of(other)) == std::vector<int32_t>{'a', 'b', 'c', kEnd});
}

TEST_CASE("constraints_of_one_cache_may_be_on_several_threads") {
  const auto cache = cache_of(Grammar::json(), testing::made_vocabulary(500, 8));
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < texts.size(); ++i)
    threads.emplace_back([&, i] {
      Random random(static_cast<uint32_t>(i / 2));
      for (int k = 0; k < 5; ++k) texts[i] += testing::random_text(cache, random, 40) + "\n";
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(texts[0] == texts[1]);
  CHECK(texts[2] == texts[3]);
}

TEST_CASE("token_bytes_are_what_tokens_stand_for_within_a_text") {
  TokenizerData data;
  data.kind = TokenizerKind::kSentencePiece;
  data.tokens = {"<unk>", "<s>", "</s>", "<0x0A>", "<0xC3>", "▁a", "a", "▁", "▁the", "b"};
  data.types = {TokenType::kUnknown, TokenType::kControl, TokenType::kControl, TokenType::kByte,
                TokenType::kByte,    TokenType::kNormal,  TokenType::kNormal,  TokenType::kNormal,
                TokenType::kNormal,  TokenType::kUnused};
  data.scores.assign(data.tokens.size(), 0);
  data.bos = 1;
  data.eos = 2;
  data.unknown = 0;
  const auto tokens = test::ok(TokenBytes::create(*test::ok(Tokenizer::create(data))));
  const std::vector<std::string> expected = {"", TokenBytes::control_bytes("<s>"), "", "\n", "\xC3", " a", "a", " ", " the", ""};
  for (int32_t id = 0; id < tokens->vocabulary_size(); ++id)
    CHECK(tokens->bytes(id) == expected[static_cast<size_t>(id)]);
  CHECK(tokens->ends_text(2));
  CHECK_FALSE(tokens->ends_text(1));
  TokenizerData bpe;
  bpe.kind = TokenizerKind::kByteLevelBpe;
  bpe.tokens = {"a", "Ġ", "Ġa", "Ã", "Ċ", "<|end|>", "Ġaa"};
  bpe.types.assign(bpe.tokens.size(), TokenType::kNormal);
  bpe.types[5] = TokenType::kControl;
  bpe.merges = {"Ġ a", "Ġa a"};
  bpe.pre_tokenizer = "gpt-2";
  bpe.end_ids = {5};
  const auto parts = test::ok(TokenBytes::create(*test::ok(Tokenizer::create(bpe))));
  const std::vector<std::string> stand_for = {"a", " ", " a", "\xC3", "\n", "", " aa"};
  for (size_t id = 0; id < stand_for.size(); ++id)
    CHECK(parts->bytes(static_cast<int32_t>(id)) == stand_for[id]);
  CHECK(parts->ends_text(5));
  // Beside control tokens no token is a part of what stands for them; without them all bytes are as they are.
  TokenizerData whole;
  whole.kind = TokenizerKind::kByteLevelBpe;
  whole.tokens = {"a", "ÿ", "þ", "Ã", "<|x|>"};
  whole.types.assign(whole.tokens.size(), TokenType::kNormal);
  whole.types[4] = TokenType::kControl;
  whole.pre_tokenizer = "gpt-2";
  const auto beside = test::ok(TokenBytes::create(*test::ok(Tokenizer::create(whole))));
  for (int32_t id : {1, 2}) CHECK(beside->bytes(id).empty());
  CHECK(beside->bytes(3) == "\xC3");
  CHECK(beside->bytes(4) == "\xFF<|x|>\xFE");
  const auto bytes = test::ok(TokenBytes::create(*test::ok(Tokenizer::create(TokenizerData{}))));
  for (int32_t id = 0; id < 256; ++id) CHECK(bytes->bytes(id) == std::string(1, static_cast<char>(id)));
}

}  // namespace tessera::grammar
