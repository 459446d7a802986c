// GGUF files of families with recurrent layers, sizes by layer, and Dense modules, that lie: each is an error with a reason, at
// once, and without memory beyond the file's size.
#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/text.h"
#include "tests/serialize/address_limit.h"
#include "tests/serialize/exported_model.h"
#include "tests/serialize/gguf_editor.h"
#include "tests/serialize/hostile_descriptions.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

constexpr StatusCode kCorrupt = StatusCode::kCorrupt, kUnsupported = StatusCode::kUnsupported,
                     kInvalid = StatusCode::kInvalidArgument;
constexpr uint64_t k2to60 = uint64_t{1} << 60;

struct Row {
  const char* what;
  std::function<void(GgufEditor&)> change;
  StatusCode code;
  std::string words;
};

void check_rows(const std::string& shorthand, const std::vector<Row>& rows) {
  const std::string plain = gguf_bytes(shorthand);
  REQUIRE(open_bytes(plain).ok());
  for (const Row& row : rows) {
    CAPTURE(std::string(row.what));
    GgufEditor file(plain);
    row.change(file);
    const std::string bytes = file.finish();
    const AddressLimit limit;
    const auto begin = std::chrono::steady_clock::now();
    const Status status = open_bytes(bytes).status();
    CAPTURE(status.to_string());
    CHECK(status.code() == row.code);
    CHECK(status.message().find(row.words) != std::string_view::npos);
    CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < 1);
  }
}

std::function<void(GgufEditor&)> with(const char* key, uint64_t value) {
  return [=](GgufEditor& file) { file.set(key, value); };
}
std::function<void(GgufEditor&)> with_list(const char* key, std::vector<int32_t> values) {
  return [=](GgufEditor& file) { file.set_list(key, values); };
}
std::function<void(GgufEditor&)> without(const char* key) {
  return [=](GgufEditor& file) { file.erase(key); };
}
std::function<void(GgufEditor&)> without_tensor(const char* name) {
  return [=](GgufEditor& file) { file.erase_tensor(name); };
}
std::function<void(GgufEditor&)> turned(const char* name) {
  return [=](GgufEditor& file) { std::swap(file.tensor(name).dims[0], file.tensor(name).dims[1]); };
}

constexpr const char* kEmbedding =
    "gemma3:L=7,C=12,H=3,KV=1,D=6,F=10,V=11,T=16,window=5,tied,rope_half,causal=0,head=0,dense=20|12";

}  // namespace

TEST_CASE(
    "qwen35 files whose layers, heads, states or draft block contradict each other are refused by name and "
    "value") {
  check_rows(kDelta,
             {{"another pattern",
               [](GgufEditor& f) {
                 f.set_flags("qwen35.attention.recurrent_layers", {1, 1, 0, 1, 0});
               },
               kCorrupt, "'blk.2.attn_q.weight'"},
              {"a short pattern",
               [](GgufEditor& f) {
                 f.set_flags("qwen35.attention.recurrent_layers", {1, 1});
               },
               kCorrupt, "qwen35.attention.recurrent_layers has 2 values, the model has 4 layers"},
              {"a pattern of 0",
               [](GgufEditor& f) {
                 f.erase("qwen35.attention.recurrent_layers").set("qwen35.full_attention_interval", 0);
               },
               kCorrupt, "qwen35.full_attention_interval is 0, wanted 1 or more"},
              {"attention in no layer",
               [](GgufEditor& f) {
                 f.erase("qwen35.attention.recurrent_layers").set("qwen35.full_attention_interval", k2to60);
               },
               kCorrupt, "'blk.3.attn_qkv.weight'"},
              {"heads of keys that do not divide", with("qwen35.ssm.group_count", 3), kInvalid,
               "HS = 4 heads of values are not a multiple of GS = 3 heads of keys"},
              {"heads of values that do not divide", with("qwen35.ssm.time_step_rank", 5), kCorrupt,
               "qwen35.ssm.inner_size is 24 and qwen35.ssm.time_step_rank 5, wanted a multiple of it"},
              {"no head of values", with("qwen35.ssm.time_step_rank", 0), kCorrupt,
               "qwen35.ssm.time_step_rank 0, wanted a multiple of it"},
              {"heads of attention that do not divide", with("qwen35.attention.head_count_kv", 2), kInvalid,
               "H = 3 query heads is not a multiple of KV = 2"},
              {"other heads of values", with("qwen35.ssm.time_step_rank", 2), kCorrupt, "the model wants"},
              {"2^60 numbers of a key", with("qwen35.ssm.state_size", k2to60), kInvalid,
               "size KS is 1152921504606846976, wanted 1 to"},
              {"2^60 numbers of the values", with("qwen35.ssm.inner_size", k2to60), kInvalid,
               "size VS is 288230376151711744, wanted 1 to"},
              {"2^60 heads of keys", with("qwen35.ssm.group_count", k2to60), kInvalid,
               "size GS is 1152921504606846976, wanted 1 to"},
              {"2^60 taps", with("qwen35.ssm.conv_kernel", k2to60), kInvalid,
               "size taps is 1152921504606846976, wanted 1 to"},
              {"2^30 numbers of a key", with("qwen35.ssm.state_size", uint64_t{1} << 30), kCorrupt,
               "the model wants"},
              {"no states", without("qwen35.ssm.state_size"), kCorrupt, "'qwen35.ssm.state_size' is missing"},
              {"2^60 numbers that rotate", with("qwen35.rope.dimension_count", k2to60), kCorrupt,
               "qwen35.rope.dimension_count is 1152921504606846976, wanted an even number up to 8"},
              {"more draft blocks than layers", with("qwen35.nextn_predict_layers", 5), kCorrupt,
               "qwen35.nextn_predict_layers is 5 of qwen35.block_count 5"},
              {"a draft block of another width", turned("blk.4.nextn.eh_proj.weight"), kCorrupt,
               "tensor 'blk.4.nextn.eh_proj.weight' is [24, 12], the model wants [12, 24]"},
              {"a draft block with recurrence",
               [](GgufEditor& f) { f.tensor("blk.4.attn_q.weight").name = "blk.4.attn_qkv.weight"; },
               kCorrupt, "tensor 'blk.4.attn_q.weight' is missing"},
              {"a convolution of another length", turned("blk.0.ssm_conv1d.weight"), kCorrupt,
               "tensor 'blk.0.ssm_conv1d.weight' is "}});
}

