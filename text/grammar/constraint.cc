#include "text/grammar/constraint.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "graph/base/quote.h"
#include "graph/base/text.h"

namespace tessera::grammar {
namespace {

// The allowed next bytes.
ByteSet next_bytes(const StatePool& states, StateId state) {
  const Automaton& automaton = states.automaton();
  ByteSet classes, bytes;
  for (const Configuration& each : states.configurations(state))
    if (const Node& node = automaton.nodes[each.node]; node.kind == NodeKind::kBytes)
      classes |= automaton.sets[node.value];
  for (size_t byte = 0; byte < 256; ++byte) bytes[byte] = classes[automaton.class_of[byte]];
  return bytes;
}

std::string byte_text(size_t byte) {
  constexpr char kHex[] = "0123456789ABCDEF";
  if (byte > 0x20 && byte < 0x7F) return std::string(1, static_cast<char>(byte));
  return std::string("byte ") + kHex[byte >> 4] + kHex[byte & 15];
}

// "a to z, \"": for messages.
std::string describe(const ByteSet& bytes) {
  constexpr size_t kMostRanges = 8;
  std::vector<std::string> ranges;
  for (size_t first = 0; first < 256; ++first) {
    if (!bytes[first]) continue;
    size_t last = first;
    while (last + 1 < 256 && bytes[last + 1]) ++last;
    if (ranges.size() == kMostRanges) {
      ranges.push_back("…");
      break;
    }
    ranges.push_back(first == last ? byte_text(first)
                                   : format("{} to {}", byte_text(first), byte_text(last)));
    first = last;
  }
  return ranges.empty() ? "nothing" : join(ranges, ", ");
}

}  // namespace

Constraint::Constraint(std::shared_ptr<MaskCache> cache) : cache_(std::move(cache)) {
  const std::lock_guard lock(cache_->mutex_);
  generation_ = cache_->newest_;
  history_.push_back(generation_->states.start());
}

Status Constraint::write_allowed(std::span<uint32_t> mask) const {
  const TokenBytes& tokens = cache_->tokens();
  if (mask.size() != tokens.mask_words())
    return Status(StatusCode::kInvalidArgument,
                  format("the mask has {} words of 32 bits, wanted {} for {} tokens", mask.size(),
                         tokens.mask_words(), tokens.vocabulary_size()));
  std::ranges::fill(mask, 0u);
  if (has_ended()) return {};
  const std::lock_guard lock(cache_->mutex_);
  const StatePool& states = generation_->states;
  const StateId state = history_.back();
  TSR_RETURN_IF_ERROR(cache_->add_allowed(*generation_, state, mask));
  if (states.can_end(state)) {
    for (const int32_t id : tokens.end_ids()) mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    return {};
  }
  if (std::ranges::all_of(mask, [](uint32_t word) { return word == 0; }))
    return Status(StatusCode::kUnsupported,
                  format("no token of the vocabulary may come next; wanted one that begins with {}",
                         describe(next_bytes(states, state))));
  return {};
}

Status Constraint::accept(int32_t token) {
  const TokenBytes& tokens = cache_->tokens();
  if (token < 0 || token >= tokens.vocabulary_size())
    return Status(StatusCode::kInvalidArgument,
                  format("token {} is outside the vocabulary of {}", token, tokens.vocabulary_size()));
  if (has_ended())
    return Status(StatusCode::kFailedPrecondition,
                  format("token {} comes after the end of the constrained text", token));
  const std::lock_guard lock(cache_->mutex_);
  TSR_RETURN_IF_ERROR(cache_->renew(generation_, history_));
  const StateId state = history_.back();
  if (tokens.ends_text(token)) {
    if (!generation_->states.can_end(state)) return refuse(token, {}, state, 0);
    history_.push_back(kEndOfText);
    return {};
  }
  const std::string_view text = tokens.bytes(token);
  if (text.empty()) return refuse(token, text, state, 0);
  TSR_ASSIGN_OR_RETURN(const StateId next, follow(state, text, token));
  history_.push_back(next);
  return {};
}

Status Constraint::accept_text(std::string_view bytes) {
  constexpr int32_t kNoToken = -1;
  if (has_ended())
    return Status(StatusCode::kFailedPrecondition,
                  format("'{}' comes after the end of the constrained text", quote(bytes)));
  const std::lock_guard lock(cache_->mutex_);
  TSR_RETURN_IF_ERROR(cache_->renew(generation_, history_));
  TSR_ASSIGN_OR_RETURN(const StateId next, follow(history_.back(), bytes, kNoToken));
  history_.push_back(next);
  return {};
}

Result<StateId> Constraint::follow(StateId state, std::string_view text, int32_t token) const {
  StatePool& states = generation_->states;
  for (size_t i = 0; i < text.size(); ++i) {
    const StateId next = states.step(state, static_cast<uint8_t>(text[i]));
    if (states.take_exhausted())
      return Status(StatusCode::kUnsupported,
                    format("the grammar is too ambiguous: the text can be read in more than {} ways at once",
                           StatePool::kMostConfigurations));
    if (next == kDeadState) return refuse(token, text, state, i);
    state = next;
  }
  return state;
}

Status Constraint::refuse(int32_t token, std::string_view text, StateId state, size_t accepted_bytes) const {
  const TokenBytes& tokens = cache_->tokens();
  const StatePool& states = generation_->states;
  std::string what = token < 0                ? format("'{}'", quote(text))
                     : tokens.ends_text(token) ? format("token {}, which ends the text,", token)
                     : text.empty()            ? format("token {}, which has no bytes,", token)
                     : TokenBytes::is_control(text)
                         ? format("token {}, the control token '{}',", token, quote(text.substr(1, text.size() - 2)))
                                               : format("token {}, '{}',", token, quote(text));
  if (accepted_bytes > 0) what += format(" from its byte {} on", accepted_bytes);
  const bool can_go_on = states.can_go_on(state);
  std::string wanted = can_go_on || !states.can_end(state) ? describe(next_bytes(states, state)) : "";
  if (states.can_end(state)) wanted += can_go_on ? " or the end" : "the end";
  return Status(StatusCode::kFailedPrecondition,
                format("{} is not allowed after {} tokens; wanted {}", what, size(), wanted));
}

bool Constraint::can_end_after(size_t size, std::string_view bytes) const {
  TSR_CHECK(size <= this->size(), "a text is asked about its beginning");
  const std::lock_guard lock(cache_->mutex_);
  StatePool& states = generation_->states;
  StateId state = history_[size];
  for (const char byte : bytes) {
    state = states.step(state, static_cast<uint8_t>(byte));
    if (states.take_exhausted() || state == kDeadState) return false;
  }
  return states.can_end(state);
}

bool Constraint::can_end() const {
  const std::lock_guard lock(cache_->mutex_);
  return generation_->states.can_end(history_.back());
}

bool Constraint::must_end() const {
  const std::lock_guard lock(cache_->mutex_);
  return generation_->states.can_end(history_.back()) && !generation_->states.can_go_on(history_.back());
}

bool Constraint::has_ended() const { return history_.back() == kEndOfText; }

void Constraint::rewind(size_t size) {
  TSR_CHECK(size <= this->size(), "a text is rewound to its beginning");
  history_.resize(size + 1);
}

}  // namespace tessera::grammar
