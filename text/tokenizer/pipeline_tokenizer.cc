// Pipeline tokenizers (tokenizer.json): added tokens are matched, the text between them is
// normalized and split, a model tokenizes each piece, and decoders convert tokens to text.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/byte_characters.h"
#include "text/tokenizer/decoders.h"
#include "text/tokenizer/kinds.h"
#include "text/tokenizer/models.h"
#include "text/tokenizer/normalizers.h"
#include "text/tokenizer/pre_tokenizers.h"
#include "text/tokenizer/tokenizer_json.h"

namespace tessera {
namespace {

constexpr size_t kLongestPiece = size_t{1} << 30;  // models count bytes in 32 bits

class PipelineDecoder final : public TextDecoder {
 public:
  PipelineDecoder(const TokenizerData& data, const AddedTokens& added,
                  const std::vector<MakeDecoderStep>& steps)
      : data_(data), added_(added) {
    for (const MakeDecoderStep& make : steps) steps_.push_back(make());
  }

  std::string add(int32_t id) override {
    const auto index = static_cast<size_t>(id);
    if (id < 0 || index >= data_.tokens.size()) return {};
    const TokenType type = data_.types[index];
    if (type == TokenType::kControl || type == TokenType::kUnused) return {};
    const std::string* normalized = added_.normalized_text(id);
    return collect([&] { pass(0, {normalized ? *normalized : data_.tokens[index], true, true}); });
  }

  std::string finish() override {
    return collect([&] {
      for (size_t i = 0; i < steps_.size(); ++i)
        steps_[i]->finish([this, i](DecodedPart part) { pass(i + 1, std::move(part)); });
    });
  }

 private:
  template <class Run>
  std::string collect(Run&& run) {
    text_.clear();
    run();
    return std::move(text_);
  }
  void pass(size_t step, DecodedPart part) {
    if (step == steps_.size()) {
      text_ += part.text;
    } else {
      steps_[step]->add(std::move(part), [this, step](DecodedPart next) { pass(step + 1, std::move(next)); });
    }
  }

  const TokenizerData& data_;
  const AddedTokens& added_;
  std::vector<std::unique_ptr<DecoderStep>> steps_;
  std::string text_;
};

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(TokenizerData data) : Tokenizer(std::move(data)) {}

  Status build() {
    TSR_ASSIGN_OR_RETURN(const TokenizerJson description,
                         read_tokenizer_json(data_.pipeline, "the tokenizer's pipeline"));
    if (data_.types.size() != data_.tokens.size())
      return Status(StatusCode::kCorrupt, format("the vocabulary has {} token types for {} tokens",
                                                 data_.types.size(), data_.tokens.size()));
    const auto member = [&](const char* name) {
      const auto found = description.rest.find(name);
      return found == description.rest.end() ? nlohmann::json() : *found;
    };
    TSR_ASSIGN_OR_RETURN(normalizer_, make_normalizer(member("normalizer")));
    TSR_ASSIGN_OR_RETURN(pre_tokenizers_, make_pre_tokenizers(member("pre_tokenizer")));
    TSR_ASSIGN_OR_RETURN(decoder_steps_, make_decoder_steps(member("decoder")));
    for (const AddedToken& token : description.added)
      if (token.id < 0 || static_cast<size_t>(token.id) >= data_.tokens.size())
        return Status(StatusCode::kCorrupt,
                      format("the added token {} has id {}; the vocabulary has {} tokens",
                             quote(token.content, 64), token.id, data_.tokens.size()));
    TSR_ASSIGN_OR_RETURN(added_, AddedTokens::create(description.added, normalizer_));
    std::vector<bool> in_model(data_.tokens.size(), true);
    for (const AddedToken& token : description.added)
      in_model[static_cast<size_t>(token.id)] = token.in_model;
    TSR_ASSIGN_OR_RETURN(model_, make_token_model(member("model"), data_, in_model));
    for (const auto& [name, ids] : {std::pair("before", &before_), {"after", &after_}}) {
      for (const nlohmann::json& value : member(name)) {
        if (!value.is_number_integer() || value.get<int64_t>() < 0 ||
            value.get<int64_t>() >= vocabulary_size())
          return Status(StatusCode::kCorrupt,
                        format("the tokens {} a text are not ids of the vocabulary", name));
        ids->push_back(value.get<int32_t>());
      }
    }
    return {};
  }

  std::span<const int32_t> before_text() const override { return before_; }
  std::span<const int32_t> after_text() const override { return after_; }
  std::unique_ptr<TextDecoder> decoder() const override {
    return std::make_unique<PipelineDecoder>(data_, added_, decoder_steps_);
  }

 private:
  struct Scratch {
    explicit Scratch(WordCache* kept) : words(kept != nullptr ? *kept : own_words) {}

    ModelScratch model;
    WordCache own_words;
    WordCache& words;
    std::vector<WordToken> tokens;
    std::string mapped;             // a piece, with bytes as characters
    std::vector<uint32_t> sources;  // original byte of each byte of `mapped`
    size_t last_begin = 0;
    std::string_view part;                    // normalized text in progress
    size_t part_begin = 0, part_of_text = 0;  // its begin in the text, and its size there
  };

  Status encode_into(std::string_view text, const EncodeOptions& options, TokenSink& out) const override {
    Scratch scratch(options.words);
    for (const TextFragment& fragment : added_.split(text, options)) {
      if (fragment.token >= 0) {
        put(fragment.token, fragment.begin, scratch, out);
      } else {
        TSR_RETURN_IF_ERROR(encode_fragment(fragment, options, scratch, out));
      }
    }
    return {};
  }

