// The head of a classifier in a model's metadata: class names,
// kind of problem, and the function from logits to scores.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

// Metadata keys: a JSON list of texts; transformers' problem_type; the name of a ClassActivation or of an unknown function.
inline constexpr std::string_view kLabelsKey = "labels", kProblemTypeKey = "problem_type",
                                  kClassActivationKey = "class_activation";

enum class ClassActivation : uint8_t { kNone, kSigmoid, kSoftmax, kTanh };
std::string_view name_of(ClassActivation activation);  // "none", "sigmoid", ...
std::optional<ClassActivation> class_activation_from_name(std::string_view name);

// The name of the PyTorch module in files of cross encoders: "torch.nn.modules.linear.Identity" for kNone.
std::string_view torch_module(ClassActivation activation);
std::optional<ClassActivation> class_activation_from_torch(std::string_view module);

// kUnsupported except for "", regression, single_label_classification and multi_label_classification.
Status check_problem_type(std::string_view problem_type, std::string_view where);

// The activation for metadata kClassActivationKey `named` and kProblemTypeKey `problem_type`, either may
// be empty: the named one; else that of transformers' text-classification pipeline: none for a regression,
// sigmoid for several labels at once or a single class, else softmax. kUnsupported for an unknown one.
Result<ClassActivation> class_activation(std::string_view named, std::string_view problem_type, int64_t classes);

// The names in metadata kLabelsKey, or empty.
std::vector<std::string> class_labels(std::string_view metadata);

// logits [classes] -> scores, in place.
void apply(ClassActivation activation, std::span<float> row);

}  // namespace tessera
