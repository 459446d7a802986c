#include "serialize/class_head.h"

#include <algorithm>
#include <cmath>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {
namespace {

constexpr std::string_view kProblems[] = {"regression", "single_label_classification",
                                          "multi_label_classification"};

struct Row {
  ClassActivation activation;
  std::string_view name, module;
};
constexpr Row kRows[] = {{ClassActivation::kNone, "none", "torch.nn.modules.linear.Identity"},
                         {ClassActivation::kSigmoid, "sigmoid", "torch.nn.modules.activation.Sigmoid"},
                         {ClassActivation::kSoftmax, "softmax", "torch.nn.modules.activation.Softmax"},
                         {ClassActivation::kTanh, "tanh", "torch.nn.modules.activation.Tanh"}};

const Row& row_of(ClassActivation activation) {
  return *std::ranges::find(kRows, activation, &Row::activation);
}

}  // namespace

std::string_view name_of(ClassActivation activation) { return row_of(activation).name; }
std::string_view torch_module(ClassActivation activation) { return row_of(activation).module; }

std::optional<ClassActivation> class_activation_from_name(std::string_view name) {
  const auto found = std::ranges::find(kRows, name, &Row::name);
  return found == std::end(kRows) ? std::nullopt : std::optional(found->activation);
}

// By the last component: "torch.nn.Sigmoid" equals "torch.nn.modules.activation.Sigmoid".
std::optional<ClassActivation> class_activation_from_torch(std::string_view module) {
  if (!module.starts_with("torch.nn.")) return std::nullopt;
  const auto last = [](std::string_view name) { return name.substr(name.rfind('.') + 1); };
  for (const Row& row : kRows)
    if (last(module) == last(row.module)) return row.activation;
  return std::nullopt;
}

Status check_problem_type(std::string_view problem_type, std::string_view where) {
  if (problem_type.empty() || std::ranges::find(kProblems, problem_type) != std::end(kProblems)) return {};
  return Status(StatusCode::kUnsupported,
                format("{} is '{}'; wanted regression, single_label_classification, multi_label_classification "
                       "or null",
                       where, quote(problem_type, 60)));
}

Result<ClassActivation> class_activation(std::string_view named, std::string_view problem_type, int64_t classes) {
  if (!named.empty()) {
    if (const auto known = class_activation_from_name(named)) return *known;
    return Status(StatusCode::kUnsupported,
                  format("the model makes scores of its logits by '{}'; known: none (Identity), sigmoid, softmax, "
                         "tanh; its logits can be had (option output = logits)",
                         quote(named, 80)));
  }
  TSR_RETURN_IF_ERROR(check_problem_type(problem_type, "metadata 'problem_type'"));
  if (problem_type == "regression") return ClassActivation::kNone;
  if (problem_type == "multi_label_classification" || classes == 1) return ClassActivation::kSigmoid;
  return ClassActivation::kSoftmax;
}

std::vector<std::string> class_labels(std::string_view metadata) {
  std::vector<std::string> labels;
  const Result<Json> json = parse_json(metadata, kLabelsKey);
  if (!json.ok() || !json->is_array()) return labels;
  for (const Json& label : *json)
    labels.push_back(label.is_string() ? label.get<std::string>() : dump(label));
  return labels;
}

void apply(ClassActivation activation, std::span<float> row) {
  if (activation == ClassActivation::kNone || row.empty()) return;
  if (activation != ClassActivation::kSoftmax) {
    for (float& value : row) {
      const auto x = static_cast<double>(value);
      value = static_cast<float>(activation == ClassActivation::kTanh ? std::tanh(x) : 1 / (1 + std::exp(-x)));
    }
    return;
  }
  const auto most = static_cast<double>(std::ranges::max(row));
  double sum = 0;
  for (const float value : row) sum += std::exp(static_cast<double>(value) - most);
  for (float& value : row) value = static_cast<float>(std::exp(static_cast<double>(value) - most) / sum);
}

}  // namespace tessera
