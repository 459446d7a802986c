// TextStream: bytes of tokens in, final text out: whole UTF-8 characters, and never a prefix of a possible
// stop text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class TextStream {
 public:
  explicit TextStream(std::vector<std::string> stop) : stop_(std::move(stop)) {}

  std::string add(std::string_view bytes);
  // Returns the bytes held back; those that never became a character are returned as they are.
  std::string finish();
  bool stopped() const { return stopped_; }  // a stop text was found; it and later text are dropped

 private:
  std::vector<std::string> stop_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace tessera
