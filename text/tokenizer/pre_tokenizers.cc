#include "text/tokenizer/pre_tokenizers.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "text/tokenizer/byte_characters.h"
#include "text/tokenizer/character.h"
#include "text/tokenizer/json_members.h"
#include "text/tokenizer/normalizers.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/script.h"
#include "text/tokenizer/segments.h"

namespace tessera {
namespace {

using nlohmann::json;
constexpr std::string_view kKnown =
    "ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer, "
    "CharDelimiterSplit, UnicodeScripts, FixedLength, Sequence";
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr int kMostNested = 32;

class PatternSplit final : public PreTokenizer {
 public:
  PatternSplit(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  Status split(const PreToken& piece, PreTokenSink next) const override {
    SegmentSplitter segments(piece, behavior_, next);
    PatternSearch search(pattern_, piece.text);
    size_t done = 0;
    while (search.next()) {
      if (search.begin() > done) TSR_RETURN_IF_ERROR(segments.add(done, search.begin(), invert_));
      TSR_RETURN_IF_ERROR(segments.add(search.begin(), search.end(), !invert_));
      done = search.end();
    }
    TSR_RETURN_IF_ERROR(search.status());
    if (done < piece.text.size()) TSR_RETURN_IF_ERROR(segments.add(done, piece.text.size(), invert_));
    return segments.finish();
  }

 private:
  const Pattern pattern_;
  const SplitBehavior behavior_;
  const bool invert_;
};

// ClassSplit: every character of a class is a match.
class ClassSplit final : public PreTokenizer {
 public:
  ClassSplit(bool (*is_match)(int32_t), SplitBehavior behavior) : is_match_(is_match), behavior_(behavior) {}
  Status split(const PreToken& piece, PreTokenSink next) const override {
    SegmentSplitter segments(piece, behavior_, next);
    size_t done = 0;
    for (size_t at = 0; at < piece.text.size();) {
      const Character character = character_at(piece.text, at);
      const size_t end = at + character.size;
      if (is_match_(character.code)) {
        if (at > done) TSR_RETURN_IF_ERROR(segments.add(done, at, false));
        TSR_RETURN_IF_ERROR(segments.add(at, end, true));
        done = end;
      }
      at = end;
    }
    if (done < piece.text.size()) TSR_RETURN_IF_ERROR(segments.add(done, piece.text.size(), false));
    return segments.finish();
  }

 private:
  bool (*const is_match_)(int32_t);
  const SplitBehavior behavior_;
};

// WordSplit: runs of word characters, and of others except white space.
class WordSplit final : public PreTokenizer {
 public:
  Status split(const PreToken& piece, PreTokenSink next) const override {
    const auto kind_of = [](int32_t code) { return is_word(code) ? 2 : is_white_space(code) ? 0 : 1; };
    size_t begin = 0;
    int kind = 0;
    for (size_t at = 0; at < piece.text.size();) {
      const Character character = character_at(piece.text, at);
      const int here = kind_of(character.code);
      if (here != kind) {
        if (kind != 0) TSR_RETURN_IF_ERROR(next(part_of(piece, begin, at)));
        begin = at;
        kind = here;
      }
      at += character.size;
    }
    return kind != 0 ? next(part_of(piece, begin, piece.text.size())) : Status();
  }
};

// Rewritten: a piece with changed bytes.
class Rewritten {
 public:
  explicit Rewritten(const PreToken& from) : from_(from) {
    text_.text.reserve(from.text.size() + from.text.size() / 2);
  }
  void put(std::string_view bytes, size_t at) {
    text_.text += bytes;
    if (from_.origins) text_.origins.resize(text_.text.size(), from_.origins[at]);
  }
  PreToken piece() const { return {text_.text, from_.origins ? text_.origins.data() : nullptr, from_.first}; }

 private:
  const PreToken& from_;
  NormalizedText text_;
};

class PrefixSpace final : public PreTokenizer {
 public:
  Status split(const PreToken& piece, PreTokenSink next) const override {
    if (piece.text.starts_with(' ')) return next(piece);
    Rewritten with_space(piece);
    with_space.put(" ", 0);
    if (!piece.origins) {
      with_space.put(piece.text, 0);
    } else {
      for (size_t i = 0; i < piece.text.size(); ++i) with_space.put(piece.text.substr(i, 1), i);
    }
    return next(with_space.piece());
  }
};

class ByteCharacters final : public PreTokenizer {
 public:
  Status split(const PreToken& piece, PreTokenSink next) const override {
    Rewritten written(piece);
    for (size_t i = 0; i < piece.text.size(); ++i)
      written.put(byte_character(static_cast<uint8_t>(piece.text[i])), i);
    return next(written.piece());
  }
};

class Metaspace final : public PreTokenizer {
 public:
  enum class Prepend { kNever, kFirst, kAlways };
  Metaspace(std::string replacement, Prepend prepend, bool splits)
      : replacement_(std::move(replacement)), prepend_(prepend), splits_(splits) {}

