// Calls and bytes as the communicators count them, from the buffers really passed, against the formulas and
// fixtures of the sharding algebra. One training step in f32; totals over all devices, in elements.
//
// Beside the algebra's volumes a step all-reduces the loss and, where gradients are spread, the square of
// their norm.
#include <doctest/doctest.h>

#include <map>

#include "graph/base/text.h"
#include "tests/conformance/parity_harness.h"

using namespace tessera;
using namespace tessera::parity;

namespace {

struct Moved {
  std::string error;
  double elements = 0;
  std::map<std::string, double> by;      // "all_reduce dp" -> elements
  std::map<std::string, int64_t> calls;  // the same, on the rank that makes most
  double parameters = 0, tensors = 0;    // elements, and how many
  double of(const std::string& what) const {
    const auto at = by.find(what);
    return at == by.end() ? 0 : at->second;
  }
};

struct Model {
  std::string text;
  int64_t batch = 12, tokens = 10;
  bool tied = true;
};

Moved moved(const Model& model, std::string_view words, const PlanEdit& edit = {}) {
  Job job{.model = model.text,
          .dtype = DType::kF32,
          .batch = model.batch,
          .tokens = model.tokens,
          .tied = model.tied};
  job.steps = 1;
  job.gradients = false;
  const Outcome out = run(job, words, edit);
  Moved result;
  result.error = out.error;
  for (const CommReport& report : out.sent) {
    const std::string name = format("{} {}", report.collective, report.axis);
    result.by[name] = static_cast<double>(report.bytes) / 4;
    result.calls[name] = report.calls;
    result.elements += result.by[name];
  }
  for (const auto& [name, values] : out.weights) {
    result.parameters += static_cast<double>(values.size());
    ++result.tensors;
  }
  return result;
}

const Model kModel{"llama:L=3,C=24,H=4,KV=2,F=40,V=50,T=16"};
constexpr double kLayers = 3;

double scalar_sum(double n) { return 2 * (n - 1); }  // one value, all-reduced

}  // namespace

TEST_CASE("zero levels move what the algebra says for every number of devices and micro-batches") {
  for (const double n : {2., 3., 4., 5.})
    for (const double m : {1., 2., 3.}) {
      if (12 % static_cast<int>(n * m) != 0 && m > 1) continue;
      const std::string at = format("dp={}{}", static_cast<int>(n),
                                    m > 1 ? format(",mb={}", static_cast<int>(12 / n / m)) : std::string());
      CAPTURE(at);
      const Moved zero0 = moved(kModel, at), zero1 = moved(kModel, at + ",zero=1"),
                  zero2 = moved(kModel, at + ",zero=2"), zero3 = moved(kModel, at + ",zero=3");
      REQUIRE(zero0.error == "ok");
      REQUIRE(zero3.error == "ok");
      const double psi = zero0.parameters, tensors = zero0.tensors, scalars = scalar_sum(n);
      CHECK(zero0.elements == 2 * (n - 1) * psi + scalars);
      CHECK(zero1.elements == 2 * (n - 1) * psi + 2 * scalars);
      CHECK(zero2.elements == (m + 1) * (n - 1) * psi + 2 * scalars);
      CHECK(zero3.elements == 3 * m * (n - 1) * psi + 2 * scalars);
      // Each gradient once (or once a micro-batch), each parameter once a phase; the loss and the norm.
      CHECK(zero0.calls.at("all_reduce dp") == tensors + 1);
      CHECK(zero1.calls.at("reduce_scatter dp") == tensors);
      CHECK(zero1.calls.at("all_gather dp") == tensors);
      CHECK(zero1.calls.at("all_reduce dp") == 2);
      CHECK(zero2.calls.at("reduce_scatter dp") == m * tensors);
      CHECK(zero2.calls.at("all_gather dp") == tensors);
      CHECK(zero3.calls.at("reduce_scatter dp") == m * tensors);
      CHECK(zero3.calls.at("all_gather dp") == 2 * m * tensors);
      CHECK(zero3.calls.at("all_reduce dp") == 2);
    }
}

