// GGUF files as other projects' converters write them: architectures that are only read, lists in place of numbers, and draft
// blocks with latent attention.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "tests/ok.h"
#include "tests/serialize/exported_model.h"
#include "tests/serialize/gguf_editor.h"

using namespace tessera;
using namespace tessera::testing;
using tessera::test::ok;

namespace {

constexpr StatusCode kCorrupt = StatusCode::kCorrupt, kUnsupported = StatusCode::kUnsupported;

// A model of four layers, the first without experts, and a draft block.
constexpr const char* kLatent =
    "deepseek2:L=3,C=12,H=3,D=10,R=4,KA=12,QA=6,VD=8,F=10,FD=14,E=4,K=2,FS=10,V=11,T=16,norm_eps=1e-6,expert_"
    "layers=0|1|1,"
    "expert_sigmoid,groups=2,groups_used=1,MTP=1";

// attn_kv_b of a layer as the two matrices that converters write: k_b [H, KA, N], and v_b [H, VD, KA].
void split_latent_products(GgufEditor& file, const std::string& layer, size_t heads, size_t width,
                           size_t key_size, size_t value_size) {
  const std::string name = layer + "attn_kv_b.weight";
  const GgufEditor::Tensor joined = file.tensor(name);
  REQUIRE(joined.bytes.size() == heads * (key_size + value_size) * width * sizeof(float));
  std::vector<float> rows(joined.bytes.size() / sizeof(float)), keys, values;
  std::memcpy(rows.data(), joined.bytes.data(), joined.bytes.size());
  for (size_t head = 0; head < heads; ++head) {
    const float* const of_head = &rows[head * (key_size + value_size) * width];
    for (size_t c = 0; c < width; ++c)
      for (size_t n = 0; n < key_size; ++n) keys.push_back(of_head[n * width + c]);
    values.insert(values.end(), of_head + key_size * width, of_head + (key_size + value_size) * width);
  }
  file.erase_tensor(name);
  file.add_tensor(layer + "attn_k_b.weight", {key_size, width, heads}, keys);
  file.add_tensor(layer + "attn_v_b.weight", {width, value_size, heads}, values);
}

bool says_left_out(const OpenedModel& model, std::string_view layer) {
  return std::ranges::any_of(model.model.origin.used, [&](const auto& entry) {
    return entry.first == layer && entry.second == "left out: the layer predicts further tokens";
  });
}

}  // namespace

TEST_CASE("the text part of qwen3-vl is a qwen3") {
  struct Row {
    const char *model, *from, *to;
  };
  const Row rows[] = {
      {"qwen3:L=2,C=12,H=3,KV=1,D=6,F=10,V=11,T=16,rope_half", "qwen3", "qwen3vl"},
      {"qwen3moe:L=2,C=12,H=3,KV=1,D=6,F=10,E=3,K=2,V=11,T=16,rope_half", "qwen3moe", "qwen3vlmoe"}};
  for (const Row& row : rows) {
    CAPTURE(row.to);
    const std::string plain = gguf_bytes(row.model), to = row.to;
    GgufEditor file(plain);
    file.rename_architecture(row.from, to);
    // The axes of rotations, equal in texts, and layers that add pictures' features.
    file.set_list(to + ".rope.dimension_sections", {1, 1, 1, 0}).set(to + ".n_deepstack_layers", 3);
    const std::string bytes = file.finish();
    const OpenedModel model = ok(open_bytes(bytes)), like = ok(open_bytes(plain));
    CHECK(model.model.metadata.at("architecture") == row.from);
    CHECK(model.model.graph.fingerprint() == like.model.graph.fingerprint());
    CHECK(values_of(model) == values_of(model_of(row.model)));
    file.erase_tensor("blk.1.attn_q_norm.weight");
    check_says(open_bytes(file.finish()).status(), kCorrupt, "tensor 'blk.1.attn_q_norm.weight' is missing");
  }
  // The architecture's name says whether there are experts.
  GgufEditor without(gguf_bytes("qwen3:L=2,C=12,H=3,KV=1,D=6,F=10,V=11,T=16,rope_half"));
  without.rename_architecture("qwen3", "qwen3vl")
      .set("qwen3vl.expert_count", 3)
      .set("qwen3vl.expert_used_count", 2);
  check_says(open_bytes(without.finish()).status(), kUnsupported, "a qwen3vl of 3 experts is not supported");
}

