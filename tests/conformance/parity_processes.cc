#include "tests/conformance/parity_processes.h"

#include <algorithm>

#include "graph/base/text.h"
#include "tests/test_backend.h"
#include "tests/thread_world.h"

namespace tessera::parity {

namespace {

// Adds the ranks of a later process to those of the first.
void add_ranks(Outcome& all, const Outcome& part) {
  all.program.ranks.insert(all.program.ranks.end(), part.program.ranks.begin(), part.program.ranks.end());
  all.program.after = 0;
  all.memory.insert(all.memory.end(), part.memory.begin(), part.memory.end());
  all.allocations_after_first_step += part.allocations_after_first_step;
  for (const CommReport& report : part.sent) {
    const auto same = [&](const CommReport& known) { return known.collective == report.collective && known.axis == report.axis; };
    const auto known = std::ranges::find_if(all.sent, same);
    if (known == all.sent.end()) {
      all.sent.push_back(report);
    } else {
      known->bytes += report.bytes;
      known->calls = std::max(known->calls, report.calls);
    }
  }
}

// The part of one process; each has as many ranks as the others, or one more.
Outcome run_part(const Job& job, const Graph& step, const Plan& plan, const std::shared_ptr<Transport>& transport) {
  Outcome out;
  const auto attempt = [&]() -> Status {
    const int64_t process = transport->process(), processes = transport->processes(), ranks = ranks_of(plan);
    if (processes > ranks)
      return Status(StatusCode::kInvalidArgument, format("{} processes, the plan has {} devices", processes, ranks));
    const auto own = static_cast<int32_t>((process + 1) * ranks / processes - process * ranks / processes);
    TSR_ASSIGN_OR_RETURN(const std::string named, test::devices_for(registry(), own));
    TSR_ASSIGN_OR_RETURN(const auto devices, DeviceSet::open(registry(), named, {}, transport));
    return run_on(job, step, plan, devices, out);
  };
  const Status status = attempt();
  out.code = status.code();
  out.error = status.to_string();
  return out;
}

}  // namespace

Status run_in_processes(const Job& job, const Graph& step, const Plan& plan, int32_t processes, Outcome& out) {
  std::vector<Outcome> parts(static_cast<size_t>(processes));
  test::ThreadWorld::run(processes, registry().host(), [&](const std::shared_ptr<Transport>& transport) {
    parts[static_cast<size_t>(transport->process())] = run_part(job, step, plan, transport);
  });
  out = parts[0];
  for (size_t process = 1; process < parts.size(); ++process) {
    const Outcome& part = parts[process];
    if (!part.ok()) return Status(part.code, part.error).with_context(format("process {}", process));
    if (part.losses != out.losses || part.gradients != out.gradients || part.weights != out.weights)
      return Status(StatusCode::kInternal, format("process {} finds other values than process 0", process));
    add_ranks(out, part);
  }
  return out.ok() ? Status() : Status(out.code, out.error);
}

Outcome run_in_world(const Job& job, std::string_view words, const std::shared_ptr<Transport>& transport) {
  Outcome out;
  const auto attempt = [&]() -> Status {
    TSR_ASSIGN_OR_RETURN(const Graph step, step_graph(job));
    TSR_ASSIGN_OR_RETURN(const Plan plan, plan_of(step, job, words));
    out = run_part(job, step, plan, transport);
    return {};
  };
  if (const Status status = attempt(); !status.ok()) out.code = status.code(), out.error = status.to_string();
  return out;
}

std::string difference_of(const Outcome& a, const Outcome& b) {
  if (a.error != b.error) return format("{}; {}", a.error, b.error);
  if (a.losses != b.losses) return "losses";
  for (const auto& [name, values] : a.gradients)
    if (const auto other = b.gradients.find(name); other == b.gradients.end() || other->second != values) return "gradient of " + name;
  for (const auto& [name, values] : a.weights)
    if (const auto other = b.weights.find(name); other == b.weights.end() || other->second != values) return name;
  if (a.sent.size() != b.sent.size()) return "kinds of collectives";
  for (const CommReport& report : a.sent) {
    const auto same = [&](const CommReport& it) {
      return it.collective == report.collective && it.axis == report.axis && it.calls == report.calls && it.bytes == report.bytes;
    };
    if (std::ranges::none_of(b.sent, same)) return format("{} of {} {} bytes in {} calls", report.axis, report.collective, report.bytes, report.calls);
  }
  return {};
}

}  // namespace tessera::parity
