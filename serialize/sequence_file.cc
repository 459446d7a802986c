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
// Versions. kWindowRows has window_from after the fixed part, and is_window after each state's (u64 both); kStateRows also the
// number of row states after window_from, and their FixedRow, extents and names after the states.
constexpr uint32_t kAllRows = 1, kWindowRows = 2, kStateRows = 3;
// Limits of a state, whose products stay below 2^62.
constexpr uint64_t kMostStates = uint64_t{1} << 16, kMostName = 1024, kMostExtent = uint64_t{1} << 20;
constexpr uint64_t kMostRank = kMaxRank - 1;  // of a row

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

// Followed by the extents (u64), the name and the name of the element type.
struct FixedRow {
  uint32_t name_bytes, dtype_bytes;
  uint64_t rank;
};
static_assert(sizeof(FixedRow) == 16);

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

Status corrupt(std::string message) { return Status(StatusCode::kCorrupt, std::move(message)); }

uint32_t version_of(const SequenceHeader& header) {
  return !header.rows.empty() ? kStateRows : header.window_from > 0 ? kWindowRows : kAllRows;
}

uint64_t file_bytes(const SequenceHeader& header) {
  const uint32_t version = version_of(header);
  uint64_t size = sizeof(Fixed) + header.tokens.size() * sizeof(int32_t) + sizeof(uint64_t) +
                  static_cast<uint64_t>(header.all_row_bytes() + header.state_bytes());
  for (const PageState& state : header.states) size += sizeof(FixedState) + state.name.size() + to_text(state.dtype).size();
  for (const RowState& row : header.rows)
    size += sizeof(FixedRow) + row.type.shape.dims().size_bytes() + row.name.size() + to_text(row.type.dtype).size();
  if (version >= kWindowRows) size += sizeof(uint64_t) * (1 + header.states.size());
  if (version >= kStateRows) size += sizeof(uint64_t);
  return size;
}

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

int64_t SequenceHeader::state_bytes() const {
  int64_t sum = 0;
  for (const RowState& row : rows) sum += bytes(row.type);
  return sum;
}

Status SequenceFileWriter::put(std::span<const std::byte> bytes) {
  hash_.add(bytes);
  return file_.append(bytes);
}

