#include "serialize/import/gguf_names.h"

#include <algorithm>
#include <iterator>
#include <span>

namespace tessera {
namespace {

struct NameRule {
  std::string_view ours, theirs;
  int part = -1;
};

constexpr NameRule kLlamaNames[] = {{"token_embedding", "token_embd.weight"},
                                    {"final_norm", "output_norm.weight"},
                                    {"output", "output.weight"}};
constexpr NameRule kLlamaBlockNames[] = {{"attention_norm", "attn_norm.weight"},
                                         {"q", "attn_q.weight"},
                                         {"k", "attn_k.weight"},
                                         {"v", "attn_v.weight"},
                                         {"o", "attn_output.weight"},
                                         {"ffn_norm", "ffn_norm.weight"},
                                         {"gate", "ffn_gate.weight"},
                                         {"up", "ffn_up.weight"},
                                         {"down", "ffn_down.weight"},
                                         // moe
                                         {"router", "ffn_gate_inp.weight"},
                                         {"experts.gate", "ffn_gate_exps.weight"},
                                         {"experts.up", "ffn_up_exps.weight"},
                                         {"experts.down", "ffn_down_exps.weight"}};

constexpr NameRule kGpt2Names[] = {{"token_embedding", "token_embd.weight"},
                                   {"position_embedding", "position_embd.weight"},
                                   {"final_norm.weight", "output_norm.weight"},
                                   {"final_norm.bias", "output_norm.bias"},
                                   {"output", "output.weight"}};
constexpr NameRule kGpt2BlockNames[] = {
    {"norm1.weight", "attn_norm.weight"}, {"norm1.bias", "attn_norm.bias"},
    {"q.weight", "attn_qkv.weight", 0},   {"q.bias", "attn_qkv.bias", 0},
    {"k.weight", "attn_qkv.weight", 1},   {"k.bias", "attn_qkv.bias", 1},
    {"v.weight", "attn_qkv.weight", 2},   {"v.bias", "attn_qkv.bias", 2},
    {"o.weight", "attn_output.weight"},   {"o.bias", "attn_output.bias"},
    {"norm2.weight", "ffn_norm.weight"},  {"norm2.bias", "ffn_norm.bias"},
    {"fc.weight", "ffn_up.weight"},       {"fc.bias", "ffn_up.bias"},
    {"proj.weight", "ffn_down.weight"},   {"proj.bias", "ffn_down.bias"}};

constexpr NameRule kEncoderNames[] = {{"token_embedding", "token_embd.weight"},
                                      {"position_embedding", "position_embd.weight"},
                                      {"embedding_norm.weight", "token_embd_norm.weight"},
                                      {"embedding_norm.bias", "token_embd_norm.bias"},
                                      {"output.weight", "output.weight"}};
constexpr NameRule kEncoderBlockNames[] = {{"q.weight", "attn_q.weight"},
                                           {"q.bias", "attn_q.bias"},
                                           {"k.weight", "attn_k.weight"},
                                           {"k.bias", "attn_k.bias"},
                                           {"v.weight", "attn_v.weight"},
                                           {"v.bias", "attn_v.bias"},
                                           {"o.weight", "attn_output.weight"},
                                           {"o.bias", "attn_output.bias"},
                                           {"norm1.weight", "attn_output_norm.weight"},
                                           {"norm1.bias", "attn_output_norm.bias"},
                                           {"fc.weight", "ffn_up.weight"},
                                           {"fc.bias", "ffn_up.bias"},
                                           {"proj.weight", "ffn_down.weight"},
                                           {"proj.bias", "ffn_down.bias"},
                                           {"norm2.weight", "layer_output_norm.weight"},
                                           {"norm2.bias", "layer_output_norm.bias"}};

struct FamilyNames {
  std::string_view family;
  std::span<const NameRule> names, block_names;
};
constexpr FamilyNames kFamilies[] = {{"llama", kLlamaNames, kLlamaBlockNames},
                                     {"moe", kLlamaNames, kLlamaBlockNames},
                                     {"gpt2", kGpt2Names, kGpt2BlockNames},
                                     {"encoder", kEncoderNames, kEncoderBlockNames}};

}  // namespace

std::optional<GgufName> gguf_name(std::string_view family, std::string_view parameter) {
  const auto names = std::ranges::find(kFamilies, family, &FamilyNames::family);
  if (names == std::end(kFamilies)) return std::nullopt;
  std::span<const NameRule> rules = names->names;
  std::string prefix;
  constexpr std::string_view kBlock = "block.";
  if (parameter.starts_with(kBlock)) {
    const size_t dot = parameter.find('.', kBlock.size());
    if (dot == parameter.npos) return std::nullopt;
    rules = names->block_names;
    prefix = "blk." + std::string(parameter.substr(kBlock.size(), dot - kBlock.size())) + ".";
    parameter = parameter.substr(dot + 1);
  }
  const auto rule = std::ranges::find(rules, parameter, &NameRule::ours);
  if (rule == rules.end()) return std::nullopt;
  return GgufName{prefix + std::string(rule->theirs), rule->part};
}

}  // namespace tessera