TEST_CASE("granitehybrid files whose lists and states contradict each other are refused by name and value") {
  constexpr const char* kHeads = "granitehybrid.attention.head_count_kv";
  check_rows(kStates,
             {{"attention in no layer", with_list(kHeads, {0, 0, 0}), kCorrupt, "'blk.1.ssm_in.weight'"},
              {"attention in another layer", with_list(kHeads, {1, 1, 0}), kCorrupt, "'blk.0.attn_q.weight'"},
              {"a short list", with_list(kHeads, {0, 1}), kCorrupt,
               "head_count_kv has 2 values, the model has 3 layers"},
              {"no list", without(kHeads), kCorrupt, "'granitehybrid.attention.head_count_kv' is missing"},
              {"-1 heads", with_list(kHeads, {0, -1, 0}), kCorrupt,
               "head_count_kv is -1 in layer 1, wanted 0 or more"},
              {"heads that differ", with_list(kHeads, {0, 1, 3}), kUnsupported,
               "head_count_kv is 3 in layer 2 and 1 before"},
              {"heads that do not divide", with_list(kHeads, {0, 2, 0}), kInvalid,
               "H = 3 query heads is not a multiple of KV = 2"},
              {"groups that do not divide", with("granitehybrid.ssm.group_count", 3), kInvalid,
               "HS = 4 heads of values are not a multiple of GS = 3 heads of keys"},
              {"2^60 numbers of a state", with("granitehybrid.ssm.state_size", k2to60), kInvalid,
               "size KS is 1152921504606846976, wanted 1 to"},
              {"2^60 numbers of the values", with("granitehybrid.ssm.inner_size", k2to60), kInvalid,
               "size VS is 288230376151711744"},
              {"2^60 taps", with("granitehybrid.ssm.conv_kernel", k2to60), kInvalid,
               "size taps is 1152921504606846976"},
              {"a state of 4 numbers", with("granitehybrid.ssm.state_size", 4), kCorrupt, "'blk.0.ssm_"},
              {"a rate of another count", without_tensor("blk.0.ssm_a"), kCorrupt,
               "tensor 'blk.0.ssm_a' is missing"}});
}

