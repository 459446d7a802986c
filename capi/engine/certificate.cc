#include "capi/engine/certificate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "capi/engine/estimate.h"
#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "parallel/analytic/wide_certificate.h"
#include "serialize/cluster_json.h"

namespace tessera {

namespace {

constexpr std::string_view kFormat = "tessera-certificate";
constexpr int64_t kVersion = 2;
constexpr std::string_view kSolved = "solved";

Status wrong(std::string message) {
  return Status(StatusCode::kCorrupt, "certificate: " + std::move(message));
}

// FNV-1a of the whole cluster, since prices depend on all of it.
std::string fingerprint(const Cluster& cluster) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : cluster_to_json(cluster)) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(16, '0');
  for (size_t i = 16; i-- > 0; hash >>= 4) text[i] = kDigits[hash & 15];
  return text;
}

// Reader: reads members by name and kind; keeps the first error.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {
    if (!json.is_object()) status_ = wrong("found no JSON object");
  }
  std::string text(const char* name) {
    const Json* value = find(name);
    if (value != nullptr && !value->is_string()) fail(name, "a string");
    return status_.ok() ? value->get<std::string>() : std::string();
  }
  int64_t integer(const char* name) {
    const Json* value = find(name);
    if (value != nullptr && !value->is_number_integer()) fail(name, "an integer");
    return status_.ok() ? value->get<int64_t>() : 0;
  }
  double real(const char* name) {
    const Json* value = find(name);
    if (value != nullptr && !value->is_number()) fail(name, "a number");
    return status_.ok() ? value->get<double>() : 0;
  }
  const Json& array(const char* name) {
    static const Json kEmpty = Json::array();
    const Json* value = find(name);
    if (value != nullptr && !value->is_array()) fail(name, "an array");
    return status_.ok() ? *value : kEmpty;
  }
  void fail(const std::string& name, const char* wanted) {
    if (status_.ok()) status_ = wrong(format("'{}' is not {}", name, wanted));
  }
  const Status& status() const { return status_; }

 private:
  const Json* find(const char* name) {
    if (!status_.ok()) return nullptr;
    const auto found = json_.find(name);
    if (found != json_.end()) return &*found;
    status_ = wrong(format("'{}' is missing", name));
    return nullptr;
  }

  const Json& json_;
  Status status_;
};

Result<StepCertificate> read(Reader& reader) {
  StepCertificate certificate;
  certificate.plan = reader.text("plan");
  certificate.step_s = reader.real("step_seconds");
  certificate.bound_s = reader.real("bound_seconds");
  certificate.gap = reader.real("gap");
  for (const Json& stage : reader.array("stages")) {
    const bool counts = stage.is_array() && (stage.size() == 3 || stage.size() == 7) &&
                        std::ranges::all_of(stage, [](const Json& n) { return n.is_number_integer(); });
    if (!counts)
      return wrong(
          "a stage is not [blocks, recomputed, selectively recomputed], with how many leave 1/4, 1/2, "
          "3/4 and all on the host or without");
    StageBlocks blocks{stage[0].get<int64_t>(), stage[1].get<int64_t>(), stage[2].get<int64_t>()};
    for (size_t q = 0; stage.size() == 7 && q < 4; ++q) blocks.offloaded[q] = stage[3 + q].get<int64_t>();
    certificate.stages.push_back(blocks);
  }
  for (const Json& entry : reader.array("configurations")) {
    const bool known = entry.is_array() && entry.size() >= 3 && entry[0].is_string() &&
                       entry[1].is_string() && entry[2].is_number();
    if (!known) return wrong("a configuration is not [plan, \"solved\", bound, step]");
    if (entry[1] != kSolved || entry.size() != 4 || !entry[3].is_number())
      return wrong(format("'{}' is closed by '{}' and has {} values; wanted '{}' and 4",
                          entry[0].get<std::string>(), entry[1].get<std::string>(), entry.size(), kSolved));
    certificate.configurations.push_back(
        {entry[0].get<std::string>(), entry[2].get<double>(), entry[3].get<double>()});
  }
  TSR_RETURN_IF_ERROR(reader.status());
  if (!(certificate.step_s > 0) || !std::isfinite(certificate.step_s))
    return wrong(format("a step of {} s", certificate.step_s));
  return certificate;
}

}  // namespace

