// Log probabilities of answers under the reference of a preference loss: computed once before the first step, by a
// program of their own that is gone when the training's is loaded.
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

// Two sums for each row of the dataset, those for training and then those for evaluation: of the chosen and the rejected
// answer; of single answers, of the row's own and of its mismatched one (Dataset::fill_mismatched in groups of a batch).
// The reference is settings.reference, a model's file, or else `model` as it is given, without its adapters. Taken from
// the dataset's cache where that has them. `seed` draws values that `model` has not. kInvalidArgument for a reference of
// another vocabulary.
Result<std::vector<double>> reference_logprobs(const std::shared_ptr<Runtime>& runtime,
                                               const std::shared_ptr<SharedModel>& model, uint64_t seed,
                                               const Dataset& dataset, const TrainerSettings& settings);

// Sums of the log probabilities [batch, width] that `entry` computed, over each of `answers` equal parts of a row:
// [batch, answers].
Result<std::vector<double>> answer_sums(ProgramRunner& runner, std::string_view entry, const BatchRows& rows,
                                        int64_t answers);

}  // namespace tessera
