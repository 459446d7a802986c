#include "bench_serve.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "interruptible.h"
#include "plan_text.h"
#include "random_adapter.h"

namespace cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kRequestsPerClient = 4, kWarmUpTokens = 4, kAdapterRank = 16;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// {"median", "p95", "p99"} in milliseconds, by nearest rank.
Json percentiles_json(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double share) {
    if (seconds.empty()) return 0.0;
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(seconds.size())));
    return 1e3 * seconds[std::max<size_t>(rank, 1) - 1];
  };
  return {{"median", at(0.5)}, {"p95", at(0.95)}, {"p99", at(0.99)}};
}

// Clients: random prompts, greedy texts of a given length, and the times of their tokens.
class Clients {
 public:
  Clients(const ServeLoad& load, const Served& served, const Engine& engine, std::vector<int64_t> adapters)
      : load_(load),
        vocabulary_(static_cast<uint64_t>(served.vocabulary)),
        engine_(engine),
        adapters_(std::move(adapters)) {
    for (int64_t i = 0; i < load.shared; ++i) beginning_.push_back(draw_token());
  }

  // Loads everything, and writes to the caches once, before the measurement.
  void warm_up() {
    for (int64_t i = 0; i < load_.clients; ++i)
      submit(Clock::now(), std::min(load_.new_tokens, kWarmUpTokens));
    while (!in_progress_.empty()) wait(-1);
    first_s_.clear();
    between_s_.clear();
    total_s_ = 0;
    cached_tokens_ = prompt_tokens_ = tokens_ = 0;
  }

  // Seconds from the first request to the last token.
  double run(int64_t requests) {
    const Clock::time_point begin = Clock::now();
    load_.rate > 0 ? run_arrivals(requests, begin) : run_closed(requests);
    return seconds_between(begin, Clock::now());
  }

  Json first_token() const { return percentiles_json(first_s_); }
  Json between_tokens() const { return percentiles_json(between_s_); }
  double total_s() const { return total_s_; }  // sum over all requests
  int64_t tokens() const { return tokens_; }
  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t cached_tokens() const { return cached_tokens_; }

 private:
  struct InProgress {
    Clock::time_point arrived, last;
    bool has_token = false;
  };

  int32_t draw_token() { return static_cast<int32_t>(random_() % vocabulary_); }

  void submit(Clock::time_point arrived, int64_t new_tokens) {
    std::vector<int32_t> prompt = beginning_;
    while (static_cast<int64_t>(prompt.size()) < load_.prompt) prompt.push_back(draw_token());
    const Options options = make<Options>(tsr_options_new);
    set(options, "max_tokens", new_tokens);
    set(options, "temperature", 0.0);
    set(options, "ignore_eos", int64_t{1});
    if (!adapters_.empty()) set(options, "adapter", adapters_[submitted_++ % adapters_.size()]);
    int64_t request = 0;
    check(tsr_engine_submit_tokens(engine_.get(), options.get(), prompt.data(), prompt.size(), &request));
    in_progress_[request] = {arrived, arrived};
  }

  void run_closed(int64_t requests) {
    int64_t sent = 0;
    for (; sent < std::min(load_.clients, requests); ++sent) submit(Clock::now(), load_.new_tokens);
    while (!in_progress_.empty())
      if (wait(-1) && sent < requests) {
        submit(Clock::now(), load_.new_tokens);
        ++sent;
      }
  }

