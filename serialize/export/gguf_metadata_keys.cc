#include "serialize/export/gguf_metadata_keys.h"

#include <algorithm>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "serialize/generation_config.h"
#include "serialize/import/gguf_metadata.h"
#include "serialize/import/sentence_modules.h"
#include "text/chat_template.h"

namespace tessera {
namespace {

std::string value_of(const Model& model, std::string_view key) {
  const auto found = model.metadata.find(std::string(key));
  return found == model.metadata.end() ? std::string() : found->second;
}

void write_chat_templates(const Model& model, GgufWriter& out) {
  const std::string named = format("{}.", kChatTemplateKey);
  std::vector<std::string> names;
  for (const auto& [key, text] : model.metadata) {
    if (key != kChatTemplateKey && !key.starts_with(named)) continue;
    out.text("tokenizer." + key, text);
    if (key != kChatTemplateKey) names.push_back(key.substr(named.size()));
  }
  if (!names.empty()) out.texts("tokenizer.chat_templates", names);
}

void write_sampling(const Model& model, GgufWriter& out) {
  const GgufSampling sampling = gguf_sampling(value_of(model, kGenerationConfigKey));
  for (const auto& [key, value] : sampling.integers) out.i32(key, value);
  for (const auto& [key, value] : sampling.reals) out.f32(key, value);
  for (const auto& [key, value] : sampling.texts) out.text(key, value);
  if (!sampling.rest.empty()) out.text(format("{}{}", kOwnGgufPrefix, kGenerationConfigKey), sampling.rest);
}

}  // namespace

void write_gguf_metadata(const Model& model, std::string_view architecture, bool has_classes, GgufWriter& out) {
  write_chat_templates(model, out);
  write_sampling(model, out);
  const auto found = std::ranges::find(kGgufPoolings, value_of(model, kPoolingKey));
  const bool is_known = found != kGgufPoolings.end();
  if (has_classes || is_known)
    out.u32(format("{}.pooling_type", architecture), has_classes ? kGgufRankPooling : found - kGgufPoolings.begin());
  for (const std::string_view key : kOwnGgufKeys)
    if (const std::string value = value_of(model, key); !value.empty() && (key != kPoolingKey || has_classes))
      out.text(format("{}{}", kOwnGgufPrefix, key), value);
}

}  // namespace tessera
