#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer/pattern.h"

#include <pcre2.h>
#include <time.h>

#include <algorithm>
#include <new>
#include <optional>
#include <string>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/tokenizer/kinds.h"
#include "text/tokenizer/unicode_versions.h"

namespace tessera {
namespace {

// Step limit of one match, higher for longer texts: usual patterns take a
// few steps per character; catastrophic backtracking would take forever.
constexpr uint32_t kMatchSteps = 2'000'000;
constexpr uint32_t kMatchHeapKib = 64 * 1024;
// Time limit of many matches, in the thread's CPU time: a second,
// plus one per kBytesPerSecond, several hundred times the usual.
constexpr int64_t kBytesPerSecond = 64 * 1024;
constexpr uint32_t kMatchesBetweenChecks = 64;

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

struct Pattern::Compiled {
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  std::unique_ptr<pcre2_code, Free> code;
  std::string expression;
};

Result<Pattern> Pattern::create(std::string_view expression) {
  TSR_ASSIGN_OR_RETURN(const std::string translated, pcre_syntax(expression));
  std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Invalid UTF-8 never matches and becomes separate pieces, so no byte is lost.
  constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_MULTILINE;
  auto compiled = std::make_shared<Compiled>();
  compiled->expression = expression;
  compiled->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                     kOptions, &error, &offset, context.get()));
  if (compiled->code == nullptr) {
    PCRE2_UCHAR reason[256] = {};
    pcre2_get_error_message(error, reason, sizeof reason);
    return Status(StatusCode::kInvalidArgument,
                  format("the pattern {} cannot be run: {} (at byte {} of {})", quote(expression),
                         reinterpret_cast<const char*>(reason), offset, quote(std::string_view(translated))));
  }
  (void)pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE);  // without a JIT the interpreter runs
  Pattern pattern;
  pattern.compiled_ = std::move(compiled);
  return pattern;
}

Result<Pattern> Pattern::literal(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string expression;
  for (const char byte : text) {
    const bool plain = static_cast<unsigned char>(byte) >= 0x80 || (byte >= '0' && byte <= '9') ||
                       (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || byte == ' ';
    if (plain)
      expression += byte;
    else
      expression.append({'\\', 'x', kHex[(byte >> 4) & 15], kHex[byte & 15]});
  }
  return create(expression);
}

struct PatternSearch::State {
  struct FreeData {
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  };
  struct FreeContext {
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  };
  std::unique_ptr<pcre2_match_data, FreeData> data;
  std::unique_ptr<pcre2_match_context, FreeContext> context;
  std::optional<std::string> known;  // the text with characters unknown to PCRE2 replaced
};

PatternSearch::PatternSearch(const Pattern& pattern, std::string_view text)
    : pattern_(pattern), text_(text), state_(std::make_unique<State>()) {
  state_->data.reset(pcre2_match_data_create_from_pattern(pattern.compiled_->code.get(), nullptr));
  state_->context.reset(pcre2_match_context_create(nullptr));
  if (state_->data == nullptr || state_->context == nullptr) throw std::bad_alloc();
  const size_t steps = kMatchSteps + std::min<size_t>(4 * text.size(), uint32_t{1} << 31);
  pcre2_set_match_limit(state_->context.get(), static_cast<uint32_t>(steps));
  pcre2_set_heap_limit(state_->context.get(), kMatchHeapKib);
  state_->known = with_known_characters(text);
}

PatternSearch::~PatternSearch() = default;

bool PatternSearch::match_at(size_t position) {
  const auto subject = reinterpret_cast<PCRE2_SPTR>(state_->known ? state_->known->data() : text_.data());
  const auto run = [&](uint32_t options) {
    return pcre2_match(pattern_.compiled_->code.get(), subject, text_.size(), position, options,
                       state_->data.get(), state_->context.get());
  };
  int found = run(0);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = run(PCRE2_NO_JIT);  // the interpreter's stack is on the heap
  if (found == PCRE2_ERROR_NOMATCH || found == PCRE2_ERROR_BADUTFOFFSET) return false;
  if (found < 0) {
    const bool steps =
        found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_HEAPLIMIT || found == PCRE2_ERROR_DEPTHLIMIT;
    status_ = Status(StatusCode::kInvalidArgument,
                     format("the pattern {} {} at byte {} of a piece of {} bytes",
                            quote(pattern_.compiled_->expression),
                            steps ? std::string("takes too many steps, as it tries one way after another,")
                                  : format("fails with PCRE2's error {}", found),
                            position, text_.size()));
    return false;
  }
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state_->data.get());
  begin_ = range[0];
  end_ = std::max(range[0], range[1]);
  group_ = found - 1;
  return true;
}

bool PatternSearch::has_time() {
  if (++matches_ % kMatchesBetweenChecks != 0) return true;
  const double now = thread_seconds();
  if (begin_seconds_ < 0) begin_seconds_ = now;
  if (now - begin_seconds_ <= 1 + static_cast<double>(position_) / kBytesPerSecond) return true;
  status_ = Status(StatusCode::kInvalidArgument,
                   format("the pattern {} takes too long: {} bytes in {} s",
                          quote(pattern_.compiled_->expression), position_, now - begin_seconds_));
  return false;
}

bool PatternSearch::next() {
  while (position_ <= text_.size() && has_time() && match_at(position_)) {
    if (begin_ == end_ && matched_ && begin_ == position_) {
      // Directly after the last match.
      position_ += position_ < text_.size() ? first_character(text_.substr(position_)) : 1;
      matched_ = false;
      continue;
    }
    matched_ = true;
    position_ = end_;
    return true;
  }
  position_ = text_.size() + 1;
  return false;
}

}  // namespace tessera