TEST_CASE("nemotron_h files whose lists contradict each other are refused by name and value") {
  constexpr const char *kHeads = "nemotron_h.attention.head_count_kv",
                       *kWidths = "nemotron_h.feed_forward_length";
  check_rows(
      kHalves,
      {{"attention in place of a state", with_list(kHeads, {1, 0, 1}), kCorrupt, "'blk.0.attn_q.weight'"},
       {"both halves in one layer", with_list(kHeads, {0, 1, 1}), kCorrupt,
        "nemotron_h.attention.head_count_kv is 1 in layer 1, whose feed_forward_length is above 0; wanted 0 "
        "for one of them"},
       {"no half in a layer", with_list(kWidths, {0, 0, 0}), kCorrupt, "tensors 'blk.1.ssm_in.weight'"},
       {"a width in a layer of attention", with_list(kWidths, {0, 10, 10}), kCorrupt,
        "nemotron_h.attention.head_count_kv is 1 in layer 2, whose feed_forward_length is above 0"},
       {"widths that differ", with_list(kWidths, {8, 10, 0}), kUnsupported,
        "feed_forward_length is 10 in layer 1 and 8 before"},
       {"another width", with_list(kWidths, {0, 11, 0}), kCorrupt, "the model wants"},
       {"a short list of widths", with_list(kWidths, {0, 10}), kCorrupt,
        "feed_forward_length has 2 values, the model has 3 layers"},
       {"a short list of heads", with_list(kHeads, {0, 1}), kCorrupt,
        "head_count_kv has 2 values, the model has 3 layers"},
       {"no widths", without(kWidths), kCorrupt, "'nemotron_h.feed_forward_length' is missing"},
       {"-1 wide", with_list(kWidths, {0, -1, 0}), kCorrupt, "feed_forward_length is -1 in layer 1"},
       {"no epsilon of norms",
        [](GgufEditor& f) { f.erase("nemotron_h.attention.layer_norm_epsilon").erase("nemotron_h.attention.layer_norm_rms_epsilon"); },
        kCorrupt, "'nemotron_h.attention.layer_norm_rms_epsilon' is missing"},
       {"two epsilons of norms",
        [](GgufEditor& f) { f.set_real("nemotron_h.attention.layer_norm_epsilon", 0.5F); }, kCorrupt,
        "nemotron_h.attention.layer_norm_epsilon is 0.5, but nemotron_h.attention.layer_norm_rms_epsilon is "},
       {"2^60 numbers of a state", with("nemotron_h.ssm.state_size", k2to60), kInvalid,
        "size KS is 1152921504606846976"},
       {"groups that do not divide", with("nemotron_h.ssm.group_count", 3), kInvalid,
        "not a multiple of GS = 3"}});
}

TEST_CASE("lfm2 files whose lists and convolutions contradict each other are refused by name and value") {
  constexpr const char *kHeads = "lfm2.attention.head_count_kv", *kTaps = "lfm2.shortconv.l_cache";
  check_rows(kConvolutions,
             {{"a convolution in place of attention", with_list(kHeads, {0, 0, 0}), kCorrupt,
               "'blk.1.shortconv.in_proj.weight'"},
              {"attention in another layer", with_list(kHeads, {1, 1, 0}), kCorrupt, "'blk.0.attn_q.weight'"},
              {"a short list", with_list(kHeads, {0}), kCorrupt,
               "head_count_kv has 1 values, the model has 3 layers"},
              {"no list", without(kHeads), kCorrupt, "'lfm2.attention.head_count_kv' is missing"},
              {"heads that do not divide", with_list(kHeads, {0, 2, 0}), kInvalid,
               "H = 3 query heads is not a multiple of KV = 2"},
              {"no tap", with(kTaps, 0), kInvalid, "size taps is 0, wanted 1 to"},
              {"4 taps", with(kTaps, 4), kCorrupt,
               "tensor 'blk.0.shortconv.conv.weight' is [12, 3], the model wants [12, 4]"},
              {"2^60 taps", with(kTaps, k2to60), kInvalid, "size taps is 1152921504606846976, wanted 1 to"},
              {"no taps", without(kTaps), kCorrupt, "'lfm2.shortconv.l_cache' is missing"},
              {"other heads", with("lfm2.attention.head_count", 5), kCorrupt,
               "tensor 'blk.1.attn_q.weight' is [12, 12], the model wants [20, 12]"}});
}

