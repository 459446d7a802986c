#include "tests/fuzz/sites.h"

#include <flatbuffers/flatbuffers.h>
#include <flatbuffers/reflection_generated.h>

#include <algorithm>
#include <cctype>
#include <cstring>

namespace tessera::fuzz {
namespace {

using flatbuffers::ReadScalar;
using flatbuffers::uoffset_t;

size_t scalar_bytes(reflection::BaseType type) {
  switch (type) {
    case reflection::Bool:
    case reflection::Byte:
    case reflection::UByte:
    case reflection::UType: return 1;
    case reflection::Short:
    case reflection::UShort: return 2;
    case reflection::Int:
    case reflection::UInt:
    case reflection::Float: return 4;
    case reflection::Long:
    case reflection::ULong:
    case reflection::Double: return 8;
    default: return 0;
  }
}

class FlatBufferWalker {
 public:
  FlatBufferWalker(const std::string& file, const reflection::Schema& schema, std::vector<Site>& sites)
      : file_(reinterpret_cast<const uint8_t*>(file.data())), schema_(schema), sites_(sites) {}

  void root(size_t begin) {
    const uint8_t* table = follow(file_ + begin);
    walk(*reinterpret_cast<const flatbuffers::Table*>(table), *schema_.root_table());
  }

 private:
  static constexpr uoffset_t kElements = 24;  // of a long vector: the first ones stand for all

  size_t position(const uint8_t* at) const { return static_cast<size_t>(at - file_); }

  // Notes the offset at `at`; where it points.
  const uint8_t* follow(const uint8_t* at) {
    const uint8_t* target = at + ReadScalar<uoffset_t>(at);
    sites_.push_back({Site::Kind::kOffset, position(at), 4, position(target)});
    return target;
  }

  void text(const uint8_t* string) {
    const uoffset_t size = ReadScalar<uoffset_t>(string);
    sites_.push_back({Site::Kind::kLength, position(string), 4});
    if (size > 0) sites_.push_back({Site::Kind::kText, position(string) + 4, size});
  }

  void fixed(const uint8_t* at, const reflection::Object& object) {  // a struct
    for (const reflection::Field* field : *object.fields()) {
      const size_t bytes = scalar_bytes(field->type()->base_type());
      sites_.push_back({Site::Kind::kScalar, position(at) + field->offset(), bytes});
    }
  }

  void vector(const uint8_t* start, const reflection::Type& type) {
    const uoffset_t count = ReadScalar<uoffset_t>(start);
    sites_.push_back({Site::Kind::kLength, position(start), 4});
    const uint8_t* element = start + 4;
    const size_t scalar = scalar_bytes(type.element());
    const reflection::Object* object = type.element() == reflection::Obj
                                           ? schema_.objects()->Get(static_cast<uoffset_t>(type.index()))
                                           : nullptr;
    for (uoffset_t i = 0; i < std::min(count, kElements); ++i) {
      if (scalar > 0) {
        sites_.push_back({Site::Kind::kScalar, position(element), scalar});
        element += scalar;
      } else if (object != nullptr && object->is_struct()) {
        fixed(element, *object);
        element += object->bytesize();
      } else {
        const uint8_t* target = follow(element);
        if (object == nullptr) {
          text(target);
        } else {
          walk(*reinterpret_cast<const flatbuffers::Table*>(target), *object);
        }
        element += 4;
      }
    }
  }

  void walk(const flatbuffers::Table& table, const reflection::Object& object) {
    for (const reflection::Field* field : *object.fields()) {
      const uint8_t* at = table.GetAddressOf(field->offset());
      if (at == nullptr) continue;
      const reflection::Type& type = *field->type();
      if (const size_t bytes = scalar_bytes(type.base_type()); bytes > 0) {
        sites_.push_back({Site::Kind::kScalar, position(at), bytes});
      } else if (type.base_type() == reflection::String) {
        text(follow(at));
      } else if (type.base_type() == reflection::Vector) {
        vector(follow(at), type);
      } else if (type.base_type() == reflection::Obj) {
        const reflection::Object* inner = schema_.objects()->Get(static_cast<uoffset_t>(type.index()));
        walk(*reinterpret_cast<const flatbuffers::Table*>(follow(at)), *inner);
      }
    }
  }

  const uint8_t* file_;
  const reflection::Schema& schema_;
  std::vector<Site>& sites_;
};

// Walks a valid GGUF file.
class GgufWalker {
 public:
  GgufWalker(const std::string& file, std::vector<Site>& sites) : file_(file), sites_(sites) {}

  void walk() {
    at_ = 8;
    const uint64_t tensors = number(8, Site::Kind::kLength), values = number(8, Site::Kind::kLength);
    for (uint64_t i = 0; i < values; ++i) {
      text();
      value(static_cast<uint32_t>(number(4)));
    }
    for (uint64_t i = 0; i < tensors; ++i) {
      text();
      const uint64_t rank = number(4, Site::Kind::kLength);
      for (uint64_t dim = 0; dim < rank; ++dim) number(8);
      number(4);
      number(8);
    }
  }

 private:
  uint64_t number(size_t bytes, Site::Kind kind = Site::Kind::kScalar) {
    uint64_t value = 0;
    std::memcpy(&value, file_.data() + at_, bytes);
    sites_.push_back({kind, at_, bytes});
    at_ += bytes;
    return value;
  }
  void text() {
    const uint64_t size = number(8, Site::Kind::kLength);
    if (size > 0) sites_.push_back({Site::Kind::kText, at_, size});
    at_ += size;
  }
  void value(uint32_t type) {
    constexpr size_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == 8) {
      text();
    } else if (type == 9) {
      const auto element = static_cast<uint32_t>(number(4));
      const uint64_t count = number(8, Site::Kind::kLength);
      for (uint64_t i = 0; i < count; ++i) value(element);
    } else {
      number(kBytes[type]);
    }
  }