  // A request's time counts from its arrival, however late it is submitted.
  void run_arrivals(int64_t requests, Clock::time_point begin) {
    std::exponential_distribution<double> gap(load_.rate);
    double due_s = 0;
    for (int64_t sent = 0; sent < requests || !in_progress_.empty();) {
      const double left_s = sent < requests ? due_s - seconds_between(begin, Clock::now()) : -1;
      if (sent < requests && left_s <= 0) {
        submit(begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(due_s)),
               load_.new_tokens);
        ++sent;
        due_s += gap(random_);
        continue;
      }
      wait(left_s);
    }
  }

  // Takes an event; returns whether it was a request's last.
  bool wait(double timeout_s) {
    tsr_event event{};
    event.struct_size = sizeof event;
    check(tsr_engine_next(engine_.get(), timeout_s, &event));
    const Clock::time_point now = Clock::now();
    const auto found = in_progress_.find(event.request);
    if (found == in_progress_.end()) return false;
    if (event.kind == TSR_EVENT_TOKEN && event.token >= 0) {
      InProgress& request = found->second;
      (std::exchange(request.has_token, true) ? between_s_ : first_s_)
          .push_back(seconds_between(request.last, now));
      request.last = now;
      ++tokens_;
    }
    if (event.kind != TSR_EVENT_END) return false;
    const Json details = Json::parse(std::string(event.details, event.details_size));
    if (details.contains("error"))
      throw Error(details["error"]["code"].get<tsr_code>(), details["error"]["message"].get<std::string>());
    total_s_ += seconds_between(found->second.arrived, now);
    prompt_tokens_ += details["prompt_tokens"].get<int64_t>();
    cached_tokens_ += details["cached_tokens"].get<int64_t>();
    in_progress_.erase(found);
    return true;
  }

  const ServeLoad& load_;
  const uint64_t vocabulary_;
  const Engine& engine_;
  const std::vector<int64_t> adapters_;  // assigned to requests in turn
  size_t submitted_ = 0;
  std::mt19937 random_{1};
  std::vector<int32_t> beginning_;  // of all prompts
  std::map<int64_t, InProgress> in_progress_;
  std::vector<double> first_s_, between_s_;
  double total_s_ = 0;
  int64_t tokens_ = 0, prompt_tokens_ = 0, cached_tokens_ = 0;
};

// Bytes read by every step, and of keys and values by each earlier token.
struct Reads {
  double parameter_bytes = 0, token_bytes = 0;
};

// Counts reads as a generator over the model does.
Reads reads_of(const ServeLoad& load, const Served& served) {
  const Options options = served.options();
  const int64_t context = load.prompt + load.new_tokens;
  set(options, "context", context);
  const Generator generator =
      make_interruptible<Generator>(tsr_generator_new, served.runtime, served.model.get(), options.get());
  const Json reads = Json::parse(text(tsr_generator_report, generator.get()))["token_reads"];
  // Bytes of an element in the cache: a block of q8_0 has 34 for 32 elements.
  const std::string cache = load.serving.cache_type.value_or("model");
  const auto computed = static_cast<double>(served.cache_element_bytes);
  const double share = (cache == "model" ? computed : cache == "q8_0" ? 34.0 / 32 : 2.0) / computed;
  return {reads["parameter_bytes"].get<double>(),
          share * reads["full_cache_bytes"].get<double>() / static_cast<double>(context)};
}

// Adapters of the engine, and the number of elements of each. One adapter is loaded many times; each copy is read separately.
struct LoadedAdapters {
  std::vector<int64_t> numbers;
  int64_t elements = 0;
};

LoadedAdapters load_adapters(const Serving& serving, const Model& model, const Engine& engine) {
  LoadedAdapters loaded;
  if (!serving.adapters) return loaded;
  const RandomAdapter adapter(model, *serving.adapter_rank);
  loaded.elements = adapter.elements();
  for (int64_t i = 0; i < *serving.adapters; ++i)
    check(tsr_engine_load_adapter(engine.get(), adapter.path().c_str(), &loaded.numbers.emplace_back()));
  return loaded;
}

Json report_of(const Engine& engine) { return Json::parse(text(tsr_engine_report, engine.get())); }

// The load's options of engines, with the rank of adapters.
Serving serving_of(const ServeLoad& load) {
  if (load.shared > load.prompt)
    throw Error(TSR_INVALID_ARGUMENT, "--shared is " + std::to_string(load.shared) +
                                          ", wanted at most --prompt, which is " +
                                          std::to_string(load.prompt));
  Serving serving = load.serving;
  if (!serving.adapters && (serving.adapter_rank || serving.adapter_type))
    throw Error(TSR_INVALID_ARGUMENT,
                "--adapter-rank and --adapter-type belong to --adapters, which is missing");
  if (serving.adapters && !serving.adapter_rank) serving.adapter_rank = kAdapterRank;
  return serving;
}

