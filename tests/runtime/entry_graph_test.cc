// EntryGraph against a backend that writes down what it is called with.
#include "runtime/entry_graph.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/host_services.h"

namespace tessera {
namespace {

// Streams and events are numbers; the log is what was called since it was last cleared.
struct Recorder {
  std::string log;
  int events = 0, graphs = 0;
};
Recorder& recorder() {
  static Recorder recorder;
  return recorder;
}
std::string number(const void* handle) { return std::to_string(reinterpret_cast<uintptr_t>(handle)); }

tsr_backend_api recording_api() {
  recorder() = {};
  tsr_backend_api api{};
  api.struct_size = sizeof(api);
  api.event_create = [](tsr_abi_device*, tsr_abi_event** out) -> tsr_abi_error* {
    *out = reinterpret_cast<tsr_abi_event*>(uintptr_t(100 + recorder().events++));
    return nullptr;
  };
  api.event_destroy = [](tsr_abi_event*) { --recorder().events; };
  api.event_record = [](tsr_abi_event* event, tsr_abi_stream* stream) -> tsr_abi_error* {
    recorder().log += " record " + number(event) + " on " + number(stream) + ";";
    return nullptr;
  };
  api.stream_wait = [](tsr_abi_stream* stream, tsr_abi_event* event) -> tsr_abi_error* {
    recorder().log += " " + number(stream) + " waits for " + number(event) + ";";
    return nullptr;
  };
  api.capture_begin = [](tsr_abi_stream* stream) -> tsr_abi_error* {
    recorder().log += " begin on " + number(stream) + ";";
    return nullptr;
  };
  api.capture_end = [](tsr_abi_stream* stream, void** out) -> tsr_abi_error* {
    recorder().log += " end on " + number(stream) + ";";
    ++recorder().graphs;
    *out = &recorder();
    return nullptr;
  };
  api.replay = [](tsr_abi_stream* stream, void*) -> tsr_abi_error* {
    recorder().log += " replay on " + number(stream) + ";";
    return nullptr;
  };
  api.graph_destroy = [](void*) { --recorder().graphs; };
  return api;
}

std::vector<tsr_abi_stream*> two_streams() {
  return {reinterpret_cast<tsr_abi_stream*>(1), reinterpret_cast<tsr_abi_stream*>(2)};
}

TEST_CASE("an_entry_is_captured_after_its_first_run_with_every_stream_forked_and_joined") {
  const tsr_backend_api api = recording_api();
  {
    EntryGraph graph;
    graph.allow(api, nullptr);
    CHECK(!graph.wants_capture());
    graph.note_run();
    REQUIRE(graph.wants_capture());
    const auto streams = two_streams();
    REQUIRE(graph
                .capture(streams,
                         [] {
                           recorder().log += " work;";
                           return Status();
                         })
                .ok());
    CHECK(recorder().log ==
          " begin on 1; record 100 on 1; 2 waits for 100; work; record 101 on 2; 1 waits for 101; end on 1;");
    CHECK(graph.is_captured());
    CHECK(!graph.wants_capture());
    recorder().log.clear();
    CHECK(graph.launch(streams[0]).ok());
    CHECK(recorder().log == " replay on 1;");
  }
  CHECK(recorder().graphs == 0);
  CHECK(recorder().events == 0);
}

TEST_CASE("a_capture_that_fails_is_ended_and_not_tried_again") {
  const tsr_backend_api api = recording_api();
  EntryGraph graph;
  graph.allow(api, nullptr);
  graph.note_run();
  const auto streams = two_streams();
  const Status status =
      graph.capture(streams, [] { return Status(StatusCode::kUnsupported, "not in a graph"); });
  CHECK(status.code() == StatusCode::kUnsupported);
  CHECK(recorder().log == " begin on 1; record 100 on 1; 2 waits for 100; end on 1;");
  CHECK(recorder().graphs == 0);
  CHECK(!graph.is_captured());
  graph.note_run();
  CHECK(!graph.wants_capture());
}

TEST_CASE("a_backend_that_cannot_capture_is_never_asked_to") {
  tsr_backend_api api = recording_api();
  api.capture_end = nullptr;
  EntryGraph graph;
  graph.allow(api, nullptr);
  graph.note_run();
  CHECK(!graph.wants_capture());
  api = recording_api();
  api.struct_size = offsetof(tsr_backend_api, capture_begin);
  CHECK(!can_capture(api));
}

}  // namespace
}  // namespace tessera
