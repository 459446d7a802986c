package dev.tessera;

import dev.tessera.raw.Raw;

/** The library itself. */
public final class Tessera {
  private Tessera() {}

  /** The library's version: major * 10000 + minor * 100 + patch. */
  public static int version() {
    return (int) Raw.tsr_version();
  }

  /**
   * Throws {@link TesseraException.Unsupported} where a program for {@code version} does not run with the library. That of
   * this package is checked when it is loaded.
   */
  public static void checkVersion(int version) {
    if (version < 0) {
      throw TesseraException.invalid("version: found " + version + ", wanted major * 10000 + minor * 100 + patch");
    }
    TesseraException.check(Raw.tsr_version_check(version));
  }
}
