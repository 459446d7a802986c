#include "serialize/sequence_file.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "graph/base/text.h"

namespace tessera {

namespace {

constexpr std::string_view kMagic = "TSRSEQNC";
// Versions. kWindowRows has window_from after the fixed part, and is_window after each state's (u64 both).
constexpr uint32_t kAllRows = 1, kWindowRows = 2;
// Limits of a state, whose products stay below 2^62.
constexpr uint64_t kMostStates = uint64_t{1} << 16, kMostName = 1024, kMostExtent = uint64_t{1} << 20;

struct Fixed {
  char magic[8];
  uint32_t version, states;
  uint64_t file_bytes, model, root, tokens, cached;
};
static_assert(sizeof(Fixed) == 56);

// Followed by the name and the name of the element type.
struct FixedState {
  uint32_t name_bytes, dtype_bytes;
  uint64_t heads, width;
};
static_assert(sizeof(FixedState) == 24);

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

Status corrupt(std::string message) { return Status(StatusCode::kCorrupt, std::move(message)); }

}  // namespace

int64_t SequenceHeader::row_bytes(int64_t position) const {
  int64_t bytes = 0;
  for (const PageState& state : states)
    if (position >= window_from || !state.is_window) bytes += state.row_bytes();
  return bytes;
}

int64_t SequenceHeader::all_row_bytes() const {
  return window_from * row_bytes(0) + (cached - window_from) * row_bytes(window_from);
}

Status SequenceFileWriter::put(std::span<const std::byte> bytes) {
  hash_.add(bytes);
  return file_.append(bytes);
}

Result<SequenceFileWriter> SequenceFileWriter::create(const std::string& path, const SequenceHeader& header) {
  TSR_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  const int64_t rows = header.all_row_bytes();
  const bool has_window = header.window_from > 0;
  SequenceFileWriter writer(std::move(file), rows);
  uint64_t size =
      sizeof(Fixed) + header.tokens.size() * sizeof(int32_t) + static_cast<uint64_t>(rows) + sizeof(uint64_t);
  for (const PageState& state : header.states)
    size += sizeof(FixedState) + state.name.size() + to_text(state.dtype).size();
  if (has_window) size += sizeof(uint64_t) * (1 + header.states.size());
  Fixed fixed{{},
              has_window ? kWindowRows : kAllRows,
              static_cast<uint32_t>(header.states.size()),
              size,
              header.model,
              header.root,
              header.tokens.size(),
              static_cast<uint64_t>(header.cached)};
  std::memcpy(fixed.magic, kMagic.data(), kMagic.size());
  TSR_RETURN_IF_ERROR(writer.put(bytes_of(fixed)));
  if (has_window) TSR_RETURN_IF_ERROR(writer.put(bytes_of(static_cast<uint64_t>(header.window_from))));
  for (const PageState& state : header.states) {
    const std::string dtype = to_text(state.dtype);
    TSR_RETURN_IF_ERROR(writer.put(
        bytes_of(FixedState{static_cast<uint32_t>(state.name.size()), static_cast<uint32_t>(dtype.size()),
                            static_cast<uint64_t>(state.heads), static_cast<uint64_t>(state.width)})));
    if (has_window) TSR_RETURN_IF_ERROR(writer.put(bytes_of(uint64_t{state.is_window})));
    TSR_RETURN_IF_ERROR(writer.put(std::as_bytes(std::span(state.name))));
    TSR_RETURN_IF_ERROR(writer.put(std::as_bytes(std::span(dtype))));
  }
  TSR_RETURN_IF_ERROR(writer.put(std::as_bytes(std::span(header.tokens))));
  return writer;
}

Status SequenceFileWriter::append(std::span<const std::byte> rows) {
  row_bytes_left_ -= std::ssize(rows);
  TSR_CHECK(row_bytes_left_ >= 0, "more rows are appended than the header says");
  return put(rows);
}

Status SequenceFileWriter::commit() {
  TSR_CHECK(row_bytes_left_ == 0, "fewer rows are appended than the header says");
  TSR_RETURN_IF_ERROR(file_.append(bytes_of(hash_.digest())));
  return file_.commit();
}

template <class T>
Result<T> SequenceFileReader::number(std::string_view what) {
  TSR_ASSIGN_OR_RETURN(const T value, cursor_->read<T>(what));
  hash_.add(bytes_of(value));
  return value;
}

Result<PageState> SequenceFileReader::state(bool has_window) {
  TSR_ASSIGN_OR_RETURN(const FixedState fixed, number<FixedState>("a state"));
  if (fixed.name_bytes > kMostName || fixed.dtype_bytes > kMostName)
    return corrupt(format("a state's name has {} bytes, its type's {}: at most {} are wanted",
                          fixed.name_bytes, fixed.dtype_bytes, kMostName));
  PageState state;
  if (has_window) {
    TSR_ASSIGN_OR_RETURN(const uint64_t flag, number<uint64_t>("whether a state is of a window"));
    if (flag > 1) return corrupt(format("whether a state is of a window is {}: wanted 0 or 1", flag));
    state.is_window = flag == 1;
  }
  TSR_ASSIGN_OR_RETURN(state.name, cursor_->read_text(fixed.name_bytes, "a state's name"));
  TSR_ASSIGN_OR_RETURN(const std::string dtype, cursor_->read_text(fixed.dtype_bytes, "a state's type"));
  hash_.add(std::as_bytes(std::span(state.name)));
  hash_.add(std::as_bytes(std::span(dtype)));
  const std::optional<DType> known = dtype_from_name(dtype);
  constexpr DType kPageTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kQ8_0};
  if (!known || std::ranges::find(kPageTypes, *known) == std::end(kPageTypes))
    return corrupt("a state's element type is none that keys and values have");
  if (fixed.heads < 1 || fixed.heads > kMostExtent || fixed.width < 1 || fixed.width > kMostExtent)
    return corrupt(
        format("a state has {} heads of {}: 1 to {} are wanted", fixed.heads, fixed.width, kMostExtent));
  if (const auto block = static_cast<uint64_t>(info(*known).block_elements); fixed.width % block != 0)
    return corrupt(
        format("a state of {} has heads of {}: wanted a multiple of {}", *known, fixed.width, block));
  state.dtype = *known;
  state.heads = static_cast<int64_t>(fixed.heads);
  state.width = static_cast<int64_t>(fixed.width);
  return state;
}

