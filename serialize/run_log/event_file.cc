#include "serialize/run_log/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "graph/base/text.h"
#include "serialize/atomic_file.h"

namespace tessera {

namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0);
    table[i] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = make_crc_table();

// A masked checksum, as in TFRecord, for checksums over bytes that contain checksums.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return std::rotr(crc, 15) + 0xa282ead8u;
}

template <class T>
void append_little_endian(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

// Appends protocol buffer fields: a tag (number and wire type), then the value.
void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}
void append_integer(std::string& out, uint32_t field, uint64_t value) {
  append_varint(out, field << 3);
  append_varint(out, value);
}
void append_double(std::string& out, uint32_t field, double value) {
  append_varint(out, field << 3 | 1);
  append_little_endian(out, std::bit_cast<uint64_t>(value));
}
void append_float(std::string& out, uint32_t field, float value) {
  append_varint(out, field << 3 | 5);
  append_little_endian(out, std::bit_cast<uint32_t>(value));
}
void append_bytes(std::string& out, uint32_t field, std::string_view value) {
  append_varint(out, field << 3 | 2);
  append_varint(out, value.size());
  out += value;
}

// Field numbers of tensorflow's event.proto, summary.proto and tensor.proto.
namespace event {
constexpr uint32_t kWallTime = 1, kStep = 2, kFormatVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace summary {
constexpr uint32_t kValue = 1, kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9;
constexpr uint32_t kPluginData = 1, kPluginName = 1;
}  // namespace summary
namespace tensor {
constexpr uint32_t kDtype = 1, kShape = 2, kStringValue = 8, kDim = 2, kDimSize = 1;
constexpr uint64_t kString = 7;  // of tensorflow.DataType
}  // namespace tensor
namespace session_log {
constexpr uint32_t kStatus = 1;
constexpr uint64_t kStart = 1;
}  // namespace session_log

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  std::string host = name;
  for (char& c : host)
    if (c == '/') c = '-';
  return host;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

Result<EventFile> EventFile::create(const std::string& folder, int64_t resumed_at) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error && !std::filesystem::is_directory(folder))
    return Status(StatusCode::kIo, format("{}: cannot make the folder: {}", folder, error.message()));
  // Readers sort files by name; the number separates files of one second.
  const auto seconds = static_cast<int64_t>(wall_seconds());
  int descriptor = -1;
  std::string path;
  for (int64_t number = 0; descriptor < 0 && number < 1000; ++number) {
    path = format("{}/events.out.tfevents.{}.{}.{}.{}", folder, seconds, host_name(), getpid(), number);
    descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno != EEXIST) break;
  }
  if (descriptor < 0) return io_error(path, "cannot make the file");
  EventFile file(AppendFile(std::move(path), descriptor));
  std::string fields;
  append_bytes(fields, event::kFormatVersion, "brain.Event:2");
  TSR_RETURN_IF_ERROR(file.write_event(fields, 0));
  if (resumed_at >= 0) {
    std::string session, start;
    append_integer(session, session_log::kStatus, session_log::kStart);
    append_bytes(start, event::kSessionLog, session);
    TSR_RETURN_IF_ERROR(file.write_event(start, resumed_at + 1));
  }
  return file;
}

Status EventFile::write_event(std::string_view fields, int64_t step) {
  std::string event;
  append_double(event, event::kWallTime, wall_seconds());
  append_integer(event, event::kStep, static_cast<uint64_t>(step));
  event += fields;
  std::string record;
  append_little_endian(record, static_cast<uint64_t>(event.size()));
  append_little_endian(record, masked_crc(record));
  record += event;
  append_little_endian(record, masked_crc(event));
  return file_.append(record);
}

Status EventFile::add_scalars(int64_t step, std::span<const ScalarValue> values) {
  std::string all, fields;
  for (const ScalarValue& it : values) {
    std::string value;
    append_bytes(value, summary::kTag, it.tag);
    append_float(value, summary::kSimpleValue, static_cast<float>(it.value));
    append_bytes(all, summary::kValue, value);
  }
  append_bytes(fields, event::kSummary, all);
  return write_event(fields, step);
}

Status EventFile::add_text(int64_t step, std::string_view tag, std::string_view text) {
  std::string plugin, metadata, size, shape, tensor, value, all, fields;
  append_bytes(plugin, summary::kPluginName, "text");
  append_bytes(metadata, summary::kPluginData, plugin);
  append_integer(size, tensor::kDimSize, 1);
  append_bytes(shape, tensor::kDim, size);
  append_integer(tensor, tensor::kDtype, tensor::kString);
  append_bytes(tensor, tensor::kShape, shape);
  append_bytes(tensor, tensor::kStringValue, text);
  append_bytes(value, summary::kTag, tag);
  append_bytes(value, summary::kTensor, tensor);
  append_bytes(value, summary::kMetadata, metadata);
  append_bytes(all, summary::kValue, value);
  append_bytes(fields, event::kSummary, all);
  return write_event(fields, step);
}

}  // namespace tessera
