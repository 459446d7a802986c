#include "text/answer/call_form.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/text.h"
#include "text/answer/argument_value.h"
#include "text/answer/marker.h"
#include "text/answer/payload_scanner.h"

namespace tessera::answer {
namespace {

using Kind = CallStep::Kind;
constexpr size_t kNone = std::string_view::npos;

// Length of the common prefix or suffix, in whole tags.
size_t common_beginning(std::string_view a, std::string_view b) {
  const auto first = split_tags(a), second = split_tags(b);
  size_t size = 0;
  for (size_t i = 0; i < std::min(first.size(), second.size()) && first[i] == second[i]; ++i)
    size += first[i].size();
  return size;
}
size_t common_end(std::string_view a, std::string_view b) {
  const auto first = split_tags(a), second = split_tags(b);
  size_t size = 0;
  for (size_t i = 1;
       i <= std::min(first.size(), second.size()) && first[first.size() - i] == second[second.size() - i];
       ++i)
    size += first[first.size() - i].size();
  return size;
}

std::string trimmed(std::string_view text) { return std::string(trim(text)); }

CallStep mark_step(std::string_view text) {
  return {Kind::kMark, trimmed(text), is_space(text.front()), is_space(text.back())};
}

// The end of the value that begins at `begin`; kNone without one.
size_t end_of_value(std::string_view text, Syntax syntax, size_t begin, std::string quote = {}) {
  PayloadScanner scanner(syntax, begin, std::move(quote));
  return scanner.advance(text) == PayloadScanner::Progress::kEnd ? scanner.at() : kNone;
}

// CallFormReader: derives the form from a rendering with one or two calls.
class CallFormReader {
 public:
  // `content_header`: text before content without calls.
  CallFormReader(std::string_view text, int calls, std::string_view prompt, std::string_view content_header,
                 AnswerForm& form)
      : text_(text), calls_(calls), prompt_(prompt), content_header_(content_header), form_(form) {}

  bool read() {
    begins_[0] = first_hole(0, 0);
    if (begins_[0] == kNone) return false;
    if (calls_ == 2) begins_[1] = first_hole(1, begins_[0]);
    if (read_objects() || read_python()) return true;
    return read_named();
  }
  CallForm take() { return std::move(made_); }

 private:
  // The first place of the call's name or id, from `from` on.
  size_t first_hole(int call, size_t from) const {
    return std::min(text_.find(kProbeNames[call], from), text_.find(kProbeIds[call], from));
  }

  // The text before the first call, without the turn's header and the marks of empty reasoning.
  std::string_view ahead(size_t end) const {
    std::string_view rest = text_.substr(0, end);
    rest.remove_prefix(std::max(common_beginning(rest, prompt_), common_beginning(rest, content_header_)));
    for (bool is_cut = true; is_cut;) {
      is_cut = false;
      for (const AnswerSpan& span : form_.reasoning)
        for (const std::string& mark : {span.open, span.close})
          if (const std::string_view bare = rest.substr(skip_space(rest, 0));
              !mark.empty() && bare.starts_with(mark)) {
            rest = bare.substr(mark.size());
            is_cut = true;
          }
    }
    return rest;
  }

  // Finds the marks around calls, from the text before, between and
  // after them. `steps`: those of a call, to which they are added.
  void frame(std::string_view before, std::string_view between, std::string_view behind,
             std::vector<CallStep> steps) {
    std::string_view open = before, close, section;
    if (calls_ == 2) {
      open = before.substr(before.size() - common_end(before, between));
      between.remove_suffix(open.size());
      close = between.substr(0, common_beginning(between, behind));
      section = before.substr(0, before.size() - open.size());
      behind.remove_prefix(close.size());
    }
    const std::string_view outer = calls_ == 2 ? section : open;
    const std::string_view outer_close = closing_tags(behind, outer);
    if (calls_ == 2) {
      made_.section_open = trimmed(section);
      if (!is_blank(section)) made_.section_close = trimmed(outer_close);
    } else {
      close = outer_close;
    }
    if (!is_blank(open)) made_.steps.push_back(mark_step(open));
    for (CallStep& step : steps) made_.steps.push_back(std::move(step));
    if (!is_blank(close)) made_.steps.push_back(mark_step(close));
    if (calls_ == 1 || !is_blank(section)) behind.remove_prefix(outer_close.size());
    for (const std::string_view tag : split_tags(behind)) {
      if (is_blank(tag)) continue;
      if (std::ranges::find(form_.ends, tag) == form_.ends.end()) form_.ends.emplace_back(tag);
      break;
    }
  }

