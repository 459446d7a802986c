#include "engine/model/resize_tokens.h"

#include <algorithm>
#include <utility>

#include "graph/base/text.h"
#include "serialize/file_limits.h"
#include "serialize/token_rows.h"
#include "text/json.h"
#include "text/tokenizer/token_addition.h"

namespace tessera {
namespace {

Result<std::vector<std::string>> read_texts(const std::string& text) {
  std::vector<std::string> texts;
  if (text.empty()) return texts;
  const Result<Json> list = parse_json(text, "resize_tokens: option 'tokens'");
  if (!list.ok() || !list->is_array())
    return Status(StatusCode::kInvalidArgument,
                  format("resize_tokens: option 'tokens' is {}, wanted a JSON array of texts", text));
  for (const Json& item : *list) {
    if (!item.is_string())
      return Status(StatusCode::kInvalidArgument, format("resize_tokens: option 'tokens' holds {}, wanted texts",
                                                         quote_json(item)));
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

}  // namespace

Result<std::shared_ptr<SharedModel>> resize_tokens(const SharedModel& model, int64_t rows,
                                                   const Options& options) {
  OptionReader reader(options, "resize_tokens");
  const std::string tokens = reader.text("tokens");
  const bool special = reader.flag("special", true);
  const int64_t multiple = reader.i64("multiple", 1, 1, 1 << 20);
  const auto seed = static_cast<uint64_t>(reader.i64("seed", 0));
  TSR_RETURN_IF_ERROR(reader.finish());
  TSR_ASSIGN_OR_RETURN(const std::vector<std::string> texts, read_texts(tokens));
  Model given = model.snapshot();
  if (!texts.empty()) {
    if (!given.tokenizer)
      return Status(StatusCode::kFailedPrecondition,
                    "resize_tokens: the model has no tokenizer that could have more tokens");
    TSR_ASSIGN_OR_RETURN(given.tokenizer, with_added_tokens(std::move(*given.tokenizer), texts, special));
  }
  const int64_t before = token_rows(given),
                used = given.tokenizer ? static_cast<int64_t>(used_tokens(*given.tokenizer)) : 0;
  if (rows == 0) rows = std::max(before, used);
  if (multiple > 1) rows = (rows + multiple - 1) / multiple * multiple;
  if (rows > 0 && rows < used)
    return Status(StatusCode::kInvalidArgument,
                  format("resize_tokens: {} rows, the tokenizer has {} tokens: wanted at least as many, or 0",
                         rows, used));
  // Tokens that pad the vocabulary are removed with their rows.
  if (given.tokenizer && std::ssize(given.tokenizer->tokens) > rows) {
    TokenizerData& data = *given.tokenizer;
    const auto kept = static_cast<size_t>(rows);
    data.tokens.resize(kept);
    data.types.resize(kept);
    if (!data.scores.empty()) data.scores.resize(kept);
    if (!data.log_probabilities.empty()) data.log_probabilities.resize(kept);
  }
  std::shared_ptr<const Tokenizer> tokenizer = model.tokenizer();
  if (given.tokenizer) {
    TSR_ASSIGN_OR_RETURN(tokenizer, Tokenizer::create(*given.tokenizer));
    given.tokenizer = tokenizer->data();
  }
  if (rows != before) {
    // A random table is drawn before it grows, so that its first rows keep their values.
    for (const std::string& name : model.parameter_names())
      if ((name == "token_embedding" || name == "output") && !given.parameters.contains(name)) {
        TSR_ASSIGN_OR_RETURN(given.parameters[name], model.read_uncached(name, model.seed()));
      }
    TSR_ASSIGN_OR_RETURN(given, with_token_rows(given, rows, seed));
  }
  TSR_RETURN_IF_ERROR(check_storable(given));
  auto resized = std::make_shared<SharedModel>(std::move(given), model.seed(), std::move(tokenizer));
  resized->set_origin(model);
  return resized;
}

}  // namespace tessera
