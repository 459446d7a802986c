// tsr_tokenizer.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "capi/guard.h"
#include "capi/handles.h"
#include "engine/base/prompt_note.h"
#include "engine/model/load_tokenizer.h"
#include "graph/base/text.h"

using namespace tessera;
using namespace tessera::capi;

namespace {

Status check_flags(uint32_t flags) {
  if (flags & ~static_cast<uint32_t>(TSR_ENCODE_SPECIAL | TSR_ENCODE_BOS | TSR_ENCODE_AROUND))
    return Status(StatusCode::kInvalidArgument, format("flags is {}, wanted a sum of TSR_ENCODE_*", flags));
  return {};
}

// Puts what the flags ask for before and after the ids of a text; returns how many are before it.
size_t surround(const Tokenizer& tokenizer, uint32_t flags, std::vector<int32_t>& ids) {
  std::span<const int32_t> before, after;
  if (flags & TSR_ENCODE_AROUND) {
    before = tokenizer.before_text();
    after = tokenizer.after_text();
  }
  const int32_t bos = tokenizer.data().bos;
  if ((flags & TSR_ENCODE_BOS) && before.empty() && bos >= 0) before = {&tokenizer.data().bos, 1};
  ids.insert(ids.begin(), before.begin(), before.end());
  ids.insert(ids.end(), after.begin(), after.end());
  return before.size();
}

// Texts encoded by several threads, each of which takes the next that none has taken.
class BatchEncoder {
 public:
  BatchEncoder(const Tokenizer& tokenizer, uint32_t flags, std::span<const std::string_view> texts)
      : tokenizer_(tokenizer), flags_(flags), texts_(texts), encoded_(texts.size()) {}

  Status run(size_t threads) {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < std::min(threads, texts_.size()); ++i) others.emplace_back([this] { work(); });
    work();
    others.clear();
    return failure_;
  }
  const std::vector<std::vector<int32_t>>& encoded() const { return encoded_; }

 private:
  void work() {
    const Status status = catch_status([this]() -> Status {
      for (size_t i; !failed_ && (i = next_++) < texts_.size();) {
        auto ids = tokenizer_.encode(texts_[i], {(flags_ & TSR_ENCODE_SPECIAL) != 0, {}});
        if (!ids.ok()) return ids.status().with_context(format("text {}", static_cast<uint64_t>(i)));
        encoded_[i] = std::move(*ids);
        surround(tokenizer_, flags_, encoded_[i]);
      }
      return {};
    });
    if (status.ok()) return;
    const std::lock_guard lock(mutex_);
    failed_ = true;
    failure_ = status;
  }

  const Tokenizer& tokenizer_;
  const uint32_t flags_;
  const std::span<const std::string_view> texts_;
  std::vector<std::vector<int32_t>> encoded_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  Status failure_;
};

}  // namespace

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
    TSR_RETURN_IF_ERROR(check_flags(flags));
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
    const size_t before = surround(*tokenizer->value, flags, encoding.ids);
    encoding.begins.insert(encoding.begins.begin(), before, 0);
    encoding.begins.resize(encoding.ids.size(), text_of(text, size).size());
    if (begins) TSR_RETURN_IF_ERROR(put_array<size_t>(encoding.begins, begins, capacity, nullptr));
    return put_array<int32_t>(encoding.ids, ids, capacity, out_count);
  });
}

tsr_status* tsr_tokenizer_encode_batch(const tsr_tokenizer* tokenizer, const char* text,
                                       const size_t* lengths, size_t text_count, uint32_t flags,
                                       int32_t threads, int32_t* ids, size_t capacity, size_t* counts,
                                       size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{tokenizer, "tokenizer"}, {text, "text"}}));
    if (text_count > 0) TSR_RETURN_IF_ERROR(required({{lengths, "lengths"}}));
    TSR_RETURN_IF_ERROR(check_flags(flags));
    if (threads < 0)
      return Status(StatusCode::kInvalidArgument, format("threads is {}, wanted 0 (all) or more", threads));
    std::vector<std::string_view> texts;
    for (size_t i = 0; i < text_count; text += lengths[i++]) texts.emplace_back(text, lengths[i]);
    BatchEncoder encoder(*tokenizer->value, flags, texts);
    TSR_RETURN_IF_ERROR(encoder.run(threads > 0 ? static_cast<size_t>(threads)
                                                : std::max(1u, std::thread::hardware_concurrency())));
    size_t total = 0;
    for (size_t i = 0; i < text_count; ++i) {
      const std::vector<int32_t>& encoded = encoder.encoded()[i];
      if (ids && total < capacity)
        std::copy_n(encoded.begin(), std::min(encoded.size(), capacity - total), ids + total);
      if (counts) counts[i] = encoded.size();
      total += encoded.size();
    }
    if (out_count) *out_count = total;
    return {};
  });
}

tsr_status* tsr_tokenizer_written_control(const tsr_tokenizer* tokenizer, const char* text, size_t size,
                                          tsr_text** out_json) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{tokenizer, "tokenizer"}, {text, "text"}, {out_json, "out_json"}}));
    return give_text(written_control_json(*tokenizer->value, text_of(text, size)), out_json);
  });
}

tsr_status* tsr_tokenizer_decode(const tsr_tokenizer* tokenizer, const int32_t* ids, size_t count,
                                 tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{tokenizer, "tokenizer"}, {out_text, "out_text"}}));
    if (count > 0) TSR_RETURN_IF_ERROR(required({{ids, "ids"}}));
    const int64_t vocabulary = std::max<int64_t>(tokenizer->value->vocabulary_size(), tokenizer->rows);
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
