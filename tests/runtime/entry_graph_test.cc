// EntryGraph against a backend that writes down what it is called with.
#include <doctest/doctest.h>

#include <cstddef>

#include "recording_api.h"
#include "runtime/entry_capture.h"

namespace tessera {
namespace {

using test::recorder;
using test::recording_api;
using test::two_streams;

TEST_CASE("an_entry_is_captured_after_its_first_run_with_every_stream_forked_and_joined") {
  const tsr_backend_api api = recording_api();
  {
    EntryGraph graph;
    graph.allow(api, nullptr);
    CHECK(!graph.wants_capture());
    graph.count_run();
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
  graph.count_run();
  const auto streams = two_streams();
  const Status status =
      graph.capture(streams, [] { return Status(StatusCode::kUnsupported, "not in a graph"); });
  CHECK(status.code() == StatusCode::kUnsupported);
  CHECK(recorder().log == " begin on 1; record 100 on 1; 2 waits for 100; end on 1;");
  CHECK(recorder().graphs == 0);
  CHECK(!graph.is_captured());
  graph.count_run();
  CHECK(!graph.wants_capture());
}

TEST_CASE("a_backend_that_cannot_capture_is_never_asked_to") {
  tsr_backend_api api = recording_api();
  api.capture_end = nullptr;
  EntryGraph graph;
  graph.allow(api, nullptr);
  graph.count_run();
  CHECK(!graph.wants_capture());
  api = recording_api();
  api.struct_size = offsetof(tsr_backend_api, capture_begin);
  CHECK(!can_capture(api));
}

}  // namespace
}  // namespace tessera