TEST_CASE("gemma4 files whose sizes by layer contradict each other are refused by name and value") {
  constexpr const char* kPattern = "gemma4.attention.sliding_window_pattern";
  check_rows(
      kLayerSizes,
      {{"a short pattern",
        [=](GgufEditor& f) {
          f.set_flags(kPattern, {1, 0, 1});
        },
        kCorrupt, "sliding_window_pattern has 3 values, the model has 4 layers"},
       {"another pattern",
        [=](GgufEditor& f) {
          f.set_flags(kPattern, {0, 1, 1, 0});
        },
        kCorrupt, "tensor 'blk.0.attn_q.weight' is [36, 12], the model wants [48, 12]"},
       {"no layer of a kind to read keys of",
        [=](GgufEditor& f) {
          f.set_flags(kPattern, {1, 1, 1, 0});
        },
        kInvalid, "no layer before has keys and values for layer 3"},
       {"all layers read keys of others", with("gemma4.attention.shared_kv_layers", 4), kInvalid,
        "shared_kv = 4 layers"},
       {"2^60 such layers", with("gemma4.attention.shared_kv_layers", k2to60), kInvalid,
        "shared_kv is 1152921504606846976"},
       {"no table of the layers", without_tensor("per_layer_token_embd.weight"), kCorrupt,
        "tensor 'per_layer_token_embd.weight' is missing"},
       {"no projection to the layers", without_tensor("per_layer_model_proj.weight"), kCorrupt,
        "tensor 'per_layer_model_proj.weight' is missing"},
       {"no gate of a layer", without_tensor("blk.2.inp_gate.weight"), kCorrupt,
        "tensor 'blk.2.inp_gate.weight' is missing"},
       {"no width of the layers' numbers", without("gemma4.embedding_length_per_layer_input"), kUnsupported,
        "has no place"},
       {"another width", with("gemma4.embedding_length_per_layer_input", 5), kCorrupt, "the model wants"},
       {"2^60 wide", with("gemma4.embedding_length_per_layer_input", k2to60), kInvalid,
        "size P is 1152921504606846976, wanted 1 to"},
       {"2^60 numbers of a head", with("gemma4.attention.key_length", k2to60), kUnsupported,
        "heads of 1152921504606846976"},
       {"other heads with windows", with("gemma4.attention.key_length_swa", 8), kUnsupported,
        "gemma4.attention.key_length_swa 8"},
       {"a short list of widths", with_list("gemma4.feed_forward_length", {10, 10, 20}), kCorrupt,
        "feed_forward_length has 3 values, the model has 4 layers"},
       {"another width of a layer", with_list("gemma4.feed_forward_length", {10, 10, 20, 10}), kCorrupt,
        "tensor 'blk.3.ffn_"},
       {"no width of a layer", with_list("gemma4.feed_forward_length", {10, 0, 20, 20}), kInvalid,
        "ffn_widths"},
       {"heads of keys that do not divide", with_list("gemma4.attention.head_count_kv", {2, 4, 2, 2}),
        kInvalid, "H = 6 query heads is not a multiple of 4 in kv_heads"}});
}

TEST_CASE("gemma-embedding files whose Dense modules do not fit are refused by name and value") {
  check_rows(
      kEmbedding,
      {{"no matrix", without_tensor("dense_2.weight"), kCorrupt, "tensor 'dense_2.weight' is missing"},
       {"another width", with("gemma-embedding.dense_2_feat_out", 21), kCorrupt,
        "gemma-embedding.dense_3 has 12 features of 20, wanted more than 0 of the 21 before it"},
       {"another input", with("gemma-embedding.dense_2_feat_in", 11), kCorrupt,
        "dense_2 has 20 features of 11"},
       {"a matrix that is turned", turned("dense_3.weight"), kCorrupt,
        "tensor 'dense_3.weight' is [20, 12], the model wants [12, 20]"},
       {"2^60 features",
        [](GgufEditor& f) {
          f.set("gemma-embedding.dense_2_feat_out", k2to60).set("gemma-embedding.dense_3_feat_in", k2to60);
        },
        kInvalid, "1152921504606846976"},
       {"the second alone", without("gemma-embedding.dense_2_feat_out"), kCorrupt,
        "dense_3 has 12 features of 20"},
       {"no module in the keys",
        [](GgufEditor& f) {
          f.erase("gemma-embedding.dense_2_feat_out").erase("gemma-embedding.dense_3_feat_out");
        },
        kUnsupported, "'dense_2.weight' has no place"},
       {"a window of 2^60", with("gemma-embedding.attention.sliding_window", k2to60), kInvalid, "windows"}});
}

TEST_CASE("any number of a family's keys may be any other, and is an error with a reason or no matter") {
  for (const char* const shorthand : {kDelta, kStates, kHalves, kConvolutions, kLayerSizes, kEmbedding}) {
    const std::string plain = gguf_bytes(shorthand);
    for (const std::string& key : GgufEditor(plain).number_keys())
      for (const uint64_t value :
           {uint64_t{0}, uint64_t{7}, uint64_t{1} << 31, k2to60, uint64_t{INT64_MAX}, ~uint64_t{0}}) {
        CAPTURE(key);
        CAPTURE(value);
        GgufEditor file(plain);
        const std::string bytes = file.set(key, value).finish();
        const AddressLimit limit;
        const auto begin = std::chrono::steady_clock::now();
        const Status status = open_bytes(bytes).status();
        CAPTURE(status.to_string());
        CHECK(status.code() != StatusCode::kInternal);
        CHECK(status.code() != StatusCode::kOutOfMemory);
        CHECK(status.ok() == status.message().empty());
        CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < 1);
      }
  }
}
