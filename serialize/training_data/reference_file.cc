#include "serialize/training_data/reference_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <memory>

#include "graph/base/text.h"
#include "serialize/atomic_file.h"
#include "serialize/hash_stream.h"

namespace tessera {
namespace {

constexpr std::array<char, 8> kReferenceMagic = {'T', 'S', 'R', 'R', 'E', 'F', 'L', 'P'};
constexpr uint32_t kReferenceVersion = 1;

struct ReferenceHeader {
  std::array<char, 8> magic = kReferenceMagic;
  uint32_t version = kReferenceVersion, zero = 0;
  uint64_t key = 0, values = 0;
  uint64_t checksum = 0;  // xxh3 of the header up to here, then of the values
};
static_assert(sizeof(ReferenceHeader) == 40);

uint64_t checksum_of(const ReferenceHeader& header, std::span<const double> values) {
  HashStream hash;
  hash.add(std::as_bytes(std::span(&header, 1)).first(offsetof(ReferenceHeader, checksum)));
  hash.add(std::as_bytes(values));
  return hash.digest();
}

}  // namespace

Result<std::vector<double>> read_reference_file(const std::string& path, uint64_t key, int64_t rows) {
  const auto corrupt = [&](std::string_view what) {
    return Status(StatusCode::kCorrupt, format("{}: {}", path, what));
  };
  // Does not wait for a pipe's writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return io_error(path, "open");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(fdopen(descriptor, "rb"), std::fclose);
  if (!file) {
    Status failed = io_error(path, "open");
    ::close(descriptor);
    return failed;
  }
  struct stat about {};
  if (::fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode)) return corrupt("is no file");
  const auto read = [&](std::span<std::byte> out) {
    return std::fread(out.data(), 1, out.size(), file.get()) == out.size();
  };
  ReferenceHeader header;
  if (!read(std::as_writable_bytes(std::span(&header, 1))))
    return corrupt("is no file of reference log probabilities: it is too short");
  if (header.magic != kReferenceMagic)
    return corrupt("is no file of reference log probabilities: it does not begin with TSRREFLP");
  if (header.version != kReferenceVersion || header.zero != 0)
    return corrupt(format("is of version {}, wanted {}", header.version, kReferenceVersion));
  const auto wanted = static_cast<uint64_t>(rows) * 2;
  if (header.key != key || header.values != wanted)
    return corrupt(format("has {} values, wanted {} of this model and data", header.values, wanted));
  std::vector<double> values(wanted);
  if (!read(std::as_writable_bytes(std::span(values))) || std::fgetc(file.get()) != EOF)
    return corrupt(format("does not end behind its {} values", wanted));
  if (checksum_of(header, values) != header.checksum) return corrupt("its contents have another checksum");
  for (const double value : values)
    if (!std::isfinite(value)) return corrupt("has a value that is not finite");
  return values;
}

Status write_reference_file(const std::string& path, uint64_t key, std::span<const double> values) {
  ReferenceHeader header;
  header.key = key;
  header.values = values.size();
  header.checksum = checksum_of(header, values);
  TSR_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create_derived(path));
  TSR_RETURN_IF_ERROR(file.append(std::as_bytes(std::span(&header, 1))));
  TSR_RETURN_IF_ERROR(file.append(std::as_bytes(values)));
  return file.commit();
}

}  // namespace tessera
