package dev.tessera;

import java.util.Map;
import java.util.Optional;

/**
 * What an {@link Engine} says of one text of a request.
 *
 * @param kind what it tells
 * @param request the request's number
 * @param index of the request's texts
 * @param token with TOKEN; -1 for text alone
 * @param text with TOKEN: whole characters, perhaps none yet; else empty
 * @param finish with END
 * @param details JSON, which the header describes under tsr_engine_next; empty where there are none
 */
public record Event(Kind kind, long request, int index, int token, String text, Generator.Finish finish, String details) {
  /** What an event tells. */
  public enum Kind {
    /** A token, and the text that became certain with it. */
    TOKEN,
    /** Never given out: a wait that found nothing. */
    PENDING,
    /** A text is complete. */
    END,
    /** Log probabilities of a part of the prompt's tokens. */
    PROMPT,
    /** Logits of the next token wait for {@link Request#answer}. */
    LOGITS
  }

  /** Why the text failed; empty for an event that is not such an END. */
  public Optional<TesseraException> failure() {
    if (kind != Kind.END || finish != Generator.Finish.FAILED) {
      return Optional.empty();
    }
    TesseraException.Code code = TesseraException.Code.INTERNAL;
    String message = "a text failed for a reason that its details do not tell";
    if (Json.object(details).get("error") instanceof Map<?, ?> error && error.get("code") instanceof Long number) {
      code = TesseraException.code(Math.toIntExact(number));
      message = String.valueOf(error.get("message"));
    }
    return Optional.of(TesseraException.of(code, message, null));
  }
}