// Adds the bytes read by a step, and the bound on the speed of steps.
void add_limit(const ServeLoad& load, const Served& served, const Serving& serving,
               const LoadedAdapters& adapters, const Reads& reads, Json& result) {
  const double at_once = result["requests_at_once"], replicas = result["replicas"].get<double>();
  // Caches are counted half full, as in the middle of a text.
  const double kept = static_cast<double>(load.prompt) + static_cast<double>(load.new_tokens) / 2;
  // Each adapter of a step is read once.
  const double adapter_bytes =
      (serving.adapter_type.value_or("f32") == "f32" ? 4.0 : 2.0) * static_cast<double>(adapters.elements);
  const double step_bytes =
      reads.parameter_bytes + at_once / replicas * kept * reads.token_bytes +
      std::min(at_once / replicas, static_cast<double>(adapters.numbers.size())) * adapter_bytes;
  result["parameter_bytes"] = reads.parameter_bytes;
  result["cache_bytes_per_token"] = reads.token_bytes;
  result["bytes_per_step"] = step_bytes;
  if (serving.adapters) {
    result["adapters"] = *serving.adapters;
    result["adapter_rank"] = *serving.adapter_rank;
    result["adapter_bytes"] = adapter_bytes;
  }
  if (served.memory_bytes_per_s > 0) {
    const double limit = at_once / replicas * served.memory_bytes_per_s / step_bytes;
    result["memory_bytes_per_second"] = served.memory_bytes_per_s;
    result["limit_tokens_per_second"] = limit;
    result["share_of_limit"] = result["tokens_per_second"].get<double>() / limit;
  }
}

}  // namespace

void add_serve_load(CLI::App& command, ServeLoad& load) {
  command.add_option("--clients", load.clients, "serve: concurrent clients")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 16))
      ->capture_default_str();
  command.add_option("--prompt", load.prompt, "serve: random tokens per prompt")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->capture_default_str();
  command.add_option("--new", load.new_tokens, "serve: tokens to generate per request")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->capture_default_str();
  command.add_option("--shared", load.shared, "serve: tokens of the prefix that all prompts share")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24))
      ->capture_default_str();
  command.add_option("--requests", load.requests, "serve: total (default: four per client)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  command
      .add_option("--rate", load.rate,
                  "serve: requests per second, arriving at random (Poisson) whether or not earlier ones are done; "
                  "without it each client sends its next request when its last one has ended")
      ->check(CLI::Range(1e-6, 1e6));
  add_serving(command, load.serving, "serve: ");
}

