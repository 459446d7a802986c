// The head of a classifier, as metadata of models: names of its classes, the kind of problem, and the function that makes
// scores of its logits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

// A JSON list of texts; transformers' problem_type; the name of a ClassActivation, or of a function that is none of them.
inline constexpr std::string_view kLabelsKey = "labels", kProblemTypeKey = "problem_type",
                                  kClassActivationKey = "class_activation";

enum class ClassActivation : uint8_t { kNone, kSigmoid, kSoftmax, kTanh };
std::string_view name_of(ClassActivation activation);  // "none", "sigmoid", ...
std::optional<ClassActivation> class_activation_from_name(std::string_view name);

// The names that PyTorch's modules have in files of cross encoders: "torch.nn.modules.linear.Identity" is kNone.
std::string_view torch_module(ClassActivation activation);
std::optional<ClassActivation> class_activation_from_torch(std::string_view module);

// kUnsupported unless it is "", or regression, single_label_classification or multi_label_classification.
Status check_problem_type(std::string_view problem_type, std::string_view where);

// The activation of a model with metadata kClassActivationKey `named` and kProblemTypeKey `problem_type`, either may be
// empty: the one named; else that of transformers' text-classification pipeline, which is none for a regression, a sigmoid
// of each for several labels at once and for one class alone, else softmax. kUnsupported for an unknown one.
Result<ClassActivation> class_activation(std::string_view named, std::string_view problem_type, int64_t classes);

// The names in metadata kLabelsKey; empty where there are none.
std::vector<std::string> class_labels(std::string_view metadata);

// logits [classes] -> scores, in place.
void apply(ClassActivation activation, std::span<float> row);

}  // namespace tessera
