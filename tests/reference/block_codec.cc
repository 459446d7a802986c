// block_codec decode TYPE: blocks from stdin to f32 on stdout. block_codec encode TYPE [COLUMNS]: f32 from
// stdin to blocks on stdout; with COLUMNS, the first so many numbers are the importance of a row's elements.
// gguf_blocks.py runs it.
#include "graph/base/blocks/block_codec.h"

#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/text.h"

using namespace tessera;

namespace {

std::vector<std::byte> read_input() {
  std::vector<std::byte> input;
  std::byte buffer[1 << 16];
  for (size_t size; (size = std::fread(buffer, 1, sizeof buffer, stdin)) > 0;)
    input.insert(input.end(), buffer, buffer + size);
  return input;
}

int fail(const std::string& message) {
  std::fprintf(stderr, "block_codec: %s\n", message.c_str());
  return 1;
}

int decode(DType type, const std::vector<std::byte>& input) {
  const DTypeInfo& layout = info(type);
  const auto blocks = static_cast<int64_t>(input.size()) / layout.block_bytes;
  std::vector<float> values(static_cast<size_t>(blocks * layout.block_elements));
  decode_blocks(type, input.data(), values.data(), static_cast<int64_t>(values.size()));
  return std::fwrite(values.data(), sizeof(float), values.size(), stdout) == values.size() ? 0 : 1;
}

// With columns, the first numbers of `input`, one for each, are importance.
int encode(DType type, const std::vector<std::byte>& input, size_t columns) {
  std::vector<float> numbers(input.size() / sizeof(float));
  std::memcpy(numbers.data(), input.data(), numbers.size() * sizeof(float));
  if (columns > numbers.size()) return fail("fewer numbers than columns");
  const auto values = std::span(numbers).subspan(columns);
  std::vector<std::byte> blocks(static_cast<size_t>(dtype_bytes(type, static_cast<int64_t>(values.size()))));
  const Status encoded = encode_blocks(type, values.data(), static_cast<int64_t>(values.size()),
                                       blocks.data(), std::span(numbers).first(columns));
  if (!encoded.ok()) return fail(encoded.to_string());
  return std::fwrite(blocks.data(), 1, blocks.size(), stdout) == blocks.size() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return fail("usage: block_codec decode|encode TYPE [COLUMNS]");
  const auto type = dtype_from_name(argv[2]);
  if (!type || !can_decode(*type)) return fail(format("'{}' is no type with a codec", argv[2]));
  const std::vector<std::byte> input = read_input();
  if (std::string_view(argv[1]) == "decode") return decode(*type, input);
  if (std::string_view(argv[1]) == "encode")
    return encode(*type, input, argc > 3 ? static_cast<size_t>(parse_i64(argv[3]).value_or(0)) : 0);
  return fail(format("'{}' is neither decode nor encode", argv[1]));
}
