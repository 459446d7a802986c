#include "tests/mixtures/job.h"

#include <algorithm>

using namespace capi_test;

namespace mixtures {

namespace {

std::string number(int64_t value) { return std::to_string(value); }

int64_t stages_a_device(const Mixture& mixture) {
  return contains(mixture, kInterleaved) || contains(mixture, kZbV) ? 2 : 1;
}

// Norms that are not 1 and biases that are not 0, so that nothing hides what is added twice or left out.
void perturb(const Model& model, Dice& dice, std::vector<std::string>& names) {
  size_t count = 0;
  ok(tsr_model_parameter_count(model.get(), &count));
  names.clear();
  for (size_t i = 0; i < count; ++i) {
    names.push_back(short_text([&](char* buffer, size_t capacity, size_t* size) {
      return tsr_model_parameter_name(model.get(), i, buffer, capacity, size);
    }));
    tsr_tensor* found = nullptr;
    ok(tsr_model_read(model.get(), names.back().c_str(), &found));
    const Tensor old(found);
    const int32_t rank = tsr_tensor_rank(old.get());
    const int64_t* dims = tsr_tensor_dims(old.get());
    std::vector<float> values = floats(old.get());
    const float width = rank > 1 ? 0.3F : 0.1F;
    for (float& value : values) value += width * (2 * dice.uniform() - 1);
    ok(tsr_model_write(model.get(), names.back().c_str(),
                       tensor_f32(std::vector<int64_t>(dims, dims + rank), values).get()));
  }
}

void fill(Job& job, uint32_t seed) {
  Dice dice(seed);
  tsr_model* made = nullptr;
  ok(tsr_model_new(job.description.c_str(), options({{"seed", int64_t{seed % 1000}}}).get(), &made));
  job.model.reset(made);
  if (job.adapter_rank > 0) job.model = with_adapters(job.model, job);
  perturb(job.model, dice, job.parameters);
  const int64_t samples = job.batch * 4 + job.batch / 2 + 2;
  std::vector<int32_t> tokens(static_cast<size_t>(samples * job.seq + 1));
  for (int32_t& token : tokens)
    token = static_cast<int32_t>(dice.below(static_cast<uint32_t>(job.vocabulary)));
  tsr_dataset* data = nullptr;
  ok(tsr_dataset_new_tokens(tokens.data(), tokens.size(),
                            options({{"seq", job.seq}, {"eval_fraction", 0.25}}).get(), &data));
  job.data.reset(data);
  job.one_device.reset();
}

}  // namespace

Model with_adapters(const Model& model, Job& job) {
  for (;;) {
    tsr_model* made = nullptr;
    const auto alpha = static_cast<double>(2 * job.adapter_rank);
    const Error error = take(tsr_model_add_adapters(
        model.get(), options({{"rank", job.adapter_rank}, {"alpha", alpha}}).get(), &made));
    if (error.code == TSR_OK) return Model(made);
    REQUIRE_MESSAGE(job.adapter_rank > 1, error.message);
    job.adapter_rank = 1;  // a side of a weight is smaller
  }
}

std::string Job::text() const {
  std::string all = description + (adapter_rank > 0 ? " adapters of " + number(adapter_rank) : "");
  for (const auto& [key, value] : settings) {
    all += std::string(" ") + key + "=";
    if (const auto* integer = std::get_if<int64_t>(&value)) all += number(*integer);
    if (const auto* real = std::get_if<double>(&value)) all += std::to_string(*real);
    if (const auto* words = std::get_if<std::string>(&value)) all += *words;
  }
  return all + " seq=" + number(seq);
}

Job draw_job(const Mixture& mixture, Dice& dice) {
  Job job;
  const int64_t stages = contains_any(mixture, kPp, kZbV) ? 2 * stages_a_device(mixture) : 1;
  job.layers = std::max<int64_t>(stages, dice.one_of({1, 1, 1, 1, 2, 3}));
  job.heads = dice.one_of({2, 3, 4, 4, 5, 6});
  const int64_t size = dice.one_of({2, 4, 6});
  const int64_t groups = dice.one_of({1, 1, 2});
  const int64_t ffn = dice.one_of({7, 10, 13, 16, 24, 29});
  job.vocabulary = dice.one_of({17, 29, 37, 61, 64});
  job.batch = dice.one_of({4, 5, 6, 7, 8, 9, 11, 12, 12, 13});
  if (contains(mixture, kMb)) job.batch = dice.one_of({6, 8, 12, 12});
  job.seq = dice.one_of({5, 7, 8, 11, 13, 16, 19});
  const int64_t kind = dice.below(16);
  job.rounding = kind < 12    ? Rounding::kF32
                 : kind == 12 ? Rounding::kTf32
                 : kind == 13 ? Rounding::kFp8
                 : kind == 14 ? Rounding::kBf16Weights
                              : Rounding::kF32;
  const bool eight_bits = job.rounding == Rounding::kFp8;  // of weights whose sides are multiples of 16
  if (eight_bits) job.heads = dice.one_of({2, 4});
  const int64_t kv = job.heads % groups == 0 ? job.heads / groups : job.heads;
  const int64_t channels = eight_bits ? 32 : size * job.heads;
  const std::string width = number(eight_bits ? 32 : ffn);
  const std::string sizes = "L=" + number(job.layers) + ",C=" + number(channels) + ",H=" + number(job.heads);
  const std::string rest =
      ",F=" + width + ",V=" + number(job.vocabulary) + ",T=24,tied=" + number(dice.below(2));
  job.adapter_rank = dice.one_in(8) ? dice.one_of({1, 1, 3}) : 0;
  const int64_t family = contains(mixture, kEp) ? 3 : dice.below(4);
  if (family == 0) job.description = "gpt2:" + sizes + rest + (dice.one_in(4) ? ",dropout=0.2" : "");
  if (family == 1) job.description = "llama:" + sizes + ",KV=" + number(kv) + rest;
  if (family == 2) job.description = "encoder:" + sizes + rest;
  if (family == 3) {
    job.experts = dice.one_of({2, 3, 4, 5});
    job.routes = true;
    job.description = "moe:" + sizes + ",KV=" + number(kv) + ",E=" + number(job.experts) +
                      ",K=" + number(dice.one_of({1, 2})) +
                      (dice.one_in(3)   ? ",capacity=0"
                       : dice.one_in(2) ? ",capacity=2"
                                        : "") +
                      rest;
  }
  job.settings = {{"batch", job.batch}, {"steps", int64_t{8}}, {"measure_memory", int64_t{0}}};
  if (dice.one_in(3)) {
    job.settings.insert(job.settings.end(), {{"optimizer", std::string("sgd")}, {"lr", 0.1}});
  } else {
    // As large as gradients, so that Adam never divides a pure rounding error by its own size.
    job.settings.insert(job.settings.end(), {{"eps", 1e-2}, {"lr", 0.03}});
  }
  job.settings.emplace_back("clip_norm", static_cast<double>(dice.one_of({0, 0, 1, 4})) / 4);
  if (dice.one_in(3)) job.settings.emplace_back("schedule", std::string("cosine"));
  if (dice.one_in(6)) job.settings.emplace_back("loss_scaling", 1024.0);
  if (job.adapter_rank == 0 && dice.one_in(6))
    job.settings.emplace_back("frozen", std::string("block.0.*,token_embedding"));
  if (job.rounding == Rounding::kTf32) job.settings.emplace_back("precision", std::string("tf32"));
  if (job.rounding == Rounding::kFp8) job.settings.emplace_back("precision", std::string("fp8"));
  if (job.rounding == Rounding::kBf16Weights) job.settings.emplace_back("weights", std::string("bf16"));
  fill(job, dice.below(1U << 30));
  return job;
}

bool suits(const Job& job, const Mixture& mixture) {
  if (contains(mixture, kEp) && !job.routes) return false;
  const int64_t stages = contains_any(mixture, kPp, kZbV) ? 2 * stages_a_device(mixture) : 1;
  if (job.layers < stages || job.layers > stages + 1)
    return false;  // no deeper than it must be: it takes longer
  return !contains(mixture, kMb) || job.batch % 2 == 0;
}

Job other_data(const Job& job) {
  Job other;
  other.description = job.description;
  other.settings = job.settings;
  other.layers = job.layers, other.heads = job.heads, other.experts = job.experts;
  other.vocabulary = job.vocabulary, other.batch = job.batch, other.seq = job.seq;
  other.rounding = job.rounding, other.routes = job.routes, other.adapter_rank = job.adapter_rank;
  fill(other, 4711);
  return other;
}

Layout layout_for(const Mixture& mixture, const Job& job, Dice& dice) {
  const auto has = [&](Word word) { return contains(mixture, word); };
  const auto within = [&](Word first, Word last) { return contains_any(mixture, first, last); };
  const bool beyond = dice.one_in(20);
  int64_t dp = has(kDp) ? 2 : 1, ep = has(kEp) ? 2 : 1, cp = within(kRing, kUlysses) ? 2 : 1,
          pp = within(kPp, kZbV) ? 2 : 1, tp = has(kTp) ? 2 : 1, x = 1, y = 1, z = 1;
  const int64_t left = std::max<int64_t>(8, least_devices(mixture)) / (dp * ep * cp * pp * tp);
  if (has(kTp2d)) x = left > 3 ? 2 : 1, y = 2;
  if (has(kTp2d) && left > 5 && dice.one_in(2)) (dice.one_in(2) ? x : y) = 3;
  if (has(kTp25d)) x = y = left > 3 ? 2 : 1, z = left > 3 && left < 8 ? 1 : 2;
  if (has(kTp3d)) x = y = z = 2;
  // Some larger, as long as there are devices and the job has that many rows, heads, tokens, experts, layers.
  const int64_t most_devices = std::max<int64_t>(8, least_devices(mixture));
  const auto devices = [&] { return dp * ep * cp * pp * tp * x * y * z; };
  const int64_t v = has(kInterleaved) || has(kZbV) ? 2 : 1;
  for (int tries = 0; tries < 2; ++tries) {
    struct Size {
      int64_t* at;
      int64_t most;
    };
    const Size sizes[] = {{&dp, job.batch / (ep * x * (has(kTp25d) ? z : 1))},
                          {&ep, job.experts},
                          {&cp, has(kUlysses) ? job.heads / tp : job.seq},
                          {&pp, job.layers / v},
                          {&tp, job.heads}};
    const Size& size = sizes[dice.below(5)];
    if (*size.at < 2 || (!beyond && *size.at >= size.most)) continue;
    const int64_t old = *size.at;
    *size.at += 1 + dice.below(3);
    if (devices() > most_devices || (!beyond && *size.at > size.most)) *size.at = old;
  }
  const auto count = [&](const char* name, int64_t value) { return std::string(name) + number(value); };
  std::vector<std::string> words;
  if (has(kDp)) words.push_back(count("dp=", dp));
  if (has(kTp)) words.push_back(count(dice.one_in(4) ? "tp=1d:" : "tp=", tp));
  if (has(kTp2d)) words.push_back("tp=2d:" + number(x) + "x" + number(y));
  if (has(kTp25d)) words.push_back("tp=2.5d:" + number(x) + "x" + number(y) + "x" + number(z));
  if (has(kTp3d)) words.push_back("tp=3d:" + number(x) + "x" + number(y) + "x" + number(z));
  if (has(kSp)) words.push_back("sp");
  if (has(kRing)) words.push_back(count("cp=ring:", cp));
  if (has(kRingContiguous)) words.push_back(count("cp=ring:", cp) + ":contiguous");
  if (has(kGather)) words.push_back(count("cp=gather:", cp));
  if (has(kGatherContiguous)) words.push_back(count("cp=gather:", cp) + ":contiguous");
  if (has(kUlysses)) words.push_back(count("cp=ulysses:", cp));
  if (has(kEp)) words.push_back(count("ep=", ep));
  constexpr const char* kSchedules[] = {"", ":gpipe", ":1f1b", ":interleaved:2", ":zb-h1", ":zb-h2", ":zb-v"};
  for (int word = kPp; word <= kZbV; ++word)
    if (has(static_cast<Word>(word))) words.push_back(count("pp=", pp) + kSchedules[word - kPp]);
  for (int word = kZero1; word <= kZero3; ++word)
    if (has(static_cast<Word>(word))) {
      words.push_back(count("zero=", word - kZero1 + 1));
      if (has(kZeroGroup))
        words.back() += count(":", dp % 2 == 0 && dice.one_in(2) ? 2
                                   : dp % 3 == 0                 ? 3
                                   : dice.one_in(2)              ? dp
                                                                 : 1);
    }
  if (!within(kZero1, kZero3) && dice.one_in(6)) words.push_back("zero=0");
  if (has(kMb)) {
    // Sequences of one of the ranks that have their own, in a few parts.
    const int64_t rows = std::max<int64_t>(1, job.batch / (dp * ep));
    int64_t mb = std::max<int64_t>(1, rows / dice.one_of({1, 2, 2, 3, 4}));
    if (!beyond)
      while (mb > 1 && rows % mb != 0) --mb;
    words.push_back(count("mb=", mb));
  }
  if (has(kChunks)) words.push_back(count("chunks=", 2 + dice.below(3)));
  if (has(kRecomputeFull)) words.push_back("recompute=full");
  if (has(kRecomputeSome)) words.push_back("recompute=some");
  if (has(kRecomputeAuto)) words.push_back("recompute=auto");
  if (!within(kRecomputeFull, kRecomputeAuto) && dice.one_in(8)) words.push_back("recompute=none");
  std::string offload;
  constexpr const char* kOffloaded[] = {"auto",           "params",      "params@file",
                                        "grads",          "grads@file",  "optimizer@host",
                                        "optimizer@file", "activations", "activations@file"};
  for (int word = kOffloadAuto; word <= kActivationsFile; ++word)
    if (has(static_cast<Word>(word)))
      offload += (offload.empty() ? "" : "+") + std::string(kOffloaded[word - kOffloadAuto]);
  if (!offload.empty()) words.push_back("offload=" + offload);
  if (offload.empty() && dice.one_in(10)) words.push_back("offload=none");
  if (has(kKeep)) words.push_back("keep");
  if (has(kOwt)) words.push_back("owt");
  for (size_t i = words.size(); i > 1; --i)
    std::swap(words[i - 1], words[dice.below(static_cast<uint32_t>(i))]);
  Layout layout;
  layout.devices = devices();
  for (const std::string& word : words) layout.words += (layout.words.empty() ? "" : ",") + word;
  return layout;
}

}  // namespace mixtures
