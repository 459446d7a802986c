#include "tests/fuzz/loaders.h"

#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "graph/base/text.h"
#include "graph/graph.h"
#include "graph/models/model_family.h"
#include "graph/plan.h"
#include "serialize/checkpoint.h"
#include "serialize/device_profile_json.h"
#include "serialize/envelope.h"
#include "serialize/import/gguf_file.h"
#include "serialize/importance_matrix.h"
#include "serialize/model.h"
#include "serialize/plan_file.h"
#include "serialize/tokenizer/pre_tokenizer.h"
#include "tests/fuzz/sites.h"
#include "tests/serialize/gguf_writer.h"
#include "tests/serialize/plan_sample.h"

namespace tessera::fuzz {
namespace {

using testing::source_of;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tessera_mutants_XXXXXX").string();
    TSR_CHECK(mkdtemp(pattern.data()) != nullptr, "no temporary folder");
    path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

void check_ok(const Status& status) {
  if (!status.ok()) throw std::runtime_error("a seed is not valid: " + status.to_string());
}

// ---- using what was accepted

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

Status use(const TokenizerData& data) {
  auto tokenizer = Tokenizer::create(data);
  if (!tokenizer.ok())
    return tokenizer.status().code() == StatusCode::kInternal ? tokenizer.status() : Status();
  const std::string text = "ab <s> abcab\xff\xe2\x96\x81 \n c1234 <tool>it's";
  for (bool special : {false, true}) {
    std::vector<int32_t> ids = (*tokenizer)->encode(text, special);
    for (int32_t id : ids) {
      if (id < 0 || id >= (*tokenizer)->vocabulary_size())
        return Status(StatusCode::kInternal, "an id outside the vocabulary");
    }
    ids.insert(ids.end(), {-1, 0, 1, INT32_MAX, INT32_MIN});
    (void)(*tokenizer)->decode(ids);
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

template <class T>
Status use_result(const Result<T>& result) {
  return result.ok() ? use(*result) : result.status();
}

// ---- files with an envelope

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

struct Seed {
  std::string file;
  std::vector<Site> sites;
};

Seed enveloped_seed(std::string file, const std::string& schema_name) {
  const std::string schema = read_file(std::string(TSR_SCHEMA_FOLDER) + "/" + schema_name + ".bfbs");
  if (schema.empty()) throw std::runtime_error("cannot read the schema in " TSR_SCHEMA_FOLDER);
  Seed seed{std::move(file), {}};
  seed.sites = flatbuffer_sites(seed.file, index_offset(seed.file), schema);
  return seed;
}

// Mostly fields of the index, sometimes its bytes, its length, or the header.
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

// GGUF models of every type of weights, eight to a file.
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

class ModelLoader final : public Loader {
 public:
  ModelLoader() {
    auto llama = import_gguf(source_of(testing::small_llama(false).finish()));
    TSR_CHECK(llama.ok(), "the seed model is not valid");
    Model rich;
    rich.graph = rich_graph();
    rich.tokenizer.emplace();
    rich.tokenizer->kind = TokenizerKind::kByteLevelBpe;
    rich.tokenizer->tokens = {"a", "b", "c", "Ġ", "ab", "abc", "Ġa", "<s>"};
    rich.tokenizer->merges = {"a b", "ab c", "Ġ a"};
    rich.tokenizer->pre_tokenizer = "gpt-2";
    rich.parameters["w"] = HostTensor::zeros({DType::kF32, {8, 4}}, nullptr);
    ScratchFolder folder;
    for (const Model& model : {*llama, rich}) {
      for (bool compress : {false, true}) {
        check_ok(save_model(model, folder / "seed", {compress}));
        seeds_.push_back(enveloped_seed(read_file(folder / "seed"), "model"));
      }
    }
    for (const std::string& file : block_models()) {
      auto model = import_gguf(source_of(file));
      check_ok(model.status());
      check_ok(save_model(*model, folder / "seed", {.compress = seeds_.size() % 2 == 1}));
      seeds_.push_back(enveloped_seed(read_file(folder / "seed"), "model"));
    }
  }
  std::string_view name() const override { return ".tsr"; }
  Outcome run(Random& random) override {
    const std::string file = mutant_of(random.pick<Seed>(seeds_), random);
    return {past_envelope(file, kModelMagic), use_result(load_model(source_of(file)))};
  }

 private:
  std::vector<Seed> seeds_;
};

class CheckpointLoader final : public Loader {
 public:
  CheckpointLoader() {
    CheckpointInfo info;
    info.step = 3;
    info.values = {{"seed", "7"}, {"data_position", "24"}};
    info.tensors = {
        {"w", {DType::kF32, {3, 5}}}, {"m", {DType::kBF16, {2, 4, 6}}}, {"q", {DType::kQ8_0, {2, 32}}}};
    check_ok(save_checkpoint(folder_ / "c", info,
                             [](std::string_view, std::span<std::byte>) { return Status(); }));
    seed_ = enveloped_seed(read_file(folder_ / "c/manifest"), "checkpoint");
  }
  std::string_view name() const override { return "checkpoint"; }
  Outcome run(Random& random) override {
    const std::string file = mutant_of(seed_, random);
    write_file(folder_ / "c/manifest", file);
    Outcome outcome{past_envelope(file, kCheckpointMagic), {}};
    auto reader = CheckpointReader::open(folder_ / "c");
    if (!reader.ok()) {
      outcome.status = reader.status();
      return outcome;
    }
    for (const auto& [tensor, type] : reader->info().tensors) {
      auto read = reader->read(tensor);
      if (!read.ok()) outcome.status = read.status();
    }
    return outcome;
  }

 private:
  ScratchFolder folder_;
  Seed seed_;
};

class PlanLoader final : public Loader {
 public:
  PlanLoader() {
    auto bytes = plan_to_bytes(testing::sample_plan());
    TSR_CHECK(bytes.ok(), "the seed plan is not valid");
    seed_ = enveloped_seed({reinterpret_cast<const char*>(bytes->data()), bytes->size()}, "plan");
  }
  std::string_view name() const override { return "plan"; }
  Outcome run(Random& random) override {
    const std::string file = mutant_of(seed_, random);
    auto plan = plan_from_bytes(source_of(file));
    if (plan.ok() && !plan_to_json(*plan).ok() && !plan_to_bytes(*plan).ok()) {
      return {true, Status(StatusCode::kInternal, "an accepted plan cannot be written")};
    }
    return {past_envelope(file, kPlanMagic), plan.status()};
  }

 private:
  Seed seed_;
};

class PlanJsonLoader final : public Loader {
 public:
  PlanJsonLoader() : seed_(*plan_to_json(testing::sample_plan())) {}
  std::string_view name() const override { return "plan json"; }
  Outcome run(Random& random) override {
    std::string text = seed_;
    mutate_text(text, random);
    auto plan = plan_from_json(text);
    const bool is_json = nlohmann::json::accept(text);
    return {is_json, plan.status()};
  }

 private:
  std::string seed_;
};

// ---- GGUF

// Magic number and version are right and the counts fit into the file.
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

class GgufLoader final : public Loader {
 public:
  GgufLoader() {
    testing::GgufWriter quantised;
    quantised.text("general.architecture", "llama")
        .texts("texts", {"a", "bc"})
        .numbers("numbers", 5, std::vector<int32_t>{1, 2});
    quantised.scalar("f64", 12, 0.5).flag("flag", true).u32("general.alignment", 32);
    quantised.tensor("token_embd.weight", 8, {32, 2}, std::string(68, 'x'))
        .tensor("b", 2, {64}, std::string(36, 'y'));
    quantised.tensor("c", 1, {3}, std::string(6, 'z')).tensor("d", 30, {4}, std::string(8, 'w'));
    for (const std::string& file :
         {testing::small_llama(false).finish(), testing::small_llama(true).finish(), quantised.finish()}) {
      seeds_.push_back({file, gguf_sites(file)});
    }
    for (const std::string& file : block_models()) {
      check_ok(import_gguf(source_of(file)).status());
      seeds_.push_back({file, gguf_sites(file)});
    }
  }
  std::string_view name() const override { return "gguf"; }
  Outcome run(Random& random) override {
    const Seed& seed = random.pick<Seed>(seeds_);
    std::string file = seed.file;
    mutate_sites(file, seed.sites, random);
    if (random.one_in(10)) file.resize(random.below(file.size()));
    if (random.one_in(20)) file[random.below(24)] = static_cast<char>(random.next());
    return {past_gguf_header(file), use_result(import_gguf(source_of(file)))};
  }

 private:
  std::vector<Seed> seeds_;
};

// Models in several files, one of them broken; opened from any.
class GgufPartsLoader final : public Loader {
 public:
  GgufPartsLoader() {
    for (const bool no_tensor_first : {false, true}) {
      std::vector<Seed> parts;
      for (const testing::GgufWriter& part : testing::small_llama_parts(kParts, no_tensor_first)) {
        std::string file = part.finish();
        std::vector<Site> sites = gguf_sites(file);
        write_file(path(models_.size(), parts.size()), file);
        parts.push_back({std::move(file), std::move(sites)});
      }
      models_.push_back(std::move(parts));
      check_ok(open(models_.size() - 1, 0).status());
    }
  }
  std::string_view name() const override { return "gguf parts"; }
  Outcome run(Random& random) override {
    const size_t model = random.below(models_.size());
    const std::vector<Seed>& parts = models_[model];
    const size_t broken = random.below(kParts), given = random.below(kParts);
    std::string file = parts[broken].file;
    if (random.one_in(20)) {
      file = parts[random.below(kParts)].file;  // another part under this name
    } else {
      mutate_sites(file, parts[broken].sites, random);
    }
    if (random.one_in(10)) file.resize(random.below(file.size()));
    const std::string broken_path = path(model, broken);
    write_file(broken_path, file);
    if (random.one_in(40)) std::filesystem::remove(broken_path);
    Outcome outcome{past_gguf_header(file), use_result(open(model, given))};
    write_file(broken_path, parts[broken].file);
    return outcome;
  }

 private:
  static constexpr size_t kParts = 3;

  std::string path(size_t model, size_t part) const {
    return folder_ / format("model{}-0000{}-of-0000{}.gguf", model, part + 1, kParts);
  }
  Result<Model> open(size_t model, size_t part) const {
    TSR_ASSIGN_OR_RETURN(auto source, open_file(path(model, part)));
    return import_gguf(std::move(source));
  }

  ScratchFolder folder_;
  std::vector<std::vector<Seed>> models_;
};

// ---- importance matrices, in both forms

class ImportanceLoader final : public Loader {
 public:
  ImportanceLoader() {
    testing::GgufWriter file;
    file.text("general.type", "imatrix").texts("imatrix.datasets", {"a text"});
    file.tensor_f32("a.in_sum2", {4, 1}, {1, 2, 3, 4}).tensor_f32("a.counts", {1, 1}, {2});
    file.tensor_f32("b.in_sum2", {2, 2}, {1, 2, 3, 4}).tensor_f32("b.counts", {1, 2}, {2, 0});
    gguf_ = file.finish();
    sites_ = gguf_sites(gguf_);
    const auto put = [this](auto value) {
      older_.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    put(int32_t{2});
    for (const char* name : {"a", "bc"}) {
      put(static_cast<int32_t>(std::strlen(name)));
      older_ += name;
      put(int32_t{3});  // calls
      put(int32_t{2});  // values
      put(1.5f);
      put(2.0f);
    }
    put(int32_t{3});
    check_ok(ImportanceMatrix::read(source_of(gguf_)).status());
    check_ok(ImportanceMatrix::read(source_of(older_)).status());
  }
  std::string_view name() const override { return "importance matrix"; }
  Outcome run(Random& random) override {
    std::string file = older_;
    if (random.one_in(2)) {
      file = gguf_;
      mutate_sites(file, sites_, random);
    } else {
      for (uint64_t left = 1 + random.below(3); left > 0; --left)
        file[random.below(file.size())] = static_cast<char>(random.next());
    }
    if (random.one_in(10)) file.resize(random.below(file.size()));
    return {file.size() >= 24, use_result(ImportanceMatrix::read(source_of(file)))};
  }

 private:
  std::string gguf_, older_;
  std::vector<Site> sites_;
};

// ---- tokenizers: no file, so no header

class TokenizerLoader final : public Loader {
 public:
  std::string_view name() const override { return "tokenizer"; }
  Outcome run(Random& random) override {
    TokenizerData data;
    data.kind = static_cast<TokenizerKind>(random.below(5));
    const std::string_view pieces[] = {"a",      "b", "ab", "▁",    "▁ab", "Ġ",   "<s>", "<0x0A>",
                                       "<0xFF>", "",  " ",  "\xff", "c",   "abc", "##b", "Ġa"};
    for (uint64_t left = random.below(40); left > 0; --left)
      data.tokens.emplace_back(random.pick<std::string_view>(pieces));
    if (data.kind == TokenizerKind::kBytes && random.one_in(2))
      data.tokens.resize(256 + random.below(4), "x");
    if (data.kind == TokenizerKind::kSentencePiece && !random.one_in(4)) {
      for (int byte = 0; byte < 256; ++byte) {
        constexpr char kHex[] = "0123456789ABCDEF";
        data.tokens.push_back(std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">");
      }
    }
    const size_t count = data.tokens.size() + (random.one_in(10) ? 1 : 0);
    for (size_t i = 0; i < count; ++i) {
      if (data.kind == TokenizerKind::kSentencePiece)
        data.scores.push_back(static_cast<float>(random.below(9)) - 4);
      data.types.push_back(static_cast<TokenType>(1 + random.below(random.one_in(300) ? 9 : 6)));
    }
    if (random.one_in(2)) data.types.clear();
    const std::string_view merges[] = {"a b", "ab c", "Ġ a", " a", "a ", "", "ab", "a b c", "Ġa b"};
    for (uint64_t left = random.below(5); left > 0; --left) {
      data.merges.emplace_back(
          random.pick<std::string_view>(std::span(merges).first(random.one_in(8) ? 9 : 3)));
    }
    const auto patterns = known_split_patterns();
    data.pre_tokenizer = random.one_in(10) ? "other" : random.pick<SplitPattern>(patterns).names[0];
    for (int32_t* id : {&data.bos, &data.eos, &data.unknown, &data.pad}) {
      *id = static_cast<int32_t>(random.below(data.tokens.size() + (random.one_in(20) ? 3 : 1))) - 1;
    }
    data.add_space_prefix = random.one_in(2);
    auto tokenizer = Tokenizer::create(data);
    return {true, tokenizer.ok() ? use(data) : tokenizer.status()};
  }
};

// ---- texts

class GraphTextLoader final : public Loader {
 public:
  GraphTextLoader() {
    seeds_.push_back(print(rich_graph()));
    auto model = parse_shorthand("llama:L=1,C=8,H=2,KV=1,F=16,V=12,T=16");
    TSR_CHECK(model.ok(), "the seed shorthand is not valid");
    auto graph = build_model(*model);
    TSR_CHECK(graph.ok(), "the seed graph is not valid");
    seeds_.push_back(print(*graph));
  }
  std::string_view name() const override { return "graph text"; }
  Outcome run(Random& random) override {
    std::string text = random.pick<std::string>(seeds_);
    mutate_text(text, random);
    return {text.starts_with("graph {"), use_result(parse_graph(text))};
  }

 private:
  std::vector<std::string> seeds_;
};

class PlanTextLoader final : public Loader {
 public:
  PlanTextLoader() : graph_(rich_graph()) {
    Plan plan = testing::sample_plan();
    plan.graph_fingerprint = graph_.fingerprint();
    plan.nodes.assign(graph_.nodes().size(), {});
    plan.nodes[0].factor_axes = {{'k', {0}}, {'n', {1}}};
    plan.nodes[0].chunks = 2;
    plan.nodes[2].factor_axes = {{'a', {0}}};
    plan.nodes[2].carried = {1};
    plan.nodes[2].carry_set = 0;
    plan.stored.resize(1);  // of w, [8, 4]
    plan.stored[0].placements[0].stored.dims[0].unit = 4;
    seed_ = print(plan, graph_);
    check_ok(parse_plan(seed_, graph_).status());
  }
  std::string_view name() const override { return "plan text"; }
  Outcome run(Random& random) override {
    std::string text = seed_;
    mutate_text(text, random);
    auto plan = parse_plan(text, graph_);
    if (plan.ok()) (void)print(*plan, graph_);
    return {text.starts_with("plan {"), plan.status()};
  }

 private:
  Graph graph_;
  std::string seed_;
};

class DeviceProfileLoader final : public Loader {
 public:
  DeviceProfileLoader() {
    DeviceProfile profile;
    profile.device = "cpu (2 cores, avx2)";
    profile.cores = 2;
    profile.kernels = {{"", "", DType::kF32, {"bytes"}, {{64, 4096}}, {1e-6, 2e-6}, {1.5e-6, 4e-6}},
                       {"matmul",
                        "trans_w=0",
                        DType::kF32,
                        {"*", "k", "n"},
                        {{1, 8}, {16}, {16, 64}},
                        {1e-6, 2e-6, 3e-6, 7e-6},
                        {2e-6, 2e-6, 6e-6, 1.4e-5}}};
    profile.collectives = {{CollectiveKind::kAllReduce, 2, {{4096, 65536}, {1e-5, 3e-5}}}};
    profile.messages = {{4096, 65536}, {1e-5, 2e-5}};
    profile.copies = {{Tier::kDevice, Tier::kHost, {{4096}, {1e-6}}}};
    seed_ = device_profile_to_json(profile);
    check_ok(device_profile_from_json(seed_).status());
  }
  std::string_view name() const override { return "device profile"; }
  Outcome run(Random& random) override {
    std::string text = seed_;
    mutate_text(text, random);
    auto profile = device_profile_from_json(text);
    if (profile.ok()) (void)device_profile_to_json(*profile);
    // The content is looked at before its checksum is.
    const bool is_json = profile.status().message().find("not JSON") == std::string_view::npos;
    return {is_json, profile.status()};
  }

 private:
  std::string seed_;
};

}  // namespace

std::vector<std::unique_ptr<Loader>> all_loaders() {
  std::vector<std::unique_ptr<Loader>> loaders;
  loaders.push_back(std::make_unique<ModelLoader>());
  loaders.push_back(std::make_unique<CheckpointLoader>());
  loaders.push_back(std::make_unique<PlanLoader>());
  loaders.push_back(std::make_unique<PlanJsonLoader>());
  loaders.push_back(std::make_unique<GgufLoader>());
  loaders.push_back(std::make_unique<GgufPartsLoader>());
  loaders.push_back(std::make_unique<ImportanceLoader>());
  loaders.push_back(std::make_unique<TokenizerLoader>());
  loaders.push_back(std::make_unique<GraphTextLoader>());
  loaders.push_back(std::make_unique<PlanTextLoader>());
  loaders.push_back(std::make_unique<DeviceProfileLoader>());
  return loaders;
}

}  // namespace tessera::fuzz