Json bench_serve(const ServeLoad& load, const Served& served) {
  const Serving serving = serving_of(load);
  Reads reads = reads_of(load, served);
  const Options options = served.options();
  set(options, "context", load.prompt + load.new_tokens);
  if (!load.serving.sequences && load.rate == 0) set(options, "sequences", load.clients);
  set_serving(options, serving);
  const Engine engine = make_interruptible<Engine>(tsr_engine_new, served.runtime, served.model.get(),
                                                   static_cast<const tsr_options*>(options.get()));
  if (follow(engine)) return {};
  const LoadedAdapters adapters = load_adapters(serving, served.model, engine);
  Clients clients(load, served, engine, adapters.numbers);
  clients.warm_up();
  const Json before = report_of(engine);
  // A generator with dp computes the same on the devices of each replica.
  const auto replicas = before["replicas"].get<double>();
  reads.parameter_bytes /= replicas;
  reads.token_bytes /= replicas;
  const int64_t requests = load.requests > 0 ? load.requests : kRequestsPerClient * load.clients;
  const double seconds = clients.run(requests);
  const Json report = report_of(engine);
  const auto counted_since = [&](const char* key) {
    return report[key].get<int64_t>() - before[key].get<int64_t>();
  };
  const auto tokens = static_cast<double>(clients.tokens());
  const double at_once = std::min(clients.total_s() / seconds, report["sequences"].get<double>());
  Json result = {{"mode", "serve"},
                 {"clients", load.clients},
                 {"rate", load.rate},
                 {"replicas", before["replicas"]},
                 {"requests", requests},
                 {"prompt", load.prompt},
                 {"new", load.new_tokens},
                 {"seconds", seconds},
                 {"tokens_per_second", tokens / seconds},
                 {"prompt_tokens_per_second", static_cast<double>(clients.prompt_tokens()) / seconds},
                 {"first_token_milliseconds", clients.first_token()},
                 {"between_tokens_milliseconds", clients.between_tokens()},
                 {"cached_share", static_cast<double>(clients.cached_tokens()) /
                                      static_cast<double>(std::max<int64_t>(1, clients.prompt_tokens()))},
                 {"requests_at_once", at_once},
                 {"steps", counted_since("steps")},
                 {"tokens_computed", counted_since("tokens")},
                 {"preemptions", counted_since("preemptions")}};
  add_limit(load, served, serving, adapters, reads, result);
  result["plan"] = report["plan"]["strategy"];  // of each replica
  result["devices"] = report["devices"];
  return result;
}

void print_serve(const Json& result) {
  const auto real = [&](const char* key) { return result[key].get<double>(); };
  const auto times = [&](const char* key) {
    const Json& it = result[key];
    return seconds_text(1e-3 * it["median"].get<double>()) + " median, " +
           seconds_text(1e-3 * it["p95"].get<double>()) + " 95 %, " +
           seconds_text(1e-3 * it["p99"].get<double>()) + " 99 %\n";
  };
  const auto steps = std::max(1.0, real("steps"));
  std::cout << "requests   " << result["requests"].get<int64_t>() << " of " << result["prompt"].get<int64_t>()
            << " + " << result["new"].get<int64_t>() << " tokens in " << seconds_text(real("seconds"))
            << ", ";
  if (real("rate") > 0)
    std::cout << rate_text(real("rate")) << " arrive a second, " << rate_text(real("requests_at_once"))
              << " at once\n";
  else
    std::cout << counted(result["clients"].get<int64_t>(), "client") << '\n';
  if (result["replicas"] > 1)
    std::cout << "replicas   " << result["replicas"].get<int64_t>() << ", each with plan "
              << result["plan"].get<std::string>() << '\n';
  std::cout << "speed      " << rate_text(real("tokens_per_second")) << " generated tokens/s, "
            << rate_text(real("prompt_tokens_per_second")) << " of prompts; "
            << counted(result["steps"].get<int64_t>(), "step") << " of "
            << rate_text(real("tokens_computed") / steps) << " tokens\n"
            << "first      " << times("first_token_milliseconds") << "between    "
            << times("between_tokens_milliseconds") << "cached     " << percent_text(real("cached_share"))
            << " of prompt tokens; " << counted(result["preemptions"].get<int64_t>(), "preemption") << '\n'
            << "step       reads " << bytes_text(static_cast<int64_t>(real("bytes_per_step"))) << ": weights "
            << bytes_text(static_cast<int64_t>(real("parameter_bytes"))) << ", keys and values "
            << bytes_text(static_cast<int64_t>(real("cache_bytes_per_token"))) << " a token";
  if (result.contains("adapters"))
    std::cout << ", each of " << counted(result["adapters"].get<int64_t>(), "adapter") << ' '
              << bytes_text(static_cast<int64_t>(real("adapter_bytes")));
  std::cout << '\n';
  if (result.contains("share_of_limit"))
    std::cout << "limit      " << rate_text(real("limit_tokens_per_second"))
              << " tokens/s, were a step as fast as these are read; " << percent_text(real("share_of_limit"))
              << " of it, prompts included\n";
}

}  // namespace cli
