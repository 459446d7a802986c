#include "graph/op_columns.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "graph/op_def.h"

namespace tessera {
namespace {

std::vector<Attr> product_attrs(int64_t trans_w) {
  return {{"trans_w", trans_w}, {"activation", std::string("none")}};
}

bool has_attr(const OpDef& op, std::string_view name) {
  return std::ranges::find(op.attrs, name, &AttrSpec::name) != op.attrs.end();
}

TEST_CASE("ops_that_columns_name_are_in_the_registry") {
  for (const OpDef* op : all_ops()) {
    CAPTURE(op->name);
    std::vector<std::string_view> named = {
        op->weight.logical_op,    op->scaled_op,      op->stochastic_op,
        op->fused.with_addend,    op->fused.with_sum, op->fused.with_product,
        op->fused.joint_gradient, op->priced_as,      op->chunk_merge};
    named.insert(named.end(), op->loss.statistics.begin(), op->loss.statistics.end());
    if (op->weight.stored_op != nullptr)
      for (const int64_t trans : {0, 1}) named.push_back(op->weight.stored_op(product_attrs(trans)));
    for (const std::string_view name : named) {
      CAPTURE(name);
      CHECK((name.empty() || find_op(name) != nullptr));
    }
  }
}

TEST_CASE("the_stored_form_of_a_product_names_the_product_that_it_stands_for") {
  for (const OpDef* op : all_ops()) {
    if (op->weight.stored_op == nullptr) continue;
    CAPTURE(op->name);
    for (const int64_t trans : {0, 1}) {
      const OpDef& stored = *find_op(op->weight.stored_op(product_attrs(trans)));
      CHECK(stored.weight.logical_op == op->name);
      CHECK(stored.weight.logical_trans_w == trans);
      CHECK(stored.weight.operand == op->weight.operand);
    }
  }
}

TEST_CASE("columns_that_depend_on_others_come_with_them") {
  for (const OpDef* op : all_ops()) {
    CAPTURE(op->name);
    if (op->weight.use != WeightUse::kOther) CHECK(op->weight.operand >= 0);
    if (op->weight.use == WeightUse::kProduct) CHECK(has_attr(*op, "trans_w"));
    if (op->weight.use == WeightUse::kRows) CHECK(op->index.into == op->weight.operand);
    if (op->index.operand >= 0) CHECK(op->index.into >= 0);
    if (op->context.added_operands != nullptr) CHECK(op->context.segments >= 0);
    if (op->context.keys >= 0 || op->context.segments >= 0) CHECK(op->context.mixes_tokens);
    if (op->row_state >= 0) CHECK(std::ranges::find(op->in_place, op->row_state) != op->in_place.end());
    if (op->sums_into >= 0) CHECK(std::ranges::find(op->in_place, op->sums_into) != op->in_place.end());
    if (op->context.keys >= 0) CHECK((op->context.values >= 0 && has_attr(*op, "window")));
    if (op->routing_scores >= 0) CHECK(has_attr(*op, "capacity"));
    if (op->is_noise) CHECK((has_attr(*op, "p") && has_attr(*op, "salt")));
    if (op->is_cast) CHECK(has_attr(*op, "dtype"));
    if (op->algebra == Algebra::kMultiple) CHECK(has_attr(*op, "factor"));
    if (op->algebra == Algebra::kSlice)
      CHECK((has_attr(*op, "dim") && has_attr(*op, "begin") && has_attr(*op, "end")));
    if (!op->stochastic_op.empty()) CHECK((op->is_update && has_attr(*find_op(op->stochastic_op), "salt")));
    if (op->loss.row_max >= 0) CHECK(op->loss.picked >= 0);
    if (op->loss.head != LossHead::kNone && !op->loss.is_gradient) CHECK(bool(op->phases));
  }
}

}  // namespace
}  // namespace tessera
