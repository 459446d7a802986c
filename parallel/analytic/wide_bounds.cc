// Bounds, with t_s = f_s + b_s the passes of stage s and W their sum:
//   1f1b      as analytic/step_solver
//   gpipe     T >= W + (m - 1) t_s for every s
//   zb        the longest device is no shorter than its work, m t_s; the first one also waits for its first
//             input gradient with no more than K forward passes done, and the way there and back takes all
//             forward passes and all later input gradients:
//             T >= sum_s (f_s + i_s) - i_0 - min(m, K) f_0 + m t_0, where i_s is b_s less gradients of
//             weights
//   zb-v      the first device has both ends: until the first micro-batch is through it can do forward passes
//             of its first chunk only, 2p - 1 at most:
//             T >= sum_s f_s - min(m, 2p - 1) f_0 - f_last + m t_d
//             It is cut in one way only, so that the busiest device has least to do.
//   zb, all   the last micro-batch comes to the longest forward pass after all others, and has the way to the
//             last stage and back left: T >= sum_s (f_s + i_s) + (m - 1) max f_s
//   chunks    (interleaved) a device works after the first forward and before the last backward pass of the
//             first chunks of those before it, c_d of a device, which have every v-th of its blocks or more:
//             T >= m t_d + sum of c_d' over d' < d.
//             So with n_d blocks of x seconds and what else a device does, e_d in all and o_d of it in its
//             first chunk, the most blocks that begin before device d in T seconds follow from one device to
//             the next: N_(d+1) x <= N_d x (1 - 1 / (v m)) + (T - o_0 - ... - o_(d-1)) / m - e_d
#include "parallel/analytic/wide_bounds.h"

#include <algorithm>
#include <cmath>

#include "parallel/analytic/step_time.h"
#include "parallel/analytic/zero_bubble_replay.h"

namespace tessera {

double pipeline_bound(const TransformerShape& model, const StepSearchOptions& options,
                      const ForeignPlan& plan, int32_t chunks_to, const StageTimes& times) {
  const double m = static_cast<double>(options.global_batch / (plan.micro_batch * plan.data()));
  const BlockWay least{recomputations(options, plan).front(), 0, 0};
  const double p = plan.pp, hops = 2 * (p * plan.virtual_stages - 1) * times.transfer_s();
  const double work = seconds_of(times.of(blocks_of(model.L, least), true, true)) + (plan.pp > 1 ? hops : 0);
  double pipeline = work * m / p;
  if (plan.pp == 1) return kBoundSlack * pipeline;
  // Largest and smallest share of forward; smallest of all but gradients of weights.
  double forward = 0, least_forward = 1, inputs = 1;
  const auto note = [&](const StagePasses& passes) {
    if (seconds_of(passes) <= 0) return;
    forward = std::max(forward, passes.forward_s / seconds_of(passes));
    least_forward = std::min(least_forward, passes.forward_s / seconds_of(passes));
    inputs = std::min(inputs, 1 - passes.weight_s / seconds_of(passes));
  };
  note(times.of({}, true, false)), note(times.of({}, false, true));
  for (const Recompute way : recomputations(options, plan))
    for (int32_t quarters = 0; quarters <= (way == Recompute::kNone ? 4 : 0); ++quarters)
      note(times.of(blocks_of(1, {way, quarters, 0}), false, false));
  // From T >= c W + (m - k) t_0, and m t_s <= T for all others.
  const auto first_waits = [&](double c, double k) {
    return m > k ? work * (c + m - k) / (1 + (m - k) * (p - 1) / m) : work * c * m / k;
  };
  // The last micro-batch passes some stage after all others, on its way there and back.
  const double last_comes = work * (inputs + (m - 1) * least_forward / (p * plan.virtual_stages));
  switch (plan.schedule) {
    case ForeignSchedule::k1F1B: {
      double weights = 0;
      for (int32_t s = 0; s < plan.pp; ++s) {
        const double pace =
            m - 1 -
            static_cast<double>(std::min<int64_t>(static_cast<int64_t>(m), plan.pp - s) - 1) * forward;
        weights += pace > 0 ? 1 / pace : INFINITY;
      }
      pipeline = std::max(pipeline, work * (1 + (std::isinf(weights) ? 0 : 1 / weights)));
      break;
    }
    case ForeignSchedule::kGpipe: pipeline = std::max(pipeline, work * (1 + (m - 1) / p)); break;
    case ForeignSchedule::kZbH1:
    case ForeignSchedule::kZbH2: {
      const double flights = std::min(m, static_cast<double>(zero_bubble_limit(plan.schedule, plan.pp)));
      pipeline = std::max({pipeline, last_comes, first_waits(inputs, flights * forward + (1 - forward))});
      break;
    }
    case ForeignSchedule::kInterleaved: {
      // Of several numbers of chunks the most have the shortest way in and out, the least send least.
      const double block = seconds_of(times.of(blocks_of(1, least), false, false)) - 2 * times.transfer_s(),
                   sends = 2 * (plan.virtual_stages - 1) * times.transfer_s(), v = chunks_to;
      const double first = seconds_of(times.of({}, true, false)),
                   between = seconds_of(times.of({}, false, false)),
                   last = seconds_of(times.of({}, false, true));
      // Blocks that begin before a device, in seconds: grows * T - less.
      double grows = 0, less = 0, before = 0;
      for (int32_t d = 0; d < plan.pp; ++d) {
        const double other = (d == 0 ? first : d + 1 == plan.pp ? last : between) + sends;
        grows += 1 / m - grows / (v * m);
        less += other + before / m - less / (v * m);
        before += d == 0 ? first : between;
      }
      pipeline = std::max(pipeline, (static_cast<double>(model.L) * block + less) / grows);
      break;
    }
    case ForeignSchedule::kZbV: {
      // A first chunk has two thirds of its device's blocks at most, when there are three.
      const double flights = std::min(m, 2 * p - 1);
      pipeline =
          std::max({pipeline, last_comes, first_waits(least_forward, forward * (1 + (flights - 1) * 2 / 3))});
      break;
    }
  }
  return kBoundSlack * pipeline;
}

}  // namespace tessera