Status SequenceFileReader::read_header() {
  TSR_ASSIGN_OR_RETURN(const Fixed fixed, number<Fixed>("the header"));
  if (std::string_view(fixed.magic, sizeof fixed.magic) != kMagic)
    return corrupt(format("it does not start with \"{}\"", kMagic));
  if (fixed.version != kAllRows && fixed.version != kWindowRows)
    return Status(StatusCode::kUnsupported,
                  format("written in format {}, this version reads {} and {}: use a newer one", fixed.version,
                         kAllRows, kWindowRows));
  const auto size = static_cast<uint64_t>(source_->size());
  if (fixed.file_bytes != size)
    return corrupt(
        format("the file has {} bytes, its header says {}: it was cut or added to", size, fixed.file_bytes));
  if (fixed.states > kMostStates)
    return corrupt(format("it has {} states: at most {} are wanted", fixed.states, kMostStates));
  if (fixed.cached > fixed.tokens)
    return corrupt(
        format("it has keys and values of {} positions, and {} tokens", fixed.cached, fixed.tokens));
  const bool has_window = fixed.version == kWindowRows;
  uint64_t window_from = 0;
  if (has_window) {
    TSR_ASSIGN_OR_RETURN(window_from, number<uint64_t>("the first position of windows"));
    if (window_from > fixed.cached)
      return corrupt(
          format("it has windows from position {} on, and keys and values of {}", window_from, fixed.cached));
  }
  header_.model = fixed.model;
  header_.root = fixed.root;
  for (uint32_t i = 0; i < fixed.states; ++i) {
    TSR_ASSIGN_OR_RETURN(PageState one, state(has_window));
    header_.states.push_back(std::move(one));
  }
  const auto left = static_cast<uint64_t>(cursor_->left());
  // No overflow: positions are at most tokens, which fit the file.
  if (left < sizeof(uint64_t) || fixed.tokens > left / sizeof(int32_t))
    return corrupt(format("{} tokens do not fit the {} bytes after its header", fixed.tokens, left));
  header_.cached = static_cast<int64_t>(fixed.cached);
  header_.window_from = static_cast<int64_t>(window_from);
  const auto row_bytes = static_cast<uint64_t>(header_.row_bytes(header_.window_from));
  const auto rows = row_bytes > 0 && fixed.cached > (uint64_t{1} << 62) / row_bytes
                        ? left
                        : static_cast<uint64_t>(header_.all_row_bytes());
  if (fixed.tokens * sizeof(int32_t) + rows + sizeof(uint64_t) != left)
    return corrupt(
        format("{} tokens and the rows of {} positions of {} bytes do not fill the {} bytes after "
               "its header",
               fixed.tokens, fixed.cached, row_bytes, left));
  header_.tokens.resize(static_cast<size_t>(fixed.tokens));
  for (int32_t& token : header_.tokens) {
    TSR_ASSIGN_OR_RETURN(token, number<int32_t>("a token"));
    if (token < 0) return corrupt(format("it has token id {}", token));
  }
  return {};
}

Result<SequenceFileReader> SequenceFileReader::open(const std::string& path) {
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<const ByteSource> source, open_file(path));
  Result<SequenceFileReader> reader = open(std::move(source));
  if (!reader.ok()) return reader.status().with_context(path);
  return reader;
}

Result<SequenceFileReader> SequenceFileReader::open(std::shared_ptr<const ByteSource> source) {
  SequenceFileReader reader(std::move(source));
  TSR_RETURN_IF_ERROR(reader.read_header());
  return reader;
}

Status SequenceFileReader::read_rows(std::span<std::byte> rows) {
  TSR_RETURN_IF_ERROR(source_->read_at(cursor_->position(), rows));
  TSR_RETURN_IF_ERROR(cursor_->skip(rows.size(), "rows"));
  hash_.add(rows);
  return {};
}

Status SequenceFileReader::check() {
  TSR_ASSIGN_OR_RETURN(const auto wanted, cursor_->read<uint64_t>("the checksum"));
  if (wanted != hash_.digest()) return corrupt("its checksum is wrong");
  return {};
}

}  // namespace tessera
