// tsr_tokenizer.
#include "capi/engine/load_tokenizer.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "graph/base/text.h"

using namespace tessera;
using namespace tessera::capi;

tsr_status* tsr_tokenizer_new_bytes(tsr_tokenizer** out_tokenizer) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{out_tokenizer, "out_tokenizer"}}));
    TSR_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::create(TokenizerData{}));
    *out_tokenizer = new tsr_tokenizer{std::move(tokenizer)};
    return {};
  });
}

tsr_status* tsr_tokenizer_load(const char* path, tsr_tokenizer** out_tokenizer) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{path, "path"}, {out_tokenizer, "out_tokenizer"}}));
    TSR_ASSIGN_OR_RETURN(auto tokenizer, load_tokenizer(path));
    *out_tokenizer = new tsr_tokenizer{std::move(tokenizer)};
    return {};
  });
}

tsr_status* tsr_tokenizer_encode(const tsr_tokenizer* tokenizer, const char* text, size_t size,
                                 uint32_t flags, int32_t* ids, size_t capacity, size_t* out_count) {
  return tsr_tokenizer_encode_ranges(tokenizer, text, size, flags, nullptr, 0, ids, capacity, nullptr,
                                     out_count);
}

tsr_status* tsr_tokenizer_encode_ranges(const tsr_tokenizer* tokenizer, const char* text, size_t size,
                                        uint32_t flags, const size_t* literal, size_t literal_count,
                                        int32_t* ids, size_t capacity, size_t* begins, size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{tokenizer, "tokenizer"}, {text, "text"}}));
    if (literal_count > 0) TSR_RETURN_IF_ERROR(required({{literal, "literal"}}));
    if (flags & ~static_cast<uint32_t>(TSR_ENCODE_SPECIAL | TSR_ENCODE_BOS))
      return Status(StatusCode::kInvalidArgument, format("flags is {}, wanted a sum of TSR_ENCODE_*", flags));
    if (literal_count % 2 != 0)
      return Status(
          StatusCode::kInvalidArgument,
          format("literal has {} numbers, wanted two a range: its begin and its end", literal_count));
    std::vector<TextRange> ranges(literal_count / 2);
    for (size_t i = 0; i < ranges.size(); ++i) ranges[i] = {literal[2 * i], literal[2 * i + 1]};
    const EncodeOptions options{(flags & TSR_ENCODE_SPECIAL) != 0, ranges};
    Encoding encoding;
    if (begins) {
      TSR_ASSIGN_OR_RETURN(encoding, tokenizer->value->encode_with_begins(text_of(text, size), options));
    } else {
      TSR_ASSIGN_OR_RETURN(encoding.ids, tokenizer->value->encode(text_of(text, size), options));
    }
    const int32_t bos = tokenizer->value->data().bos;
    if ((flags & TSR_ENCODE_BOS) && bos >= 0) {
      encoding.ids.insert(encoding.ids.begin(), bos);
      encoding.begins.insert(encoding.begins.begin(), 0);
    }
    if (begins) TSR_RETURN_IF_ERROR(put_array<size_t>(encoding.begins, begins, capacity, nullptr));
    return put_array<int32_t>(encoding.ids, ids, capacity, out_count);
  });
}

tsr_status* tsr_tokenizer_decode(const tsr_tokenizer* tokenizer, const int32_t* ids, size_t count,
                                 tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{tokenizer, "tokenizer"}, {out_text, "out_text"}}));
    if (count > 0) TSR_RETURN_IF_ERROR(required({{ids, "ids"}}));
    const int32_t vocabulary = tokenizer->value->vocabulary_size();
    for (size_t i = 0; i < count; ++i)
      if (ids[i] < 0 || ids[i] >= vocabulary)
        return Status(StatusCode::kInvalidArgument, format("ids[{}] is {}, wanted 0 to {}",
                                                           static_cast<uint64_t>(i), ids[i], vocabulary - 1));
    return give_text(tokenizer->value->decode(std::span(ids, count)), out_text);
  });
}

int32_t tsr_tokenizer_vocabulary_size(const tsr_tokenizer* tokenizer) {
  return tokenizer ? tokenizer->value->vocabulary_size() : 0;
}
int32_t tsr_tokenizer_bos(const tsr_tokenizer* tokenizer) {
  return tokenizer ? tokenizer->value->data().bos : -1;
}
int32_t tsr_tokenizer_eos(const tsr_tokenizer* tokenizer) {
  return tokenizer ? tokenizer->value->data().eos : -1;
}
tsr_status* tsr_tokenizer_end_ids(const tsr_tokenizer* tokenizer, int32_t* ids, size_t capacity,
                                  size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{tokenizer, "tokenizer"}}));
    return put_array<int32_t>(tokenizer->value->data().end_ids, ids, capacity, out_count);
  });
}
void tsr_tokenizer_free(tsr_tokenizer* tokenizer) { delete tokenizer; }
