#include "engine/planning/certificate.h"

#include <algorithm>
#include <cmath>

#include "engine/planning/estimate.h"
#include "graph/base/text.h"
#include "parallel/planner/composed_search.h"
#include "parallel/pricing/absent_catalog.h"
#include "serialize/cluster_json.h"

namespace tessera {

namespace {

constexpr std::string_view kFormat = "tessera-certificate";
constexpr int64_t kVersion = 3;

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

Result<ComposedCertificate> read(Reader& reader) {
  ComposedCertificate certificate{
      reader.text("plan"), reader.real("step_seconds"), reader.real("bound_seconds"), {}};
  for (const Json& entry : reader.array("configurations")) {
    const bool known = entry.is_array() && entry.size() == 3 && entry[0].is_string() &&
                       entry[1].is_number() && entry[2].is_number_integer();
    if (!known) return wrong("a configuration is not [plan, seconds, bytes]");
    certificate.composed.push_back(
        {entry[0].get<std::string>(), entry[1].get<double>(), entry[2].get<int64_t>()});
  }
  TSR_RETURN_IF_ERROR(reader.status());
  if (!(certificate.step_s > 0) || !std::isfinite(certificate.step_s))
    return wrong(format("a step of {} s", certificate.step_s));
  return certificate;
}

Json options_json(const Options& options) {
  Json json = Json::object();
  for (const auto& [key, value] : options) {
    if (const auto* number = std::get_if<int64_t>(&value)) json[key] = *number;
    if (const auto* real = std::get_if<double>(&value)) json[key] = *real;
    if (const auto* text = std::get_if<std::string>(&value)) json[key] = *text;
  }
  return json;
}

Result<Options> read_options(const Json& json) {
  Options options;
  if (!json.contains("training") || !json["training"].is_object())
    return wrong("'training' is not an object of options");
  for (const auto& [key, value] : json["training"].items()) {
    if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX})
      return wrong(format("option '{}' is beyond 64 bits", key));
    if (value.is_number_integer())
      options[key] = value.get<int64_t>();
    else if (value.is_number())
      options[key] = value.get<double>();
    else if (value.is_string())
      options[key] = value.get<std::string>();
    else
      return wrong(format("option '{}' is neither a number nor a text", key));
  }
  return options;
}

}  // namespace

Result<Json> certificate_json(const EstimateRequest& request, const EstimatedPlan& found) {
  const auto refused = [](std::string why) {
    return Status(StatusCode::kUnsupported, "certificate: " + std::move(why));
  };
  if (!found.search)
    return Status(StatusCode::kInvalidArgument,
                  format("'{}' is priced as it is, and a search is what a certificate certifies: leave out "
                         "tp, dp or pp, or 'certificate'",
                         request.parallel));
  if (!found.kinds.empty())
    return refused(
        format("'{}' has several kinds of devices, and a certificate is of one: give the {} alone, "
               "which the plan is for, and any other kind in turn",
               request.cluster, found.kinds[0].used));
  if (found.search->search.open > 0)
    return refused(format(
        "the search ended after {} configurations with others still open, and a certificate is of all: pin "
        "some of tp, dp, pp, cp or the micro-batch, or leave out 'certificate'",
        found.search->search.solved));
  TSR_ASSIGN_OR_RETURN(const StrategyPins pins, parse_parallel(request.parallel));
  if (found.plan.spec.offload.any() && (!pins.offload || pins.spec.offload.automatic))
    return refused(format("nothing fits without offload: name what leaves the device, as '{}' does",
                          to_text(found.plan.spec)));
  const ComposedCertificate certificate = certificate_of(*found.search);
  Json configurations = Json::array();
  for (const ComposedEntry& entry : certificate.composed)
    configurations.push_back(Json::array({entry.strategy, entry.seconds, entry.bytes}));
  return Json{{"format", kFormat},
              {"version", kVersion},
              {"model", request.description},
              {"cluster", request.cluster},
              {"cluster_fingerprint", fingerprint(found.cluster)},
              {"batch", request.batch},
              {"parallel", request.parallel},
              {"training", options_json(request.training)},
              {"memory_limit", request.memory_limit},
              {"plan", certificate.plan},
              {"step_seconds", certificate.step_s},
              {"bound_seconds", certificate.bound_s},
              {"gap", std::max(0.0, 1 - certificate.bound_s / certificate.step_s)},
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
  EstimateRequest request{reader.text("model"),    reader.text("cluster"),         reader.text("parallel"),
                          reader.integer("batch"), reader.integer("memory_limit"), {}};
  const std::string cluster_fingerprint = reader.text("cluster_fingerprint");
  const double gap = reader.real("gap");
  TSR_RETURN_IF_ERROR(reader.status());
  if (request.batch < 1 || request.batch > int64_t{1} << 32)
    return wrong(format("a batch of {} sequences", request.batch));
  if (request.memory_limit < 0 || request.memory_limit > kMostBytes)
    return wrong(format("the memory limit is {} bytes, wanted 0 (the device's) to {}", request.memory_limit,
                        kMostBytes));
  TSR_ASSIGN_OR_RETURN(request.training, read_options(json));
  TSR_ASSIGN_OR_RETURN(const ComposedCertificate certificate, read(reader));
  if (std::abs(gap - std::max(0.0, 1 - certificate.bound_s / certificate.step_s)) > 1e-9)
    return wrong(format("a gap of {} with a bound of {} s and a step of {} s", gap, certificate.bound_s,
                        certificate.step_s));
  TSR_ASSIGN_OR_RETURN(const Fleet fleet, open_fleet(request.cluster));
  if (fleet.clusters.size() != 1)
    return Status(
        StatusCode::kUnsupported,
        format("certificate: '{}' is several clusters, and certificates are of one", request.cluster));
  TSR_ASSIGN_OR_RETURN(const EstimatedModel model, EstimatedModel::of(request));
  TSR_ASSIGN_OR_RETURN(const ClusterParts parts, cluster_parts(fleet, model.precision()));
  const Cluster& cluster = parts.parts[0].cluster;
  if (parts.groups.size() != 1 || fingerprint(cluster) != cluster_fingerprint)
    return wrong(format("it was made for another cluster: '{}' has fingerprint {} here, the certificate {}",
                        request.cluster, fingerprint(cluster), cluster_fingerprint));
  const ComposedSearchOptions options{.parallel = request.parallel,
                                      .global_batch = request.batch,
                                      .tokens = model.tokens(),
                                      .memory_limit = composed_limit(cluster, request.memory_limit)};
  TSR_ASSIGN_OR_RETURN(
      const CertificateCheck check,
      check_certificate(model.composed(), cluster, AbsentCatalog(cluster.kinds[0]), options, certificate));
  return dump(Json{{"valid", true},
                   {"model", request.description},
                   {"cluster", request.cluster},
                   {"plan", certificate.plan},
                   {"step_seconds", certificate.step_s},
                   {"bound_seconds", certificate.bound_s},
                   {"gap", gap},
                   {"configurations", check.configurations},
                   {"composed", check.composed},
                   {"closed_by_bound", check.closed_by_bound},
                   {"too_large", check.too_large}});
}

}  // namespace tessera
