// Normalizers of tokenizer files: transform a text before it is split. Immutable; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

// NormalizedText: a text between normalizers, and
// optionally the original byte of each of its bytes.
struct NormalizedText {
  std::string text;
  std::vector<size_t> origins;   // one per byte, and one for the end; empty: not requested
  size_t most_bytes = SIZE_MAX;  // a longer result fails
};

// NormalizedTextBuilder: builds the next form of a text sequentially.
class NormalizedTextBuilder {
 public:
  explicit NormalizedTextBuilder(const NormalizedText& from) : from_(from) {
    to_.text.reserve(from.text.size() + from.text.size() / 8);
  }
  // Copies bytes [begin, end).
  void copy(size_t begin, size_t end) {
    to_.text.append(from_.text, begin, end - begin);
    if (!from_.origins.empty())
      to_.origins.insert(to_.origins.end(), from_.origins.begin() + static_cast<ptrdiff_t>(begin),
                         from_.origins.begin() + static_cast<ptrdiff_t>(end));
  }
  // Appends bytes that originate at `at`.
  void put(std::string_view bytes, size_t at) {
    to_.text += bytes;
    mark(at);
  }
  // Attributes bytes appended to text() directly to `at`.
  std::string& text() { return to_.text; }
  void mark(size_t at) {
    if (!from_.origins.empty()) to_.origins.resize(to_.text.size(), from_.origins[at]);
  }
  // kInvalidArgument if the text is too long.
  Status check_size() const;
  NormalizedText take() {
    to_.most_bytes = from_.most_bytes;
    if (!from_.origins.empty()) to_.origins.push_back(from_.origins.back());
    return std::move(to_);
  }

 private:
  const NormalizedText& from_;
  NormalizedText to_;
};

// Fails if a pattern takes too many steps.
using Normalizer = std::function<Status(NormalizedText&)>;

// From tokenizer.json's "normalizer"; empty for null. kUnsupported
// names an unknown type, kInvalidArgument a missing or wrong member.
Result<Normalizer> make_normalizer(const nlohmann::json& description);

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };
void normalize_unicode(NormalizedText& text, UnicodeForm form);

// From a base64 SentencePiece charsmap.
Result<Normalizer> make_precompiled_normalizer(std::string_view base64);

}  // namespace tessera
