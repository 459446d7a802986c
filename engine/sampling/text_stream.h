// TextStream: decodes bytes of tokens to final text: whole UTF-8 characters, never
// the prefix of a possible stop text. The cost per token depends on its bytes alone.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/sampling/stop_automaton.h"

namespace tessera {

class TextStream {
 public:
  explicit TextStream(std::vector<std::string> stop);
  // Shares an automaton between streams; null: no stop texts.
  static TextStream sharing(std::shared_ptr<const StopAutomaton> stops) {
    TextStream stream({});
    stream.stops_ = std::move(stops);
    return stream;
  }

  std::string add(std::string_view bytes);
  // Adds a control token's letters, which can match stop texts but are not part of the text.
  std::string add_hidden(std::string_view bytes);
  // A stop text counts only if the text may end at its begin, a byte offset in the text.
  using MayEnd = std::function<bool(size_t place)>;
  void set_may_end(MayEnd may_end) { may_end_ = std::move(may_end); }
  // Returns the held bytes; incomplete characters are returned unchanged.
  std::string finish();
  // Whether a stop text was found; it and all later text are dropped.
  // Among several completed by one token the first to begin counts.
  bool stopped() const { return stopped_; }
  size_t size() const;  // bytes of the text, held ones included

 private:
  std::string add(std::string_view bytes, bool hidden);
  std::string visible(size_t begin) const;  // of held_, from byte `begin`

  std::shared_ptr<const StopAutomaton> stops_;
  StopAutomaton::State state_ = 0;  // after `held_`
  std::string held_;
  std::vector<bool> hidden_;  // by byte of held_
  MayEnd may_end_;            // empty: anywhere
  size_t given_ = 0;          // bytes emitted before the held ones
  bool stopped_ = false;
};

}  // namespace tessera
