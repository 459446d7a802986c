#include "text/tokenizer/decoders.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "text/tokenizer/byte_characters.h"
#include "text/tokenizer/character.h"
#include "text/tokenizer/json_members.h"
#include "text/tokenizer/kinds.h"
#include "text/tokenizer/normalizers.h"
#include "text/tokenizer/pattern.h"

namespace tessera {
namespace {

using nlohmann::json;
constexpr std::string_view kKnown =
    "ByteLevel, Metaspace, WordPiece, BPEDecoder, ByteFallback, Fuse, Replace, Strip, CTC, Sequence";
constexpr int kMostNested = 32;

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  if (from.empty()) return std::string(text);
  std::string result;
  size_t done = 0;
  for (size_t found; (found = text.find(from, done)) != std::string_view::npos; done = found + from.size())
    result.append(text.substr(done, found - done)).append(to);
  return result.append(text.substr(done));
}

// Removes spaces before punctuation and English contractions.
std::string cleaned_up(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules)
    if (text.find(from) != std::string::npos) text = replaced(text, from, to);
  return text;
}

// TokenStep: maps whole tokens; parts are joined first.
class TokenStep : public DecoderStep {
 public:
  void add(DecodedPart part, const Next& next) final {
    held_ += part.text;
    if (!part.ends) return;
    std::string token;
    token.swap(held_);
    if (std::optional<std::string> text = decode(std::move(token), index_++))
      next({std::move(*text), true, true});
  }
  void finish(const Next& next) final {
    if (!held_.empty()) add({{}, false, true}, next);
  }

 protected:
  virtual std::optional<std::string> decode(std::string token, size_t index) = 0;

 private:
  std::string held_;
  size_t index_ = 0;
};

class FunctionStep final : public TokenStep {
 public:
  using Function = std::function<std::string(std::string, size_t)>;
  explicit FunctionStep(const Function& function) : function_(function) {}

 protected:
  std::optional<std::string> decode(std::string token, size_t index) override {
    return function_(std::move(token), index);
  }

 private:
  const Function function_;
};

// CtcStep: collapses repeated tokens.
class CtcStep final : public TokenStep {
 public:
  CtcStep(std::string pad, std::string delimiter, bool cleanup)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), cleanup_(cleanup) {}

 protected:
  std::optional<std::string> decode(std::string token, size_t) override {
    if (previous_ == token) return {};
    previous_ = token;
    std::string text = pad_.empty() ? std::move(token) : replaced(token, pad_, "");
    if (cleanup_)
      text = delimiter_.empty() ? cleaned_up(std::move(text))
                                : replaced(cleaned_up(std::move(text)), delimiter_, " ");
    if (text.empty()) return {};
    return text;
  }

 private:
  const std::string pad_, delimiter_;
  const bool cleanup_;
  std::optional<std::string> previous_;
};

// SuffixStep: a suffix becomes a space, except in the last token, where it is dropped.
class SuffixStep final : public DecoderStep {
 public:
  explicit SuffixStep(std::string suffix) : suffix_(std::move(suffix)) {}
  void add(DecodedPart part, const Next& next) override {
    held_ += part.text;
    if (!part.ends) return;
    // The text before a token's first suffix is final; the rest waits for the next token.
    const size_t certain = suffix_.empty() ? held_.size() : std::min(held_.find(suffix_), held_.size());
    std::string text = replaced(pending_, suffix_, " ") + held_.substr(0, certain);
    pending_ = held_.substr(certain);
    held_.clear();
    next({std::move(text), true, true});
  }
  void finish(const Next& next) override {
    if (!pending_.empty()) next({replaced(pending_, suffix_, ""), true, true});
    pending_.clear();
  }

 private:
  const std::string suffix_;
  std::string held_, pending_;
};

// FuseStep: everything is one token from here on, emitted in parts.
class FuseStep final : public DecoderStep {
 public:
  void add(DecodedPart part, const Next& next) override {
    next({std::move(part.text), !begun_, false});
    begun_ = true;
  }
  void finish(const Next& next) override {
    next({{}, !begun_, true});
    begun_ = true;
  }

 private:
  bool begun_ = false;
};

