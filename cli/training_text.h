// Texts of `tessera train`, during the training and at its end.
#pragma once

#include <string>

#include "command.h"

namespace cli {

// The text ", 12.00 MiB in a file" of a device of tsr_trainer_report with tensors in a file; "" of others.
std::string offloaded_text(const Json& device);
// The line of progress of the details of TSR_RUN_STEP:
// "step 30/200  loss 2.1033  held out 2.2012  12034 tokens/s  1 min 20 s left  12.00 MiB".
std::string step_text(const Json& step);
// "loss 2.31 nats a token, perplexity 10.1, 45.2 % of 1200 tokens predicted", of tsr_trainer_evaluate_all.
std::string evaluation_text(const Json& evaluation);
// "sample  prompt | text", on one line; of the details of TSR_RUN_SAMPLE.
std::string sample_text(const Json& sample);
// "checkpoints of 12 MiB to F every 20 steps ...; the model of 4 MiB to tuned.tsr", of tsr_run_report.
std::string kept_text(const Json& report);
// The lines of a result of `train --json`; `out` empty: nothing was written.
void print_result(const Json& result, const std::string& out);

}  // namespace cli
