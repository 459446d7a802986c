#include "capi/engine/estimate.h"

#include <fstream>
#include <sstream>

#include "capi/engine/json.h"
#include "graph/base/text.h"
#include "parallel/analytic/step_time.h"
#include "parallel/cluster_presets.h"
#include "serialize/cluster_json.h"

namespace tessera {

Result<Cluster> open_cluster(const std::string& text) {
  if (!text.ends_with(".json")) return cluster_preset(text);
  std::ifstream file(text, std::ios::binary);
  if (!file)
    return Status(StatusCode::kNotFound,
                  format("cluster file '{}' cannot be opened; wanted a JSON file, or a "
                         "preset such as dgx-a100-80gb:512",
                         text));
  std::ostringstream content;
  content << file.rdbuf();
  Result<Cluster> cluster = cluster_from_json(content.str());
  if (!cluster.ok()) return cluster.status().with_context(format("cluster file '{}'", text));
  return cluster;
}

Result<std::string> estimate_step(std::string_view description, const Options& options) {
  OptionReader reader(options, "estimate");
  const std::string cluster_text = reader.text("cluster");
  const int64_t batch = reader.i64("batch", 8, 1, int64_t{1} << 32);
  const std::string parallel = reader.text("parallel"), features = reader.text("features");
  if (cluster_text.empty())
    reader.fail(Status(StatusCode::kInvalidArgument,
                       "estimate: option 'cluster' is missing; an example: dgx-a100-80gb:512"));
  TSR_RETURN_IF_ERROR(reader.finish());
  TSR_ASSIGN_OR_RETURN(const ModelConfig config, parse_shorthand(description));
  TSR_ASSIGN_OR_RETURN(const TransformerShape model, transformer_shape(config));
  TSR_ASSIGN_OR_RETURN(const Cluster cluster, open_cluster(cluster_text));
  TSR_ASSIGN_OR_RETURN(const ForeignPlan plan, parse_foreign_plan(parallel, features));
  TSR_ASSIGN_OR_RETURN(const StepTime time, step_time(model, plan, cluster, batch));
  const double tokens = static_cast<double>(batch * model.T) / time.step_s;
  return dump(Json{{"model", std::string(description)},
                   {"parameters", model.parameters()},
                   {"cluster", cluster_text},
                   {"devices", cluster.devices.size()},
                   {"parallel", parallel},
                   {"features", features},
                   {"global_batch", batch},
                   {"micro_batches", batch / (plan.micro_batch * plan.dp)},
                   {"predicted_step_seconds", time.step_s},
                   {"tokens_per_second", tokens},
                   {"seconds",
                    {{"compute", time.compute_s - time.recompute_s},
                     {"recompute", time.recompute_s},
                     {"communication", time.communication_s},
                     {"bubble", time.bubble_s},
                     {"gradients", time.gradients_s},
                     {"update", time.update_s}}}});
}

}  // namespace tessera