  void put(int32_t token, size_t begin, Scratch& scratch, TokenSink& out) const {
    scratch.last_begin = std::max(scratch.last_begin, begin);  // moves may have changed the order
    out.add(token, scratch.last_begin);
  }

  Status encode_fragment(const TextFragment& fragment, const EncodeOptions& options, Scratch& scratch,
                         TokenSink& out) const {
    const bool tracked = out.with_begins() || (!options.literal.empty() && added_.has_normalized());
    scratch.part_begin = fragment.begin;
    scratch.part_of_text = fragment.text.size();
    scratch.part = fragment.text;
    if (!tracked && !normalizer_ && !added_.has_normalized())
      return split(0, {fragment.text, nullptr, fragment.begin == 0}, scratch, out);
    NormalizedText text{std::string(fragment.text), {}, 256 * fragment.text.size() + (size_t{1} << 20)};
    if (tracked) {
      text.origins.resize(text.text.size() + 1);
      for (size_t i = 0; i < text.origins.size(); ++i) text.origins[i] = fragment.begin + i;
    }
    if (normalizer_) TSR_RETURN_IF_ERROR(normalizer_(text));
    scratch.part = text.text;
    for (const TextFragment& part : added_.split_normalized(text, options)) {
      const size_t* origins = tracked ? text.origins.data() + part.begin : nullptr;
      if (part.token >= 0) {
        put(part.token, tracked ? *origins : 0, scratch, out);
      } else {
        TSR_RETURN_IF_ERROR(
            split(0, {part.text, origins, fragment.begin == 0 && part.begin == 0}, scratch, out));
      }
    }
    return {};
  }

  Status split(size_t step, const PreToken& piece, Scratch& scratch, TokenSink& out) const {
    if (piece.text.empty()) return {};
    if (step == pre_tokenizers_.steps.size()) return encode_parts(piece, scratch, out);
    return pre_tokenizers_.steps[step]->split(
        piece, [&](const PreToken& next) { return split(step + 1, next, scratch, out); });
  }

  Status encode_parts(PreToken piece, Scratch& scratch, TokenSink& out) const {
    if (pre_tokenizers_.bytes_last) return encode_piece(piece, scratch, out);
    while (!piece.text.empty()) {
      const size_t size = model_->independent_part(piece.text);
      TSR_RETURN_IF_ERROR(
          encode_piece({piece.text.substr(0, size), piece.origins, piece.first}, scratch, out));
      piece = {piece.text.substr(size), piece.origins ? piece.origins + size : nullptr, false};
    }
    return {};
  }

  // Approximate place of a piece in the text; 0 if a step rewrote it.
  static size_t place_of(const PreToken& piece, const Scratch& scratch) {
    const auto address = [](std::string_view text) { return reinterpret_cast<uintptr_t>(text.data()); };
    const uintptr_t offset = address(piece.text) - address(scratch.part);  // in other memory: too large
    if (offset >= scratch.part.size()) return 0;
    return scratch.part_begin + offset * scratch.part_of_text / scratch.part.size();
  }

  Status encode_piece(const PreToken& piece, Scratch& scratch, TokenSink& out) const {
    const std::vector<WordToken>* known = scratch.words.find(piece.text);
    if (known == nullptr) {
      if (piece.text.size() >= kLongestPiece)
        return Status(StatusCode::kUnsupported,
                      format("a piece of the text that is not split has {} bytes, at most {} are "
                             "known: give it in parts",
                             piece.text.size(), kLongestPiece));
      scratch.tokens.clear();
      TSR_RETURN_IF_ERROR(tokenize(piece.text, scratch));
      scratch.words.keep(piece.text, scratch.tokens);
      known = &scratch.tokens;
    }
    const size_t about = piece.origins ? 0 : place_of(piece, scratch);
    for (const WordToken& token : *known)
      put(token.id, piece.origins ? piece.origins[token.begin] : about, scratch, out);
    return {};
  }

  // Tokenizes a piece into scratch.tokens.
  Status tokenize(std::string_view piece, Scratch& scratch) const {
    if (!pre_tokenizers_.bytes_last) return model_->tokenize(piece, scratch.model, scratch.tokens);
    scratch.mapped.clear();
    scratch.sources.clear();
    for (size_t i = 0; i < piece.size(); ++i) {
      scratch.mapped += byte_character(static_cast<uint8_t>(piece[i]));
      scratch.sources.resize(scratch.mapped.size(), static_cast<uint32_t>(i));
    }
    TSR_RETURN_IF_ERROR(model_->tokenize(scratch.mapped, scratch.model, scratch.tokens));
    for (WordToken& token : scratch.tokens) token.begin = scratch.sources[token.begin];
    return {};
  }

  Normalizer normalizer_;
  PreTokenizerSteps pre_tokenizers_;
  AddedTokens added_;
  std::unique_ptr<const TokenModel> model_;
  std::vector<MakeDecoderStep> decoder_steps_;
  std::vector<int32_t> before_, after_;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> create_pipeline_tokenizer(TokenizerData data) {
  auto tokenizer = std::make_shared<PipelineTokenizer>(std::move(data));
  TSR_RETURN_IF_ERROR(tokenizer->build());
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

}  // namespace tessera
