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
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{tokenizer, "tokenizer"}, {text, "text"}}));
    if (flags & ~static_cast<uint32_t>(TSR_ENCODE_SPECIAL | TSR_ENCODE_BOS))
      return Status(StatusCode::kInvalidArgument, format("flags is {}, wanted a sum of TSR_ENCODE_*", flags));
    std::vector<int32_t> encoded =
        tokenizer->value->encode(text_of(text, size), (flags & TSR_ENCODE_SPECIAL) != 0);
    const int32_t bos = tokenizer->value->data().bos;
    if ((flags & TSR_ENCODE_BOS) && bos >= 0) encoded.insert(encoded.begin(), bos);
    return put_array<int32_t>(encoded, ids, capacity, out_count);
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
void tsr_tokenizer_free(tsr_tokenizer* tokenizer) { delete tokenizer; }
