#include "text/jinja/text_parts.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace tessera::jinja {
namespace {

struct Range {
  size_t begin, end;
};

bool is_line_end(uint32_t code) {
  return (code >= 10 && code <= 13) || (code >= 28 && code <= 30) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
}

// Begin of the character that ends at `end`.
size_t character_before(std::string_view bytes, size_t end) {
  do --end;
  while ((static_cast<unsigned char>(bytes[end]) & 0xc0) == 0x80);
  return end;
}

std::vector<Range> split_at_space(std::string_view bytes, int64_t most) {
  std::vector<Range> parts;
  size_t at = 0, size = 0;
  const auto skip = [&](bool space) {
    while (at < bytes.size() && is_space(code_point_at(bytes, at, size)) == space) at += size;
  };
  for (;;) {
    skip(true);
    if (at >= bytes.size()) return parts;
    const size_t begin = at;
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {  // the rest, with trailing space
      parts.push_back({begin, bytes.size()});
      return parts;
    }
    skip(false);
    parts.push_back({begin, at});
  }
}

std::vector<Range> rsplit_at_space(std::string_view bytes, int64_t most) {
  std::vector<Range> parts;
  size_t end = bytes.size(), size = 0;
  const auto skip = [&](bool space) {
    while (end > 0 && is_space(code_point_at(bytes, character_before(bytes, end), size)) == space)
      end = character_before(bytes, end);
  };
  for (;;) {
    skip(true);
    if (end == 0) break;
    const size_t stop = end;
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.push_back({0, stop});
      break;
    }
    skip(false);
    parts.push_back({end, stop});
  }
  std::ranges::reverse(parts);
  return parts;
}

std::vector<Range> split_at(std::string_view bytes, std::string_view separator, int64_t most) {
  std::vector<Range> parts;
  size_t begin = 0;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t found = find_first(bytes, separator, begin);
    if (found == std::string_view::npos) break;
    parts.push_back({begin, found});
    begin = found + separator.size();
  }
  parts.push_back({begin, bytes.size()});
  return parts;
}

std::vector<Range> rsplit_at(std::string_view bytes, std::string_view separator, int64_t most) {
  const std::string back(bytes.rbegin(), bytes.rend()), separator_back(separator.rbegin(), separator.rend());
  std::vector<Range> parts = split_at(back, separator_back, most);
  for (Range& part : parts) part = {bytes.size() - part.end, bytes.size() - part.begin};
  std::ranges::reverse(parts);
  return parts;
}

