// Scope: the variables of a part of a template, within those of the enclosing parts.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace tessera::jinja {

struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;

  // Compares names linearly, and adds their number to `compared`.
  const Value* find(std::string_view name, size_t& compared) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
      ++compared;
      for (const auto& [key, value] : scope->variables) {
        ++compared;
        if (key == name) return &value;
      }
    }
    return nullptr;
  }
  // Sets it in this scope, never in an enclosing one.
  void set(std::string_view name, Value value, size_t& compared) {
    for (auto& [key, held] : variables) {
      ++compared;
      if (key == name) {
        held = std::move(value);
        return;
      }
    }
    variables.emplace_back(std::string(name), std::move(value));
  }
};

}  // namespace tessera::jinja