  const std::string& file_;
  std::vector<Site>& sites_;
  size_t at_ = 0;
};

uint64_t interesting(uint64_t old, size_t bytes, Random& random) {
  const uint64_t mask = bytes >= 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * bytes)) - 1;
  const uint64_t values[] = {0,
                             1,
                             2,
                             3,
                             7,
                             8,
                             64,
                             255,
                             old + 1,
                             old - 1,
                             old * 2,
                             old / 2,
                             ~old,
                             mask,
                             mask >> 1,
                             (mask >> 1) + 1,
                             uint64_t{1} << random.below(64),
                             random.next(),
                             old ^ (uint64_t{1} << random.below(8 * bytes)),
                             0x7ff8000000000000,
                             0x7fc00000,
                             1000000007};
  return random.pick<uint64_t>(values) & mask;
}

void mutate_site(std::string& file, const std::vector<Site>& sites, const Site& site, Random& random) {
  if (site.kind == Site::Kind::kText) {
    const size_t at = site.at + random.below(site.bytes);
    file[at] = static_cast<char>(random.one_in(2) ? random.next() : static_cast<uint64_t>(file[at]) + 1);
    return;
  }
  if (site.kind == Site::Kind::kOffset &&
      !random.one_in(3)) {  // the same thing twice, or a thing of another kind
    std::vector<size_t> targets;
    for (const Site& other : sites) {
      if (other.kind == Site::Kind::kOffset && other.target > site.at) targets.push_back(other.target);
    }
    const auto offset = static_cast<uint32_t>(random.pick<size_t>(targets) - site.at);
    std::memcpy(file.data() + site.at, &offset, 4);
    return;
  }
  uint64_t old = 0;
  std::memcpy(&old, file.data() + site.at, site.bytes);
  const uint64_t value = interesting(old, site.bytes, random);
  std::memcpy(file.data() + site.at, &value, site.bytes);
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; }

}  // namespace

std::vector<Site> flatbuffer_sites(const std::string& file, size_t begin, const std::string& schema) {
  std::vector<Site> sites;
  FlatBufferWalker(file, *reflection::GetSchema(schema.data()), sites).root(begin);
  return sites;
}

std::vector<Site> gguf_sites(const std::string& file) {
  std::vector<Site> sites;
  GgufWalker(file, sites).walk();
  return sites;
}

void mutate_sites(std::string& file, const std::vector<Site>& sites, Random& random) {
  for (uint64_t left = random.one_in(3) ? 1 + random.below(3) : 1; left > 0; --left) {
    // A broken length or offset is mostly found by the verifier already; what is behind it wants to be
    // reached too.
    const Site* site = &random.pick<Site>(sites);
    while ((site->kind == Site::Kind::kOffset || site->kind == Site::Kind::kLength) && !random.one_in(6)) {
      site = &random.pick<Site>(sites);
    }
    mutate_site(file, sites, *site, random);
  }
}

void mutate_text(std::string& text, Random& random) {
  const size_t header = text.find('\n') + 1;  // the line that says what the text is
  for (uint64_t left = 1 + random.below(3); left > 0 && text.size() > header + 2; --left) {
    size_t begin = header + random.below(text.size() - header);
    while (begin > header && is_word(text[begin - 1])) --begin;
    size_t end = begin + 1;
    while (end < text.size() && is_word(text[begin]) && is_word(text[end])) ++end;
    const std::string word = text.substr(begin, end - begin);
    const bool number = std::isdigit(static_cast<unsigned char>(word[0])) != 0;
    constexpr const char* kNumbers[] = {"0",
                                        "-1",
                                        "1",
                                        "3",
                                        "255",
                                        "4294967296",
                                        "9223372036854775807",
                                        "-9223372036854775808",
                                        "18446744073709551616",
                                        "1e999",
                                        "0.5",
                                        "nan"};
    switch (number ? 0 : random.below(9)) {
      case 0:
      case 1:
      case 2:
      case 3:
        if (number) {
          text.replace(begin, word.size(), random.pick<const char*>(kNumbers));
        } else {  // another word of the same text; mostly a real one for a real one
          if (!is_word(word[0]) && !random.one_in(4)) break;
          size_t from = header + random.below(text.size() - header);
          for (int i = 0; i < 20 && is_word(text[from]) != is_word(word[0]); ++i) {
            from = header + random.below(text.size() - header);
          }
          while (from > header && is_word(text[from - 1])) --from;
          size_t to = from + 1;
          while (to < text.size() && is_word(text[from]) && is_word(text[to])) ++to;
          text.replace(begin, word.size(), std::string(text, from, to - from));
        }
        break;
      case 4: text.erase(begin, word.size()); break;
      case 5: text.insert(begin, word); break;
      case 6:
      case 7: {  // a line twice, or not at all
        const size_t line = text.rfind('\n', begin) + 1;
        const size_t next = std::min(text.find('\n', begin), text.size() - 1) + 1;
        if (line < header || next <= line) break;
        if (random.one_in(2)) {
          text.insert(next, std::string(text, line, next - line));
        } else {
          text.erase(line, next - line);
        }
        break;
      }
      default: text[begin] = static_cast<char>(random.next()); break;
    }
  }
}

}  // namespace tessera::fuzz
