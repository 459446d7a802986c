// TextStream: bytes of tokens in, final text out: whole UTF-8 characters, and never a prefix of a possible
// stop text. A token costs time by its own bytes, however many stop texts there are.
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
  // One automaton for the streams of several texts; null: no stop texts.
  static TextStream sharing(std::shared_ptr<const StopAutomaton> stops) {
    TextStream stream({});
    stream.stops_ = std::move(stops);
    return stream;
  }

  std::string add(std::string_view bytes);
  // The letters of a control token: stop texts are found in them, but they are no part of the text.
  std::string add_hidden(std::string_view bytes);
  // A stop text counts only where the text may end at the place that it begins at, in bytes of the text from its beginning.
  using MayEnd = std::function<bool(size_t place)>;
  void set_may_end(MayEnd may_end) { may_end_ = std::move(may_end); }
  // Returns the bytes held back; those that never became a character are returned as they are.
  std::string finish();
  // A stop text was found; it and later text are dropped. Of several that are complete with one token it is the one
  // that begins first.
  bool stopped() const { return stopped_; }
  size_t size() const;  // bytes of the text so far, those held back included

 private:
  std::string add(std::string_view bytes, bool hidden);
  std::string visible(size_t begin) const;  // of held_, from byte `begin` on

  std::shared_ptr<const StopAutomaton> stops_;
  StopAutomaton::State state_ = 0;  // after `held_`
  std::string held_;
  std::vector<bool> hidden_;  // by byte of held_
  MayEnd may_end_;            // empty: anywhere
  size_t given_ = 0;          // bytes of the text before those held
  bool stopped_ = false;
};

}  // namespace tessera
