#include "engine_vectors.h"

#include <algorithm>
#include <cstdlib>

#include "prompt_requests.h"

namespace cli {

namespace {

struct TextTokens {
  std::vector<std::vector<int32_t>> ids;  // of each text, with what stands around it
  int64_t longest = 0, count = 0;         // tokens of a text, and of all
};

// Nothing where an embedder knows better what is wrong.
std::optional<TextTokens> encode_texts(const Model& model, const std::vector<std::string_view>& texts) {
  tsr_tokenizer* found = nullptr;
  if (tsr_status* const none = tsr_model_tokenizer(model.get(), &found)) {
    tsr_status_free(none);
    return {};
  }
  const Tokenizer tokenizer(found);
  TextTokens tokens;
  for (const std::string_view text : texts) {
    std::vector<int32_t>& ids = tokens.ids.emplace_back(text.size() + 8);
    size_t count = 0;
    const auto encode = [&] {
      check(tsr_tokenizer_encode(tokenizer.get(), text.data(), text.size(), TSR_ENCODE_AROUND, ids.data(),
                                 ids.size(), &count));
    };
    encode();
    const bool fits = count <= ids.size();
    ids.resize(count);
    if (!fits) encode();
    if (ids.empty()) return {};
    tokens.longest = std::max(tokens.longest, static_cast<int64_t>(count));
    tokens.count += static_cast<int64_t>(count);
  }
  return tokens;
}

std::string metadata(const Model& model, const char* key) {
  char value[64] = {};
  size_t size = 0;
  check(tsr_model_metadata(model.get(), key, value, sizeof value, &size));
  return size == 0 ? "" : value;
}

// What is asked for, or what the model's file says; empty: neither.
std::string pooling_of(const Model& model, const VectorForm& form) {
  const std::string asked = form.pooling.value_or("auto");
  return asked == "auto" ? metadata(model, "pooling") : asked;
}

Json report_of(const Engine& engine, const Model& model, const TextTokens& tokens, size_t width,
               const VectorForm& form) {
  const std::string pooling = pooling_of(model, form);
  Json report = {{"texts", tokens.ids.size()}, {"tokens", tokens.count}, {"truncated", 0}};
  report.update(computed_report(engine));
  report["width"] = width;
  report["output"] = "embedding";
  report["normalize"] = form.normalize.value_or(metadata(model, "normalize") == "1");
  report["pooling"] = pooling.empty() ? "last" : pooling;
  return report;
}

}  // namespace

std::optional<TextVectors> embed_by_engine(const Common& common, const Inference& inference,
                                           const Runtime& runtime, const Model& model,
                                           const std::vector<std::string_view>& texts,
                                           const VectorForm& form) {
  const std::optional<TextTokens> tokens = encode_texts(model, texts);
  const int64_t usual = std::atoll(metadata(model, "embedding_tokens").c_str());
  const int64_t most = form.seq ? *form.seq : usual > 0 ? usual : INT64_MAX;
  const std::string pooling = pooling_of(model, form);
  if (!tokens || texts.empty() || tokens->longest > most || pooling == "none" || pooling == "rank") return {};
  const Options options = make<Options>(tsr_options_new);
  set(options, "context", form.seq);
  set(options, "embeddings", int64_t{1});
  const std::optional<Engine> engine =
      prompt_engine(common, inference, runtime, model, options, tokens->longest);
  if (!engine) return {};
  TextVectors vectors;
  check(tsr_engine_embedding_width(engine->get(), &vectors.width));
  vectors.values.resize(texts.size() * vectors.width);
  const Options request = make<Options>(tsr_options_new);
  set(request, "embed", int64_t{1});
  set(request, "pooling", form.pooling);
  if (form.normalize) set(request, "normalize", int64_t{*form.normalize ? 1 : 0});
  const auto submit = [&](size_t text) -> std::optional<int64_t> {
    int64_t number = 0;
    check(tsr_engine_submit_tokens(engine->get(), request.get(), tokens->ids[text].data(),
                                   tokens->ids[text].size(), &number));
    return number;
  };
  const auto take = [&](size_t text, int64_t number) {
    check(tsr_engine_embedding(engine->get(), number, vectors.values.data() + text * vectors.width,
                               vectors.width, nullptr));
  };
  run_requests(common, *engine, {texts.size(), "computed", submit, take});
  vectors.report = report_of(*engine, model, *tokens, vectors.width, form);
  return vectors;
}

}  // namespace cli