Result<std::vector<Text>> slices(Budget& budget, const Text& text, const std::vector<Range>& ranges) {
  TSR_RETURN_IF_ERROR(budget.spend(static_cast<int64_t>(ranges.size())));
  std::vector<Text> parts;
  for (const Range& range : ranges) {
    TSR_ASSIGN_OR_RETURN(Text part, slice(budget, text, range.begin, range.end));
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace

size_t find_first(std::string_view text, std::string_view part, size_t from) {
  // An empty text may have a null address.
  if (from > text.size() || part.size() > text.size() - from) return std::string_view::npos;
  if (part.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

// Searches backwards.
size_t find_last(std::string_view text, std::string_view part) {
  const std::string text_back(text.rbegin(), text.rend()), part_back(part.rbegin(), part.rend());
  const size_t found = find_first(text_back, part_back);
  return found == std::string_view::npos ? found : text.size() - found - part.size();
}

Result<Text> strip(Budget& budget, const Text& text, bool left, bool right,
                   const std::optional<Text>& chars) {
  const std::string_view bytes = text.bytes();
  // Each character is searched in all of `chars`; the rest is charged below.
  Status status;
  const auto is_stripped = [&](size_t at, size_t& size) {
    const uint32_t code = code_point_at(bytes, at, size);
    if (chars && status.ok()) status = budget.spend_bytes(chars->size());
    if (!status.ok()) return false;
    return chars ? chars->bytes().find(bytes.substr(at, size)) != std::string_view::npos : is_space(code);
  };
  size_t begin = 0, end = bytes.size(), size = 0;
  while (left && begin < end && is_stripped(begin, size)) begin += size;
  while (right && end > begin && is_stripped(character_before(bytes, end), size))
    end = character_before(bytes, end);
  TSR_RETURN_IF_ERROR(status);
  TSR_RETURN_IF_ERROR(budget.spend_characters(bytes.size() - (end - begin)));
  return slice(budget, text, begin, end);
}

Result<std::vector<Text>> split(Budget& budget, const Text& text, const std::optional<Text>& separator,
                                int64_t most, bool from_right) {
  TSR_RETURN_IF_ERROR(budget.spend_characters(text.size()));
  // Backwards each character is searched, then decoded.
  if (from_right) TSR_RETURN_IF_ERROR(budget.spend_characters(text.size()));
  TSR_ASSIGN_OR_RETURN(const Lease room, budget.lease(text.size() * sizeof(Range)));
  const std::string_view bytes = text.bytes();
  if (!separator)
    return slices(budget, text, from_right ? rsplit_at_space(bytes, most) : split_at_space(bytes, most));
  return slices(
      budget, text,
      from_right ? rsplit_at(bytes, separator->bytes(), most) : split_at(bytes, separator->bytes(), most));
}

Result<std::vector<Text>> split_lines(Budget& budget, const Text& text, bool keep_ends) {
  const std::string_view bytes = text.bytes();
  TSR_RETURN_IF_ERROR(budget.spend_characters(bytes.size()));
  TSR_ASSIGN_OR_RETURN(const Lease room, budget.lease(bytes.size() * sizeof(Range)));
  std::vector<Range> lines;
  size_t begin = 0;
  for (size_t at = 0, size = 0; at < bytes.size();) {
    const uint32_t code = code_point_at(bytes, at, size);
    const size_t behind =
        at + size + (code == '\r' && at + 1 < bytes.size() && bytes[at + 1] == '\n' ? 1 : 0);
    if (is_line_end(code)) {
      lines.push_back({begin, keep_ends ? behind : at});
      begin = behind;
    }
    at = is_line_end(code) ? behind : at + size;
  }
  if (begin < bytes.size()) lines.push_back({begin, bytes.size()});
  return slices(budget, text, lines);
}

Result<Text> replace(Budget& budget, const Text& text, const Text& old, const Text& fresh, int64_t most) {
  const std::string_view bytes = text.bytes();
  TSR_RETURN_IF_ERROR(budget.spend_characters(bytes.size()));
  TextBuilder builder(budget);
  size_t from = 0;
  for (int64_t made = 0; most < 0 || made < most; ++made) {
    TSR_RETURN_IF_ERROR(budget.spend());
    size_t at = 0, size = old.size();
    if (old.empty()) {  // before each character and at the end
      if (made > 0 && from >= bytes.size()) break;
      if (made > 0) (void)code_point_at(bytes, from, size);
      at = made > 0 ? from + size : 0;
      size = 0;
    } else {
      at = find_first(bytes, old.bytes(), from);
      if (at == std::string_view::npos) break;
    }
    TSR_RETURN_IF_ERROR(builder.add(text, from, at));
    TSR_RETURN_IF_ERROR(builder.add(fresh));
    from = at + size;
  }
  TSR_RETURN_IF_ERROR(builder.add(text, from, bytes.size()));
  return builder.finish();
}

Result<Text> pad(Budget& budget, const Text& text, int64_t width, const Text& fill, Padding side) {
  const int64_t room = std::max<int64_t>(0, width - text.length());
  // Python puts the odd space to the left if the width is odd.
  const int64_t half = room / 2 + (room & width & 1);
  const int64_t before = side == Padding::kLeft ? room : side == Padding::kBoth ? half : 0;
  TextBuilder builder(budget);
  for (int64_t i = 0; i < before; ++i) TSR_RETURN_IF_ERROR(builder.add(fill));
  TSR_RETURN_IF_ERROR(builder.add(text));
  for (int64_t i = before; i < room; ++i) TSR_RETURN_IF_ERROR(builder.add(fill));
  return builder.finish();
}

}  // namespace tessera::jinja
