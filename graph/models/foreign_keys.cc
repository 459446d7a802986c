#include "graph/models/foreign_keys.h"

namespace tessera {
namespace {

template <class Map, class Value>
Value found(const Map& map, std::string_view name, Value otherwise) {
  const auto at = map.find(std::string(name));
  return at == map.end() ? otherwise : at->second;
}

}  // namespace

int64_t ForeignKeys::our_size(std::string_view ours, int64_t otherwise) const { return found(values().sizes, ours, otherwise); }
double ForeignKeys::our_real(std::string_view ours, double otherwise) const { return found(values().reals, ours, otherwise); }
bool ForeignKeys::our_flag(std::string_view ours, bool otherwise) const { return found(values().flags, ours, otherwise); }

void ForeignKeys::set_flag(std::string_view ours, bool value) {
  if (ModelConfig* const config = set_values()) config->flags[std::string(ours)] = value;
}

}  // namespace tessera
