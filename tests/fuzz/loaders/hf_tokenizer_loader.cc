#include <map>
#include <nlohmann/json.hpp>

#include "serialize/import/tokenizer_folder.h"
#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"
#include "text/tokenizer/hugging_face.h"

namespace tessera::fuzz {
namespace {

using nlohmann::json;

// A tokenizer.json of parts that are drawn, whose members are sometimes of another one, sometimes broken as text; and
// the other files that a folder may have instead.
class HfTokenizerLoader final : public Loader {
 public:
  std::string_view name() const override { return "hf tokenizer"; }

  Outcome run(Random& random) override {
    std::map<std::string, std::string> files;
    if (random.one_in(4)) {
      files["tokenizer.model"] = sentencepiece(random);
    } else if (random.one_in(4)) {
      files["vocab.json"] = R"({"a": 0, "b": 1, "ab": 2, "<s>": 3, "</s>": 4})";
      files["merges.txt"] = "#version: 0.2\na b\n";
    } else if (random.one_in(4)) {
      files["vocab.txt"] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nab\n##s\n,";
    } else {
      files["tokenizer.json"] = tokenizer_json(random).dump(-1, ' ', false, json::error_handler_t::replace);
    }
    files["tokenizer_config.json"] =
        R"({"eos_token": "</s>", "add_bos_token": true, "bos_token": {"content": "<s>"}})";
    files["generation_config.json"] = R"({"eos_token_id": [4, 2]})";
    for (auto& [name, text] : files)
      if (random.one_in(name == "tokenizer.json" ? 3 : 6)) mutate_text(text, random);
    const auto data = hf_folder_tokenizer([&](const std::string& name) -> Result<std::optional<std::string>> {
      const auto found = files.find(name);
      return found == files.end() ? std::optional<std::string>() : std::optional(found->second);
    });
    if (!data.ok()) return {true, data.status()};
    return {true, data->has_value() ? use(**data) : Status()};
  }

