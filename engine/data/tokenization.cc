// Lines are read in blocks, tokenized by one thread for each core, and appended in file order. The cache key hashes all
// inputs that tokens depend on.
#include "engine/data/tokenization.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/base/text_file.h"
#include "graph/base/cancellation.h"
#include "graph/base/progress.h"
#include "graph/base/text.h"
#include "graph/base/thread.h"
#include "serialize/training_data/line_reader.h"
#include "text/json.h"

namespace tessera {
namespace {

constexpr size_t kMostOmissions = 100, kMostIgnored = 32;
constexpr size_t kBlockBytes = size_t{1} << 20;  // of lines, per core

// --- the key of a cached file

std::string hash_text(uint64_t hash) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

void add(HashStream& hash, std::string_view text) {
  const uint64_t size = text.size();
  hash.add(std::as_bytes(std::span(&size, 1)));
  hash.add(std::as_bytes(std::span(text)));
}

std::string fingerprint_of(std::string_view text) {
  HashStream hash;
  add(hash, text);
  return hash_text(hash.digest());
}

std::string fingerprint_of(const TokenizerData& data) {
  HashStream hash;
  for (const std::string& token : data.tokens) add(hash, token);
  for (const std::string& merge : data.merges) add(hash, merge);
  add(hash, data.pre_tokenizer), add(hash, data.pipeline);
  const auto raw = [&hash](const auto& values) {
    const uint64_t count = values.size();
    hash.add(std::as_bytes(std::span(&count, 1)));
    hash.add(std::as_bytes(std::span(values.data(), values.size())));
  };
  raw(data.scores), raw(data.types), raw(data.end_ids), raw(data.merge_ids), raw(data.log_probabilities);
  raw(data.lstrip_ids), raw(data.rstrip_ids);
  raw(std::vector<int32_t>{static_cast<int32_t>(data.kind), data.bos, data.eos, data.unknown, data.pad,
                           data.add_bos, data.add_eos, data.add_space_prefix});
  return hash_text(hash.digest());
}

Result<std::string> fingerprint_of_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) return io_error(path, "open");
  HashStream hash;
  std::vector<std::byte> block(kBlockBytes);
  while (const size_t got = std::fread(block.data(), 1, block.size(), file.get())) {
    cancellation_point();
    hash.add(std::span(block).first(got));
  }
  if (std::ferror(file.get())) return io_error(path, "read");
  return hash_text(hash.digest());
}

// All inputs that tokens depend on; null if a file can be read only once.
Result<Json> key_of(const std::vector<std::string>& paths, const std::string* text,
                    const DataSettings& settings, const Tokenizer& tokenizer) {
  Json files = Json::array();
  for (const std::string& path : paths) {
    if (text != nullptr) {
      files.push_back(fingerprint_of(*text));
      continue;
    }
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) return Json();
    TSR_ASSIGN_OR_RETURN(const std::string fingerprint, fingerprint_of_file(path));
    files.push_back(fingerprint);
  }
  const ExampleOptions& examples = settings.examples;
  return Json{{"version", 2},
              {"files", files},
              {"tokenizer", fingerprint_of(tokenizer.data())},
              {"template", fingerprint_of(settings.chat_template)},
              {"kind", settings.kind ? std::string(name_of(*settings.kind)) : "auto"},
              {"mask", static_cast<int>(examples.part)},
              {"max_length", examples.max_length},
              {"truncation", static_cast<int>(examples.truncation)},
              {"special", examples.special},
              {"append_end", examples.append_end},
              {"now", examples.now_s},
              {"untrained", examples.refuses_untrained},
              {"skip_bad", settings.skip_bad}};
}

// --- the report

Json json_of(const DataReport& report) {
  Json omissions = Json::array();
  for (const auto& [file, line, reason] : report.omissions)
    omissions.push_back({{"file", file}, {"line", line}, {"reason", reason}});
  return {{"rows", report.rows},           {"bad", report.bad},
          {"too_long", report.too_long},   {"untrained", report.untrained},
          {"truncated", report.truncated}, {"ignored", report.ignored},
          {"omissions", omissions},        {"written_rows", report.written_rows},
          {"written_control", report.written_control}};
}

std::optional<DataReport> report_of(const Json& json) {
  DataReport report;
  try {
    report.rows = json.at("rows").get<int64_t>();
    report.bad = json.at("bad").get<int64_t>();
    report.too_long = json.at("too_long").get<int64_t>();
    report.untrained = json.at("untrained").get<int64_t>();
    report.truncated = json.at("truncated").get<int64_t>();
    report.ignored = json.at("ignored").get<std::vector<std::string>>();
    report.written_rows = json.at("written_rows").get<int64_t>();
    report.written_control = json.at("written_control").get<TokenNameCounts>();
    for (const Json& each : json.at("omissions"))
      report.omissions.push_back({each.at("file").get<int64_t>(), each.at("line").get<int64_t>(),
                                  each.at("reason").get<std::string>()});
  } catch (const Json::exception&) {
    return std::nullopt;
  }
  return report;
}

