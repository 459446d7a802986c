// Normalizers: what tokenizer files do to a text before it is split. Immutable; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

// A text on its way through normalizers and, where wanted, the byte of the original text from which each of its bytes
// comes.
struct NormalizedText {
  std::string text;
  std::vector<size_t> origins;   // as many as bytes, and one more for the end; empty: not wanted
  size_t most_bytes = SIZE_MAX;  // a step that makes the text longer fails
};

// Builds the next form of a text, from its begin to its end.
class NormalizedTextBuilder {
 public:
  explicit NormalizedTextBuilder(const NormalizedText& from) : from_(from) {
    to_.text.reserve(from.text.size() + from.text.size() / 8);
  }
  // Bytes [begin, end) as they are.
  void copy(size_t begin, size_t end) {
    to_.text.append(from_.text, begin, end - begin);
    if (!from_.origins.empty())
      to_.origins.insert(to_.origins.end(), from_.origins.begin() + static_cast<ptrdiff_t>(begin),
                         from_.origins.begin() + static_cast<ptrdiff_t>(end));
  }
  // Bytes that come from the one at `at`.
  void put(std::string_view bytes, size_t at) {
    to_.text += bytes;
    mark(at);
  }
  // What was appended to text() directly comes from the byte at `at`.
  std::string& text() { return to_.text; }
  void mark(size_t at) {
    if (!from_.origins.empty()) to_.origins.resize(to_.text.size(), from_.origins[at]);
  }
  // kInvalidArgument where the text has become too long.
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

// Fails where a pattern takes too many steps.
using Normalizer = std::function<Status(NormalizedText&)>;

// From a "normalizer" of tokenizer.json; null is none, for which the result is empty. kUnsupported names a type that is
// not known, kInvalidArgument a member that is missing or wrong.
Result<Normalizer> make_normalizer(const nlohmann::json& description);

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };
void normalize_unicode(NormalizedText& text, UnicodeForm form);

// A SentencePiece charsmap, in base64: a table of characters, and what they become.
Result<Normalizer> make_precompiled_normalizer(std::string_view base64);

}  // namespace tessera