// StripStep: strips the content up to `start` and `stop` times from a token's ends.
class StripStep final : public DecoderStep {
 public:
  StripStep(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void add(DecodedPart part, const Next& next) override {
    if (part.begins) {
      left_ = start_;
      held_.clear();
      begins_ = true;
    }
    std::string text = std::move(held_) + part.text;
    held_.clear();
    while (left_ > 0 && text.starts_with(content_)) {
      text.erase(0, content_.size());
      --left_;
    }
    if (left_ > 0 && !text.empty()) {
      if (content_.starts_with(text) && !part.ends) {
        held_ = std::move(text);  // a prefix of the content
        return;
      }
      left_ = 0;
    }
    // The end may still be stripped: that many contents, and a prefix of one, are held.
    size_t keep = 0, count = 0;
    while (count < stop_ && ends_with_content(text, keep)) {
      keep += content_.size();
      ++count;
    }
    if (part.ends) {
      text.erase(text.size() - keep);
    } else {
      held_ = text.substr(text.size() - keep);
      text.erase(text.size() - keep);
    }
    next({std::move(text), std::exchange(begins_, false), part.ends});
  }

 private:
  bool ends_with_content(const std::string& text, size_t before) const {
    return text.size() >= before + content_.size() &&
           text.compare(text.size() - before - content_.size(), content_.size(), content_) == 0;
  }
  const std::string content_;
  const size_t start_, stop_;
  size_t left_ = 0;
  std::string held_;
  bool begins_ = true;
};

// ReplaceStep: replaces a text throughout a token.
class ReplaceStep final : public DecoderStep {
 public:
  ReplaceStep(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  void add(DecodedPart part, const Next& next) override {
    std::string text = std::move(held_) + part.text;
    held_.clear();
    size_t keep = 0;  // possible prefix of the replaced text
    std::string result;
    size_t done = 0;
    for (size_t found; (found = text.find(from_, done)) != std::string::npos; done = found + from_.size())
      result.append(text, done, found - done).append(to_);
    if (!part.ends)
      for (keep = std::min(from_.size() - 1, text.size() - done); keep > 0; --keep)
        if (text.compare(text.size() - keep, keep, from_, 0, keep) == 0) break;
    result.append(text, done, text.size() - done - keep);
    held_ = text.substr(text.size() - keep);
    next({std::move(result), part.begins, part.ends});
  }

 private:
  const std::string from_, to_;
  std::string held_;
};

std::string without_byte_characters(std::string token, size_t) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const Character character = character_at(token, at);
    const int byte = byte_of_character(character.code);
    if (byte < 0) return token;  // not in that alphabet
    bytes += static_cast<char>(byte);
    at += character.size;
  }
  return bytes;
}

std::string with_bytes(std::string token, size_t) {
  const int byte = byte_of_token(token);
  return byte < 0 ? std::move(token) : std::string(1, static_cast<char>(byte));
}

class Builder {
 public:
  Status add(const json& description, int depth) {
    if (depth > kMostNested)
      return Status(StatusCode::kInvalidArgument, format("decoders nest deeper than {}", kMostNested));
    TSR_ASSIGN_OR_RETURN(const std::string type, type_of(description, "decoder"));
    const JsonMembers members(description, "decoder " + type);
    if (type == "Sequence") {
      const json& list = members.at("decoders");
      if (!list.is_array()) return members.wrong("decoders", "a list");
      for (const json& step : list) TSR_RETURN_IF_ERROR(add(step, depth + 1));
    } else if (type == "ByteLevel") {
      push(without_byte_characters);
    } else if (type == "ByteFallback") {
      push(with_bytes);
    } else if (type == "Fuse") {
      steps_.push_back([] { return std::make_unique<FuseStep>(); });
    } else if (type == "Metaspace") {
      return add_metaspace(members);
    } else if (type == "WordPiece") {
      return add_wordpiece(members);
    } else if (type == "BPEDecoder") {
      TSR_ASSIGN_OR_RETURN(const std::string suffix, members.text("suffix", "</w>"));
      steps_.push_back([suffix] { return std::make_unique<SuffixStep>(suffix); });
    } else if (type == "Replace") {
      return add_replace(members);
    } else if (type == "Strip") {
      TSR_ASSIGN_OR_RETURN(const std::string content, members.character("content"));
      TSR_ASSIGN_OR_RETURN(const int64_t start, members.integer("start"));
      TSR_ASSIGN_OR_RETURN(const int64_t stop, members.integer("stop"));
      if (start < 0 || stop < 0) return members.wrong(start < 0 ? "start" : "stop", "0 or more");
      steps_.push_back([content, start, stop] {
        return std::make_unique<StripStep>(content, static_cast<size_t>(start), static_cast<size_t>(stop));
      });
    } else if (type == "CTC") {
      TSR_ASSIGN_OR_RETURN(const std::string pad, members.text("pad_token", "<pad>"));
      TSR_ASSIGN_OR_RETURN(const std::string delimiter, members.text("word_delimiter_token", "|"));
      TSR_ASSIGN_OR_RETURN(const bool cleanup, members.flag("cleanup", true));
      steps_.push_back([=] { return std::make_unique<CtcStep>(pad, delimiter, cleanup); });
    } else {
      return unknown_type("decoder", type, kKnown);
    }
    return {};
  }
  std::vector<MakeDecoderStep> take() { return std::move(steps_); }