TEST_CASE("what is kept for backward is not gathered again") {
  const Moved kept = moved(kModel, "dp=4,zero=3,keep");
  REQUIRE(kept.error == "ok");
  CHECK(kept.elements == 2 * 3 * kept.parameters + 2 * scalar_sum(4));
}

TEST_CASE(
    "hybrid sharding moves r 3 (d - 1) and 2 (r - 1) times the parameters, and per micro-batch the former") {
  struct Groups {
    int r, d, m;
  };
  for (const auto& [r, d, m] :
       {Groups{2, 2, 1}, Groups{3, 2, 1}, Groups{2, 3, 1}, Groups{2, 2, 3}, Groups{2, 4, 1}}) {
    const int n = r * d;
    const std::string words =
        format("dp={},zero=3:{}{}", n, d, m > 1 ? format(",mb={}", 12 / n / m) : std::string());
    CAPTURE(words);
    // Wide enough that two steps beat one: tiny vectors go around the whole ring at once.
    const Moved it = moved({"llama:L=1,C=64,H=4,KV=2,F=80,V=90,T=16"}, words);
    REQUIRE(it.error == "ok");
    const double norm = r * scalar_sum(d);  // in each group
    CHECK(it.elements ==
          m * r * 3.0 * (d - 1) * it.parameters + 2.0 * (r - 1) * it.parameters + scalar_sum(n) + norm);
  }
}

TEST_CASE("ring attention sends 6 (N - 1) / N of the keys' size from every device") {
  for (const int64_t tokens : {12, 13})
    for (const double n : {2., 3., 4.}) {
      const Model model{kModel.text, 4, tokens};
      const Moved it = moved(model, format("cp=ring:{}", static_cast<int>(n)));
      CAPTURE(n);
      REQUIRE(it.error == "ok");
      const double keys = 4 * static_cast<double>(tokens) * 12;  // b s h_kv: two heads of 6
      // All else is data parallel over the sequence.
      CHECK(it.elements - 2 * (n - 1) * (it.parameters + 1) == kLayers * 6 * (n - 1) * keys);
    }
}

TEST_CASE("a causal ring in contiguous order sends half as much, also where shards are uneven") {
  for (const int64_t tokens : {12, 13})
    for (const int n : {2, 3, 4}) {
      const Moved it = moved({kModel.text, 4, tokens}, format("cp=ring:{}:contiguous", n));
      CAPTURE(n);
      REQUIRE(it.error == "ok");
      // Block i visits n - 1 - i ranks, three times two tensors of b s_i h_kv.
      double visited = 0;
      for (int i = 0; i < n; ++i) {
        const int64_t mine = tokens / n + (i < tokens % n ? 1 : 0);
        visited += static_cast<double>(4 * mine * 12 * (n - 1 - i));
      }
      CHECK(it.of("send p2p") == kLayers * 6 * visited);
    }
}

TEST_CASE("a ring without a mask sends every block to every rank, contiguous or not") {
  for (const int n : {2, 3, 4}) {
    const Moved it =
        moved({"encoder:L=2,C=16,H=4,F=24,V=40,T=12", 8, 12}, format("cp=ring:{}:contiguous", n));
    CAPTURE(n);
    REQUIRE(it.error == "ok");
    CHECK(it.of("send p2p") == 2 * 6 * (n - 1) * 8 * 12 * 16);
  }
}

TEST_CASE("gathering keys and values moves 6 (N - 1) times their size too, zig-zag or not") {
  for (const std::string_view order : {"", ":contiguous"})
    for (const double n : {2., 3.}) {
      const Moved it = moved({"llama:L=1,C=16,H=4,KV=2,F=24,V=40,T=12", 8, 12},
                             format("cp=gather:{}{}", static_cast<int>(n), order));
      CAPTURE(n);
      REQUIRE(it.error == "ok");
      // The fixture: 4608 on two devices, 9216 on three.
      CHECK(it.elements - 2 * (n - 1) * (it.parameters + 1) == 4608 * (n - 1));
    }
}

