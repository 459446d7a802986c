// constrained_masks FOLDER: how long masks of constrained output take with the vocabulary of a Hugging Face folder, for
// states that are new (the first text of a cache) and for states seen before (the same text again). Times are
// processor time of the thread in milliseconds.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "serialize/import/tokenizer_folder.h"
#include "text/grammar/constraint.h"
#include "text/grammar/grammar.h"
#include "text/tokenizer/hugging_face.h"
#include "text/tokenizer/tokenizer.h"

using namespace tessera;

namespace {

using grammar::Constraint;
using grammar::Grammar;
using grammar::MaskCache;
using grammar::TokenBytes;

double milliseconds_of(const std::function<void()>& body) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
  };
  const double begin = now();
  body();
  return now() - begin;
}

constexpr const char* kSchema = R"({"type": "object", "properties": {
  "name": {"type": "string"}, "title": {"type": "string", "maxLength": 200}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
  "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}}, "mail": {"type": "string", "format": "email"},
  "more": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}}, "required": ["a", "b"]}},
  "required": ["name", "title", "age", "tags", "mail", "more"]})";
constexpr const char* kValue =
    R"({"name": "John Smith, a long name here", "title": "the quick brown fox jumps over the lazy dog and so on", )"
    R"("age": 31, "tags": ["red", "blue"], "mail": "john.smith@example.com", "more": {"a": "another text with words", "b": 1.25}})";
constexpr const char* kSentence = "The quick brown fox jumps over the lazy dog.";

Status measure(const char* name, Result<Grammar::Shared> made, const std::string& text,
               const Tokenizer& tokenizer, const std::shared_ptr<const TokenBytes>& tokens) {
  TSR_RETURN_IF_ERROR(made.status());
  TSR_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer.encode(text));
  const auto cache = std::make_shared<MaskCache>(*made, tokens);
  for (const char* states : {"new", "seen"}) {
    Constraint constraint(cache);
    std::vector<uint32_t> mask(constraint.mask_words());
    std::vector<double> times;
    double sum = 0, accept_sum = 0;
    Status status;
    for (const int32_t id : ids) {
      times.push_back(milliseconds_of([&] { status = constraint.write_allowed(mask); }));
      sum += times.back();
      TSR_RETURN_IF_ERROR(status);
      accept_sum += milliseconds_of([&] { status = constraint.accept(id); });
      TSR_RETURN_IF_ERROR(status);
    }
    std::ranges::sort(times);
    const auto count = static_cast<double>(times.size());
    std::printf("%-8s %-5s %3zu tokens; a mask: mean %.4f, median %.4f, worst %.4f; accept: mean %.4f\n",
                name, states, times.size(), sum / count, times[times.size() / 2], times.back(),
                accept_sum / count);
  }
  return {};
}

Status run(const std::string& folder) {
  TSR_ASSIGN_OR_RETURN(auto data, hf_folder_tokenizer(folder));
  if (!data) return Status(StatusCode::kNotFound, folder + " has no tokenizer");
  TSR_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::create(std::move(*data)));
  std::shared_ptr<const TokenBytes> tokens;
  Status status;
  const double preparing = milliseconds_of([&] {
    auto made = TokenBytes::create(*tokenizer);
    status = made.status();
    if (made.ok()) tokens = *made;
  });
  TSR_RETURN_IF_ERROR(status);
  std::printf("%d tokens, a trie of %zu nodes, prepared in %.1f\n", tokens->vocabulary_size(),
              tokens->trie().size(), preparing);
  TSR_RETURN_IF_ERROR(measure("json", Grammar::json(), kValue, *tokenizer, tokens));
  TSR_RETURN_IF_ERROR(measure("schema", Grammar::from_json_schema(kSchema), kValue, *tokenizer, tokens));
  TSR_RETURN_IF_ERROR(measure("regex", Grammar::from_regex("[A-Z][a-z]+( [A-Za-z]+){3,20}\\."), kSentence,
                              *tokenizer, tokens));
  return measure("any text", Grammar::from_regex("(.|\\n)*"), kSentence, *tokenizer, tokens);
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) {
    std::fprintf(stderr, "constrained_masks FOLDER\n");
    return 2;
  }
  const Status status = run(words[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
