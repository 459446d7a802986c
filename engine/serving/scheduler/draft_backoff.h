// DraftBackoff: whether drafts pay: what steps with them took, drafting included, against what their tokens
// would have taken without. Where they do not, they pause until the loss is a small share of all time; each further
// failure doubles that ("exponential back-off"). One thread at a time.
#pragma once

#include <cstdint>

namespace tessera {

class DraftBackoff {
 public:
  // Whether the next step has drafts. Now and then one has none, so that its time stays known.
  bool is_drafting() const { return pause_s_ <= 0 && since_plain_ < kStepsUntilPlain; }
  void record_plain(double seconds);
  // A step with drafts took so long in all, of which `catch_up_s` is for texts to come; without drafts its tokens
  // would have taken `plain_s`.
  void record_drafted(double plain_s, double spent_s, double catch_up_s);

 private:
  void begin_pause(double step_s);

  static constexpr int64_t kStepsUntilPlain = 64;
  double pause_s_ = 0;  // left of steps without guesses
  int64_t since_plain_ = 0, failures_ = 0;
  // Since drafting began: steps; what they would have taken and took, recent ones most; all that was lost; and what
  // was spent on texts to come, as far as it is not in them.
  int64_t steps_ = 0;
  double plain_s_ = 0, spent_s_ = 0, lost_s_ = 0, ahead_s_ = 0;
};

}  // namespace tessera
