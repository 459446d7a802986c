#include "published_runs.h"

#include <algorithm>
#include <string>

#include "graph/base/text.h"
#include "parallel/pricing/cluster_presets.h"

namespace tessera::planner_test {

namespace {

constexpr BaselineSoftware kMegatron{.scatters_sends = true};
// The vTrain rows of one node had shown, before these were looked at, that ranks of some software wait for
// each other in every tensor-parallel collective.
constexpr BaselineSoftware kMegatronDeepSpeed{
    .late_ranks = true, .scatters_sends = true, .compute = DType::kBF16};
constexpr BaselineSoftware kDeepSpeedZero{.overlaps = true, .gradients = DType::kF16};
constexpr BaselineSoftware kLlama{.fused_attention = true, .overlaps = true, .compute = DType::kBF16};

// - Narayanan et al. 2021, arXiv 2104.04473: tables 1 and 2, by their count of operations,
//   96 B T L C^2 (1 + T / 6C + V / 16LC). Run with interleaved stages, scattered and gathered sends; batches
//   are multiples of the stages, as that schedule wants. How many chunks is not said: the fewest that cut
//   stages evenly.
// - Korthikanti et al. 2022, arXiv 2205.05198, table 5: all recomputed, and attention alone with sequence
//   parallelism; 175B and 530B with three chunks.
// - Smith et al. 2022, arXiv 2201.11990, section 2.4: MT-NLG, Megatron-LM with DeepSpeed's pipeline.
// - BigScience's chronicles of BLOOM (tr11-176B-ml, 28 February 2022): Megatron-DeepSpeed on nodes with four
//   Omni-Path cards of 100 Gbit/s; the row with 112 heads is BLOOM as it was trained. Plans with tp=8 are
//   left out, as what joins all eight devices of such a node is not said.
// - Llama 3's report, arXiv 2407.21783, table 4, by 6 P + 6 L T C operations a token. Its 16 stages have
//   chunks of single blocks, of which the first and the last are empty: priced with chunks of two.
//
// Not held against the papers' text once more: that the 2021 tables were interleaved, part of its table 2,
// and Llama's 430 on 8,192 devices.
constexpr PublishedSource kSources[] = {
    {"Megatron-LM 2021, table 1", kMegatron, 0, false},
    {"Megatron-LM 2021, table 2", kMegatron, 0, false},
    {"ZeRO-3 in the same table", kDeepSpeedZero, 0, false},
    {"Megatron-LM 2022, full", kMegatron, 0, false},
    {"Megatron-LM 2022, selective", kMegatron, 0, false},
    {"MT-NLG", kMegatronDeepSpeed, 0, false},
    {"BLOOM and its trials", kMegatronDeepSpeed, 44, true},
    {"Llama 3", kLlama, 0, true},
};
constexpr std::string_view kTable1 = kSources[0].name, kTable2 = kSources[1].name, kZero = kSources[2].name,
                           kFull = kSources[3].name, kSelective = kSources[4].name, kNlg = kSources[5].name,
                           kBloom = kSources[6].name, kLlama3 = kSources[7].name;

constexpr char k175B[] = "gpt2:L=96,C=12288,H=96,V=51200,T=2048";
constexpr char k530B[] = "gpt2:L=105,C=20480,H=128,V=51200,T=2048";
constexpr char k1T[] = "gpt2:L=128,C=25600,H=160,V=51200,T=2048";
constexpr char k405B[] = "llama:L=126,C=16384,H=128,KV=8,F=53248,V=128256,T=8192";

constexpr PublishedRun kRuns[] = {
    {kTable1, "gpt2:L=24,C=2304,H=24,V=51200,T=2048", "dgx-a100-80gb:32", 512,
     "tp=1,dp=32,mb=16,recompute=full", 0, 137},
    {kTable1, "gpt2:L=30,C=3072,H=32,V=51200,T=2048", "dgx-a100-80gb:64", 512,
     "tp=2,dp=32,mb=16,recompute=full", 0, 138},
    {kTable1, "gpt2:L=36,C=4096,H=32,V=51200,T=2048", "dgx-a100-80gb:128", 512,
     "tp=4,dp=32,mb=16,recompute=full", 0, 142},
    {kTable1, "gpt2:L=40,C=6144,H=48,V=51200,T=2048", "dgx-a100-80gb:256", 1024,
     "tp=8,dp=32,mb=16,recompute=full", 0, 135},
    {kTable1, "gpt2:L=48,C=8192,H=64,V=51200,T=2048", "dgx-a100-80gb:512", 1536,
     "tp=8,dp=32,pp=2:interleaved:2,mb=4,recompute=full", 0, 138},
    {kTable1, "gpt2:L=60,C=10240,H=80,V=51200,T=2048", "dgx-a100-80gb:1024", 1792,
     "tp=8,dp=32,pp=4:interleaved:3,mb=2,recompute=full", 0, 140},
    {kTable1, "gpt2:L=80,C=12288,H=96,V=51200,T=2048", "dgx-a100-80gb:1536", 2304,
     "tp=8,dp=24,pp=8:interleaved:2,mb=2,recompute=full", 0, 148},
    {kTable1, "gpt2:L=96,C=16384,H=128,V=51200,T=2048", "dgx-a100-80gb:1920", 2160,
     "tp=8,dp=15,pp=16:interleaved:2,mb=1,recompute=full", 0, 155},
    {kTable1, k530B, "dgx-a100-80gb:2520", 2520, "tp=8,dp=9,pp=35:interleaved:3,mb=1,recompute=full", 0, 163},
    {kTable1, k1T, "dgx-a100-80gb:3072", 3072, "tp=8,dp=6,pp=64:interleaved:2,mb=1,recompute=full", 0, 163},
    {kTable2, k175B, "dgx-a100-80gb:384", 1536, "tp=8,dp=4,pp=12:interleaved:2,mb=1,recompute=full", 0, 153},
    {kTable2, k175B, "dgx-a100-80gb:768", 1536, "tp=8,dp=8,pp=12:interleaved:2,mb=1,recompute=full", 0, 149},
    {kTable2, k175B, "dgx-a100-80gb:1536", 1536, "tp=8,dp=16,pp=12:interleaved:2,mb=1,recompute=full", 0,
     141},
    {kTable2, k530B, "dgx-a100-80gb:560", 2240, "tp=8,dp=2,pp=35:interleaved:3,mb=1,recompute=full", 0, 171},
    {kTable2, k530B, "dgx-a100-80gb:1120", 2240, "tp=8,dp=4,pp=35:interleaved:3,mb=1,recompute=full", 0, 167},
    {kTable2, k530B, "dgx-a100-80gb:2240", 2240, "tp=8,dp=8,pp=35:interleaved:3,mb=1,recompute=full", 0, 159},
    {kZero, k175B, "dgx-a100-80gb:384", 1536, "dp=384,zero=3,mb=4,recompute=full", 0, 144},
    {kZero, k175B, "dgx-a100-80gb:768", 1536, "dp=768,zero=3,mb=2,recompute=full", 0, 88},
    {kZero, k175B, "dgx-a100-80gb:1536", 1536, "dp=1536,zero=3,mb=1,recompute=full", 0, 44},
    {kZero, k530B, "dgx-a100-80gb:640", 2560, "dp=640,zero=3,mb=4,recompute=full", 0, 138},
    {kZero, k530B, "dgx-a100-80gb:1120", 2240, "dp=1120,zero=3,mb=2,recompute=full", 0, 98},
    {kZero, k530B, "dgx-a100-80gb:2240", 2240, "dp=2240,zero=3,mb=1,recompute=full", 0, 48},
    {kFull, "gpt2:L=48,C=6144,H=64,V=51200,T=2048", "dgx-a100-80gb:8", 4, "tp=8,mb=4,recompute=full", 1.42},
    {kFull, k175B, "dgx-a100-80gb:64", 64, "tp=8,pp=8:interleaved:3,mb=1,recompute=full", 18.13},
    {kFull, k530B, "dgx-a100-80gb:280", 280, "tp=8,pp=35:interleaved:3,mb=1,recompute=full", 49.05},
    {kFull, k1T, "dgx-a100-80gb:512", 512, "tp=8,pp=64:1f1b,mb=1,recompute=full", 94.42},
    {kSelective, "gpt2:L=48,C=6144,H=64,V=51200,T=2048", "dgx-a100-80gb:8", 4,
     "tp=8,sp,mb=4,recompute=selective", 1.10},
    {kSelective, k175B, "dgx-a100-80gb:64", 64, "tp=8,sp,pp=8:interleaved:3,mb=1,recompute=selective", 13.75},
    {kSelective, k530B, "dgx-a100-80gb:280", 280, "tp=8,sp,pp=35:interleaved:3,mb=1,recompute=selective",
     37.83},
    {kSelective, k1T, "dgx-a100-80gb:512", 512, "tp=8,sp,pp=64:1f1b,mb=1,recompute=selective", 71.49},
    {kNlg, k530B, "dgx-a100-80gb:2240", 1920, "tp=8,dp=8,pp=35:1f1b,mb=1,recompute=full", 60.1},
    {kNlg, k530B, "dgx-a100-80gb:2800", 1920, "tp=8,dp=10,pp=35:1f1b,mb=1,recompute=full", 50.2},
    {kNlg, k530B, "dgx-a100-80gb:3360", 1920, "tp=8,dp=12,pp=35:1f1b,mb=1,recompute=full", 44.4},
    {kBloom, "gpt2:L=106,C=12288,H=64,V=250880,T=2048", "dgx-a100-80gb:384", 2048,
     "tp=4,dp=8,pp=12:1f1b,mb=2,zero=1,recompute=full", 116.54},
    {kBloom, "gpt2:L=106,C=12288,H=96,V=250880,T=2048", "dgx-a100-80gb:384", 2048,
     "tp=4,dp=8,pp=12:1f1b,mb=2,zero=1,recompute=full", 118.79},
    {kBloom, "gpt2:L=106,C=12288,H=128,V=250880,T=2048", "dgx-a100-80gb:384", 2048,
     "tp=4,dp=8,pp=12:1f1b,mb=2,zero=1,recompute=full", 121.42},
    {kBloom, "gpt2:L=106,C=12288,H=96,V=250880,T=2048", "dgx-a100-80gb:384", 2048,
     "tp=4,dp=8,pp=12:1f1b,mb=4,zero=1,recompute=full", 120.34},
    {kBloom, "gpt2:L=82,C=13312,H=64,V=250880,T=2048", "dgx-a100-80gb:384", 2048,
     "tp=4,dp=8,pp=12:1f1b,mb=2,zero=1,recompute=full", 104.45},
    {kBloom, "gpt2:L=82,C=13312,H=104,V=250880,T=2048", "dgx-a100-80gb:384", 2048,
     "tp=4,dp=8,pp=12:1f1b,mb=2,zero=1,recompute=full", 123.71},
    {kBloom, "gpt2:L=82,C=13312,H=128,V=250880,T=2048", "dgx-a100-80gb:384", 2048,
     "tp=4,dp=8,pp=12:1f1b,mb=2,zero=1,recompute=full", 108.78},
    {kBloom, "gpt2:L=82,C=13312,H=64,V=250880,T=2048", "dgx-a100-80gb:384", 2048,
     "tp=4,dp=8,pp=12:1f1b,mb=4,zero=1,recompute=full", 104.82},
    {kBloom, "gpt2:L=94,C=13312,H=128,V=250880,T=2048", "dgx-a100-80gb:384", 2048,
     "tp=4,dp=8,pp=12:1f1b,mb=2,zero=1,recompute=full", 124.10},
    {kBloom, "gpt2:L=70,C=14336,H=64,V=250880,T=2048", "dgx-a100-80gb:384", 2048,
     "tp=4,dp=8,pp=12:1f1b,mb=2,zero=1,recompute=full", 102.03},
    {kBloom, "gpt2:L=70,C=14336,H=112,V=250880,T=2048", "dgx-a100-80gb:384", 2048,
     "tp=4,dp=8,pp=12:1f1b,mb=2,zero=1,recompute=full", 104.50},
    {kBloom, "gpt2:L=70,C=14336,H=128,V=250880,T=2048", "dgx-a100-80gb:384", 2048,
     "tp=4,dp=8,pp=12:1f1b,mb=2,zero=1,recompute=full", 105.89},
    {kBloom, "gpt2:L=70,C=14336,H=64,V=250880,T=2048", "dgx-a100-80gb:384", 2048,
     "tp=4,dp=8,pp=12:1f1b,mb=4,zero=1,recompute=full", 102.27},
    {kLlama3, k405B, "dgx-h100:8192", 2048, "tp=8,sp,dp=64,pp=16:interleaved:4,mb=1,zero=1", 0, 430},
    {kLlama3, k405B, "dgx-h100:16384", 2048, "tp=8,sp,dp=128,pp=16:interleaved:4,mb=1,zero=1", 0, 400},
};

}  // namespace

std::span<const PublishedRun> published_runs() { return kRuns; }

const PublishedSource& source_of(const PublishedRun& run) {
  return *std::ranges::find(kSources, run.source, &PublishedSource::name);
}

double measured_seconds(const PublishedRun& run) {
  if (run.seconds > 0) return run.seconds;
  const ModelConfig model = *parse_shorthand(run.model);
  const auto size = [&](const char* name) { return static_cast<double>(model.sizes.at(name)); };
  const double C = size("C"), L = size("L"), T = size("T"), V = size("V");
  double token = 96 * L * C * C * (1 + T / (6 * C) + V / (16 * L * C));
  if (model.family == "llama") {
    const double parameters =
        L * (2 * C * C * (1 + size("KV") / size("H")) + 3 * C * size("F") + 2 * C) + (2 * V + 1) * C;
    token = 6 * parameters + 6 * L * T * C;
  }
  const auto devices = static_cast<double>(cluster_preset(run.cluster)->devices.size());
  return static_cast<double>(run.batch) * T * token / devices / (run.teraflops * 1e12);
}

Result<double> forecast(const PublishedRun& run) {
  const PublishedSource& source = source_of(run);
  TSR_ASSIGN_OR_RETURN(BaselineStep step, parse_baseline_step(run.model, run.parallel, run.batch, source.software));
  step.ends_are_blocks = source.ends_are_blocks;
  TSR_ASSIGN_OR_RETURN(Cluster cluster, cluster_preset(run.cluster));
  if (source.network_gbytes > 0) cluster.network.bytes_per_s = source.network_gbytes * 1e9;
  TSR_ASSIGN_OR_RETURN(const std::vector<StepProfile> profiles, profile_baseline(step, cluster));
  return composed_seconds(step, profiles, cluster);
}

}  // namespace tessera::planner_test
