#include "graph_profile.h"

#include <algorithm>
#include <cstdio>
#include <iostream>

namespace cli {

namespace {

// "1.25 T": powers of 1000.
std::string amount(double value) {
  static constexpr const char* kUnits[] = {"", "K", "M", "G", "T", "P", "E"};
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  return text;
}

std::string size(const Json& value) { return bytes_text(static_cast<int64_t>(value.get<double>())); }

void row(const std::string& name, const Json& work) {
  std::printf("%-26s %6lld  %10sFLOP  %11s  %11s  %11s  %11s\n", name.c_str(),
              static_cast<long long>(work["nodes"].get<int64_t>()),
              amount(work["flops"].get<double>()).c_str(), size(work["bytes_read"]).c_str(),
              size(work["bytes_written"]).c_str(), size(work["saved_bytes"]).c_str(),
              size(work["transient_bytes"]).c_str());
}

void header(const char* what) {
  std::printf("\n%-26s %6s  %14s  %11s  %11s  %11s  %11s\n", what, "nodes", "computed", "read", "written",
              "saved", "transient");
}

bool same_but_name(Json a, Json b) {
  a.erase("block");
  b.erase("block");
  // Tensors alive outside of the block are part of its transient bytes.
  for (Json* one : {&a, &b}) {
    one->erase("transient_bytes");
    for (auto& [name, phase] : (*one)["phases"].items()) phase.erase("transient_bytes");
  }
  return a == b;
}

// Prints consecutive equal blocks as one line.
void print_blocks(const Json& blocks) {
  for (size_t i = 0; i < blocks.size();) {
    size_t end = i + 1;
    while (end < blocks.size() && same_but_name(blocks[i], blocks[end])) ++end;
    std::string name = blocks[i]["block"].get<std::string>();
    if (name.empty()) name = "(no block)";
    if (end - i > 1) name += " and " + std::to_string(end - i - 1) + " like it";
    row(name + (end - i > 1 ? ", each" : ""), blocks[i]);
    i = end;
  }
}

int64_t sequence_length(const Model& model, int64_t asked) {
  if (asked != 0) return asked;
  const Json info = Json::parse(text(tsr_model_info, model.get()));
  int64_t length = 128;
  for (const Json& symbol : info["symbols"])
    if (symbol["name"] == "T" && symbol["capacity"] > 0)
      length = std::min(length, symbol["capacity"].get<int64_t>());
  return length;
}

}  // namespace

void add_question(CLI::App& command, ProfileQuestion& question) {
  command.add_option("--batch", question.batch, "profile: sequences")->capture_default_str();
  command.add_option("--seq", question.seq,
                     "profile: tokens a sequence (default: 128, or a shorter context)");
  command.add_option("--optimizer", question.optimizer, "profile: as for train")->capture_default_str();
  command.add_flag("--forward", question.forward_only, "profile: the forward pass alone");
  command.add_flag("--nodes", question.nodes, "profile, --json: every node");
}

Json graph_profile(const Model& model, const ProfileQuestion& question) {
  Graph graph = make<Graph>(tsr_model_graph, model.get());
  if (!question.forward_only) {
    tsr_value loss = 0;
    tsr_status* found = tsr_graph_find(graph.get(), "loss", &loss);
    if (found != nullptr) {
      tsr_status_free(found);
      graph = make<Graph>(tsr_graph_token_loss, graph.get());
    }
    const Options options = make<Options>(tsr_options_new);
    set(options, "optimizer", question.optimizer);
    graph = make<Graph>(tsr_graph_training, graph.get(), static_cast<const tsr_options*>(options.get()));
  }
  const Options options = make<Options>(tsr_options_new);
  set(options, "batch", question.batch);
  set(options, "symbols", "T=" + std::to_string(sequence_length(model, question.seq)));
  set(options, "nodes", int64_t{question.nodes ? 1 : 0});
  return Json::parse(text(tsr_graph_profile, graph.get(), static_cast<const tsr_options*>(options.get())));
}

void print_profile(const Json& profile) {
  header("phase");
  for (const auto& [name, work] : profile["phases"].items()) row(name, work);
  row("total", profile["total"]);
  header("block");
  print_blocks(profile["blocks"]);
  header("op");
  std::vector<Json> ops(profile["ops"].begin(), profile["ops"].end());
  std::ranges::stable_sort(ops, [](const Json& a, const Json& b) { return a["flops"] > b["flops"]; });
  for (const Json& op : ops) row(op["op"].get<std::string>(), op);
  std::printf("\nparameters %s, optimizer state %s; saved: what forward keeps for backward\n",
              size(profile["parameter_bytes"]).c_str(), size(profile["state_bytes"]).c_str());
}

}  // namespace cli
