package dev.tessera;

/**
 * What happened in a {@link Run}.
 *
 * @param kind what it tells
 * @param step steps that the trainer has made
 * @param loss with STEP and EVALUATION; else 0
 * @param details JSON object, which the header describes at TSR_RUN_*
 */
public record RunEvent(Kind kind, long step, double loss, String details) {
  /** What an event tells. */
  public enum Kind {
    /** Never given out: the run has ended. */
    END,
    /** An optimizer step. */
    STEP,
    /** An evaluation of held-out data. */
    EVALUATION,
    /** A text of the model. */
    SAMPLE,
    /** A checkpoint is whole. */
    CHECKPOINT,
    /** A slice of the result is written. */
    PROGRESS,
    /** Why a run ends early; what a file cannot hold. */
    NOTE,
    /** What was not written, and is tried again. */
    WARNING
  }
}
