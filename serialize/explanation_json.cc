#include "serialize/explanation_json.h"

#include "serialize/explanation_page_html.h"
#include "serialize/html_page.h"
#include "text/json.h"

namespace tessera {

namespace {

constexpr const char* kTiers[] = {"device", "host", "file"};

Json pairs(const std::vector<std::pair<std::string, std::string>>& list) {
  Json all = Json::array();
  for (const auto& [first, second] : list) all.push_back(Json::array({first, second}));
  return all;
}

Json time_array(const Explanation& it) {
  Json all = Json::array();
  for (const TimeShare& share : it.time) {
    Json& one = all.emplace_back(Json{{"cause", share.cause},
                                      {"axis", share.axis},
                                      {"seconds", share.seconds},
                                      {"hidden_seconds", share.hidden_s}});
    if (!share.phase.empty()) one["phase"] = share.phase;
  }
  return all;
}

Json memory_array(const Explanation& it) {
  Json all = Json::array();
  for (const MemoryShare& share : it.memory)
    all.push_back(
        {{"cause", share.cause}, {"bytes", share.bytes}, {"tier", kTiers[static_cast<size_t>(share.tier)]}});
  return all;
}

Json peak_object(const PeakMoment& peak) {
  Json largest = Json::array();
  for (const PeakBuffer& buffer : peak.largest)
    largest.push_back({{"name", buffer.name}, {"cause", buffer.cause}, {"bytes", buffer.bytes}});
  return {{"device", peak.device},
          {"entry", peak.entry},
          {"instruction", peak.instruction},
          {"instructions", peak.instructions},
          {"what", peak.what},
          {"largest", largest}};
}

Json blocks_array(const Explanation& it) {
  Json all = Json::array();
  for (const BlockDecision& block : it.blocks)
    all.push_back({{"name", block.name},
                   {"count", block.count},
                   {"stage", block.stage},
                   {"ops", pairs(block.ops)},
                   {"parameters", pairs(block.parameters)},
                   {"recomputed", block.recomputed},
                   {"recompute", block.recompute},
                   {"offloaded", block.offloaded},
                   {"chunks", block.chunks}});
  return all;
}

Json tensors_array(const Explanation& it) {
  Json all = Json::array();
  for (const ExplainedTensor& tensor : it.tensors)
    all.push_back({{"name", tensor.name},
                   {"kind", tensor.kind},
                   {"type", tensor.type},
                   {"sharding", tensor.sharding},
                   {"tier", tensor.tier},
                   {"stage", tensor.stage},
                   {"bytes", tensor.bytes},
                   {"first", tensor.first},
                   {"last", tensor.last},
                   {"note", tensor.note},
                   {"count", tensor.count}});
  return all;
}

Json runners_up_array(const Explanation& it) {
  Json all = Json::array();
  for (const RunnerUp& other : it.runners_up) {
    Json& one = all.emplace_back(Json{{"strategy", other.strategy},
                                      {"step_seconds", other.step_s},
                                      {"loses_seconds", other.loses_s},
                                      {"bytes", other.bytes},
                                      {"over_bytes", other.over_bytes},
                                      {"why", other.why}});
    if (it.serving) one["tokens_per_second"] = other.tokens_per_s;
  }
  return all;
}

Json serving_object(const Serving& serving) {
  Json json = {{"objective", serving.throughput ? "throughput" : "latency"},
               {"prompt", serving.prompt},
               {"new", serving.new_tokens},
               {"sequences", serving.sequences},
               {"replicas", serving.replicas},
               {"prefill_batch", serving.prefill_batch},
               {"first_token_seconds", serving.first_token_s},
               {"token_seconds", serving.token_s},
               {"tokens_per_second", serving.tokens_per_s}};
  if (serving.bound_tokens_per_s > 0) json["bound_tokens_per_second"] = serving.bound_tokens_per_s;
  return json;
}

Json timeline_object(const Timeline& timeline) {
  Json spans = Json::array();
  for (const TimelineSpan& span : timeline.spans)
    spans.push_back(
        Json::array({span.row, span.cause, span.label, span.micro_batch, span.begin_ns, span.end_ns}));
  return {{"rows", pairs(timeline.rows)},
          {"causes", timeline.causes},
          {"labels", timeline.labels},
          {"complete", timeline.complete},
          {"spans", spans}};
}

}  // namespace

std::string explanation_to_json(const Explanation& it, bool drawings) {
  Json json = {{"lowered", it.lowered},
               {"subject", it.subject},
               {"cluster", it.cluster},
               {"strategy", it.strategy},
               {"mesh", it.mesh},
               {"devices", it.devices},
               {"global_batch", it.global_batch},
               {"micro_batches", it.micro_batches},
               {"step_seconds", it.step_s}};
  if (it.gap >= 0) json["bound_seconds"] = it.bound_s, json["gap"] = it.gap;
  if (it.serving) json["serving"] = serving_object(*it.serving);
  json["time"] = time_array(it);
  json["critical"] = it.critical;
  json["memory"] = memory_array(it);
  json["memory_bytes"] = it.memory_bytes;
  if (it.memory_limit > 0) json["memory_limit"] = it.memory_limit;
  json["bytes_by_device"] = it.bytes_by_device;
  json["peak"] = peak_object(it.peak);
  json["blocks"] = blocks_array(it);
  json["tensors"] = tensors_array(it);
  json["runners_up"] = runners_up_array(it);
  if (!it.words.empty()) json["words"] = it.words;
  json["reasons"] = it.reasons;
  if (drawings) {
    json["timeline"] = timeline_object(it.timeline);
    json["curve"] = {{"causes", it.curve.causes},
                     {"in_time", it.curve.in_time},
                     {"position", it.curve.position},
                     {"bytes", it.curve.bytes}};
  }
  // dump() replaces invalid UTF-8, which names in untrusted files may contain.
  return dump(json);
}

std::string explanation_to_page(const Explanation& explanation) {
  return fill_page(kExplanationPage, "/*EXPLANATION*/null", explanation_to_json(explanation, true));
}

}  // namespace tessera
