#include "tests/fuzz/seeds.h"

#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "graph/base/text.h"
#include "serialize/envelope.h"
#include "serialize/import/gguf_file.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/serialize/safetensors_writer.h"

namespace tessera::fuzz {

using testing::source_of;

namespace {

// Makes header and sizes right again after the index was changed.
void reseal(std::string& file) {
  Envelope envelope;
  if (file.size() < sizeof envelope) return;
  std::memcpy(&envelope, file.data(), sizeof envelope);
  const size_t begin = std::min<size_t>(envelope.index_offset, file.size());
  const auto index = std::as_bytes(std::span(file)).subspan(begin);
  envelope =
      make_envelope(std::string_view(envelope.magic, sizeof envelope.magic), file.size(), begin, index);
  std::memcpy(file.data(), &envelope, sizeof envelope);
}

size_t index_offset(const std::string& file) {
  Envelope envelope;
  std::memcpy(&envelope, file.data(), sizeof envelope);
  return envelope.index_offset;
}

}  // namespace

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

ScratchFolder::ScratchFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "tessera_mutants_XXXXXX").string();
  TSR_CHECK(mkdtemp(pattern.data()) != nullptr, "no temporary folder");
  path_ = pattern;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void check_ok(const Status& status) {
  if (!status.ok()) throw std::runtime_error("a seed is not valid: " + status.to_string());
}

// A graph that a reader let through must hold; its text, and binding it, must not break either.
Status use(const Graph& graph) {
  if (Status verified = graph.verify(); !verified.ok()) {
    return Status(StatusCode::kInternal, "an accepted graph does not verify: " + verified.to_string());
  }
  (void)print(graph);
  (void)graph.fingerprint();
  std::vector<std::pair<std::string, int64_t>> values;
  for (const Symbol& symbol : graph.symbols())
    values.emplace_back(symbol.name, symbol.capacity == 0 ? 3 : std::min<int64_t>(symbol.capacity, 5));
  auto bound = graph.bind(values);
  return bound.status().code() == StatusCode::kInternal ? bound.status() : Status();
}

namespace {

Status use(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options) {
  const auto encoding = tokenizer.encode_with_begins(text, options);
  if (!encoding.ok()) return encoding.status().code() == StatusCode::kInternal ? encoding.status() : Status();
  std::vector<int32_t> ids = encoding->ids;
  const std::vector<size_t>& begins = encoding->begins;
  if (*tokenizer.encode(text, options) != ids || begins.size() != ids.size() ||
      !std::ranges::is_sorted(begins) || (!begins.empty() && begins.back() > text.size()))
    return Status(StatusCode::kInternal, "tokens that do not begin in order within the text");
  for (int32_t id : ids) {
    if (id < 0 || id >= tokenizer.vocabulary_size())
      return Status(StatusCode::kInternal, "an id outside the vocabulary");
  }
  ids.insert(ids.end(), {-1, 0, 1, INT32_MAX, INT32_MIN});
  (void)tokenizer.decode(ids);
  return {};
}

}  // namespace

Status use(const TokenizerData& data) {
  auto tokenizer = Tokenizer::create(data);
  if (!tokenizer.ok())
    return tokenizer.status().code() == StatusCode::kInternal ? tokenizer.status() : Status();
  const std::string text = "ab <s> abcab\xff\xe2\x96\x81 \n c1234 <tool>it's";
  constexpr TextRange kLiteral[] = {{3, 6}, {9, 30}};
  for (bool special : {false, true}) {
    TSR_RETURN_IF_ERROR(use(**tokenizer, text, {special, {}}));
    TSR_RETURN_IF_ERROR(use(**tokenizer, text, {special, kLiteral}));
  }
  return {};
}

Status use(const Model& model) {
  TSR_RETURN_IF_ERROR(use(model.graph));
  uint64_t sum = 0;
  for (const auto& [name, tensor] : model.parameters) {
    if (static_cast<int64_t>(tensor.data.size()) != bytes(tensor.type))
      return Status(StatusCode::kInternal, "wrong size of " + name);
    sum += xxh3(tensor.data);
  }
  if (model.tokenizer) TSR_RETURN_IF_ERROR(use(*model.tokenizer));
  return sum == 1 ? Status(StatusCode::kInternal, "unlikely") : Status();  // so that the data is read
}

