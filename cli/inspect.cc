#include <algorithm>
#include <iostream>
#include <map>

#include "command.h"
#include "graph_profile.h"
#include "interruptible.h"

namespace cli {

namespace {
struct Arguments : Common {
  std::string model;
  bool verify = false, tensors = false, graph = false, profile = false, memory = false;
  ProfileQuestion question;
};

// "tokens i32[B, T], positions i32[B, T]"
std::string tensor_list(const Json& tensors) {
  std::string list;
  for (const Json& tensor : tensors) {
    std::string shape;
    for (const Json& extent : tensor["shape"])
      shape += (shape.empty() ? "" : ", ") + (extent.is_string() ? extent.get<std::string>() : extent.dump());
    list += (list.empty() ? "" : ", ") + tensor["name"].get<std::string>() + ' ' +
            tensor["dtype"].get<std::string>() + '[' + shape + ']';
  }
  return list.empty() ? "none" : list;
}

void print_keys(const char* heading, const Json& keys) {
  if (keys.empty()) return;
  std::cout << heading << '\n';
  for (const auto& [key, value] : keys.items())
    std::cout << "  " << key << " = " << value.get<std::string>() << '\n';
}

void print_graph_summary(const Json& info) {
  std::cout << "graph         " << info["graph_nodes"].get<int64_t>() << " nodes";
  const char* before = ": ";
  for (const Json& op : info["ops"]) {
    std::cout << before << op["count"].get<int64_t>() << ' ' << op["op"].get<std::string>();
    before = ", ";
  }
  std::cout << "\ninputs        " << tensor_list(info["inputs"]) << "\noutputs       "
            << tensor_list(info["outputs"]) << '\n';
  for (const Json& symbol : info["symbols"])
    if (const int64_t most = symbol["capacity"].get<int64_t>(); most > 0)
      std::cout << "  " << symbol["name"].get<std::string>() << " <= " << most << '\n';
}

// "model-00001-of-00003.safetensors and 2 more"
std::string name_list(const Json& names) {
  const size_t count = names.size();
  std::string list = count == 0 ? "memory" : names[0].get<std::string>();
  if (count == 2) list += " and " + names[1].get<std::string>();
  if (count > 2) list += " and " + std::to_string(count - 1) + " more";
  return list;
}

// Prints the file's format, stored types and keys, and the use of each key.
void print_file(const Json& file) {
  if (file.is_null()) return;
  std::cout << "file          " << file["format"].get<std::string>();
  if (const int64_t files = file["files"].get<int64_t>(); files > 1) std::cout << " in " << files << " files";
  const char* before = ": ";
  for (const Json& stored : file["stored"]) {
    std::cout << before << stored["tensors"].get<int64_t>() << " tensors of "
              << stored["type"].get<std::string>() << " (" << bytes_text(stored["bytes"].get<int64_t>())
              << ")";
    before = ", ";
  }
  std::cout << '\n';
  if (!file["unread"].empty())
    std::cout << "  weights are read from " << name_list(file["read"]) << ", not from " << name_list(file["unread"])
              << '\n';
  print_keys("keys read", file["keys_used"]);
  print_keys("keys not used", file["keys_unused"]);
}

// "8 (3), 4 (1)": values of a key and how many weights have each, the most frequent first.
std::string counted_values(const Json& weights, const char* key) {
  std::map<std::string, int64_t> counts;
  for (const Json& weight : weights) ++counts[weight[key].dump()];
  std::vector<std::pair<int64_t, std::string>> order;
  for (const auto& [value, count] : counts) order.emplace_back(-count, value);
  std::sort(order.begin(), order.end());
  std::string list;
  for (const auto& [count, value] : order) {
    list += (list.empty() ? "" : ", ") + value;
    if (order.size() > 1) list += " (" + std::to_string(-count) + ")";
  }
  return list;
}

// "block.*.q.weight, block.*.v.weight": names with the number of their block left out.
std::string weight_list(const Json& weights) {
  std::vector<std::string> names;
  for (const Json& weight : weights) {
    std::string name = weight["weight"].get<std::string>();
    if (name.rfind("block.", 0) == 0) name = "block.*" + name.substr(name.find('.', 6));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

void print_adapters(const Json& adapters) {
  if (adapters.is_null()) return;
  const Json& weights = adapters["weights"];
  std::cout << "adapters      " << weights.size() << " (" << bytes_text(adapters["bytes"].get<int64_t>())
            << "): rank " << counted_values(weights, "rank") << "; alpha " << adapters["alpha"].dump()
            << (adapters.contains("rslora") ? " by the root of the rank" : "")
            << (adapters.contains("dora") ? ", with magnitudes" : "") << "; factor "
            << counted_values(weights, "factor") << "; on " << weight_list(weights) << '\n';
  if (adapters.contains("also"))
    std::cout << "  also train = " << adapters["also"].get<std::string>() << '\n';
}

void print_info(const Json& info) {
  const std::string architecture = info["architecture"].get<std::string>();
  std::cout << "architecture  " << (architecture.empty() ? "none: a graph of its own" : architecture)
            << "\nparameters    " << info["parameters"].get<int64_t>() << " in " << info["tensors"].size()
            << " tensors (" << bytes_text(info["parameter_bytes"].get<int64_t>()) << ")";
  if (const int64_t frozen = info["frozen_parameters"].get<int64_t>(); frozen > 0)
    std::cout << ", " << frozen << " of them frozen";
  if (const int64_t drafts = info["draft_parameters"].get<int64_t>(); drafts > 0)
    std::cout << ", " << drafts << " of them in the block that predicts further tokens (MTP)";
  std::cout << '\n';
  print_adapters(info["adapters"]);
  print_graph_summary(info);
  if (info["tokenizer"].is_null())
    std::cout << "tokenizer     none\n";
  else
    std::cout << "tokenizer     " << info["tokenizer"]["kind"].get<std::string>() << ", "
              << info["tokenizer"]["vocabulary_size"].get<int64_t>() << " tokens\n";
  constexpr const char* kTemplate = "chat_template";
  bool has_template = false;
  for (const auto& [key, value] : info["metadata"].items()) {
    if (!key.starts_with(kTemplate)) continue;
    has_template = true;
    const std::string name = key == kTemplate ? "" : key.substr(std::string(kTemplate).size() + 1) + ", ";
    std::cout << "chat template " << name << value.get<std::string>().size() << " bytes\n";
  }
  if (!has_template) std::cout << "chat template none\n";
  for (const auto& [key, value] : info["metadata"].items())
    if (!key.starts_with(kTemplate))
      std::cout << "  " << key << " = " << value.get<std::string>().substr(0, 200) << '\n';
  print_file(info["file"]);
}

Json memory_needs(const Arguments& args, const Model& model) {
  const Runtime runtime = open_runtime(args);
  const Options options = make<Options>(tsr_options_new);
  set(options, "devices", args.devices);
  return Json::parse(tsr_text_data(make_interruptible<Handle<tsr_text, tsr_text_free>>(
                                       tsr_model_needs, runtime, model.get(), static_cast<const tsr_options*>(options.get()))
                                       .get()));
}

void print_memory_needs(const Json& needs, const std::string& devices) {
  std::cout << "memory        on " << devices << '\n';
  const auto line = [](const std::string& what, const Json& need) {
    std::cout << "  " << what << "  ";
    if (need.contains("error")) {
      std::cout << need["error"].get<std::string>() << '\n';
      return;
    }
    const char* before = "";
    for (const Json& bytes : need["bytes"]) {
      std::cout << before << bytes_text(bytes.get<int64_t>());
      before = ", ";
    }
    std::cout << '\n';
  };
  const auto number = [](const Json& need, const char* key) {
    return need.contains(key) ? std::to_string(need[key].get<int64_t>()) : std::string("?");
  };
  line("to generate, a context of " + number(needs["inference"], "context") + " tokens:", needs["inference"]);
  line("to train adapters of rank " + number(needs["lora"], "rank") + ", a sequence of " +
           number(needs["lora"], "seq") + " tokens:",
       needs["lora"]);
  line("to train all of it, a sequence of " + number(needs["full"], "seq") + " tokens:", needs["full"]);
}

}  // namespace

void register_inspect(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("inspect", "show the contents of a model file");
  command->footer(
      "Example:\n  tessera inspect model.tsr --verify\n  tessera inspect "
      "gpt2:L=12,C=768,H=12,V=50257,T=1024 --profile --batch 8 --seq 1024\n  tessera inspect folder --memory "
      "--devices cpu:2");
  command->add_option("model", args->model, ".tsr or GGUF file, Hugging Face folder, or a description")
      ->required();
  command->add_flag("--verify", args->verify, "check every checksum of a .tsr file");
  command->add_flag("--tensors", args->tensors, "list the tensors");
  command->add_flag("--graph", args->graph, "print the graph as text");
  command->add_flag(
      "--profile", args->profile,
      "FLOPs, bytes moved and bytes kept of a training step, by phase, block and op; nothing runs");
  command->add_flag(
      "--memory", args->memory,
      "memory of generation, adapter training and full training; nothing runs");
  command->add_option("--devices", args->devices, "with --memory: cpu:4 | cuda | cuda:0,1")
      ->capture_default_str();
  add_question(*command, args->question);
  add_json(*command, *args);
  command->callback([args] {
    const Model model = open_model(*args, args->model, 0, args->verify);
    Json info = Json::parse(text(tsr_model_info, model.get()));
    const Json profile = args->profile ? graph_profile(model, args->question) : Json();
    const Json memory = args->memory ? memory_needs(*args, model) : Json();
    std::string graph_text;
    if (args->graph) {
      const auto graph = make<Handle<tsr_graph, tsr_graph_free>>(tsr_model_graph, model.get());
      graph_text = text(tsr_graph_print, graph.get());
    }
    if (args->json) {
      if (args->verify) info["verified"] = true;
      if (args->graph) info["graph"] = graph_text;
      if (args->profile) info["profile"] = profile;
      if (args->memory) info["memory"] = memory;
      return print_json(info);
    }
    print_info(info);
    if (args->memory) print_memory_needs(memory, args->devices);
    if (args->verify) std::cout << "checksums     all good\n";
    if (args->tensors)
      for (const Json& tensor : info["tensors"])
        std::cout << tensor["name"].get<std::string>() << "  " << tensor["dtype"].get<std::string>() << ' '
                  << tensor["shape"].dump() << '\n';
    std::cout << graph_text;
    if (args->profile) print_profile(profile);
  });
}

}  // namespace cli
