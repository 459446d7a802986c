// tsr_work: long work in steps, of any kind. A job is the engine's object; tsr_<result>_finish takes what it made.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "capi/handles.h"
#include "engine/base/background.h"
#include "engine/calibration/calibration.h"
#include "engine/inference/importance_collector.h"
#include "engine/model/conversion.h"
#include "engine/model/export.h"
#include "engine/model/loading.h"
#include "engine/training/saving.h"

namespace tessera::capi {

using Planning = Background<std::shared_ptr<const PlanRecord>>;
using Preparation = Background<std::shared_ptr<Trainer>>;
using Reading = Background<std::shared_ptr<const Dataset>>;

// Each has step(), done() and progress(). Calibration is shared: its result is the job itself.
using Job = std::variant<std::unique_ptr<Loading>, std::unique_ptr<Conversion>, std::unique_ptr<Export>,
                         std::unique_ptr<ImportanceCollector>, std::shared_ptr<Calibration>,
                         std::unique_ptr<Planning>, std::unique_ptr<Preparation>, std::unique_ptr<Reading>,
                         std::unique_ptr<Saving>>;

}  // namespace tessera::capi

struct tsr_work {
  std::shared_ptr<tessera::Runtime>
      runtime;                        // whose cancel ends a step; null: none, or the job heeds it itself
  std::shared_ptr<const void> lease;  // of a trainer that the steps use; null once the work is finished
  tessera::capi::Job job;             // last: freed before what it uses
  const int process = 0;              // that made it: a forked child frees nothing
  bool is_finished = false;           // its result is taken
  mutable std::string unit = {}, label = {};  // of the progress told last
};

namespace tessera::capi {

Status give_work(tsr_work** out_work, Job job, std::shared_ptr<Runtime> runtime = nullptr,
                 std::shared_ptr<const void> lease = nullptr);

// Whether the work is of the kind of alternative `wanted`, and its result is still there.
Status check_finish(const tsr_work* work, size_t wanted);

template <class Held, size_t at = 0>
constexpr size_t job_index() {
  if constexpr (std::is_same_v<std::variant_alternative_t<at, Job>, Held>)
    return at;
  else
    return job_index<Held, at + 1>();
}

// Calls `finish` with the job of a work of this kind.
template <class Held, class Finish>
auto finish_work(tsr_work* work, Finish&& finish) -> decltype(finish(*std::declval<Held&>())) {
  constexpr size_t kWanted = job_index<Held>();
  TSR_RETURN_IF_ERROR(check_finish(work, kWanted));
  auto made = finish(*std::get<kWanted>(work->job));
  if (made.ok()) {
    work->is_finished = true;
    work->lease = nullptr;
  }
  return made;
}

// The same of jobs with finish().
template <class Kind>
auto finish_work(tsr_work* work) {
  return finish_work<std::unique_ptr<Kind>>(work, [](Kind& job) { return job.finish(); });
}

}  // namespace tessera::capi
