// DraftBackoff: pauses speculation while it is slower than plain decoding. It compares the time of steps
// with drafts, drafting included, to the estimated time without. A pause lasts until the loss is a small
// share of all time, and doubles with each failure ("exponential back-off"). One thread at a time.
#pragma once

#include <cstdint>

namespace tessera {

class DraftBackoff {
 public:
  // Whether the next step has drafts. Occasional steps without drafts keep their time known.
  bool is_drafting() const { return pause_s_ <= 0 && since_plain_ < kStepsUntilPlain; }
  void record_plain(double seconds);
  // Records a step with drafts: its time `spent_s`, of which `catch_up_s` prepared
  // new texts, and the estimate `plain_s` for the same tokens without drafts.
  void record_drafted(double plain_s, double spent_s, double catch_up_s);

 private:
  void begin_pause(double step_s);

  static constexpr int64_t kStepsUntilPlain = 64;
  double pause_s_ = 0;  // remaining time without drafts
  int64_t since_plain_ = 0, failures_ = 0;
  // Since drafting began: steps, their decayed plain and spent
  // times, the total loss, and the catch-up time not yet amortized.
  int64_t steps_ = 0;
  double plain_s_ = 0, spent_s_ = 0, lost_s_ = 0, ahead_s_ = 0;
};

}  // namespace tessera
