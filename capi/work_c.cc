// tsr_work.
#include <unistd.h>

#include <array>
#include <optional>

#include "capi/guard.h"
#include "capi/public_structs.h"
#include "capi/work.h"
#include "graph/base/text.h"

using namespace tessera;
using namespace tessera::capi;

namespace tessera::capi {

namespace {

struct Kind {
  const char* does;    // "loads a model"
  const char* finish;  // the function that takes the result
};
// In the order of Job.
constexpr std::array<Kind, std::variant_size_v<Job>> kKinds = {{
    {"loads a model", "tsr_model_finish"},
    {"converts a model", "tsr_conversion_finish"},
    {"exports a model", "tsr_export_finish"},
    {"makes an importance matrix", "tsr_imatrix_finish"},
    {"calibrates devices", "tsr_calibration_finish"},
    {"makes a plan", "tsr_plan_finish"},
    {"prepares a trainer", "tsr_trainer_finish"},
    {"reads a dataset", "tsr_dataset_finish"},
    {"saves a checkpoint", "tsr_checkpoint_finish"},
}};

}  // namespace

Status give_work(tsr_work** out_work, Job job, std::shared_ptr<Runtime> runtime,
                 std::shared_ptr<const void> lease) {
  *out_work = new tsr_work{std::move(runtime), std::move(lease), std::move(job), getpid()};
  return {};
}

Status check_finish(const tsr_work* work, size_t wanted) {
  const Kind& found = kKinds[work->job.index()];
  if (work->job.index() != wanted)
    return Status(StatusCode::kInvalidArgument,
                  format("this work {}: finish it with {}; {} wants work that {}", found.does, found.finish,
                         kKinds[wanted].finish, kKinds[wanted].does));
  if (work->is_finished)
    return Status(StatusCode::kFailedPrecondition,
                  format("the result was taken already, by an earlier {}", found.finish));
  return {};
}

}  // namespace tessera::capi

tsr_status* tsr_work_step(tsr_work* work, int32_t* out_done) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{work, "work"}}));
    std::optional<CancelScope> scope;
    if (work->runtime) scope.emplace(work->runtime->cancel_signal());
    return std::visit(
        [&](const auto& job) -> Status {
          TSR_RETURN_IF_ERROR(job->step());
          if (out_done) *out_done = job->done() >= 1;
          return {};
        },
        work->job);
  });
}

tsr_status* tsr_work_progress(const tsr_work* work, tsr_progress* out_progress) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{work, "work"}, {out_progress, "out_progress"}}));
    TSR_RETURN_IF_ERROR(check_struct(out_progress));
    WorkProgress progress = std::visit([](const auto& job) { return job->progress(); }, work->job);
    work->unit = std::move(progress.unit);
    work->label = std::move(progress.label);
    copy_struct({sizeof(tsr_progress), progress.fraction, progress.done, progress.total, work->unit.c_str(),
                 work->label.c_str()},
                out_progress);
    return {};
  });
}

void tsr_work_free(tsr_work* work) {
  if (work && work->process == getpid()) delete work;
}
