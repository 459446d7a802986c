#include "serialize/export/byte_level_vocabulary.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/base/text.h"
#include "text/json.h"
#include "text/tokenizer/word_splitter.h"

namespace tessera {
namespace {

Status no_word(std::string_view part, const Json& value) {
  return Status(StatusCode::kUnsupported,
                format("the tokenizer's {} is {}, which GGUF files have no word for; leave the tokenizer out "
                       "(--no-tokenizer, option tokenizer = 0) to run the model by token ids",
                       part, quote_json(value, 120)));
}

std::string type_of(const Json& part) { return part.is_object() ? part.value("type", "") : std::string(); }

// The steps of a Sequence, or the single step.
Json steps_of(const Json& part, const char* list) {
  if (part.is_null()) return Json::array();
  return type_of(part) == "Sequence" && part.contains(list) ? part[list] : Json::array({part});
}

const std::string& gpt2_pattern() {
  static const std::string kPattern = [] {
    for (const SplitPattern& each : known_split_patterns())
      if (std::ranges::find(each.names, std::string_view("gpt-2")) != each.names.end())
        return std::string(each.patterns[0]);
    return std::string();
  }();
  return kPattern;
}

// Split patterns that a pre-tokenizer applies before mapping bytes to characters.
Result<std::vector<std::string>> patterns_of(const Json& pre_tokenizer) {
  std::vector<std::string> patterns;
  bool spells_bytes = false;
  for (const Json& step : steps_of(pre_tokenizer, "pretokenizers")) {
    const std::string type = type_of(step);
    if (spells_bytes) return no_word("pre_tokenizer", pre_tokenizer);
    if (type == "Split" && step.value("behavior", "") == "Isolated" && !step.value("invert", false) &&
        step.contains("pattern") && step["pattern"].contains("Regex")) {
      patterns.push_back(step["pattern"]["Regex"].get<std::string>());
    } else if (type == "Digits" && step.value("individual_digits", false)) {
      patterns.emplace_back(R"(\p{N})");
    } else if (type == "ByteLevel" && !step.value("add_prefix_space", true)) {
      spells_bytes = true;
      if (step.value("use_regex", true)) patterns.push_back(gpt2_pattern());
    } else {
      return no_word("pre_tokenizer", step);
    }
  }
  if (!spells_bytes) return no_word("pre_tokenizer", pre_tokenizer);
  return patterns;
}

// A pattern without parts implied by it: pieces between matches.
std::string_view without_tail(std::string_view pattern) {
  constexpr std::string_view kTail = R"(|\s+)";
  return pattern.ends_with(kTail) ? pattern.substr(0, pattern.size() - kTail.size()) : pattern;
}

}  // namespace

Result<TokenizerData> byte_level_vocabulary(const TokenizerData& pipeline) {
  TSR_ASSIGN_OR_RETURN(const Json parts, parse_json(pipeline.pipeline, "the tokenizer's pipeline"));
  const Json model = parts.value("model", Json());
  const auto is_set = [&](const char* key) {
    return model.contains(key) && !model[key].is_null() && model[key] != "" && model[key] != false;
  };
  if (type_of(model) != "BPE" || is_set("byte_fallback") || is_set("continuing_subword_prefix") ||
      is_set("end_of_word_suffix") || is_set("dropout"))
    return no_word("model", model);
  // Most texts are composed (NFC) already, and GGUF readers omit that step.
  const Json normalizer = parts.value("normalizer", Json());
  if (!normalizer.is_null() && type_of(normalizer) != "NFC") return no_word("normalizer", normalizer);
  const Json pre_tokenizer = parts.value("pre_tokenizer", Json());
  TSR_ASSIGN_OR_RETURN(const std::vector<std::string> patterns, patterns_of(pre_tokenizer));
  const bool whole_words_first = is_set("ignore_merges");
  const auto known = known_split_patterns();
  const auto found = std::ranges::find_if(known, [&](const SplitPattern& each) {
    return each.whole_words_first == whole_words_first &&
           std::ranges::equal(each.patterns, patterns, {}, without_tail,
                              [](const std::string& pattern) { return without_tail(pattern); });
  });
  if (found == known.end()) return no_word("pre_tokenizer", pre_tokenizer);

  TokenizerData data = pipeline;
  data.kind = TokenizerKind::kByteLevelBpe;
  data.pre_tokenizer = found->names[0];
  for (size_t i = 0; i + 1 < data.merge_ids.size(); i += 2)
    data.merges.push_back(data.tokens[static_cast<size_t>(data.merge_ids[i])] + " " +
                          data.tokens[static_cast<size_t>(data.merge_ids[i + 1])]);
  for (size_t id = 0; id < data.tokens.size(); ++id)
    if (data.tokens[id].empty()) data.tokens[id] = format("[PAD{}]", id);  // an unused id
  data.merge_ids.clear();
  data.pipeline.clear();
  return data;
}

}  // namespace tessera
