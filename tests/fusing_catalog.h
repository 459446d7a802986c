// A catalog that fuses: kernels that do what several do cost nothing, so that every fusion is taken; whatever
// else is asked is answered by another one.
#pragma once

#include "graph/kernel_catalog.h"
#include "parallel/lowering/kernel_fusion.h"

namespace tessera {

class FusingCatalog final : public KernelCatalog {
 public:
  // `exactly`: it fuses those alone whose results have the bits of their parts'.
  explicit FusingCatalog(const KernelCatalog& other, bool exactly = false) : other_(other), exactly_(exactly) {}
  Result<KernelChoice> query(const OpDef& op, const OpView& view) const override {
    TSR_ASSIGN_OR_RETURN(KernelChoice choice, other_.query(op, view));
    if (is_fused_form(op, view.outputs.size())) choice.seconds = 0;
    return choice;
  }
  bool fuses() const override { return !exactly_; }
  bool fuses_exactly() const override { return true; }
  uint64_t fingerprint() const override { return other_.fingerprint(); }

 private:
  const KernelCatalog& other_;
  bool exactly_;
};

}  // namespace tessera
