// Log probabilities of answers under the reference of a preference loss,
// computed before the first step by a program that is freed before training.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/base/runtime.h"
#include "engine/data/dataset.h"
#include "engine/model/shared_model.h"
#include "engine/program/batch_rows.h"
#include "engine/settings/trainer_settings.h"

namespace tessera {

// Returns two sums per dataset row, for training rows and then evaluation rows: of
// the chosen and rejected answers; for single answers, of the row's own and its
// mismatched answer (Dataset::fill_mismatched, in groups of a batch). The reference
// is the file settings.reference, or `model` without its adapters. Cached by the
// dataset. `seed` draws absent values. kInvalidArgument for another vocabulary.
Result<std::vector<double>> reference_logprobs(const std::shared_ptr<Runtime>& runtime,
                                               const std::shared_ptr<SharedModel>& model, uint64_t seed,
                                               const Dataset& dataset, const TrainerSettings& settings);

// Sums the log probabilities [batch, width] computed by `entry`
// over `answers` equal parts of each row: [batch, answers].
Result<std::vector<double>> answer_sums(ProgramRunner& runner, std::string_view entry, const BatchRows& rows,
                                        int64_t answers);

}  // namespace tessera
