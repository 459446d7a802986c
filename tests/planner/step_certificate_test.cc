// Certificates of the step's search: those it writes hold, and what is tampered with does not.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "graph/base/text.h"
#include "parallel/analytic/wide_certificate.h"
#include "parallel/pricing/cluster_presets.h"

using namespace tessera;

namespace {

struct Problem {
  TransformerShape model;
  Cluster cluster;
  StepSearchOptions options;
};

Problem problem(const char* model, const char* cluster, int64_t batch, int64_t gib) {
  Problem it{*transformer_shape(*parse_shorthand(model)), *cluster_preset(cluster), {}};
  it.options.global_batch = batch;
  it.options.memory_limit = gib << 30;
  return it;
}

}  // namespace

TEST_CASE("certificates of the whole space hold, and are refused when tampered with, with the reason") {
  const auto whole = [](Problem it) {
    it.options.wide = true;
    return it;
  };
  const auto searched_whole = [](Problem& it) {
    const auto found = search_step(it.model, it.cluster, it.options);
    REQUIRE_MESSAGE(found.ok(), std::string(found.status().message()));
    if (found->last_resort) it.options.shard = it.options.offload = true;
    return wide_certificate_of(*found);
  };
  int64_t by_closed_form = 0, by_cuts = 0, too_large = 0;
  const auto hold = [&](Problem it) {
    const StepCertificate certificate = searched_whole(it);
    const auto check = check_wide_certificate(it.model, it.cluster, it.options, certificate);
    REQUIRE_MESSAGE(check.ok(), std::string(check.status().message()));
    by_closed_form += check->by_closed_form, by_cuts += check->by_cuts, too_large += check->too_large;
    MESSAGE(certificate.plan, ": ", check->configurations, " configurations, ", check->by_cuts,
            " solved again, ", certificate.configurations.size(), " listed, gap ", certificate.gap);
  };
  hold(whole(problem("gpt2:L=96,C=12288,H=96,V=51200,T=2048", "dgx-a100-80gb:1024", 1536, 80)));
  hold(whole(problem("llama:L=126,C=16384,H=128,KV=8,F=53248,V=128256,T=8192", "dgx-h100:16384", 2048, 80)));
  hold(whole(problem("gpt2:L=36,C=4096,H=32,V=51200,T=2048", "pcie-rtx-4090:64", 256, 24)));
  for (const int64_t gib : {8, 14, 24}) {
    Problem it = whole(problem("gpt2:L=24,C=4096,H=32,V=51200,T=2048", "dgx-a100-40gb:32", 128, gib));
    it.options.offload = gib == 14, it.options.shard = gib == 24;
    hold(it);
  }
  CHECK(by_closed_form > 1000);
  CHECK(by_cuts > 50);
  CHECK(too_large > 0);

  Problem it =
      whole(problem("llama:L=126,C=16384,H=128,KV=8,F=53248,V=128256,T=8192", "dgx-h100:16384", 2048, 80));
  const StepCertificate good = searched_whole(it);
  REQUIRE(good.gap > 0);
  const auto refused = [&](const char* words, const std::function<void(StepCertificate&)>& tamper) {
    StepCertificate bad = good;
    tamper(bad);
    const auto check = check_wide_certificate(it.model, it.cluster, it.options, bad);
    REQUIRE(!check.ok());
    CHECK(check.status().code() == StatusCode::kCorrupt);
    const std::string message(check.status().message());
    CHECK_MESSAGE(message.find(words) != std::string::npos, message);
  };
  const auto least = [](StepCertificate& c) {
    return std::ranges::min_element(c.configurations, {}, &CertificateEntry::bound_s);
  };
  const auto settle = [&](StepCertificate& c) {
    c.bound_s = c.configurations.empty() ? c.step_s : std::min(c.step_s, least(c)->bound_s);
    c.gap = (c.step_s - c.bound_s) / c.step_s;
  };
  refused("the configurations' bounds give", [](auto& c) { c.bound_s *= 1.001; });
  refused("a gap of", [](auto& c) { c.gap = 0; });
  refused("is claimed", [&](auto& c) { c.step_s *= 0.9999, settle(c); });
  refused("twice", [](auto& c) { c.configurations.push_back(c.configurations.back()); });
  refused("blocks, the model 126", [](auto& c) { ++c.stages[1].blocks; });
  refused("stages", [](auto& c) { c.stages.pop_back(); });
  refused("bytes on stage", [](auto& c) {
    c.stages[1].blocks += 9;
    for (size_t s = 2; s < 11; ++s) --c.stages[s].blocks;
  });
  // What is left open is left out, or claimed to be closed.
  refused("is missing", [&](auto& c) { c.configurations.erase(least(c)), settle(c); });
  refused("claims that none of its plans is below", [&](auto& c) {
    for (CertificateEntry& entry : c.configurations) entry.bound_s = std::max(entry.bound_s, c.step_s);
    settle(c);
  });
  refused("is not left open", [&](auto& c) {
    c.configurations.push_back({"tp=3,dp=1,pp=1,mb=1", c.bound_s, c.step_s});
  });
  // Another cluster, batch or limit.
  Problem other = it;
  other.cluster.network.bytes_per_s *= 2;
  CHECK(!check_wide_certificate(other.model, other.cluster, other.options, good).ok());
  other = it, other.options.global_batch = 1024;
  CHECK(!check_wide_certificate(other.model, other.cluster, other.options, good).ok());
}