  Status split(const PreToken& piece, PreTokenSink next) const override {
    Rewritten written(piece);
    const bool prepends = prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && piece.first);
    if (prepends && !piece.text.starts_with(' ') && !piece.text.starts_with(replacement_))
      written.put(replacement_, 0);
    for (size_t at = 0; at < piece.text.size();) {
      if (piece.text[at] == ' ') {
        written.put(replacement_, at++);
        continue;
      }
      size_t end = at + 1;
      if (!piece.origins) end = std::min(piece.text.find(' ', at), piece.text.size());
      written.put(piece.text.substr(at, end - at), at);
      at = end;
    }
    const PreToken whole = written.piece();
    if (!splits_) return next(whole);
    // The last replacement of a run joins the word; the others stand alone.
    SegmentSplitter segments(whole, SplitBehavior::kMergedWithNext, next);
    size_t done = 0;
    for (size_t found; (found = whole.text.find(replacement_, done)) != std::string_view::npos;) {
      if (found > done) TSR_RETURN_IF_ERROR(segments.add(done, found, false));
      done = found + replacement_.size();
      TSR_RETURN_IF_ERROR(segments.add(found, done, true));
    }
    if (done < whole.text.size()) TSR_RETURN_IF_ERROR(segments.add(done, whole.text.size(), false));
    return segments.finish();
  }

 private:
  const std::string replacement_;
  const Prepend prepend_;
  const bool splits_;
};

class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(size_t length) : length_(length) {}
  Status split(const PreToken& piece, PreTokenSink next) const override {
    size_t begin = 0, count = 0;
    for (size_t at = 0; at < piece.text.size();) {
      at += character_at(piece.text, at).size;
      if (++count < length_ && at < piece.text.size()) continue;
      TSR_RETURN_IF_ERROR(next(part_of(piece, begin, at)));
      begin = at;
      count = 0;
    }
    return {};
  }

 private:
  const size_t length_;  // in characters
};

// ScriptSplit: splits at changes of script. Kana count as Han; spaces join the preceding piece.
class ScriptSplit final : public PreTokenizer {
 public:
  explicit ScriptSplit(ScriptFinder scripts) : scripts_(std::move(scripts)) {}
  Status split(const PreToken& piece, PreTokenSink next) const override {
    size_t begin = 0;
    std::optional<int> last;
    for (size_t at = 0; at < piece.text.size();) {
      const Character character = character_at(piece.text, at);
      const int script = scripts_.find(piece.text.substr(at, character.size), character.code);
      if (script >= 0) {
        if (last != script) {
          if (last) TSR_RETURN_IF_ERROR(next(part_of(piece, begin, at)));
          begin = at;  // characters before the first script are dropped
        }
        last = script;
      }
      at += character.size;
    }
    return last ? next(part_of(piece, begin, piece.text.size())) : Status();
  }