Result<SequenceFileWriter> SequenceFileWriter::create(const std::string& path, const SequenceHeader& header) {
  TSR_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  const uint32_t version = version_of(header);
  const bool has_window = version >= kWindowRows;
  SequenceFileWriter writer(std::move(file), header.all_row_bytes() + header.state_bytes());
  Fixed fixed{{},
              version,
              static_cast<uint32_t>(header.states.size()),
              file_bytes(header),
              header.model,
              header.root,
              header.tokens.size(),
              static_cast<uint64_t>(header.cached)};
  std::memcpy(fixed.magic, kMagic.data(), kMagic.size());
  TSR_RETURN_IF_ERROR(writer.put(bytes_of(fixed)));
  if (has_window) TSR_RETURN_IF_ERROR(writer.put(bytes_of(static_cast<uint64_t>(header.window_from))));
  if (version >= kStateRows) TSR_RETURN_IF_ERROR(writer.put(bytes_of(uint64_t{header.rows.size()})));
  for (const PageState& state : header.states) {
    const std::string dtype = to_text(state.dtype);
    TSR_RETURN_IF_ERROR(writer.put(
        bytes_of(FixedState{static_cast<uint32_t>(state.name.size()), static_cast<uint32_t>(dtype.size()),
                            static_cast<uint64_t>(state.heads), static_cast<uint64_t>(state.width)})));
    if (has_window) TSR_RETURN_IF_ERROR(writer.put(bytes_of(uint64_t{state.is_window})));
    TSR_RETURN_IF_ERROR(writer.put(std::as_bytes(std::span(state.name))));
    TSR_RETURN_IF_ERROR(writer.put(std::as_bytes(std::span(dtype))));
  }
  for (const RowState& row : header.rows) {
    const std::string dtype = to_text(row.type.dtype);
    TSR_RETURN_IF_ERROR(writer.put(
        bytes_of(FixedRow{static_cast<uint32_t>(row.name.size()), static_cast<uint32_t>(dtype.size()),
                          static_cast<uint64_t>(row.type.shape.rank())})));
    TSR_RETURN_IF_ERROR(writer.put(std::as_bytes(row.type.shape.dims())));
    TSR_RETURN_IF_ERROR(writer.put(std::as_bytes(std::span(row.name))));
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

// A row larger than the file is refused, so that no sum of rows overflows.
Result<RowState> SequenceFileReader::row_state() {
  TSR_ASSIGN_OR_RETURN(const FixedRow fixed, number<FixedRow>("a state's row"));
  if (fixed.name_bytes > kMostName || fixed.dtype_bytes > kMostName)
    return corrupt(format("a state's name has {} bytes, its type's {}: at most {} are wanted",
                          fixed.name_bytes, fixed.dtype_bytes, kMostName));
  if (fixed.rank < 1 || fixed.rank > kMostRank)
    return corrupt(format("a state's row has {} dimensions: 1 to {} are wanted", fixed.rank, kMostRank));
  RowState row;
  const auto most = static_cast<uint64_t>(source_->size());
  uint64_t elements = 1;
  for (uint64_t i = 0; i < fixed.rank; ++i) {
    TSR_ASSIGN_OR_RETURN(const uint64_t extent, number<uint64_t>("an extent of a state's row"));
    if (extent < 1 || extent > most / elements)
      return corrupt(format("a state's row has an extent of {}: wanted 1 or more, and a row that fits the file's {} bytes",
                            extent, most));
    elements *= extent;
    row.type.shape.push_back(static_cast<int64_t>(extent));
  }
  TSR_ASSIGN_OR_RETURN(row.name, cursor_->read_text(fixed.name_bytes, "a state's name"));
  TSR_ASSIGN_OR_RETURN(const std::string dtype, cursor_->read_text(fixed.dtype_bytes, "a state's type"));
  hash_.add(std::as_bytes(std::span(row.name)));
  hash_.add(std::as_bytes(std::span(dtype)));
  const std::optional<DType> known = dtype_from_name(dtype);
  if (!known || (*known != DType::kF32 && *known != DType::kF64))
    return corrupt(format("state '{}' is of type '{}': f32 or f64 is wanted", row.name, dtype));
  row.type.dtype = *known;
  if (elements > most / static_cast<uint64_t>(dtype_bytes(*known, 1)))
    return corrupt(format("a row of state '{}' is {}: it does not fit the file's {} bytes", row.name, to_text(row.type), most));
  return row;
}

// The sizes must fill the rest of the file. No overflow: positions are at most tokens, which fit the file, and so does each row.
Status SequenceFileReader::check_sizes(uint64_t tokens, uint64_t cached) const {
  const auto left = static_cast<uint64_t>(cursor_->left());
  if (left < sizeof(uint64_t) || tokens > left / sizeof(int32_t))
    return corrupt(format("{} tokens do not fit the {} bytes after its header", tokens, left));
  uint64_t states = 0;
  for (const RowState& row : header_.rows)
    if (states += static_cast<uint64_t>(bytes(row.type)); states > left)
      return corrupt(format("the rows of its {} states do not fit the {} bytes after its header", header_.rows.size(), left));
  const auto row_bytes = static_cast<uint64_t>(header_.row_bytes(header_.window_from));
  const auto rows = row_bytes > 0 && cached > (uint64_t{1} << 62) / row_bytes
                        ? left
                        : static_cast<uint64_t>(header_.all_row_bytes());
  if (tokens * sizeof(int32_t) + rows + states + sizeof(uint64_t) != left)
    return corrupt(
        format("{} tokens, the rows of {} positions of {} bytes and {} bytes of states do not fill the {} bytes after "
               "its header",
               tokens, cached, row_bytes, states, left));
  return {};
}

Status SequenceFileReader::read_header() {
  TSR_ASSIGN_OR_RETURN(const Fixed fixed, number<Fixed>("the header"));
  if (std::string_view(fixed.magic, sizeof fixed.magic) != kMagic)
    return corrupt(format("it does not start with \"{}\"", kMagic));
  if (fixed.version < kAllRows || fixed.version > kStateRows)
    return Status(StatusCode::kUnsupported,
                  format("written in format {}, this version reads {} to {}: use a newer one", fixed.version,
                         kAllRows, kStateRows));
  const auto size = static_cast<uint64_t>(source_->size());
  if (fixed.file_bytes != size)
    return corrupt(
        format("the file has {} bytes, its header says {}: it was cut or added to", size, fixed.file_bytes));
  if (fixed.states > kMostStates)
    return corrupt(format("it has {} states: at most {} are wanted", fixed.states, kMostStates));
  if (fixed.cached > fixed.tokens)
    return corrupt(
        format("it has keys and values of {} positions, and {} tokens", fixed.cached, fixed.tokens));
  const bool has_window = fixed.version >= kWindowRows;
  uint64_t window_from = 0, rows = 0;
  if (has_window) {
    TSR_ASSIGN_OR_RETURN(window_from, number<uint64_t>("the first position of windows"));
    if (window_from > fixed.cached)
      return corrupt(
          format("it has windows from position {} on, and keys and values of {}", window_from, fixed.cached));
  }
  if (fixed.version >= kStateRows) {
    TSR_ASSIGN_OR_RETURN(rows, number<uint64_t>("the number of states with rows"));
    if (rows < 1 || rows > kMostStates)
      return corrupt(format("it has rows of {} states: 1 to {} are wanted", rows, kMostStates));
  }
  header_.model = fixed.model;
  header_.root = fixed.root;
  for (uint32_t i = 0; i < fixed.states; ++i) {
    TSR_ASSIGN_OR_RETURN(PageState one, state(has_window));
    header_.states.push_back(std::move(one));
  }
  for (uint64_t i = 0; i < rows; ++i) {
    TSR_ASSIGN_OR_RETURN(RowState one, row_state());
    header_.rows.push_back(std::move(one));
  }
  header_.cached = static_cast<int64_t>(fixed.cached);
  header_.window_from = static_cast<int64_t>(window_from);
  TSR_RETURN_IF_ERROR(check_sizes(fixed.tokens, fixed.cached));
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
