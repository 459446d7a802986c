// Draft blocks in files of other projects: read, kept, and refused or left out with a reason.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "graph/base/text.h"
#include "tests/serialize/exported_model.h"
#include "text/json.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

// Changes the header of a folder's weights.
template <class Change>
void edit_header(const std::string& folder, Change change) {
  const std::string path = folder + "/model.safetensors", bytes = read_text_file(path);
  uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  Json header = *parse_json(bytes.substr(sizeof size, size), "header");
  const std::string values = bytes.substr(sizeof size + size);
  change(header);
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // values are aligned
  size = text.size();
  write_text_file(path, std::string(reinterpret_cast<const char*>(&size), sizeof size) + text + values);
}

void rename(Json& header, const std::string& from, const std::string& to) {
  header[to] = header.at(from);
  header.erase(from);
}

}  // namespace

TEST_CASE("a draft block with latent attention is in folders and in gguf files") {
  const ScratchFolder scratch;
  const std::string latent =
      "deepseek2:L=1,C=12,H=3,D=10,R=4,KA=12,QA=6,F=10,FD=10,norm_eps=1e-6,E=4,K=2,FS=10,V=11,T=16,expert_sigmoid,groups=2,"
      "groups_used=1,MTP=1";
  for (const bool own_tables : {false, true}) {
    const OpenedModel before = model_of(latent + ",rope_half" + (own_tables ? ",draft_tables" : ""));
    const std::string folder = scratch / format("{}", own_tables);
    write_folder(before, folder);
    CHECK(values_of(opened(folder)) == values_of(before));
    CHECK(values_of(before).contains("draft.token_embedding") == own_tables);
  }
  const OpenedModel before = model_of(latent);
  const auto contents = gguf_contents(*std::make_unique<OpenedModel>(before), {});
  REQUIRE_MESSAGE(contents.ok(), contents.status().to_string());
  CHECK(std::ranges::count(contents->notes,
                           "llama.cpp opens the file and cannot draft with its block: for that it wants keys and values of latent "
                           "attention in two matrices") == 1);
  write_gguf(before, scratch / "latent.gguf");
  CHECK(values_of(opened(scratch / "latent.gguf")) == values_of(before));
}

TEST_CASE("rows of a draft block's rotated heads are in the order of the layers'") {
  const ScratchFolder scratch;
  OpenedModel before = model_of("qwen3_5:L=4,C=12,H=3,KV=1,D=8,R=4,F=10,HS=4,GS=2,VS=6,KS=3,V=11,T=16,MTP=1");  // rows in pairs
  const auto parameter = [&](std::string_view name) { return std::ranges::find(before.parameters, name, &TensorSource::name); };
  for (const std::string leaf : {"q", "k", "q_norm"}) {
    const auto from = parameter("block.3." + leaf), to = parameter("draft." + leaf);
    REQUIRE(from != before.parameters.end());
    REQUIRE(to != before.parameters.end());
    *to = *from;
    to->name = "draft." + leaf;
  }
  write_gguf(before, scratch / "model.gguf");
  write_folder(before, scratch / "folder");
  for (const char* const name : {"model.gguf", "folder"}) {
    CAPTURE(name);
    const auto values = values_of(opened(scratch / name));
    CHECK(values.at("block.3.q") != values_of(before).at("block.3.q"));
    for (const std::string leaf : {"q", "k", "q_norm"}) CHECK(values.at("draft." + leaf) == values.at("block.3." + leaf));
  }
}

TEST_CASE("a draft block of another width, without a piece, or one of several is refused by name or left out") {
  const ScratchFolder scratch;
  const std::string qwen = "qwen3_5:L=4,C=12,H=3,KV=1,D=8,R=4,F=10,HS=4,GS=2,VS=6,KS=3,V=11,T=16,rope_half,MTP=1";
  const auto folder = [&](const char* name) {
    write_folder(model_of(qwen), scratch / name);
    return scratch / name;
  };
  const auto status_of = [](const std::string& path) { return open_model(*open_model_file(path)).status(); };
  const std::string wide = folder("wide");
  edit_header(wide, [](Json& header) { header["mtp.fc.weight"]["shape"] = {24, 12}; });
  check_says(status_of(wide), StatusCode::kCorrupt, "tensor 'mtp.fc.weight' is [24, 12], the model wants [12, 24]");
  const std::string less = folder("less");
  edit_header(less, [](Json& header) { rename(header, "mtp.layers.0.self_attn.q_proj.weight", "mtp.layers.0.self_attn.other.weight"); });
  check_says(status_of(less), StatusCode::kCorrupt, "tensor 'mtp.layers.0.self_attn.q_proj.weight' is missing");
  const std::string more = folder("more");
  edit_header(more, [](Json& header) { rename(header, "mtp.norm.weight", "mtp.layers.1.input_layernorm.weight"); });
  check_says(status_of(more), StatusCode::kCorrupt, "tensor 'mtp.norm.weight' is missing");

  // Files that also read pictures have the model's tensors under a name of its own.
  const std::string nested = folder("nested");
  edit_header(nested, [](Json& header) {
    Json renamed = Json::object();
    for (const auto& [name, value] : header.items())
      renamed[name.starts_with("model.") ? "model.language_model." + name.substr(6) : name] = value;
    header = renamed;
  });
  CHECK(values_of(opened(nested)) == values_of(opened(folder("plain"))));
  CHECK(values_of(opened(nested)).contains("draft.projection"));

  // Several blocks are left out, and said.
  const std::string several = folder("several"), path = several + "/config.json";
  Json config = *parse_json(read_text_file(path), "config.json");
  CHECK(config["mtp_num_hidden_layers"] == 1);
  config["mtp_num_hidden_layers"] = 2;
  write_text_file(path, config.dump());
  const OpenedModel without = opened(several);
  CHECK(!values_of(without).contains("draft.projection"));
  CHECK(std::ranges::any_of(without.model.origin.used, [](const auto& it) {
    return it.first == "mtp.*" && it.second.find("left out") != it.second.npos;
  }));
}