Json certificate_json(const SearchRequest& request, const Cluster& cluster, const StepSearchResult& result) {
  const StepCertificate certificate = wide_certificate_of(result);
  Json stages = Json::array(), configurations = Json::array();
  for (const StageBlocks& stage : certificate.stages) {
    stages.push_back(Json::array({stage.blocks, stage.full, stage.selective}));
    if (stage.offloaded != std::array<int64_t, 4>{})
      for (const int64_t blocks : stage.offloaded) stages.back().push_back(blocks);
  }
  // Solved before anything was known to fit: JSON has no infinity.
  for (const CertificateEntry& entry : certificate.configurations)
    configurations.push_back(Json::array(
        {entry.plan, kSolved, entry.bound_s, std::min(entry.step_s, std::numeric_limits<double>::max())}));
  return {{"format", kFormat},
          {"version", kVersion},
          {"model", request.description},
          {"cluster", request.cluster},
          {"cluster_fingerprint", fingerprint(cluster)},
          {"batch", request.batch},
          {"parallel", request.parallel},
          {"features", request.features},
          {"memory_limit", request.memory_limit},
          {"held", request.held},
          {"last_resort", result.last_resort},
          {"plan", certificate.plan},
          {"stages", stages},
          {"step_seconds", certificate.step_s},
          {"bound_seconds", certificate.bound_s},
          {"gap", certificate.gap},
          {"configurations", configurations}};
}

Result<std::string> check_certificate_text(std::string_view text) {
  TSR_ASSIGN_OR_RETURN(const Json json, parse_json(text, "certificate"));
  Reader reader(json);
  if (const std::string format_name = reader.text("format"); reader.status().ok() && format_name != kFormat)
    return wrong(format("its format is '{}', wanted '{}'", format_name, kFormat));
  if (const int64_t version = reader.integer("version"); reader.status().ok() && version != kVersion)
    return wrong(
        format("found version {}, wanted {}: write it again with the option certificate (tessera plan "
               "--certificate)",
               version, kVersion));
  SearchRequest request{reader.text("model"),    reader.text("cluster"),  reader.text("parallel"),
                        reader.text("features"), reader.integer("batch"), reader.integer("memory_limit")};
  if (json.contains("held")) {  // not in certificates of earlier builds
    const Json& held = reader.array("held");
    if (held.size() != request.held.size()) reader.fail("held", "a number for each of 6 schedules");
    for (size_t i = 0; i < request.held.size() && reader.status().ok(); ++i) {
      if (!held[i].is_number() || !(held[i].get<double>() >= 1) || held[i].get<double>() > 1e6)
        reader.fail("held", "a number from 1 to 1e6 for each schedule");
      else
        request.held[i] = held[i].get<double>();
    }
  }
  const std::string cluster_fingerprint = reader.text("cluster_fingerprint");
  TSR_RETURN_IF_ERROR(reader.status());
  TSR_ASSIGN_OR_RETURN(const StepCertificate certificate, read(reader));
  TSR_ASSIGN_OR_RETURN(const ModelConfig config, parse_shorthand(request.description));
  TSR_ASSIGN_OR_RETURN(const TransformerShape model, transformer_shape(config));
  TSR_ASSIGN_OR_RETURN(const Fleet fleet, open_fleet(request.cluster));
  if (fleet.clusters.size() != 1)
    return Status(
        StatusCode::kUnsupported,
        format("certificate: '{}' is several clusters, and certificates are of one", request.cluster));
  const Cluster& cluster = fleet.clusters[0];
  if (fingerprint(cluster) != cluster_fingerprint)
    return wrong(format("it was made for another cluster: '{}' has fingerprint {} here, the certificate {}",
                        request.cluster, fingerprint(cluster), cluster_fingerprint));
  TSR_ASSIGN_OR_RETURN(StepSearchOptions options, search_options(request));
  // The larger space, searched since nothing else fitted.
  if (const auto found = json.find("last_resort"); found != json.end() && *found == true)
    options.shard = options.offload = true;
  TSR_ASSIGN_OR_RETURN(const CertificateCheck check,
                       check_wide_certificate(model, cluster, options, certificate));
  return dump(Json{{"valid", true},
                   {"model", request.description},
                   {"cluster", request.cluster},
                   {"plan", certificate.plan},
                   {"step_seconds", certificate.step_s},
                   {"bound_seconds", certificate.bound_s},
                   {"gap", certificate.gap},
                   {"configurations", check.configurations},
                   {"proved_by_closed_form", check.by_closed_form},
                   {"proved_over_all_cuts", check.by_cuts},
                   {"proved_too_large", check.too_large}});
}

}  // namespace tessera