TEST_CASE("Ulysses exchanges queries, keys, values and outputs, forward and back") {
  for (const int64_t tokens : {12, 13}) {
    const Moved it = moved({"llama:L=1,C=16,H=4,KV=2,F=24,V=40,T=16", 8, tokens}, "cp=ulysses:2");
    REQUIRE(it.error == "ok");
    const double rest = 2 * (it.parameters + 1);
    // Per device and direction (N - 1) / N of each of q, o (b s h / N) and k, v (b s h_kv / N). The fixture
    // for 12 tokens is 4608.
    const double s = 8 * static_cast<double>(tokens), n = 2;
    CHECK(it.elements - rest == 2 * (n - 1) / n * (2 * s * 16 + 2 * s * 8));
    if (tokens == 12) CHECK(it.elements - rest == 4608);
    CHECK(it.calls.at("all_to_all cp") == 8);
  }
}

TEST_CASE("the volume does not depend on the number of chunks") {
  // Untied: the head's slices of a tied embedding are not the lookup's whole one.
  const Model model{kModel.text, 12, 10, false};
  const Moved whole = moved(model, "dp=2,zero=3");
  REQUIRE(whole.error == "ok");
  for (const int g : {2, 3, 4, 8}) {
    const Moved it = moved(model, format("dp=2,zero=3,chunks={}", g));
    CAPTURE(g);
    REQUIRE(it.error == "ok");
    CHECK(it.elements == whole.elements);
  }
}

TEST_CASE("experts exchange 4 (N - 1) / N times their slots") {
  for (const double n : {2., 4.}) {
    // 8 sequences are 8 groups with 2 slots at each of 4 experts: E G cap C = 4 * 8 * 2 * 8 = 512 elements.
    const Moved it = moved({"moe:L=1,C=8,H=4,KV=4,F=12,E=4,K=1,V=20,T=8,capacity=1", 8, 8},
                           format("ep={},keep", static_cast<int>(n)));
    REQUIRE(it.error == "ok");
    CAPTURE(n);
    // The fixture: 1024 on two devices, 1536 on four; and once how many slots are taken, E G counts.
    CHECK(it.of("all_to_all ep") - (n - 1) / n * 4 * 8 == 4 * (n - 1) / n * 512);
  }
}

TEST_CASE("the block of the fixtures moves what they say") {
  const Model block{"block", 8, 12};
  struct Fixture {
    std::string words;
    double elements;
    double extra_elements;  // sent in addition to the fixture's
  };
  // The square of the gradient norm, of which each rank has a part; biases are not gathered for backward.
  for (const Fixture& it :
       {Fixture{"tp=2", 19008, 2}, Fixture{"tp=2,sp,keep", 19168, 2}, Fixture{"tp=4", 57536, 6},
        Fixture{"dp=4", 15846, 0}, Fixture{"dp=4,zero=3", 23772, -3 * 32}}) {
    CAPTURE(it.words);
    const Moved moved_block = moved(block, it.words);
    REQUIRE(moved_block.error == "ok");
    CHECK(moved_block.parameters == 2640);
    CHECK(moved_block.elements - it.extra_elements == it.elements);
  }
  // Rings of 2, 3 and 4, contiguous under the causal mask: blocks visit later ranks only. In zig-zag order
  // every block visits every rank, which is the formula, 6 (N - 1) times the keys.
  for (const double n : {2., 3., 4.}) {
    const Model llama{"llama:L=1,C=16,H=4,KV=2,F=24,V=40,T=12", 8, 12};
    const auto words = [&](std::string_view order) {
      return format("cp=ring:{}{}", static_cast<int>(n), order);
    };
    CHECK(moved(llama, words(":contiguous")).of("send p2p") == 2304 * (n - 1));
    CHECK(moved(llama, words("")).of("send p2p") == 6 * (n - 1) * 768);
  }
}
