#include <map>

#include "graph/base/quote.h"
#include "graph/base/nearest_hint.h"
#include "graph/base/text.h"
#include "graph/transform/weight_storage.h"
#include "serialize/adapters/adapter_file.h"
#include "serialize/adapters/adapter_values.h"
#include "serialize/adapters/foreign_modules.h"
#include "serialize/adapters/module_adapter.h"
#include "serialize/adapters/untied_head.h"
#include "serialize/export/exported_config.h"
#include "serialize/export/gguf_keys.h"
#include "serialize/head_rows.h"
#include "serialize/import/gguf_file.h"

namespace tessera {
namespace {

constexpr std::string_view kA = ".weight.lora_a", kB = ".weight.lora_b";

Status unsupported(std::string message) { return Status(StatusCode::kUnsupported, std::move(message)); }

struct Group {
  const GgufTensor *a = nullptr, *b = nullptr;
};

Shape shape_of(const GgufTensor& tensor) {
  return Shape(std::vector<int64_t>(tensor.dims.rbegin(), tensor.dims.rend()));
}

Result<HostTensor> read(const GgufFile& file, const GgufTensor& tensor) {
  const std::optional<DType> type = gguf_tensor_type(tensor.type);
  if (!type) return unsupported(format("tensor '{}' is of type {}, which is not known", tensor.name, tensor.type));
  return read_f32(*file.source(), tensor.name,
                  {to_text(*type), *type, shape_of(tensor), tensor.offset, tensor.bytes});
}

Status check_kind(const GgufFile& file, const WrittenKeys& base) {
  TSR_ASSIGN_OR_RETURN(const std::string type, file.text("general.type", std::string("model")));
  if (type != "adapter")
    return Status(StatusCode::kInvalidArgument,
                  format("general.type is '{}', wanted adapter: the file is no adapter", quote(type)));
  TSR_ASSIGN_OR_RETURN(const std::string kind, file.text("adapter.type"));
  if (kind != "lora") return unsupported(format("adapter.type is '{}', wanted lora", quote(kind)));
  if (file.has_array("adapter.alora.invocation_tokens"))
    return unsupported("adapter.alora.invocation_tokens is there, which is not supported");
  TSR_ASSIGN_OR_RETURN(const std::string architecture, file.text("general.architecture"));
  if (architecture == base.architecture) return {};
  return Status(StatusCode::kInvalidArgument,
                format("general.architecture is '{}', the model's is '{}': the adapter is of another model",
                       quote(architecture), base.architecture));
}

Result<std::map<std::string, Group>> sort_tensors(const GgufFile& file) {
  std::map<std::string, Group> groups;
  for (const auto& [name, tensor] : file.tensors()) {
    if (name.ends_with(kA))
      groups[name.substr(0, name.size() - kA.size())].a = &tensor;
    else if (name.ends_with(kB))
      groups[name.substr(0, name.size() - kB.size())].b = &tensor;
    else
      return unsupported(format("tensor '{}' is no part of a low-rank adapter", quote(name)));
  }
  for (const auto& [name, group] : groups)
    if (group.a == nullptr || group.b == nullptr)
      return Status(StatusCode::kCorrupt, format("tensor '{}{}' is missing", name, group.a == nullptr ? kA : kB));
  return groups;
}

Status check_shapes(const ForeignModule& module, const Group& group) {
  const Shape a = shape_of(*group.a), b = shape_of(*group.b);
  const int rank_dim = module.is_table ? 1 : 0;
  const int64_t rank = a.rank() == 2 ? a[rank_dim] : 0;
  const Shape a_wanted = module.is_table ? Shape{module.rows, rank} : Shape{rank, module.columns};
  const Shape b_wanted{module.is_table ? module.columns : module.rows, rank};
  for (const auto& [tensor, found, wanted] :
       {std::tuple(group.a, &a, &a_wanted), std::tuple(group.b, &b, &b_wanted)})
    if (rank < 1 || *found != *wanted)
      return Status(StatusCode::kInvalidArgument,
                    format("tensor '{}' is [{}], the model and rank {} want [{}]: the adapter is of another model",
                           tensor->name, *found, rank, *wanted));
  return {};
}

}  // namespace

Result<AdapterFile> read_gguf_adapter(std::shared_ptr<const ByteSource> source, const Model& base) {
  TSR_ASSIGN_OR_RETURN(const GgufFile gguf, GgufFile::open(std::move(source)));
  TSR_ASSIGN_OR_RETURN(const ExportedConfig config, exported_config(base));
  GgufWriter unused;
  TSR_ASSIGN_OR_RETURN(const WrittenKeys keys, write_gguf_keys(config, {}, unused));
  TSR_RETURN_IF_ERROR(check_kind(gguf, keys));
  TSR_ASSIGN_OR_RETURN(const double alpha, gguf.real("adapter.lora.alpha"));
  TSR_ASSIGN_OR_RETURN(auto groups, sort_tensors(gguf));

  AdapterFile file;
  file.base = base;
  if (has_tied_head(base) && (groups.contains("token_embd") || groups.contains("output"))) {
    TSR_ASSIGN_OR_RETURN(file.base, with_untied_head(base));
  }
  TSR_ASSIGN_OR_RETURN(const LogicalGraph logical, with_logical_weights(file.base.graph));
  std::vector<int64_t> order;
  if (config.decoder)
    order = row_order(HeadRows{.D = config.decoder->D,
                               .R = config.decoder->R == 0 ? config.decoder->D : config.decoder->R,
                               .half = keys.rope_half,
                               .wanted_half = config.decoder->rope_half});
  std::vector<std::string> names;
  for (const ForeignModule& module : foreign_modules(logical.graph, config.family->gguf)) {
    const auto found = groups.find(module.name);
    names.push_back(module.name);
    if (found == groups.end()) continue;
    if (module.is_expert)
      return unsupported(format("'{}' is of experts: adapters of experts are not supported", module.name));
    TSR_RETURN_IF_ERROR(check_shapes(module, found->second));
    ModuleAdapter adapter;
    adapter.rank = shape_of(*found->second.b)[1];
    adapter.factor = alpha == 0 ? 1 : alpha / static_cast<double>(adapter.rank);
    TSR_ASSIGN_OR_RETURN(adapter.a, read(gguf, *found->second.a));
    TSR_ASSIGN_OR_RETURN(adapter.b, read(gguf, *found->second.b));
    add_adapter(file, module, adapter, order);
    groups.erase(found);
  }
  if (!groups.empty())
    return Status(StatusCode::kInvalidArgument,
                  format("tensor '{}{}' of the adapter has no place in the model ({}){}",
                         quote(groups.begin()->first), kA, base.metadata.at("description"),
                         nearest_hint(groups.begin()->first, names)));
  if (file.weights.empty())
    return Status(StatusCode::kCorrupt, "the adapter has no tensors for any matrix of the model");
  return file;
}

}  // namespace tessera
