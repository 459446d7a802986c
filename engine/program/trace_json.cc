#include <map>
#include <set>

#include "engine/program/report.h"
#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {
namespace {

Json metadata(std::string_view what, int32_t rank, int32_t track, Json arguments) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", track}, {"args", std::move(arguments)}};
}

}  // namespace

std::string trace_json(std::span<const TraceEvent> events, std::span<const std::string> devices) {
  std::set<int32_t> ranks;
  std::map<std::pair<int32_t, int32_t>, std::string> streams;
  for (const TraceEvent& event : events) {
    ranks.insert(event.rank);
    streams.emplace(std::pair(event.rank, event.track), event.stream);
  }
  Json list = Json::array();
  for (const int32_t rank : ranks) {
    const auto at = static_cast<size_t>(rank);
    list.push_back(metadata("process_name", rank, 0,
                            {{"name", at < devices.size() ? format("rank {} ({})", rank, devices[at])
                                                          : format("rank {}", rank)}}));
    list.push_back(metadata("process_sort_index", rank, 0, {{"sort_index", rank}}));
  }
  for (const auto& [place, name] : streams) {
    list.push_back(metadata("thread_name", place.first, place.second, {{"name", name}}));
    list.push_back(metadata("thread_sort_index", place.first, place.second, {{"sort_index", place.second}}));
  }
  for (const TraceEvent& event : events) {
    Json arguments = {{"micro_batch", event.micro_batch}, {"bytes", event.bytes}, {"entry", event.entry}};
    if (!event.variant.empty()) {
      arguments["variant"] = event.variant;
      arguments["operands"] = event.operands;
      arguments["flops"] = event.flops;
      arguments["memory_bytes"] = event.memory_bytes;
    }
    list.push_back({{"name", event.name},
                    {"cat", event.category},
                    {"ph", "X"},
                    {"ts", static_cast<double>(event.begin_ns) / 1e3},
                    {"dur", static_cast<double>(event.end_ns - event.begin_ns) / 1e3},
                    {"pid", event.rank},
                    {"tid", event.track},
                    {"args", std::move(arguments)}});
  }
  return dump(list);
}

}  // namespace tessera