 private:
  void push(FunctionStep::Function function) {
    steps_.push_back([function = std::move(function)] { return std::make_unique<FunctionStep>(function); });
  }

  Status add_metaspace(const JsonMembers& members) {
    TSR_ASSIGN_OR_RETURN(const std::string replacement, members.character("replacement", "▁"));
    TSR_ASSIGN_OR_RETURN(const bool older, members.flag("add_prefix_space", true));
    TSR_ASSIGN_OR_RETURN(const std::string scheme,
                         members.text("prepend_scheme", older ? "always" : "never"));
    const bool prepended = scheme != "never";
    push([replacement, prepended](std::string token, size_t index) {
      return replaced(token, replacement, index == 0 && prepended ? "" : " ");
    });
    return {};
  }

  Status add_wordpiece(const JsonMembers& members) {
    TSR_ASSIGN_OR_RETURN(const std::string prefix, members.text("prefix", "##"));
    TSR_ASSIGN_OR_RETURN(const bool cleanup, members.flag("cleanup", true));
    push([prefix, cleanup](std::string token, size_t index) {
      if (index > 0) {
        if (token.starts_with(prefix))
          token.erase(0, prefix.size());
        else
          token.insert(0, " ");
      }
      return cleanup ? cleaned_up(std::move(token)) : std::move(token);
    });
    return {};
  }

  Status add_replace(const JsonMembers& members) {
    TSR_ASSIGN_OR_RETURN(const std::string content, members.text("content"));
    const JsonMembers pattern(members.at("pattern"), members.what() + " pattern");
    if (pattern.at("Regex").is_string()) {
      // As a normalizer describes it. Parts joined by an earlier step are one text before it.
      json description{{"type", "Replace"}, {"pattern", members.at("pattern")}, {"content", content}};
      TSR_ASSIGN_OR_RETURN(const Normalizer replace, make_normalizer(description));
      push([replace](std::string token, size_t) {
        NormalizedText text{std::move(token), {}, SIZE_MAX};
        (void)replace(text);  // after too many steps the token stays unchanged
        return std::move(text.text);
      });
      return {};
    }
    TSR_ASSIGN_OR_RETURN(const std::string from, pattern.text("String"));
    if (from.empty()) return pattern.wrong("String", "a text that is not empty");
    steps_.push_back([from, content] { return std::make_unique<ReplaceStep>(from, content); });
    return {};
  }

  std::vector<MakeDecoderStep> steps_;
};

}  // namespace

Result<std::vector<MakeDecoderStep>> make_decoder_steps(const json& description) {
  if (description.is_null()) {
    FunctionStep::Function with_spaces = [](std::string token, size_t index) {
      return index > 0 ? " " + token : std::move(token);
    };
    return std::vector<MakeDecoderStep>{[with_spaces] { return std::make_unique<FunctionStep>(with_spaces); }};
  }
  Builder builder;
  TSR_RETURN_IF_ERROR(builder.add(description, 0));
  return builder.take();
}

}  // namespace tessera
