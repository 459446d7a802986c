#include "serialize/model_format.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/envelope.h"

namespace tessera {
namespace {

constexpr size_t kHeadBytes = 512;

struct Signature {
  std::string_view bytes;
  std::string_view meaning;
};
using namespace std::string_view_literals;
constexpr std::array kSignatures = {
    Signature{kCheckpointMagic, "part of a checkpoint: `train --resume` takes its folder"},
    Signature{"TSRPLAN1"sv, "a binary plan, which no version reads: plans are saved as text"},
    Signature{"PK\x03\x04"sv, "a zip archive, as PyTorch's .pt and .bin files are: save it as safetensors"},
    Signature{"\x80\x02"sv, "a Python pickle, as old PyTorch files are: save it as safetensors"},
    Signature{"\x89HDF"sv, "an HDF5 file, as Keras writes: export it to GGUF"},
    Signature{"\x08"sv, "an ONNX file, perhaps: those are not read yet"},
    Signature{"lmgg"sv, "an old GGML file: convert it to GGUF"},
    Signature{"tjgg"sv, "an old GGML file: convert it to GGUF"},
    Signature{"\x1f\x8b"sv, "compressed by gzip: gunzip it first"},
    Signature{"\x28\xb5\x2f\xfd"sv, "compressed by zstd: unzstd it first"},
    Signature{"\x7f"
              "ELF"sv,
              "a program or library"},
    Signature{"version https://git-lfs"sv, "a Git LFS pointer: `git lfs pull` fetches the file itself"},
    Signature{"<!DOCTYPE"sv, "a web page: the download gave that instead of the file"},
    Signature{"<html"sv, "a web page: the download gave that instead of the file"},
};

// A 64-bit size followed by JSON of that size.
bool is_safetensors(std::string_view head) {
  if (head.size() < 9 || head[8] != '{') return false;
  uint64_t bytes = 0;
  std::memcpy(&bytes, head.data(), sizeof bytes);
  return bytes > 1 && bytes < (uint64_t{1} << 32);
}

bool is_text(std::string_view head) {
  return std::ranges::none_of(head, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == 0x7f || (byte < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != '\f');
  });
}

std::string_view looks_like(std::string_view head) {
  if (head.empty()) return "nothing: the file is empty";
  for (const Signature& signature : kSignatures)
    if (head.starts_with(signature.bytes)) return signature.meaning;
  if (is_text(head)) return head[0] == '{' || head[0] == '[' ? "JSON" : "text";
  return "something else";
}

// A hint for files of a Hugging Face folder or of adapters: "; give its folder, 'hf', ...".
std::string folder_hint(const ByteSource& source) {
  namespace fs = std::filesystem;
  if (source.paths().size() != 1) return "";
  const fs::path folder = fs::path(source.paths()[0]).parent_path();
  std::error_code ignored;
  for (const char* const config : {"config.json", "adapter_config.json"})
    if (fs::is_regular_file(folder / config, ignored))
      return format("; with {} it is part of a folder: give that, '{}'", config,
                    quote(std::string_view(folder.empty() ? "." : folder.string())));
  return "";
}

}  // namespace

Result<ModelFormat> model_format(const ByteSource& source) {
  std::string head(std::min<size_t>(kHeadBytes, static_cast<size_t>(source.size())), '\0');
  if (!head.empty()) TSR_RETURN_IF_ERROR(source.read_at(0, std::as_writable_bytes(std::span(head))));
  if (head.starts_with(kModelMagic)) return ModelFormat::kTsr;
  if (head.starts_with("GGUF")) return ModelFormat::kGguf;
  if (is_safetensors(head)) return ModelFormat::kSafetensors;
  return Status(StatusCode::kCorrupt,
                format("no model that can be read: wanted a .tsr file (which begins with {}), a GGUF file "
                       "(with GGUF) or a folder of safetensors; this looks like {}{}",
                       kModelMagic, looks_like(head), folder_hint(source)));
}

}  // namespace tessera