// --- rows

struct ReadRow {
  Status status;
  RowKind kind = RowKind::kText;
  RowExamples made;
  std::vector<std::string> ignored;
};

Status read_row(const LineReader::Line& line, const DataSettings& settings, ExampleMaker& maker,
                ReadRow& into) {
  Result<Json> json = parse_json(line.text, "the row");
  if (!json.ok()) return Status(StatusCode::kInvalidArgument, std::string(json.status().message()));
  TSR_ASSIGN_OR_RETURN(TrainingRow row, parse_row(*json, settings.kind));
  into.kind = row.kind;
  into.ignored = std::move(row.ignored);
  TSR_ASSIGN_OR_RETURN(into.made, maker.make(row));
  return {};
}

// Tokenizes the rows of a block, one thread per maker.
std::vector<ReadRow> read_block(const std::vector<LineReader::Line>& lines, const DataSettings& settings,
                                std::span<ExampleMaker> makers) {
  std::vector<ReadRow> rows(lines.size());
  std::atomic<size_t> next{0};
  const auto work = [&](ExampleMaker& maker) {
    for (size_t i; (i = next++) < lines.size();)
      rows[i].status = catch_status([&] { return read_row(lines[i], settings, maker, rows[i]); });
  };
  std::vector<Thread> threads;  // own threads: the caller's stack may be too small for templates
  for (size_t i = 0; i < std::min(makers.size(), lines.size()); ++i)
    threads.emplace_back([&work, &maker = makers[i]] { work(maker); });
  threads.clear();
  return rows;
}

// Adds the remedy to an error of the token file.
Status with_remedy(Status status) {
  if (status.code() != StatusCode::kIo) return status;
  return Status(StatusCode::kIo, format("{}: tokens are written there, 4 bytes each; option 'cache' or the "
                                        "variable TMPDIR names another folder",
                                        status.message()));
}

class Tokenizing {
 public:
  Tokenizing(const DataSettings& settings, const ExampleMaker& maker, TokenFileWriter& writer)
      : settings_(settings),
        makers_(std::max(1u, std::thread::hardware_concurrency()), maker),
        writer_(writer) {}

  Status read_file(const std::string& path, size_t number, size_t files) {
    TSR_ASSIGN_OR_RETURN(LineReader reader, LineReader::open(path));
    return read(std::move(reader), path, number, files);
  }
  Status read_text(std::string_view text, const std::string& path, size_t number, size_t files) {
    return read(LineReader::of_text(text), path, number, files);
  }
  Status read(LineReader reader, const std::string& path, size_t number, size_t files) {
    path_ = path, file_ = static_cast<uint16_t>(number);
    kind_.reset();
    for (;;) {
      TSR_ASSIGN_OR_RETURN(const std::vector<LineReader::Line> lines,
                           reader.read(kBlockBytes * makers_.size()));
      unit_ = reader.unit();
      if (lines.empty()) return {};
      std::vector<ReadRow> rows = read_block(lines, settings_, makers_);
      for (size_t i = 0; i < lines.size(); ++i)
        TSR_RETURN_IF_ERROR(take(lines[i].number, std::move(rows[i])));
      cancellation_point();
      const double share =
          reader.size() > 0 ? static_cast<double>(reader.position()) / static_cast<double>(reader.size()) : 0;
      report_progress((static_cast<double>(number) + share) / static_cast<double>(files) * 0.95);
    }
  }
  DataReport finish() {
    report_.ignored.assign(ignored_.begin(), ignored_.end());
    return std::move(report_);
  }

 private:
  Status take(int64_t line, ReadRow row) {
    const auto number = static_cast<uint32_t>(report_.rows++);
    if (row.status.ok() && kind_ && *kind_ != row.kind)
      row.status = Status(
          StatusCode::kInvalidArgument,
          format("the row is of kind {}, those before it of kind {}", name_of(row.kind), name_of(*kind_)));
    if (!row.status.ok()) {
      if (!settings_.skip_bad || row.status.code() == StatusCode::kOutOfMemory)
        return Status(
            row.status.code(),
            format("training data '{}' {} {}: {} (option 'skip_bad' leaves such rows out{})", path_, unit_,
                   line, row.status.message(),
                   settings_.is_told_by_content ? "; 'kind' plain learns the file as a plain text" : ""));
      ++report_.bad;
      omit(line, std::string(row.status.message()));
      return {};
    }
    kind_ = row.kind;
    for (const std::string& field : row.ignored)
      if (ignored_.size() < kMostIgnored) ignored_.insert(field.substr(0, 100));
    report_.truncated += row.made.truncated;
    report_.written_rows += row.made.written_control.empty() ? 0 : 1;
    for (const auto& [name, count] : row.made.written_control)
      if (report_.written_control.contains(name) || report_.written_control.size() < kMostIgnored)
        report_.written_control[name] += count;
    if (row.made.dropped != RowExamples::Dropped::kNo) {
      ++(row.made.dropped == RowExamples::Dropped::kLong ? report_.too_long : report_.untrained);
      omit(line, row.made.reason);
    }
    for (const TokenExample& example : row.made.examples) {
      TokenRecord record;
      record.row = number;
      record.line = static_cast<uint32_t>(std::min<int64_t>(line, UINT32_MAX));
      record.kind = static_cast<uint8_t>(row.kind);
      record.file = file_;
      TSR_RETURN_IF_ERROR(with_remedy(writer_.add(example, record)));
    }
    return {};
  }
  void omit(int64_t line, std::string reason) {
    if (report_.omissions.size() < kMostOmissions)
      report_.omissions.push_back({file_, line, std::move(reason)});
  }