 private:
  const ScriptFinder scripts_;
};

Result<SplitBehavior> read_behavior(const JsonMembers& members, std::string fallback) {
  TSR_ASSIGN_OR_RETURN(const std::string name, members.text("behavior", std::move(fallback)));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return members.wrong("behavior", "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

class Builder {
 public:
  Status add(const json& description, int depth) {
    if (description.is_null()) return {};
    if (depth > kMostNested)
      return Status(StatusCode::kInvalidArgument, format("pre-tokenizers nest deeper than {}", kMostNested));
    TSR_ASSIGN_OR_RETURN(const std::string type, type_of(description, "pre_tokenizer"));
    const JsonMembers members(description, "pre_tokenizer " + type);
    if (type == "Sequence") {
      const json& list = members.at("pretokenizers");
      if (!list.is_array()) return members.wrong("pretokenizers", "a list");
      for (const json& step : list) TSR_RETURN_IF_ERROR(add(step, depth + 1));
      return {};
    }
    if (made_.bytes_last) {
      push(std::make_unique<ByteCharacters>());
      made_.bytes_last = false;
    }
    return add_step(type, members);
  }
  PreTokenizerSteps take() { return std::move(made_); }

 private:
  void push(std::unique_ptr<const PreTokenizer> step) { made_.steps.push_back(std::move(step)); }

  Status add_step(const std::string& type, const JsonMembers& members) {
    if (type == "ByteLevel") return add_byte_level(members);
    if (type == "Split") return add_split(members);
    if (type == "Metaspace") return add_metaspace(members);
    if (type == "Digits") {
      TSR_ASSIGN_OR_RETURN(const bool individual, members.flag("individual_digits", false));
      push(std::make_unique<ClassSplit>(is_numeric,
                                        individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
    } else if (type == "Punctuation") {
      TSR_ASSIGN_OR_RETURN(const SplitBehavior behavior, read_behavior(members, "Isolated"));
      push(std::make_unique<ClassSplit>(is_punctuation, behavior));
    } else if (type == "Whitespace") {
      push(std::make_unique<WordSplit>());
    } else if (type == "WhitespaceSplit") {
      push(std::make_unique<ClassSplit>(is_white_space, SplitBehavior::kRemoved));
    } else if (type == "BertPreTokenizer") {
      push(std::make_unique<ClassSplit>(is_white_space, SplitBehavior::kRemoved));
      push(std::make_unique<ClassSplit>(is_punctuation, SplitBehavior::kIsolated));
    } else if (type == "CharDelimiterSplit") {
      TSR_ASSIGN_OR_RETURN(const std::string delimiter, members.character("delimiter"));
      TSR_ASSIGN_OR_RETURN(Pattern pattern, Pattern::literal(delimiter));
      push(std::make_unique<PatternSplit>(std::move(pattern), SplitBehavior::kRemoved, false));
    } else if (type == "UnicodeScripts") {
      TSR_ASSIGN_OR_RETURN(ScriptFinder scripts, ScriptFinder::create());
      push(std::make_unique<ScriptSplit>(std::move(scripts)));
    } else if (type == "FixedLength") {
      TSR_ASSIGN_OR_RETURN(const int64_t length, members.integer("length", 5));
      if (length < 1) return members.wrong("length", "1 or more");
      push(std::make_unique<FixedLength>(static_cast<size_t>(length)));
    } else {
      return unknown_type("pre_tokenizer", type, kKnown);
    }
    return {};
  }

  Status add_byte_level(const JsonMembers& members) {
    TSR_ASSIGN_OR_RETURN(const bool add_prefix_space, members.flag("add_prefix_space", true));
    TSR_ASSIGN_OR_RETURN(const bool use_regex, members.flag("use_regex", true));
    if (add_prefix_space) push(std::make_unique<PrefixSpace>());
    if (use_regex) {
      TSR_ASSIGN_OR_RETURN(Pattern pattern, Pattern::create(kGpt2));
      push(std::make_unique<PatternSplit>(std::move(pattern), SplitBehavior::kIsolated, false));
    }
    made_.bytes_last = true;
    return {};
  }

  Status add_split(const JsonMembers& members) {
    TSR_ASSIGN_OR_RETURN(const SplitBehavior behavior, read_behavior(members, ""));
    TSR_ASSIGN_OR_RETURN(const bool invert, members.flag("invert", false));
    const JsonMembers pattern(members.at("pattern"), members.what() + " pattern");
    const bool expression = pattern.at("Regex").is_string();
    TSR_ASSIGN_OR_RETURN(const std::string text, pattern.text(expression ? "Regex" : "String"));
    TSR_ASSIGN_OR_RETURN(Pattern compiled, expression ? Pattern::create(text) : Pattern::literal(text));
    push(std::make_unique<PatternSplit>(std::move(compiled), behavior, invert));
    return {};
  }

  Status add_metaspace(const JsonMembers& members) {
    TSR_ASSIGN_OR_RETURN(const std::string replacement, members.character("replacement", "▁"));
    TSR_ASSIGN_OR_RETURN(const bool splits, members.flag("split", true));
    // Older files have a flag instead of a place.
    TSR_ASSIGN_OR_RETURN(const bool older, members.flag("add_prefix_space", true));
    TSR_ASSIGN_OR_RETURN(const std::string scheme,
                         members.text("prepend_scheme", older ? "always" : "never"));
    const auto prepend = scheme == "always"  ? Metaspace::Prepend::kAlways
                         : scheme == "first" ? Metaspace::Prepend::kFirst
                                             : Metaspace::Prepend::kNever;
    if (prepend == Metaspace::Prepend::kNever && scheme != "never")
      return members.wrong("prepend_scheme", "always, first or never");
    push(std::make_unique<Metaspace>(replacement, prepend, splits));
    return {};
  }

  PreTokenizerSteps made_;
};

}  // namespace

Result<PreTokenizerSteps> make_pre_tokenizers(const json& description) {
  Builder builder;
  TSR_RETURN_IF_ERROR(builder.add(description, 0));
  return builder.take();
}

}  // namespace tessera