  // As many tags as `open` has, up to the turn's end.
  std::string_view closing_tags(std::string_view behind, std::string_view open) const {
    size_t wanted = 0, size = 0;
    for (const std::string_view tag : split_tags(open)) wanted += !is_blank(tag);
    const auto header = split_tags(trim(prompt_));
    for (const std::string_view tag : split_tags(behind)) {
      if (wanted == 0 || std::ranges::find(form_.ends, tag) != form_.ends.end() ||
          (!header.empty() && tag == header.front()))
        break;
      wanted -= !is_blank(tag);
      size += tag.size();
    }
    return behind.substr(0, size);
  }

  // JSON with the name: an object per call, or an array of all.
  bool read_objects() {
    size_t begin = common_beginning(text_.substr(0, begins_[0]), prompt_), end = kNone;
    for (; begin < begins_[0]; ++begin) {
      if (text_[begin] != '{' && text_[begin] != '[') continue;
      end = end_of_value(text_, Syntax::kJson, begin);
      if (end != kNone && text_.substr(begin, end - begin).find(kProbeValues[2]) != kNone) break;
      end = kNone;
    }
    if (end == kNone || end < begins_[0]) return false;
    Json value = parse_bounded_json(text_.substr(begin, end - begin));
    const bool is_array = value.is_array();
    if (is_array) {
      if (value.empty()) return false;
      Json first = value[0];
      value = std::move(first);
    }
    if (!read_keys(value)) return false;
    std::string_view between;
    if (is_array) {
      calls_ = 1;
    } else if (calls_ == 2) {
      const size_t next = begins_[1] == kNone ? kNone : text_.rfind('{', begins_[1]);
      const size_t next_end = next == kNone || next < end ? kNone : end_of_value(text_, Syntax::kJson, next);
      if (next_end == kNone) return false;
      between = text_.substr(end, next - end);
      end = next_end;
    }
    frame(ahead(begin), between, text_.substr(end), {{Kind::kObjects, ""}});
    made_.is_list = is_array;
    const bool is_bare = made_.section_open.empty() && made_.steps[0].kind == Kind::kObjects;
    made_.only_at_start = is_bare;
    return !(is_bare && is_array);
  }

  bool read_keys(const Json& call) {
    if (!call.is_object()) return false;
    const auto function = call.find("function");
    made_.has_function = function != call.end() && function->is_object();
    const Json& object = made_.has_function ? *function : call;
    bool has_name = false;
    for (const auto& [key, value] : object.items()) {
      if (key == kProbeNames[0]) {
        made_.is_keyed_by_name = true;
        return true;
      }
      if (value == kProbeNames[0] ||
          (value.is_string() && value.get_ref<const std::string&>().find(kProbeNames[0]) != kNone)) {
        made_.name_key = key;
        has_name = true;
      } else if (value == kProbeIds[0]) {
        made_.id_key = key;
      } else if (dump(value).find(kProbeKeys[0]) != kNone) {
        made_.arguments_key = key;
      } else {
        continue;
      }
      made_.keys.push_back(key);
    }
    return has_name;
  }

  // [name(key='value'), ...]
  bool read_python() {
    const size_t name_end = begins_[0] + kProbeNames[0].size();
    if (!text_.substr(name_end).starts_with("(" + std::string(kProbeKeys[0]) + "=")) return false;
    size_t begin = begins_[0];
    if (begin > 0 && text_[begin - 1] == '[') --begin;
    const size_t end = end_of_value(text_, Syntax::kPython, text_[begin] == '[' ? begin : name_end);
    if (end == kNone) return false;
    calls_ = 1;
    made_.is_list = text_[begin] == '[';
    frame(ahead(begin), {}, text_.substr(end), {{Kind::kPython, ""}});
    made_.only_at_start = made_.steps[0].kind != Kind::kMark;
    return true;
  }