  const DataSettings& settings_;
  std::vector<ExampleMaker> makers_;  // one per core
  TokenFileWriter& writer_;
  std::string path_;
  std::string_view unit_ = "line";  // unit of row numbers
  uint16_t file_ = 0;
  std::optional<RowKind> kind_;  // kind of the file's rows
  std::set<std::string> ignored_;
  DataReport report_;
};

// --- the cache

// The cached result for this key; nullopt if absent or different.
std::optional<TokenizedData> cached(const std::string& path, const Json& key, size_t files) {
  Result<std::shared_ptr<const TokenFile>> file = TokenFile::open(path);
  if (!file.ok() ||
      std::ranges::any_of((*file)->records(), [files](const TokenRecord& it) { return it.file >= files; }))
    return std::nullopt;
  const Result<Json> about = parse_json((*file)->about(), path);
  if (!about.ok() || !about->is_object() || !about->contains("key") || (*about)["key"] != key ||
      !about->contains("report"))
    return std::nullopt;
  std::optional<DataReport> report = report_of((*about)["report"]);
  if (!report) return std::nullopt;
  return TokenizedData{std::move(*file), std::move(*report), path};
}

// A private folder below $TMPDIR: texts may be confidential, and others may have planted a link.
Result<std::string> temporary_path() {
  const char* const given = std::getenv("TMPDIR");
  const std::string folder = format("{}/tessera-{}", given == nullptr || *given == '\0' ? "/tmp" : given,
                                    static_cast<int64_t>(getuid()));
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return io_error(folder, "cannot make the folder for temporary files, of which TMPDIR names another");
  struct stat about {};
  if (lstat(folder.c_str(), &about) != 0) return io_error(folder, "cannot look at");
  if (!S_ISDIR(about.st_mode) || about.st_uid != getuid() || (about.st_mode & 022) != 0)
    return Status(
        StatusCode::kIo,
        format("{}: wanted a folder that this user alone may write to; remove it, or set TMPDIR", folder));
  return folder + "/data.tokens";
}

}  // namespace

Result<TokenizedData> tokenize(const std::vector<std::string>& paths, const std::string* text,
                               const DataSettings& settings,
                               const std::shared_ptr<const Tokenizer>& tokenizer) {
  Json key;
  std::string path;
  if (!settings.cache.empty()) {
    TSR_ASSIGN_OR_RETURN(key, key_of(paths, text, settings, *tokenizer));
  }
  const bool keeps = !key.is_null();
  if (keeps) {
    path = format("{}/{}.tokens", settings.cache, fingerprint_of(dump(key)));
    if (std::optional<TokenizedData> found = cached(path, key, paths.size())) return std::move(*found);
    std::error_code failed;
    if (std::filesystem::create_directories(settings.cache, failed))
      std::filesystem::permissions(settings.cache, std::filesystem::perms::owner_all, failed);
    if (failed)
      return Status(StatusCode::kIo, format("dataset: option 'cache': cannot make folder '{}': {}",
                                            settings.cache, failed.message()));
  } else {
    TSR_ASSIGN_OR_RETURN(path, temporary_path());
  }
  TSR_ASSIGN_OR_RETURN(const ExampleMaker maker,
                       ExampleMaker::create(tokenizer, settings.chat_template, settings.examples));
  TSR_ASSIGN_OR_RETURN(TokenFileWriter writer, TokenFileWriter::create(path));
  Tokenizing tokenizing(settings, maker, writer);
  for (size_t i = 0; i < paths.size(); ++i)
    TSR_RETURN_IF_ERROR(text != nullptr ? tokenizing.read_text(*text, paths[i], i, paths.size())
                                        : tokenizing.read_file(paths[i], i, paths.size()));
  TokenizedData data;
  data.report = tokenizing.finish();
  const Json about = {{"key", key}, {"report", json_of(data.report)}};
  Result<std::shared_ptr<const TokenFile>> file = writer.finish(dump(about), keeps);
  if (!file.ok()) return with_remedy(file.status());
  data.file = std::move(*file);
  if (keeps) data.cache = path;
  return data;
}

}  // namespace tessera