 private:
  static json tokenizer_json(Random& random) {
    static const char* const kNormalizers[] = {
        "null",
        R"({"type":"NFKC"})",
        R"({"type":"NFD"})",
        R"({"type":"Replace","pattern":{"Regex":"a*"},"content":"bb"})",
        R"({"type":"Replace","pattern":{"String":" "},"content":"▁"})",
        R"({"type":"BertNormalizer","lowercase":true})",
        R"({"type":"Sequence","normalizers":[{"type":"Lowercase"},{"type":"Strip"},{"type":"StripAccents"}]})",
        R"({"type":"Precompiled","precompiled_charsmap":"CAAAAAAEAIABAAAAYQA="})",
        R"({"type":"ByteLevel"})",
        R"({"type":"Prepend","prepend":"▁"})",
        R"({"type":"Nmt"})"};
    static const char* const kSplitters[] = {
        "null",
        R"({"type":"ByteLevel","add_prefix_space":true})",
        R"({"type":"Metaspace","replacement":"▁"})",
        R"({"type":"Split","pattern":{"Regex":"[a-z&&[^b]]|\\b"},"behavior":"Isolated","invert":false})",
        R"({"type":"Sequence","pretokenizers":[{"type":"Whitespace"},{"type":"Digits"},{"type":"ByteLevel"}]})",
        R"({"type":"BertPreTokenizer"})",
        R"({"type":"UnicodeScripts"})",
        R"({"type":"FixedLength","length":2})",
        R"({"type":"Punctuation","behavior":"Contiguous"})",
        R"({"type":"CharDelimiterSplit","delimiter":"a"})"};
    static const char* const kModels[] = {
        R"({"type":"BPE","unk_token":"<unk>","byte_fallback":true,"fuse_unk":true,"vocab":{"<unk>":0,"a":1,"b":2,"ab":3,"▁":4,"<0xC3>":5},"merges":["a b"]})",
        R"({"type":"BPE","continuing_subword_prefix":"##","end_of_word_suffix":"</w>","vocab":{"a":0,"##b":1,"##b</w>":2,"ab</w>":3},"merges":[["a","##b</w>"]]})",
        R"({"type":"Unigram","unk_id":0,"byte_fallback":true,"vocab":[["<unk>",0],["a",-1],["▁ab",-2.5],["b",-3],["<0x0A>",-9]]})",
        R"({"type":"WordPiece","unk_token":"[UNK]","vocab":{"[UNK]":0,"a":1,"##b":2,"ab":3,"c":4}})",
        R"({"type":"WordLevel","unk_token":"<unk>","vocab":{"<unk>":0,"ab":1,"a":2,"x":3,"y":4}})"};
    static const char* const kDecoders[] = {
        "null",
        R"({"type":"ByteLevel"})",
        R"({"type":"Metaspace","replacement":"▁"})",
        R"({"type":"WordPiece"})",
        R"({"type":"BPEDecoder","suffix":"</w>"})",
        R"({"type":"CTC"})",
        R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":2}]})"};
    static const char* const kProcessors[] = {
        "null", R"({"type":"BertProcessing","cls":["a",1],"sep":["b",2]})",
        R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}},{"Sequence":{"id":"A"}}],"special_tokens":{"x":{"ids":[1,0]}}})"};
    json made = {{"normalizer", json::parse(random.pick<const char*>(kNormalizers))},
                 {"pre_tokenizer", json::parse(random.pick<const char*>(kSplitters))},
                 {"model", json::parse(random.pick<const char*>(kModels))},
                 {"decoder", json::parse(random.pick<const char*>(kDecoders))},
                 {"post_processor", json::parse(random.pick<const char*>(kProcessors))},
                 {"added_tokens", json::array()}};
    static const char* const kContents[] = {"<s>", "<tool>", "ab", "a", " ", "b<s>", "", "</s>"};
    for (uint64_t left = random.below(5); left > 0; --left) {
      json token = {{"content", random.pick<const char*>(kContents)}};
      for (const char* flag : {"special", "lstrip", "rstrip", "single_word", "normalized"})
        token[flag] = random.one_in(2);
      if (random.one_in(3)) token["id"] = random.below(12);
      made["added_tokens"].push_back(std::move(token));
    }
    if (random.one_in(2)) break_member(made, random);
    return made;
  }

  // Another value somewhere in the tree.
  static void break_member(json& tree, Random& random) {
    json* at = &tree;
    while (at->is_structured() && !at->empty() && !(at != &tree && random.one_in(4)))
      at = &*std::next(at->begin(), static_cast<ptrdiff_t>(random.below(at->size())));
    const json others[] = {nullptr,
                           true,
                           -1,
                           3,
                           1e300,
                           "",
                           "a",
                           "\xe2\x96\x81",
                           json::array(),
                           json::object(),
                           uint64_t{1} << 63,
                           std::string(2000, 'a'),
                           "(a+)+$",
                           json::array({"a", "b"}),
                           tree};
    *at = random.pick<json>(others);
  }

  static std::string field(int number, std::string_view bytes) {
    return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())}.append(bytes);
  }
  static std::string sentencepiece(Random& random) {
    std::string file;
    for (const char* token : {"<unk>", "<s>", "</s>", "\xe2\x96\x81", "a", "b", "ab"}) {
      const std::string score("\x15\0\0\x80\xbf", 5), type{'\x18', token[0] == '<' ? '\3' : '\1'};
      file += field(1, field(1, token) + score + type);
    }
    file += field(2, random.one_in(2) ? "\x18\x01" : "\x18\x02");
    return file + field(3, std::string("\x20\0", 2));
  }
};

}  // namespace

std::unique_ptr<Loader> hf_tokenizer_loader() { return std::make_unique<HfTokenizerLoader>(); }

}  // namespace tessera::fuzz
