// tsr_chat.
#include "capi/guard.h"
#include "capi/handles.h"

using namespace tessera;
using namespace tessera::capi;

namespace {

const Options& options_or_none(const tsr_options* options) {
  static const Options none;
  return options ? options->value : none;
}

}  // namespace

tsr_status* tsr_chat_new(const tsr_model* model, const tsr_options* options, tsr_chat** out_chat) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{model, "model"}, {out_chat, "out_chat"}}));
    TSR_ASSIGN_OR_RETURN(auto chat, Chat::create(*model->value, options_or_none(options)));
    *out_chat = new tsr_chat{std::move(chat)};
    return {};
  });
}

tsr_status* tsr_chat_new_text(const char* text, size_t size, const tsr_tokenizer* tokenizer,
                              tsr_chat** out_chat) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{text, "text"}, {out_chat, "out_chat"}}));
    TSR_ASSIGN_OR_RETURN(auto chat,
                         Chat::create(text_of(text, size), tokenizer ? tokenizer->value : nullptr));
    *out_chat = new tsr_chat{std::move(chat)};
    return {};
  });
}

tsr_status* tsr_chat_render(const tsr_chat* chat, const tsr_options* options, const char* messages,
                            size_t size, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{chat, "chat"}, {messages, "messages"}, {out_text, "out_text"}}));
    TSR_ASSIGN_OR_RETURN(std::string text,
                         chat->value->render(text_of(messages, size), options_or_none(options)));
    return give_text(std::move(text), out_text);
  });
}

tsr_status* tsr_chat_render_ranges(const tsr_chat* chat, const tsr_options* options, const char* messages,
                                   size_t size, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{chat, "chat"}, {messages, "messages"}, {out_text, "out_text"}}));
    TSR_ASSIGN_OR_RETURN(std::string text,
                         chat->value->render_ranges_json(text_of(messages, size), options_or_none(options)));
    return give_text(std::move(text), out_text);
  });
}

tsr_status* tsr_chat_encode(const tsr_chat* chat, const tsr_options* options, const char* messages,
                            size_t size, int32_t* ids, size_t capacity, uint8_t* assistant,
                            size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{chat, "chat"}, {messages, "messages"}}));
    TSR_ASSIGN_OR_RETURN(
        const ChatTokens tokens,
        chat->value->encode(text_of(messages, size), options_or_none(options), assistant != nullptr));
    if (assistant) TSR_RETURN_IF_ERROR(put_array<uint8_t>(tokens.assistant, assistant, capacity, nullptr));
    return put_array<int32_t>(tokens.ids, ids, capacity, out_count);
  });
}

tsr_status* tsr_chat_fit(const tsr_chat* chat, const tsr_options* options, const char* messages, size_t size,
                         int64_t most_tokens, tsr_text** out_json) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{chat, "chat"}, {messages, "messages"}, {out_json, "out_json"}}));
    TSR_ASSIGN_OR_RETURN(std::string json, chat->value->fit_json(text_of(messages, size),
                                                                 options_or_none(options), most_tokens));
    return give_text(std::move(json), out_json);
  });
}

tsr_status* tsr_chat_parse(const tsr_chat* chat, const tsr_options* options, const char* text, size_t size,
                           tsr_text** out_json) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{chat, "chat"}, {text, "text"}, {out_json, "out_json"}}));
    TSR_ASSIGN_OR_RETURN(std::string json, chat->value->parse(text_of(text, size), options_or_none(options)));
    return give_text(std::move(json), out_json);
  });
}

tsr_status* tsr_chat_markers(const tsr_chat* chat, tsr_text** out_json) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{chat, "chat"}, {out_json, "out_json"}}));
    TSR_ASSIGN_OR_RETURN(std::string json, chat->value->markers_json());
    return give_text(std::move(json), out_json);
  });
}

void tsr_chat_free(tsr_chat* chat) { delete chat; }
