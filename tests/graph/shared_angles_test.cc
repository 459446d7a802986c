// with_shared_angles: what reads one rope_angles, and what stays.
#include "graph/transform/shared_angles.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "graph/models/model_family.h"
#include "graph/transform/serving.h"
#include "tests/ok.h"

using namespace tessera;

namespace {

using test::ok;

int64_t count(const Graph& graph, std::string_view op) {
  return std::ranges::count_if(graph.nodes(), [&](const Node& node) { return node.op->name == op; });
}

}  // namespace

TEST_CASE("the ropes of a decoding step at the positions of all tokens read one tensor of angles") {
  for (const std::string words :
       {"llama:L=3,C=8,H=2,KV=1,F=8,V=11,T=8", "llama:L=3,C=8,H=2,F=8,V=11,T=8,rope_half=1"}) {
    const Graph model = ok(build_model(ok(parse_shorthand(words))));
    const Graph unshared =
        ok(make_serving(model, {.pages = 1, .page_size = 8, .rows = 1, .context = 8, .cache = {}}));
    const Graph shared = ok(with_shared_angles(unshared));
    CHECK(count(unshared, "rope") == 6);
    CHECK(count(shared, "rope") == 1);  // of the last layer's queries, at the positions of requested tokens
    CHECK(count(shared, "rope_angles") == 1);
    CHECK(count(shared, "rope_rotate") == 5);
    CHECK(shared.nodes().size() == unshared.nodes().size() + 1);
    CHECK(shared.updates().size() == unshared.updates().size());
    CHECK(shared.outputs().size() == unshared.outputs().size());
    CHECK(shared.verify().ok());
  }
}

TEST_CASE("ropes of other positions, bases or head sizes have angles of their own, and a single one stays") {
  const Graph graph = ok(parse_graph(
      "graph {\n  input x: f32[1, 2, 1, 4]\n  input w: f32[1, 2, 1, 6]\n  input p: i32[1, 2]\n  input q: "
      "i32[1, 2]\n"
      "  a = rope(x, p) : f32[1, 2, 1, 4]\n  b = rope(a, p) {inverse = 1} : f32[1, 2, 1, 4]\n"
      "  c = rope(b, q) : f32[1, 2, 1, 4]\n  d = rope(c, p) {theta = 500.0} : f32[1, 2, 1, 4]\n"
      "  e = rope(w, p) : f32[1, 2, 1, 6]\n  f = rope(e, p) {style = \"interleaved\"} : f32[1, 2, 1, 6]\n"
      "  output d = d\n  output f = f\n}"));
  const Graph shared = ok(with_shared_angles(graph));
  CHECK(count(shared, "rope_angles") == 2);  // of x's head size and of w's
  CHECK(count(shared, "rope_rotate") == 4);
  CHECK(count(shared, "rope") == 2);  // by q, and with another base
}
