// Explanations as JSON, one line. Keys:
//   lowered, subject, cluster, strategy, mesh, devices, global_batch, micro_batches, step_seconds,
//   bound_seconds and gap (where known),
//   serving     where text is generated (the step is then a request): {objective, prompt, new, sequences,
//               replicas, prefill_batch, first_token_seconds, token_seconds, tokens_per_second}
//   time        [{cause, axis, seconds, hidden_seconds, phase (of serving)}]: seconds add up to step_seconds
//   critical    the device that finishes last
//   memory      [{cause, bytes, tier}]: those of tier "device" add up to memory_bytes
//   memory_bytes, memory_limit (where there is one), bytes_by_device
//   peak        {device, entry, instruction, instructions, what, largest: [{name, cause, bytes}]}
//   blocks      [{name, count, stage, ops: [[name, factors]], parameters: [[name, stored]], recomputed,
//               recompute, offloaded, chunks}]
//   tensors     [{name, kind, type, sharding, tier, stage, bytes, first, last, note, count}]
//   runners_up  [{strategy, step_seconds, loses_seconds, bytes, over_bytes, why, tokens_per_second}]
//   reasons     [text]
// and with `drawings`
//   timeline    {rows: [[device, stream]], causes, labels, complete,
//               spans: [[row, cause, label, micro_batch, begin_ns, end_ns]]}
//   curve       {causes, in_time, position, bytes: [[bytes at each position] by cause]}
#pragma once

#include <string>

#include "graph/explanation.h"

namespace tessera {

std::string explanation_to_json(const Explanation& explanation, bool drawings = false);

// The explanation as one self-contained HTML page: timeline, memory, decisions, tensors, runners-up.
// The page is serialize/explanation_page.html, compiled into the library; it draws the JSON.
std::string explanation_to_page(const Explanation& explanation);

}  // namespace tessera
