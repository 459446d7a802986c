#include "serialize/training_data/token_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "graph/base/cancellation.h"
#include "graph/base/text.h"

namespace tessera {
namespace {

constexpr std::array<char, 8> kMagic = {'T', 'S', 'R', 'T', 'O', 'K', 'E', 'N'};
constexpr uint32_t kVersion = 1, kWithWeights = 2;  // the latter with runs of weights
constexpr size_t kBlockTokens = size_t{1} << 16;
constexpr uint64_t kMostAbout = uint64_t{16} << 20;

struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion, runs = 0;
  uint64_t tokens = 0, records = 0, about = 0;  // counts; bytes of the description
  uint64_t contents = 0;                        // xxh3 of tokens, records and runs
  uint64_t checksum = 0;                        // xxh3 of the header up to here, then of the description
};
static_assert(sizeof(Header) == 56);

uint64_t checksum_of(const Header& header, std::string_view about) {
  HashStream hash;
  hash.add(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, checksum)));
  hash.add(std::as_bytes(std::span(about)));
  return hash.digest();
}

// Checks one example's record against the file's token count.
bool is_sound(const TokenRecord& record, const TokenRecord* before, uint64_t tokens) {
  const uint64_t begin = before == nullptr ? 0 : before->begin + before->count;
  return record.count > 0 && record.begin == begin && record.count <= tokens - begin &&
         record.prompt <= record.count && record.trained < record.count && record.kind < kRowKinds &&
         record.role < kExampleRoles && (before == nullptr || before->row <= record.row);
}

}  // namespace

Result<std::shared_ptr<const TokenFile>> TokenFile::open(const std::string& path) {
  std::shared_ptr<TokenFile> file(new TokenFile);
  file->path_ = path;
  file->descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe is refused below
  if (file->descriptor_ < 0) return io_error(path, "open");
  TSR_RETURN_IF_ERROR(file->load());
  return std::shared_ptr<const TokenFile>(std::move(file));
}

TokenFile::~TokenFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

namespace {

Status read_all(int descriptor, const std::string& path, uint64_t at, std::span<std::byte> out) {
  for (size_t done = 0; done < out.size();) {
    const ssize_t got =
        ::pread(descriptor, out.data() + done, out.size() - done, static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error(path, "read");
    if (got == 0)
      return Status(StatusCode::kIo, format("{}: ends at byte {}, wanted {}: was it cut while it was read?",
                                            path, at + done, at + out.size()));
    done += static_cast<size_t>(got);
  }
  return {};
}

}  // namespace

Status TokenFile::load() {
  const auto corrupt = [&](std::string_view what) {
    return Status(StatusCode::kCorrupt, format("{}: {}", path_, what));
  };
  struct stat about {};
  if (::fstat(descriptor_, &about) != 0) return io_error(path_, "look at");
  Header header;
  const auto size = static_cast<uint64_t>(about.st_size);
  if (!S_ISREG(about.st_mode) || size < sizeof header)
    return corrupt("is no file of tokens: it is too short");
  TSR_RETURN_IF_ERROR(read_all(descriptor_, path_, 0, std::as_writable_bytes(std::span(&header, 1))));
  if (header.magic != kMagic) return corrupt("is no file of tokens: it does not begin with TSRTOKEN");
  if (header.version != (header.runs == 0 ? kVersion : kWithWeights))
    return corrupt(format(
        "is a file of tokens of version {} with {} runs of weights, wanted {} without, or {} with some",
        header.version, header.runs, kVersion, kWithWeights));
  const uint64_t left = size - sizeof header;
  if (header.about > kMostAbout || header.tokens > left / sizeof(uint32_t) ||
      header.records > left / sizeof(TokenRecord) || header.runs > left / sizeof(WeightRun) ||
      left != header.tokens * sizeof(uint32_t) + header.records * sizeof(TokenRecord) +
                  header.runs * sizeof(WeightRun) + header.about)
    return corrupt(format("has {} bytes, which are not those of {} tokens and {} examples", size,
                          header.tokens, header.records));
  tokens_ = header.tokens;
  about_.resize(header.about);
  TSR_RETURN_IF_ERROR(
      read_all(descriptor_, path_, size - header.about, std::as_writable_bytes(std::span(about_))));
  if (checksum_of(header, about_) != header.checksum) return corrupt("its header has another checksum");

  HashStream hash;
  std::vector<uint32_t> block;
  uint32_t largest = 0;
  for (uint64_t at = 0; at < tokens_; at += block.size()) {
    cancellation_point();
    block.resize(std::min<uint64_t>(kBlockTokens, tokens_ - at));
    const auto bytes = std::as_writable_bytes(std::span(block));
    TSR_RETURN_IF_ERROR(read_all(descriptor_, path_, sizeof header + at * sizeof(uint32_t), bytes));
    hash.add(bytes);
    for (const uint32_t token : block) largest = std::max(largest, token & ~kTrainedBit);
  }
  records_.resize(header.records);
  TSR_RETURN_IF_ERROR(read_all(descriptor_, path_, sizeof header + tokens_ * sizeof(uint32_t),
                               std::as_writable_bytes(std::span(records_))));
  hash.add(std::as_bytes(std::span(records_)));
  runs_.resize(header.runs);
  TSR_RETURN_IF_ERROR(read_all(
      descriptor_, path_, sizeof header + tokens_ * sizeof(uint32_t) + records_.size() * sizeof(TokenRecord),
      std::as_writable_bytes(std::span(runs_))));
  hash.add(std::as_bytes(std::span(runs_)));
  if (hash.digest() != header.contents) return corrupt("its contents have another checksum");
  fingerprint_ = header.contents;
  largest_ = static_cast<int32_t>(largest);
  uint64_t end = 0;
  for (size_t i = 0; i < records_.size(); ++i) {
    if (!is_sound(records_[i], i == 0 ? nullptr : &records_[i - 1], tokens_))
      return corrupt(format("its example {} does not fit", i));
    end = records_[i].begin + records_[i].count;
  }
  uint64_t weighted = 0;
  for (size_t i = 0; i < runs_.size(); ++i) {
    const WeightRun& run = runs_[i];
    if (run.count == 0 || run.begin < weighted || run.begin > tokens_ || run.count > tokens_ - run.begin ||
        !(run.weight >= 0) || !std::isfinite(run.weight))
      return corrupt(format("its run {} of weights does not fit", i));
    weighted = run.begin + run.count;
  }
  return end == tokens_ ? Status() : corrupt(format("its examples have {} tokens, wanted {}", end, tokens_));
}

Status TokenFile::read(const TokenRecord& record, uint32_t begin, std::span<uint32_t> out) const {
  TSR_CHECK(begin <= record.count && out.size() <= record.count - begin, "tokens of an example");
  return read_all(descriptor_, path_, sizeof(Header) + (record.begin + begin) * sizeof(uint32_t),
                  std::as_writable_bytes(out));
}

void TokenFile::fill_weights(const TokenRecord& record, uint32_t begin, std::span<float> out) const {
  TSR_CHECK(begin <= record.count && out.size() <= record.count - begin, "tokens of an example");
  std::ranges::fill(out, 1.0f);
  const uint64_t first = record.begin + begin, end = first + out.size();
  auto run =
      std::ranges::upper_bound(runs_, first, {}, [](const WeightRun& it) { return it.begin + it.count; });
  for (; run != runs_.end() && run->begin < end; ++run)
    for (uint64_t at = std::max(first, run->begin); at < std::min(end, run->begin + run->count); ++at)
      out[at - first] = run->weight;
}

Result<TokenFileWriter> TokenFileWriter::create(const std::string& path) {
  TSR_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create_derived(path));
  TSR_RETURN_IF_ERROR(file.pad_to(sizeof(Header)));
  return TokenFileWriter(std::move(file), path);
}

