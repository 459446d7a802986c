package dev.tessera;

import dev.tessera.raw.Callbacks;
import dev.tessera.raw.Raw;

/** A file of requests, inside one call of {@link ModelFiles#generate}. */
final class RequestFile extends Handle {
  /** source: what the values of the model are read from, or null. */
  RequestFile(Callbacks.Source source, long pointer) {
    super("request file", Raw::tsr_request_file_free, true, source, pointer);
  }
}
