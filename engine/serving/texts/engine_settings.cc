#include "engine/serving/texts/engine_settings.h"

#include <algorithm>
#include <utility>

#include "engine/model/loading.h"
#include "engine/sampling/recommended_sampling.h"
#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/generation_config.h"
#include "serialize/opened_model.h"

namespace tessera {

namespace {

constexpr int64_t kMostTokens = int64_t{1} << 30;

// The recommended length limit is ignored; the caller decides the length.
RecommendedSampling recommended(const SharedModel& model) {
  const std::string config = model.metadata(kGenerationConfigKey);
  if (config.empty()) return {};
  const Result<Options> values = generation_config_values(config);
  if (!values.ok()) return {{}, {std::string(values.status().message())}};
  RecommendedSampling found = recommend_sampling(*values, {});
  found.settings.max_tokens = 0;
  return found;
}

GrammarSource read_grammar(OptionReader& reader) {
  using Kind = GrammarSource::Kind;
  GrammarSource source;
  const auto take = [&](const char* name, Kind kind, std::string text) {
    if (source.kind != Kind::kNone)
      reader.fail(
          Status(StatusCode::kInvalidArgument,
                 format("request: option '{}' with another that says which texts are allowed; wanted one of "
                        "json_schema, json, regex, choices, grammar",
                        name)));
    source = {kind, std::move(text)};
  };
  for (const auto& [name, kind] :
       {std::pair("json_schema", Kind::kJsonSchema), std::pair("regex", Kind::kRegex),
        std::pair("choices", Kind::kChoices), std::pair("grammar", Kind::kGbnf)}) {
    std::string text = reader.text(name);
    if (reader.has(name)) take(name, kind, std::move(text));
  }
  if (reader.flag("json", false)) take("json", Kind::kJson, {});
  return source;
}

void read_speculation(OptionReader& reader, EngineSettings& settings) {
  const std::string source = reader.choice("speculation", "off", {"off", "ngram", "draft", "mtp"});
  settings.draft_model = reader.text("draft_model");
  settings.serving.speculates = source != "off";
  settings.serving.drafts_by_block = source == "mtp";
  settings.serving.max_drafts = reader.i64("draft_tokens", source == "ngram" || source == "off" ? 7 : 4, 1, 15);
  const auto refuse = [&](std::string what) {
    reader.fail(Status(StatusCode::kInvalidArgument, std::move(what)));
  };
  if (source == "draft" && settings.draft_model.empty())
    refuse("engine: option 'speculation' is draft without 'draft_model'; wanted the path of a model");
  if (source != "draft" && reader.has("draft_model"))
    refuse(format("engine: option 'draft_model' with 'speculation' {}; wanted draft", source));
  if (source == "off" && reader.has("draft_tokens"))
    refuse("engine: option 'draft_tokens' with 'speculation' off; wanted draft, mtp or ngram");
}

void read_pooling(OptionReader& reader, RequestSettings& settings) {
  const std::string pooling = reader.choice("pooling", "auto", {"auto", "mean", "cls", "last", "none"});
  const bool normalize = reader.flag("normalize", false);
  const auto refuse = [&](std::string_view name, std::string_view why) {
    if (reader.has(name))
      reader.fail(Status(StatusCode::kInvalidArgument, format("request: option '{}' {}", name, why)));
  };
  if (!settings.task || !settings.task->reads_hidden()) {
    refuse("pooling", "without 'embed'; wanted embed 1");
    refuse("normalize", "without 'embed'; wanted embed 1");
    return;
  }
  if (pooling == "none") {
    settings.task->kind = PromptTask::Kind::kHidden;
    return refuse("normalize", "with 'pooling' none: hidden states are given as they are");
  }
  if (pooling == "mean") settings.pooling = Pooling::kMean;
  if (pooling == "cls") settings.pooling = Pooling::kCls;
  if (pooling == "last") settings.pooling = Pooling::kLast;
  if (reader.has("normalize")) settings.normalize = normalize;
}

// A request that only reads its prompt has no options of generation.
void read_task(OptionReader& reader, const Options& options, RequestSettings& settings) {
  const bool embeds = reader.flag("embed", false);
  const int64_t first = reader.i64("score_from", -1, -1);
  if (embeds && first >= 0)
    reader.fail(
        Status(StatusCode::kInvalidArgument,
               "request: options 'embed' and 'score_from' are both given; wanted one of them, and a request "
               "for each"));
  if (embeds) settings.task = PromptTask{PromptTask::Kind::kVector, {}, 0};
  if (first >= 0) settings.task = PromptTask{PromptTask::Kind::kScores, {}, first};
  read_pooling(reader, settings);
  if (!settings.task) return;
  std::vector<std::string> refused = sampling_option_names();
  for (const char* name : {"json_schema", "json", "regex", "choices", "grammar", "logits", "keep", "parse", "tool_choice"})
    refused.emplace_back(name);
  if (first >= 0) std::erase(refused, "special");
  for (const auto& [key, value] : options)
    if (std::ranges::find(refused, key) != refused.end())
      reader.fail(
          Status(StatusCode::kInvalidArgument,
                 format("request: option '{}' with '{}', which generates no text; wanted one of the two", key,
                        embeds ? "embed" : "score_from")));
  const bool special = settings.sampling.special;
  settings.sampling = {};
  settings.sampling.special = special && first >= 0;
}

}  // namespace

Result<EngineSettings> read_engine_settings(const Options& options, const SharedModel* model) {
  OptionReader reader(options, "engine");
  EngineSettings settings;
  ServingSettings& serving = settings.serving;
  serving.compute = read_compute(reader);
  serving.inference = read_inference(reader, "engine");
  serving.context = reader.i64("context", 0, 0, 1 << 24);
  serving.rows = reader.i64("sequences", serving.rows, 1, kMostSequences);
  serving.step_tokens = reader.i64("step_tokens", serving.step_tokens, 1, 1 << 16);
  const int64_t tokens = reader.i64("cache_tokens", 0, 0, kMostTokens);
  serving.pages = (tokens + serving.page_size - 1) / serving.page_size;
  const int64_t window_tokens = reader.i64("window_cache_tokens", 0, 0, kMostTokens);
  serving.window_pages = (window_tokens + serving.page_size - 1) / serving.page_size;
  const std::string cache = reader.choice("cache_type", "model", {"model", "f16", "bf16", "q8_0"});
  if (cache != "model") serving.cache = dtype_from_name(cache);
  serving.shares_prefixes = reader.flag("prefix_cache", true);
  serving.snapshots = reader.i64("state_snapshots", serving.snapshots, 0, kMostSequences);
  serving.adapters = reader.i64("adapters", 0, 0, 4096);
  serving.adapter_rank = reader.i64("adapter_rank", serving.adapter_rank, 1, 4096);
  serving.adapter_type =
      dtype_from_name(reader.choice("adapter_type", "f32", {"f32", "bf16", "f16"})).value_or(DType::kF32);
  const std::string on = reader.choice("adapter_on", "blocks", {"blocks", "blocks,head", "blocks,tables", "blocks,head,tables"});
  serving.adapter_head = on.find("head") != std::string::npos;
  serving.adapter_tables = on.find("tables") != std::string::npos;
  if (on != "blocks" && serving.adapters == 0)
    reader.fail(Status(
        StatusCode::kInvalidArgument,
        format("engine: option 'adapter_on' is {}, and 'adapters' 0: set adapters to the number that a step mixes", on)));
  serving.hidden = reader.flag("embeddings", false);
  serving.scored_tokens = reader.i64("scored_tokens", serving.scored_tokens, 1, 1 << 16);
  read_speculation(reader, settings);
  RecommendedSampling from_file = model != nullptr ? recommended(*model) : RecommendedSampling();
  settings.not_obeyed = std::move(from_file.not_obeyed);
  settings.sampling = read_sampling(reader, from_file.settings);
  if (reader.has("echo"))
    reader.fail(
        Status(StatusCode::kInvalidArgument,
               "engine: option 'echo' is a generator's; the caller of an engine has the prompt already"));
  TSR_RETURN_IF_ERROR(reader.finish());
  TSR_RETURN_IF_ERROR(check_together(settings.sampling));
  return settings;
}

Status load_draft_model(EngineSettings& settings) {
  if (settings.draft_model.empty()) return {};
  const std::string& path = settings.draft_model;
  const auto load = [&path]() -> Result<std::shared_ptr<SharedModel>> {
    TSR_ASSIGN_OR_RETURN(auto source, open_model_file(path));
    return load_shared_model(std::move(source), path);
  };
  auto draft = load();
  if (!draft.ok()) return draft.status().with_context("the draft model");
  settings.serving.draft = std::move(*draft);
  return {};
}

Result<RequestSettings> read_request_settings(const Options& options, const SamplingSettings& otherwise,
                                              bool messages) {
  OptionReader reader(options, "request");
  RequestSettings settings;
  settings.sampling = read_sampling(reader, otherwise);
  settings.grammar = read_grammar(reader);
  settings.priority = reader.i64("priority", 0, INT32_MIN, INT32_MAX);
  settings.changes_logits = reader.flag("logits", false);
  settings.keeps_sequence = reader.flag("keep", false);
  settings.adapter = reader.i64("adapter", -1, -1);
  read_task(reader, options, settings);
  if (reader.has("echo"))
    reader.fail(
        Status(StatusCode::kInvalidArgument,
               "request: option 'echo' is a generator's; the caller of an engine has the prompt already"));
  if (messages) {
    reader.accept({"name", "template", "tools", "documents", "variables", "now", "continue_final_message"});
    settings.parses = reader.flag("parse", true) && !settings.task;
    settings.tool_choice = ToolChoice::of(reader.text("tool_choice"));
    if (settings.tool_choice.obliges() && settings.grammar.kind != GrammarSource::Kind::kNone)
      reader.fail(Status(StatusCode::kInvalidArgument,
                         format("request: option 'tool_choice' is '{}' with another that says which texts are allowed; "
                                "wanted one of them",
                                quote(settings.tool_choice.text()))));
    for (const auto& [key, value] : options) {
      if (key == "name" || key == "template") settings.chat_template.emplace(key, value);
      for (const std::string_view of_chat :
           {"tools", "documents", "variables", "now", "continue_final_message"})
        if (key == of_chat) settings.chat.emplace(key, value);
    }
    if (!settings.chat.contains("continue_final_message"))
      settings.chat["add_generation_prompt"] = int64_t{1};
  }
  TSR_RETURN_IF_ERROR(reader.finish());
  TSR_RETURN_IF_ERROR(check_together(settings.sampling));
  return settings;
}

}  // namespace tessera
