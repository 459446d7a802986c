#include "runtime/lent_weights.h"

#include <algorithm>
#include <string>
#include <utility>

#include "graph/base/text.h"

namespace tessera {

namespace {

// The lender's piece on this rank with the box of the borrower's `piece`.
Result<const Piece*> find_lent(const RankProgram& lender, const Binding& wanted, const Piece& piece) {
  const auto refuse = [&](const std::string& why) {
    return Status(StatusCode::kUnsupported, format("parameter '{}' cannot be lent: {}", wanted.name, why));
  };
  const auto lender_binding = std::ranges::find(lender.parameters, wanted.name, &Binding::name);
  if (lender_binding == lender.parameters.end()) return refuse("the lender has no part of it on that device");
  if (lender_binding->global != wanted.global)
    return refuse(format("it is {}, wanted {}", to_text(lender_binding->global), to_text(wanted.global)));
  const auto same = std::ranges::find(lender_binding->pieces, piece.box, &Piece::box);
  if (same == lender_binding->pieces.end())
    return refuse("the lender's part on that device covers another range");
  if (lender.slots[static_cast<size_t>(same->at.slot)].tier != Tier::kDevice)
    return refuse("it is offloaded, wanted in device memory: train without offloading parameters");
  return &*same;
}

}  // namespace

Result<std::shared_ptr<const SharedWeights>> lend_weights(const Session& lender, const Program& borrower,
                                                          const std::shared_ptr<const void>& owner) {
  const Program& lender_program = lender.executable().program();
  if (lender_program.rank_set() != borrower.rank_set())
    return Status(StatusCode::kUnsupported, format("the weights are on {} devices, wanted on {}",
                                                   lender_program.rank_set().world, borrower.rank_set().world));
  auto lent = std::make_shared<SharedWeights>(borrower);
  for (size_t at = 0; at < lender_program.ranks.size(); ++at) {
    for (const Binding& wanted : borrower.ranks[at].parameters)
      for (const Piece& piece : wanted.pieces) {
        TSR_ASSIGN_OR_RETURN(const Piece* found, find_lent(lender_program.ranks[at], wanted, piece));
        const std::byte* data = lender.parameter_address(at, found->at) - piece.at.offset;
        const SharedWeight& known = lent->of_rank(at)[static_cast<size_t>(piece.at.slot)];
        if (known.data != nullptr && known.data != data)
          return Status(StatusCode::kUnsupported,
                        format("parameter '{}' cannot be lent: its pieces are not contiguous in the lender's "
                               "memory as the borrower's slot needs",
                               wanted.name));
        lent->set(at, piece.at.slot, {data, owner, false});
      }
  }
  return std::shared_ptr<const SharedWeights>(std::move(lent));
}

bool are_in_place(const Session& lender, const Program& borrower, const SharedWeights& weights) {
  const Program& lender_program = lender.executable().program();
  for (size_t at = 0; at < lender_program.ranks.size(); ++at) {
    for (const Binding& wanted : borrower.ranks[at].parameters)
      for (const Piece& piece : wanted.pieces) {
        const auto found = find_lent(lender_program.ranks[at], wanted, piece);
        const SharedWeight& lent = weights.of_rank(at)[static_cast<size_t>(piece.at.slot)];
        if (!found.ok() || lender.parameter_address(at, (*found)->at) != lent.data + piece.at.offset)
          return false;
      }
  }
  return true;
}

}  // namespace tessera