Status TokenFileWriter::add(const TokenExample& example, TokenRecord record) {
  if (example.ids.empty()) return {};
  if (example.ids.size() > INT32_MAX || records_.size() >= UINT32_MAX)
    return Status(StatusCode::kUnsupported,
                  format("training data: {} tokens in example {}, wanted less than 2^31 tokens "
                         "an example and 2^32 examples",
                         example.ids.size(), records_.size()));
  record.begin = tokens_;
  record.count = static_cast<uint32_t>(example.ids.size());
  record.prompt = example.prompt;
  record.trained = static_cast<uint32_t>(example.trained_tokens());
  record.role = static_cast<uint8_t>(example.role);
  records_.push_back(record);
  TSR_RETURN_IF_ERROR(add_weights(example));
  tokens_ += example.ids.size();
  for (size_t i = 0; i < example.ids.size(); ++i)
    buffer_.push_back(static_cast<uint32_t>(example.ids[i]) | (example.trained[i] != 0 ? kTrainedBit : 0));
  return buffer_.size() >= kBlockTokens ? flush() : Status();
}

// Runs end with their example.
Status TokenFileWriter::add_weights(const TokenExample& example) {
  const std::vector<float>& weights = example.weights;
  for (size_t i = 0; i < weights.size();) {
    size_t end = i + 1;
    while (end < weights.size() && weights[end] == weights[i]) ++end;
    if (weights[i] != 1) runs_.push_back({tokens_ + i, static_cast<uint32_t>(end - i), weights[i]});
    i = end;
  }
  if (runs_.size() <= UINT32_MAX) return {};
  return Status(StatusCode::kUnsupported, "training data: more than 2^32 messages with weights");
}

Status TokenFileWriter::flush() {
  const auto bytes = std::as_bytes(std::span(buffer_));
  hash_.add(bytes);
  TSR_RETURN_IF_ERROR(file_.append(bytes));
  buffer_.clear();
  return {};
}

Result<std::shared_ptr<const TokenFile>> TokenFileWriter::finish(std::string_view about, bool keep) {
  TSR_RETURN_IF_ERROR(flush());
  if (about.size() > kMostAbout) about = about.substr(0, kMostAbout);
  hash_.add(std::as_bytes(std::span(records_)));
  TSR_RETURN_IF_ERROR(file_.append(std::as_bytes(std::span(records_))));
  hash_.add(std::as_bytes(std::span(runs_)));
  TSR_RETURN_IF_ERROR(file_.append(std::as_bytes(std::span(runs_))));
  TSR_RETURN_IF_ERROR(file_.append(std::as_bytes(std::span(about))));
  Header header;
  header.runs = static_cast<uint32_t>(runs_.size());
  header.version = runs_.empty() ? kVersion : kWithWeights;
  header.tokens = tokens_;
  header.records = records_.size();
  header.about = about.size();
  header.contents = hash_.digest();
  header.checksum = checksum_of(header, about);
  TSR_RETURN_IF_ERROR(file_.overwrite(0, std::as_bytes(std::span(&header, 1))));
  if (keep) TSR_RETURN_IF_ERROR(file_.commit());
  // Without `keep` its writer removes the name; the open file stays.
  return TokenFile::open(keep ? path_ : file_.temporary_path());
}

}  // namespace tessera