  // The name is outside of the arguments.
  bool read_named() {
    std::vector<CallStep> steps[2];
    std::string_view last[2];  // between the last hole and the arguments
    size_t argument_begins[2] = {kNone, kNone}, ends[2] = {kNone, kNone};
    for (int call = 0; call < calls_; ++call) {
      const size_t limit = call == 0 && calls_ == 2 ? begins_[1] : text_.size();
      if (begins_[call] == kNone) return false;
      const size_t key = text_.find(kProbeKeys[0], begins_[call]);
      if (key == kNone || key >= limit) return false;
      const size_t hole_end = read_holes(call, key, steps[call]);
      if (call == 0 && !read_arguments_kind(key, limit)) return false;
      if (!find_arguments(key, limit, hole_end, argument_begins[call], ends[call])) return false;
      last[call] = text_.substr(hole_end, argument_begins[call] - hole_end);
    }
    if (calls_ == 2 && last[0] != last[1]) {
      // A number that counts the calls.
      const auto [a, b] = std::ranges::mismatch(last[0], last[1]);
      const size_t same = static_cast<size_t>(a - last[0].begin());
      size_t tail = 0;
      while (tail < std::min(last[0].size(), last[1].size()) - same &&
             last[0][last[0].size() - 1 - tail] == last[1][last[1].size() - 1 - tail])
        ++tail;
      add_mark(steps[0], last[0].substr(0, same));
      const std::string_view counted = last[0].substr(same, last[0].size() - same - tail);
      steps[0].push_back({Kind::kSkip, "", false, false, {std::string(counted)}});
      add_mark(steps[0], last[0].substr(last[0].size() - tail));
    } else {
      add_mark(steps[0], last[0]);
    }
    steps[0].push_back({kind_, ""});
    const std::string_view between =
        calls_ == 2 ? text_.substr(ends[0], begins_[1] - ends[0]) : std::string_view();
    frame(ahead(begins_[0]), between, text_.substr(ends[calls_ - 1]), std::move(steps[0]));
    return made_.steps[0].kind == Kind::kMark;
  }

  static void add_mark(std::vector<CallStep>& steps, std::string_view mark) {
    if (!is_blank(mark)) steps.push_back(mark_step(mark));
  }

  // Finds names and ids from the call's begin to its arguments. Returns the end of the last.
  size_t read_holes(int call, size_t end, std::vector<CallStep>& steps) const {
    size_t at = begins_[call];
    for (size_t hole = at; hole < end;) {
      if (hole > at) add_mark(steps, text_.substr(at, hole - at));
      const bool is_name = text_.substr(hole).starts_with(kProbeNames[call]);
      steps.push_back({is_name ? Kind::kName : Kind::kId, ""});
      at = hole + (is_name ? kProbeNames[call] : kProbeIds[call]).size();
      hole = first_hole(call, at);
    }
    return at;
  }

  // Determines the syntax of arguments from the first call.
  bool read_arguments_kind(size_t key, size_t limit) {
    const size_t bracket = text_.rfind('{', key);
    if (bracket != kNone && is_blank(text_.substr(bracket + 1, key - bracket - 1))) {
      // Bare keys: the texts on both sides of a value are its quotation marks.
      const size_t colon = key + kProbeKeys[0].size(), value = text_.find(kProbeValues[0], colon);
      if (value == kNone || text_[colon] != ':') return false;
      made_.quote = trimmed(text_.substr(colon + 1, value - colon - 1));
      kind_ = Kind::kQuoted;
      return !made_.quote.empty() && text_.substr(value + kProbeValues[0].size()).starts_with(made_.quote);
    }
    if (bracket != kNone && trim(text_.substr(bracket + 1, key - bracket - 1)) == "\"") {
      kind_ = Kind::kArguments;
      return true;
    }
    kind_ = Kind::kParameters;
    return read_parameter(key, limit);
  }

  bool find_arguments(size_t key, size_t limit, size_t hole_end, size_t& begin, size_t& end) const {
    if (kind_ == Kind::kParameters) {
      begin = key - open_size_;
      const size_t value = text_.find(kProbeValues[2], key);
      if (begin < hole_end || value == kNone || value >= limit) return false;
      end = value + kProbeValues[2].size() + close_size_;
      return end <= limit;
    }
    begin = text_.rfind('{', key);
    if (begin == kNone || begin < hole_end) return false;
    end = end_of_value(text_, kind_ == Kind::kQuoted ? Syntax::kQuoted : Syntax::kJson, begin, made_.quote);
    return end != kNone && end <= limit;
  }

