// TextStream: bytes of tokens in, text that is certain out: whole UTF-8 characters, and never the beginning
// of what may turn out to be a stop text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class TextStream {
 public:
  explicit TextStream(std::vector<std::string> stop) : stop_(std::move(stop)) {}

  std::string add(std::string_view bytes);
  // What was held back; bytes that never became a character come out as they are.
  std::string finish();
  bool stopped() const { return stopped_; }  // a stop text was met; it and what follows is left out

 private:
  std::vector<std::string> stop_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace tessera