TEST_CASE("widths of experts may be a list, with 0 for layers without experts") {
  struct Row {
    const char *model, *architecture;
    std::vector<int32_t> with_experts;  // of each layer in the file
  };
  const Row rows[] = {
      {"qwen3moe:L=2,C=12,H=3,KV=1,D=6,F=10,E=3,K=2,V=11,T=16,rope_half", "qwen3moe", {1, 1}},
      {"lfm2moe:L=3,C=12,H=3,KV=1,F=10,FD=14,E=4,K=2,V=11,T=16,recurrent=1|0|1,expert_layers=0|1|1,tied,rope_"
       "half",
       "lfm2moe",
       {0, 1, 1}},
      {"nemotron_h:L=4,C=12,H=3,KV=1,D=4,F=10,FD=10,E=4,K=2,FS=8,M=6,HS=4,GS=2,VS=6,KS=3,V=11,T=16,halves=2|"
       "1|2|1,recurrent=0|1|0|0,"
       "expert_layers=0|0|1|0,conv_bias,rope_half",
       "nemotron_h_moe",
       {0, 0, 1, 0}},
      {"gemma4:L=2,C=12,H=6,KV=2,D=6,F=10,V=11,T=16,windows=5|0,head_sizes=6|8,E=3,K=2,FD=14,tied,rope_half",
       "gemma4",
       {1, 1}},
      {kLatent, "deepseek2", {0, 1, 1, 1}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.architecture);
    const std::string plain = gguf_bytes(row.model),
                      key = format("{}.expert_feed_forward_length", row.architecture);
    const OpenedModel like = ok(open_bytes(plain));
    const auto with = [&](const std::vector<int32_t>& widths) {
      GgufEditor file(plain);
      return file.set_list(key, widths).finish();
    };
    const std::vector<int32_t> all(row.with_experts.size(), 10);
    std::vector<int32_t> widths = all;
    for (size_t i = 0; i < widths.size(); ++i) widths[i] *= row.with_experts[i];
    for (const std::vector<int32_t>& list : {all, widths}) {
      const std::string bytes = with(list);
      const OpenedModel model = ok(open_bytes(bytes));
      CHECK(model.model.graph.fingerprint() == like.model.graph.fingerprint());
      CHECK(values_of(model) == values_of(like));
    }
    std::vector<int32_t> other = all;
    other.back() = 8;
    check_says(open_bytes(with(other)).status(), kUnsupported,
               format("{} is 8 in layer {} and 10 before; layers with experts want one number", key,
                      all.size() - 1));
    other.back() = -8;
    check_says(open_bytes(with(other)).status(), kCorrupt,
               format("{} is -8 in layer {}", key, all.size() - 1));
    other.push_back(10);
    check_says(open_bytes(with(other)).status(), kCorrupt,
               format("{} has {} values, the model has {} layers", key, other.size(), all.size()));
    check_says(open_bytes(with(std::vector<int32_t>(all.size(), 0))).status(), kCorrupt,
               format("{} is 0 in all layers", key));
  }
}

TEST_CASE("a draft block with latent attention is read with its products in one matrix and in two") {
  const std::string plain = gguf_bytes(kLatent);
  const auto wanted = values_of(model_of(kLatent));
  REQUIRE(wanted.contains("draft.kv_b"));
  CHECK(values_of(ok(open_bytes(plain))) == wanted);
  GgufEditor file(plain);
  for (const char* const layer : {"blk.0.", "blk.1.", "blk.2.", "blk.3."})
    split_latent_products(file, layer, 3, 12, 6, 8);
  // Converters say one width for all layers, the block's included, as a number or a list.
  for (const bool is_list : {false, true}) {
    CAPTURE(is_list);
    if (is_list) file.set_list("deepseek2.feed_forward_length", {14, 14, 14, 14});
    const std::string bytes = file.finish();
    CHECK(values_of(ok(open_bytes(bytes))) == wanted);
  }
  // The names of the block's own tensors.
  for (const char* const name : {"eh_proj", "enorm", "hnorm", "shared_head_norm"}) {
    const std::string tensor = format("blk.3.nextn.{}.weight", name);
    CAPTURE(tensor);
    GgufEditor less(plain);
    check_says(open_bytes(less.erase_tensor(tensor).finish()).status(), kCorrupt,
               "tensor '" + tensor + "' is missing");
  }
}

TEST_CASE("tables of the draft block are read where the file has them") {
  const std::string own = std::string(kLatent) + ",draft_tables";
  const std::string bytes = gguf_bytes(own);
  CHECK(values_of(ok(open_bytes(bytes))) == values_of(model_of(own)));
  GgufEditor one(bytes);
  one.erase_tensor("blk.3.nextn.shared_head_head.weight");
  check_says(open_bytes(one.finish()).status(), kCorrupt,
             "tensor 'blk.3.nextn.shared_head_head.weight' is missing");
}

TEST_CASE("draft blocks of a gguf file that are several, elsewhere, or of another width") {
  const std::string plain = gguf_bytes(kLatent);
  GgufEditor several(plain);
  // The second block of two: the model's last layer is the first.
  several.set("deepseek2.nextn_predict_layers", 2);
  const std::string two = several.finish();
  const OpenedModel fewer = ok(open_bytes(two));
  CHECK(fewer.model.metadata.at("description").find("L=2,") != std::string::npos);
  CHECK(!values_of(fewer).contains("draft.projection"));
  CHECK(says_left_out(fewer, "blk.2.*"));
  CHECK(says_left_out(fewer, "blk.3.*"));

  // Files of a model alone may count a block that is in another file.
  GgufEditor trunk(plain);
  std::erase_if(trunk.tensors(), [](const auto& tensor) { return tensor.name.starts_with("blk.3."); });
  const std::string alone = trunk.finish();
  const OpenedModel without = ok(open_bytes(alone));
  CHECK(without.model.metadata.at("description").find("L=3,") != std::string::npos);
  CHECK(!values_of(without).contains("draft.projection"));

  for (const uint64_t count : {uint64_t{4}, uint64_t{1} << 60}) {
    GgufEditor many(plain);
    many.set("deepseek2.nextn_predict_layers", count);
    check_says(open_bytes(many.finish()).status(), kCorrupt,
               format("deepseek2.nextn_predict_layers is {} of deepseek2.block_count 4", count));
  }
  GgufEditor wide(plain);
  std::swap(wide.tensor("blk.3.nextn.eh_proj.weight").dims[0],
            wide.tensor("blk.3.nextn.eh_proj.weight").dims[1]);
  check_says(open_bytes(wide.finish()).status(), kCorrupt,
             "tensor 'blk.3.nextn.eh_proj.weight' is [24, 12], the model wants [12, 24]");
  GgufEditor keys(plain);
  split_latent_products(keys, "blk.3.", 3, 12, 8, 6);
  check_says(open_bytes(keys.finish()).status(), kCorrupt,
             "tensor 'blk.3.attn_k_b.weight' is [3, 12, 8], the model wants [3, 12, 6]");
}