Status use(const ImportanceMatrix& matrix) {
  for (const char* name : {"a", "b", "bc"})
    for (const float value : matrix.find(name))
      if (!(value >= 0)) return Status(StatusCode::kInternal, "an importance that is none");
  return {};
}

Seed enveloped_seed(std::string file, const std::string& schema_name) {
  const std::string schema = read_file(std::string(TSR_SCHEMA_FOLDER) + "/" + schema_name + ".bfbs");
  if (schema.empty()) throw std::runtime_error("cannot read the schema in " TSR_SCHEMA_FOLDER);
  Seed seed{std::move(file), {}};
  seed.sites = flatbuffer_sites(seed.file, index_offset(seed.file), schema);
  return seed;
}

std::string mutant_of(const Seed& seed, Random& random) {
  std::string file = seed.file;
  const size_t begin = index_offset(file);
  switch (random.below(10)) {
    case 0:  // anything in the index
      for (int i = 0; i < 4; ++i)
        file[begin + random.below(file.size() - begin)] = static_cast<char>(random.next());
      break;
    case 1: file.resize(begin + random.below(file.size() - begin)); break;
    case 2: {  // the header, or the data: not made right again
      mutate_sites(file, seed.sites, random);
      file[random.below(begin)] = static_cast<char>(random.next());
      return file;
    }
    default: mutate_sites(file, seed.sites, random);
  }
  reseal(file);
  return file;
}

bool past_envelope(const std::string& file, std::string_view magic) {
  return read_index(source_of(file), magic, "mutant").ok();
}

std::vector<std::string> block_models() {
  std::vector<uint32_t> types;
  for (uint32_t id = 0; id < 64; ++id)
    if (gguf_tensor_type(id)) types.push_back(id);
  std::vector<std::string> files;
  for (size_t first = 0; first < types.size(); first += 8) {
    const size_t last = std::min(first + 8, types.size());
    files.push_back(testing::block_llama({types.begin() + static_cast<ptrdiff_t>(first),
                                          types.begin() + static_cast<ptrdiff_t>(last)})
                        .finish());
  }
  return files;
}

Graph rich_graph() {
  auto graph = parse_graph(
      "graph {\n  symbol B; symbol T <= 16\n  input x: f32[B, T, 8]\n  input ids: i32[B, T]\n  parameter w: "
      "f32[8, 4]\n"
      "  parameter table: f32[12, 8]\n  state m: f32[8, 4]\n  h = matmul(x, w) @scope \"block.0\"\n"
      "  e = embedding(table, ids)\n  s = add(e, x)\n  p = transpose(s) {perm = [1, 0, 2]}\n  r = "
      "reduce_sum(p) {axes = [0]}\n"
      "  sp = split_dim(s) {dim = 2, inner = 4}\n  me = merge_dims(sp) {dim = 2}\n  sl = slice(me) {dim = 2, "
      "begin = 1, end = 5}\n"
      "  so = softmax(h)\n  w2 = scale(w) {factor = 0.5}\n  output y = so\n  output z = sl\n  update m <- "
      "w2\n}\n");
  TSR_CHECK(graph.ok(), "the seed graph is not valid");
  return *graph;
}

std::string mutant_of_safetensors(const std::string& file, Random& random) {
  uint64_t size = 0;
  std::string header = file.substr(sizeof size, file.find("}}", sizeof size) + 2 - sizeof size);
  const std::string data = file.substr(sizeof size + header.size());
  mutate_text(header, random);
  std::string mutant = testing::SafetensorsWriter::file_of(header, data);
  if (random.one_in(10)) mutant.resize(random.below(mutant.size()));
  if (random.one_in(10) && mutant.size() >= sizeof size)
    mutant[random.below(sizeof size)] = static_cast<char>(random.next());
  return mutant;
}

bool past_gguf_header(const std::string& file) {
  if (file.size() < 24 || file.substr(0, 4) != "GGUF") return false;
  uint32_t version;
  uint64_t tensors, values;
  std::memcpy(&version, file.data() + 4, 4);
  std::memcpy(&tensors, file.data() + 8, 8);
  std::memcpy(&values, file.data() + 16, 8);
  return (version == 2 || version == 3) && tensors <= (file.size() - 24) / 25 &&
         values <= (file.size() - 24) / 14;
}

}  // namespace tessera::fuzz
