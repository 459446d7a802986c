#include "prompt_requests.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "interruptible.h"
#include "plan_text.h"
#include "progress.h"

namespace cli {

namespace {

constexpr size_t kInProgress = 64;
constexpr int64_t kSequences = 8, kLeastCache = 4096;
constexpr double kPoll_s = 0.25;  // Ctrl-C is heard this often

void check_end(const tsr_event& event, size_t number) {
  if (event.finish == TSR_FINISH_STOP) return;
  const Json details = Json::parse(std::string(event.details, event.details_size));
  const Json error = details.value("error", Json::object());
  throw Error(static_cast<tsr_code>(error.value("code", static_cast<int>(TSR_INTERNAL))),
              "text " + std::to_string(number) + ": " +
                  error.value("message", std::string("it ended before it was computed")));
}

}  // namespace

std::optional<Engine> prompt_engine(const Common& common, const Inference& inference, const Runtime& runtime,
                                    const Model& model, const Options& options, int64_t longest) {
  set_placement(options, common);
  set_inference(options, inference);
  set(options, "sequences", kSequences);
  if (common.memory_limit.empty())
    set(options, "cache_tokens", std::min(std::max(2 * longest, kLeastCache), kSequences * (longest + 64)));
  try {
    Engine engine = make_interruptible<Engine>(tsr_engine_new, runtime, model.get(),
                                               static_cast<const tsr_options*>(options.get()));
    if (computed_report(engine)["seq"].get<int64_t>() < longest) return {};
    return engine;
  } catch (const Error& error) {
    if (error.code() != TSR_INVALID_ARGUMENT && error.code() != TSR_UNSUPPORTED) throw;
    return {};
  }
}

void run_requests(const Common& common, const Engine& engine, const PromptRequests& requests) {
  const Interruptible interruptible;
  Progress progress(common);
  std::map<int64_t, size_t> in_progress;  // by their numbers
  const auto begin = std::chrono::steady_clock::now();
  for (size_t next = 0;;) {
    for (; in_progress.size() < kInProgress && next < requests.count; ++next)
      if (const std::optional<int64_t> request = requests.submit(next)) in_progress[*request] = next;
    if (in_progress.empty()) return;
    tsr_event event{};
    event.struct_size = sizeof event;
    check(tsr_engine_next(engine.get(), kPoll_s, &event));
    if (interruptible.interrupted()) throw Error(TSR_CANCELLED, "interrupted; nothing was written");
    if (event.kind != TSR_EVENT_END) continue;
    const auto found = in_progress.find(event.request);
    check_end(event, found->second);
    requests.take(found->second, event.request);
    in_progress.erase(found);
    const double done = static_cast<double>(next - in_progress.size()) / static_cast<double>(requests.count);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    progress.show(requests.done + " " + std::to_string(static_cast<int>(100 * done)) + " % of " +
                  counted(static_cast<int64_t>(requests.count), "text") + ", " +
                  seconds_text(seconds / done * (1 - done)) + " left");
  }
}

Json computed_report(const Engine& engine) {
  const Json report = Json::parse(text(tsr_engine_report, engine.get()));
  return {{"positions", report["tokens"]},
          {"seconds", report["seconds"]},
          {"seq", report["context"]},
          {"batch", report["sequences"]},
          {"cached_tokens", report["cached_tokens"]},
          {"plan", report["plan"]},
          {"devices", report["devices"]}};
}

}  // namespace cli