  bool read_parameter(size_t key, size_t limit) {
    size_t keys[3], values[3];
    size_t from = key;
    for (size_t i = 0; i < 3; ++i) {
      keys[i] = text_.find(kProbeKeys[i], from);
      values[i] = keys[i] == kNone ? kNone : text_.find(kProbeValues[i], keys[i]);
      if (values[i] == kNone || values[i] >= limit) return false;
      from = values[i];
    }
    const auto behind = [&](size_t i, size_t end) {
      std::string part(
          text_.substr(values[i] + kProbeValues[i].size(), end - values[i] - kProbeValues[i].size()));
      if (const size_t again = part.find(kProbeKeys[i]); again != std::string::npos)
        part.replace(again, kProbeKeys[i].size(), "\1");
      return part;
    };
    const std::string between = behind(0, keys[1]), last = behind(2, limit);
    const std::string_view head = text_.substr(0, keys[0]);
    open_size_ = common_end(head.substr(head.size() > 256 ? head.size() - 256 : 0), between);
    const std::string_view open = head.substr(head.size() - open_size_);
    const std::string_view rest = std::string_view(between).substr(0, between.size() - open_size_);
    const std::string_view close = rest.substr(0, common_beginning(rest, last));
    ParameterForm& form = made_.parameter;
    const auto middle = [&](size_t i) {
      return text_.substr(keys[i] + kProbeKeys[i].size(), values[i] - keys[i] - kProbeKeys[i].size());
    };
    std::string_view text_middle = middle(0);
    const std::string_view number_middle = middle(2);
    if (text_middle != number_middle) {
      const auto same =
          static_cast<size_t>(std::ranges::mismatch(text_middle, number_middle).in1 - text_middle.begin());
      const size_t begin = text_middle.find_last_of("\"'=", same);
      const size_t end = begin == kNone ? kNone : text_middle.find_first_of("\"'> ", begin + 1);
      if (end == kNone) return false;
      form.has_kind = true;
      form.text_kind = text_middle.substr(begin + 1, end - begin - 1);
      form.kind_end = trimmed(text_middle.substr(end));
      text_middle = text_middle.substr(0, begin + 1);
      form.middle = trimmed(text_middle);
    } else {
      form.middle = trimmed(text_middle);
      form.value_lead = text_middle.substr(without_trailing_space(text_middle).size());
    }
    form.value_tail = close.substr(0, skip_space(close, 0));
    form.open = trimmed(open);
    form.close = trimmed(close);
    close_size_ = close.size();
    if (close.find('\1') != kNone) close_size_ += kProbeKeys[2].size() - 1;
    return !form.open.empty() && !form.middle.empty() && !form.close.empty();
  }

  std::string_view text_;
  int calls_;
  std::string_view prompt_, content_header_;
  AnswerForm& form_;
  CallForm made_;
  size_t begins_[2] = {kNone, kNone};
  Kind kind_ = Kind::kArguments;
  size_t open_size_ = 0, close_size_ = 0;  // sizes of a parameter's marks in the rendering
};

}  // namespace

std::string_view find_empty_span(std::string_view text, const AnswerSpan& span) {
  for (size_t at = text.find(span.open); at != kNone; at = text.find(span.open, at + 1)) {
    const size_t end = skip_space(text, at + span.open.size());
    if (text.substr(end).starts_with(span.close)) return text.substr(at, end + span.close.size() - at);
  }
  return {};
}

std::optional<CallForm> read_call_form(const FormProbe& probe, AnswerForm& form,
                                       const std::optional<AnswerSpan>& around_content) {
  const std::string content = probe.render({true, false, 0}).value_or("");
  const std::string_view content_header = std::string_view(content).substr(0, content.find(kContentWord));
  std::optional<std::string> two = probe.render({false, false, 2}), one = probe.render({false, false, 1});
  for (std::optional<std::string>* text : {&two, &one})
    if (around_content && *text)
      if (const std::string_view empty = find_empty_span(**text, *around_content); !empty.empty())
        (*text)->erase(static_cast<size_t>(empty.data() - (*text)->data()), empty.size());
  const auto read = [&](const std::optional<std::string>& text, int calls) -> std::optional<CallForm> {
    if (!text || (calls == 2 && text->find(kProbeNames[1]) == std::string::npos)) return std::nullopt;
    CallFormReader reader(*text, calls, probe.prompt(), content_header, form);
    return reader.read() ? std::optional(reader.take()) : std::nullopt;
  };
  if (std::optional<CallForm> made = read(two, 2)) return made;
  return read(one, 1);
}

}  // namespace tessera::answer
