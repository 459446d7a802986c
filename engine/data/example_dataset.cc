// Rows are held out by a seeded permutation and repeated by their file's weight; examples are packed once into rows of `seq`
// tokens, which each epoch permutes.
#include "engine/data/example_dataset.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "engine/model/initialize.h"
#include "graph/base/cancellation.h"
#include "graph/base/hash.h"
#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {
namespace {

// Random streams distinct from those of the order.
constexpr uint64_t kSplitStream = 0x73706c6974, kWeightStream = 0x776569676874, kPackStream = 0x7061636b;

double unit(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

bool is_pairwise(const TokenRecord& record) {
  const auto role = static_cast<ExampleRole>(record.role);
  return role != ExampleRole::kPlain;
}

// Groups records into rows by their row numbers.
std::vector<std::pair<uint32_t, uint32_t>> rows_of(std::span<const TokenRecord> records) {
  std::vector<std::pair<uint32_t, uint32_t>> rows;  // [first, last) record
  for (uint32_t i = 0; i < records.size(); ++i) {
    if (i > 0 && records[i].row == records[i - 1].row)
      rows.back().second = i + 1;
    else
      rows.emplace_back(i, i + 1);
  }
  return rows;
}

// Fills one document, from place `at`.
void fill_tokens(std::span<const uint32_t> stored, const DatasetRow& row, size_t at, int32_t segment) {
  for (size_t i = 0; i < stored.size(); ++i) {
    const bool has_label = i + 1 < stored.size() && is_trained(stored[i + 1]);
    row.tokens[at + i] = token_id(stored[i]);
    row.labels[at + i] = has_label ? token_id(stored[i + 1]) : -1;
    if (!row.positions.empty()) row.positions[at + i] = static_cast<int32_t>(i);
    if (!row.segments.empty()) row.segments[at + i] = segment;
  }
}

// Padding is a separate document without labels.
void fill_padding(const DatasetRow& row, size_t at, size_t end, int32_t segment) {
  for (size_t i = at; i < end; ++i) {
    row.tokens[i] = 0, row.labels[i] = -1;
    if (!row.positions.empty()) row.positions[i] = static_cast<int32_t>(i - at);
    if (!row.segments.empty()) row.segments[i] = segment;
    if (!row.weights.empty()) row.weights[i] = 0;
  }
}

}  // namespace

Result<std::shared_ptr<const Dataset>> ExampleDataset::read(
    const DataSettings& settings, const std::shared_ptr<const Tokenizer>& tokenizer) {
  std::shared_ptr<ExampleDataset> dataset(new ExampleDataset);
  dataset->settings_ = settings;
  dataset->settings_.text.reset();
  dataset->tokenizer_ = tokenizer;
  std::vector<std::string> paths;
  for (const DataFile& file : settings.files) paths.push_back(file.path);
  TSR_ASSIGN_OR_RETURN(dataset->data_,
                       tokenize(paths, settings.text ? &*settings.text : nullptr, settings, tokenizer));
  if (!settings.eval_file.empty()) {
    TSR_ASSIGN_OR_RETURN(dataset->eval_data_, tokenize({settings.eval_file}, nullptr, settings, tokenizer));
    const DataReport& report = dataset->eval_data_->report;
    if (dataset->eval_data_->file->records().empty())
      return Status(StatusCode::kInvalidArgument,
                    format("option 'eval_file' is '{}', of whose {} rows none is left to evaluate ({} bad, {} too "
                           "long, {} of which nothing is learnt)",
                           settings.eval_file, report.rows, report.bad, report.too_long, report.untrained));
  }
  dataset->seq_ = settings.seq;
  dataset->layout_ = settings.packing == Packing::kOff ? Layout::kPadded : Layout::kPacked;
  TSR_RETURN_IF_ERROR(dataset->choose_records());
  return std::shared_ptr<const Dataset>(std::move(dataset));
}

Status ExampleDataset::choose_records() {
  const auto fail = [&](std::string_view found) {
    const DataReport& report = data_.report;
    std::string why = report.omissions.empty() ? ""
                                               : format("; the first: line {}: {}", report.omissions[0].line,
                                                        report.omissions[0].reason);
    return Status(
        StatusCode::kInvalidArgument,
        format("dataset '{}': of {} rows {} is left to train on ({} bad, {} too long, {} of which nothing is "
               "learnt, {}){}",
               settings_.files[0].path, report.rows, "none", report.bad, report.too_long, report.untrained,
               found, why));
  };
  train_.file = data_.file;
  eval_.file = eval_data_ ? eval_data_->file : data_.file;
  const std::span<const TokenRecord> records = train_.file->records();
  const auto rows = rows_of(records);
  const auto count = static_cast<int64_t>(rows.size());
  int64_t held_out = 0;
  if (settings_.eval_fraction > 0)
    held_out = std::max<int64_t>(1, std::llround(static_cast<double>(count) * settings_.eval_fraction));
  if (count == 0 || (held_out >= count && settings_.eval_fraction < 1))
    return fail(format("{} for evaluation", std::min(held_out, count)));
  const uint64_t split = random_bits(settings_.seed, kSplitStream);
  for (int64_t i = 0; i < count; ++i) {
    const auto [first, end] = rows[static_cast<size_t>(i)];
    const bool is_held_out = (settings_.shuffle ? permuted(i, count, split) : i) >= count - held_out;
    double copies = is_held_out ? 1 : settings_.files[records[first].file].weight;
    if (unit(random_bits(settings_.seed ^ kWeightStream, records[first].row)) < copies - std::floor(copies))
      copies += 1;
    std::vector<uint32_t>& into = is_held_out ? eval_.records : train_.records;
    for (int64_t copy = 0; copy < static_cast<int64_t>(std::floor(copies)); ++copy)
      for (uint32_t record = first; record < end; ++record) into.push_back(record);
    if (into.size() > UINT32_MAX / 2)
      return Status(StatusCode::kUnsupported, "dataset: more than 2^31 examples an epoch");
  }
  if (train_.records.empty() && settings_.eval_fraction < 1)
    return fail("weights of files left out the rest");
  if (eval_data_)
    for (uint32_t i = 0; i < eval_.file->records().size(); ++i) eval_.records.push_back(i);
  pack(train_, settings_.shuffle);
  pack(eval_, false);
  answers_ = holds_pairs() ? 2 : 1;
  if (answers_ == 2) layout_ = Layout::kPacked;
  order_ = {static_cast<int64_t>(train_.rows.size()) / answers_, settings_.shuffle, settings_.seed};
  eval_samples_ = static_cast<int64_t>(eval_.rows.size()) / answers_;
  largest_token_ = std::max(train_.file->largest_token(), eval_.file->largest_token());

  Hash hash;
  hash.add(train_.file->fingerprint()), hash.add(eval_.file->fingerprint());
  hash.add(settings_.seq), hash.add(static_cast<uint8_t>(settings_.packing));
  hash.add(settings_.eval_fraction), hash.add(settings_.shuffle), hash.add(settings_.seed);
  for (const DataFile& file : settings_.files) hash.add(file.weight);
  fingerprint_ = hash.value();
  return {};
}

// Packed examples are shuffled first, since neighbours in a file are often similar.
void ExampleDataset::pack(Part& part, bool shuffles) const {
  if (shuffles && settings_.packing == Packing::kWrapped) {
    const std::vector<uint32_t> ordered = part.records;
    const uint64_t key = random_bits(settings_.seed, kPackStream);
    for (size_t i = 0; i < ordered.size(); ++i)
      part.records[i] = ordered[static_cast<size_t>(
          permuted(static_cast<int64_t>(i), static_cast<int64_t>(ordered.size()), key))];
  }
  std::vector<uint32_t> lengths;
  lengths.reserve(part.records.size());
  for (const uint32_t record : part.records) lengths.push_back(part.file->records()[record].count);
  part.rows = PackedRows::pack(lengths, static_cast<uint32_t>(seq_), settings_.packing);
}

bool ExampleDataset::holds_pairs() const {
  const auto is_pair = [](const TokenRecord& record) {
    return static_cast<RowKind>(record.kind) == RowKind::kPreference;
  };
  return settings_.packing == Packing::kOff && std::ranges::all_of(train_.file->records(), is_pair) &&
         std::ranges::all_of(eval_.file->records(), is_pair);
}

Status ExampleDataset::check_trainable(PreferenceLoss loss) const {
  const RowKind wanted = is_paired(loss) ? RowKind::kPreference : RowKind::kUnpaired;
  for (const Part* part : {&train_, &eval_})
    for (const TokenRecord& record : part->file->records())
      if (static_cast<RowKind>(record.kind) != wanted)
        return Status(
            StatusCode::kInvalidArgument,
            format("loss '{}' trains on rows of kind {}, and the dataset has rows of kind {} (line "
                   "{}): wanted {}",
                   name_of(loss), name_of(wanted), name_of(static_cast<RowKind>(record.kind)), record.line,
                   is_paired(loss) ? "pairs alone, or loss kto for single answers with a label"
                                   : "single answers with a label, or loss dpo for pairs"));
  if (settings_.packing != Packing::kOff)
    return Status(StatusCode::kInvalidArgument,
                  format("loss '{}' takes whole answers, and option 'packing' is {}: wanted packing off",
                         name_of(loss), name_of(settings_.packing)));
  return {};
}

bool ExampleDataset::is_wanted(int64_t number) const {
  const Part& part = part_of(number);
  return static_cast<ExampleRole>(part.file->records()[part.records[static_cast<size_t>(number)]].role) ==
         ExampleRole::kWanted;
}

Status ExampleDataset::fill_mismatched(int64_t number, int64_t group, const DatasetRow& row) const {
  const Part& part = part_of(number);
  const int64_t first = number / group * group;
  const int64_t other =
      number > first ? number - 1 : std::min(first + group, static_cast<int64_t>(part.records.size())) - 1;
  const auto record_of = [&](int64_t at) -> const TokenRecord& {
    return part.file->records()[part.records[static_cast<size_t>(at)]];
  };
  const TokenRecord &own = record_of(number), &from = record_of(other);
  std::vector<uint32_t> stored(own.prompt), answer(from.count - from.prompt);
  TSR_RETURN_IF_ERROR(part.file->read(own, 0, stored));
  TSR_RETURN_IF_ERROR(part.file->read(from, from.prompt, answer));
  stored.insert(stored.end(), answer.begin(), answer.end());
  stored.resize(std::min(stored.size(), row.tokens.size()));
  fill_tokens(stored, row, 0, 0);
  fill_padding(row, stored.size(), row.tokens.size(), 1);
  return {};
}

Status ExampleDataset::check_trainable() const {
  for (const Part* part : {&train_, &eval_})
    for (const TokenRecord& record : part->file->records())
      if (is_pairwise(record))
        return Status(
            StatusCode::kUnsupported,
            format(
                "the dataset has rows of kind {} (line {}), and the token loss trains on text, messages and "
                "prompt_completion alone: wanted option loss (dpo, kto, ...) for preferences, or other rows",
                name_of(static_cast<RowKind>(record.kind)), record.line));
  return {};
}

const ExampleDataset::Part& ExampleDataset::part_of(int64_t& number) const {
  if (number < order_.count) return train_;
  number -= order_.count;
  return eval_;
}

Status ExampleDataset::fill(int64_t number, const DatasetRow& row) const {
  const Part& part = part_of(number);
  int32_t segment = 0;
  for (int64_t answer = 0; answer < answers_; ++answer) {
    auto at = static_cast<size_t>(answer * seq_);
    for (const ExamplePiece& piece : part.rows.row(static_cast<size_t>(number * answers_ + answer))) {
      TSR_RETURN_IF_ERROR(fill_piece(part, piece, row, at, segment++));
      at += piece.count;
    }
    fill_padding(row, at, static_cast<size_t>((answer + 1) * seq_), segment++);
  }
  return {};
}

Status ExampleDataset::fill_piece(const Part& part, const ExamplePiece& piece, const DatasetRow& row,
                                  size_t at, int32_t segment) const {
  const TokenRecord& record = part.file->records()[part.records[piece.example]];
  std::vector<uint32_t> stored(piece.count);
  TSR_RETURN_IF_ERROR(part.file->read(record, piece.begin, stored));
  fill_tokens(stored, row, at, segment);
  if (row.weights.empty()) return {};
  std::vector<float> weights(piece.count);
  part.file->fill_weights(record, piece.begin, weights);
  for (size_t i = 0; i < weights.size(); ++i)  // a label is the next token
    row.weights[at + i] = row.labels[at + i] >= 0 ? weights[i + 1] : 0;
  return {};
}

Result<int64_t> ExampleDataset::count_eval_labels(int64_t rows) const {
  int64_t labels = 0;
  std::vector<uint32_t> stored;
  for (int64_t i = 0; i < rows * answers_; ++i) {
    for (const ExamplePiece& piece : eval_.rows.row(static_cast<size_t>(i))) {
      const TokenRecord& record = eval_.file->records()[eval_.records[piece.example]];
      if (piece.count == record.count) {
        labels += record.trained;
        continue;
      }
      stored.resize(piece.count);
      TSR_RETURN_IF_ERROR(eval_.file->read(record, piece.begin, stored));
      labels += std::count_if(stored.begin() + 1, stored.end(), is_trained);
    }
  }
  return labels;
}

// Entropy of the label frequencies: the loss of a unigram model.
Result<double> ExampleDataset::label_entropy() const {
  std::unordered_map<uint32_t, int64_t> counted;
  std::vector<uint32_t> stored;
  int64_t total = 0;
  for (const TokenRecord& record : train_.file->records()) {
    cancellation_point();
    stored.resize(record.count);
    TSR_RETURN_IF_ERROR(train_.file->read(record, 0, stored));
    for (size_t i = 1; i < stored.size(); ++i)
      if (is_trained(stored[i])) ++counted[stored[i]], ++total;
  }
  const std::map<uint32_t, int64_t> counts(counted.begin(), counted.end());  // fixes the order of addends
  double entropy = 0;
  for (const auto& [token, count] : counts) {
    const double share = static_cast<double>(count) / static_cast<double>(total);
    entropy -= share * std::log(share);
  }
  return entropy;
}

namespace {

Json omissions_of(const DataReport& report, const std::vector<std::string>& paths) {
  Json list = Json::array();
  for (const auto& [file, line, reason] : report.omissions)
    list.push_back(
        {{"file",
          file >= 0 && file < static_cast<int64_t>(paths.size()) ? paths[static_cast<size_t>(file)] : ""},
         {"line", line},
         {"reason", reason}});
  return list;
}

// [[most tokens, examples]], by powers of two.
Json histogram(std::span<const TokenRecord> records) {
  std::map<uint64_t, int64_t> counts;
  for (const TokenRecord& record : records) {
    uint64_t most = 1;
    while (most < record.count) most *= 2;
    ++counts[most];
  }
  Json list = Json::array();
  for (const auto& [most, count] : counts) list.push_back({most, count});
  return list;
}

}  // namespace

std::string ExampleDataset::note() const {
  const DataReport& report = data_.report;
  return written_control_note(report.written_control, format("{} rows of text hold", report.written_rows),
                              "they are learnt as letters");
}

Result<std::string> ExampleDataset::info_json() const {
  const std::span<const TokenRecord> records = train_.file->records();
  const DataReport& report = data_.report;
  std::map<std::string, int64_t> kinds;
  std::vector<uint32_t> lengths;
  int64_t trained = 0, prompts = 0;
  for (const TokenRecord& record : records) {
    ++kinds[std::string(name_of(static_cast<RowKind>(record.kind)))];
    lengths.push_back(record.count), trained += record.trained, prompts += record.prompt;
  }
  std::ranges::sort(lengths);
  std::vector<std::string> paths;
  for (const DataFile& file : settings_.files) paths.push_back(file.path);
  Json kind_counts = Json::object();
  for (const auto& [name, count] : kinds) kind_counts[name] = count;
  const int64_t slots = (order_.count + eval_samples_) * row_tokens();
  const int64_t used = train_.rows.tokens() + eval_.rows.tokens();
  TSR_ASSIGN_OR_RETURN(const double entropy, label_entropy());
  return dump(Json{{"tokens", train_.file->tokens()},
                   {"seq", seq_},
                   {"train_samples", order_.count},
                   {"eval_samples", eval_samples_},
                   {"unigram_entropy", entropy},
                   {"seed", order_.seed},
                   {"shuffle", order_.shuffle},
                   {"kinds", kind_counts},
                   {"rows", report.rows},
                   {"examples", records.size()},
                   {"trained_tokens", trained},
                   {"prompt_tokens", prompts},
                   {"packing", name_of(settings_.packing)},
                   {"packed_tokens", used},
                   {"efficiency", slots > 0 ? static_cast<double>(used) / static_cast<double>(slots) : 0},
                   {"bad", report.bad},
                   {"too_long", report.too_long},
                   {"untrained", report.untrained},
                   {"truncated", report.truncated},
                   {"omissions", omissions_of(report, paths)},
                   {"ignored", report.ignored},
                   {"written_control", report.written_control},
                   {"note", note()},
                   {"shortest", lengths.front()},
                   {"median", lengths[lengths.size() / 2]},
                   {"longest", lengths.back()},
                   {"lengths", histogram(records)},
                   {"cache", data_.cache.empty() ? Json() : Json(data_.cache)}});
}

Result<std::string> ExampleDataset::example_json(int64_t number) const {
  const std::span<const TokenRecord> records = train_.file->records();
  if (number < 0 || number >= static_cast<int64_t>(records.size()))
    return Status(StatusCode::kNotFound,
                  format("example {}: wanted 0 to {}", number, static_cast<int64_t>(records.size()) - 1));
  const TokenRecord& record = records[static_cast<size_t>(number)];
  std::vector<uint32_t> stored(record.count);
  TSR_RETURN_IF_ERROR(train_.file->read(record, 0, stored));
  Json ids = Json::array(), trained = Json::array(), control = Json::object();
  const TokenizerData& words = tokenizer_->data();
  for (const uint32_t token : stored) {
    const auto id = static_cast<size_t>(token_id(token));
    ids.push_back(id);
    if (id < words.types.size() && words.types[id] == TokenType::kControl)
      control[std::to_string(id)] = words.tokens[id];
    trained.push_back(is_trained(token) ? 1 : 0);
  }
  Json weights = Json::array();
  if (train_.file->has_weights()) {
    std::vector<float> read(record.count);
    train_.file->fill_weights(record, 0, read);
    for (size_t i = 0; i < read.size(); ++i) weights.push_back(is_trained(stored[i]) ? double{read[i]} : 0);
  }
  Json example{{"kind", name_of(static_cast<RowKind>(record.kind))},
               {"role", name_of(static_cast<ExampleRole>(record.role))},
               {"row", record.row},
               {"file", record.file < settings_.files.size() ? settings_.files[record.file].path : ""},
               {"line", record.line},
               {"prompt_tokens", record.prompt},
               {"ids", ids},
               {"trained", trained},
               {"control", control}};
  if (train_.file->has_weights()) example["weights"] = std::move(weights);
  return dump(example);
}

}  // namespace tessera
