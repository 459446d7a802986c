package dev.tessera;

import dev.tessera.raw.Raw;

/** The devices that a plan is made for and a session runs on. Immutable. */
public final class Devices extends Handle {
  /** text: "cpu:4", "cuda", "cuda:0,1". */
  public Devices(Runtime runtime, String text) {
    super("devices object", Raw::tsr_devices_free, false, null, make(runtime, text));
  }

  private static long make(Runtime runtime, String text) {
    byte[] wanted = Text.name("devices", text);
    try (Use use = use(runtime, "runtime")) {
      return Native.made(out -> Raw.tsr_devices_open(use.pointer, wanted, out));
    }
  }

  /** How many there are. */
  public int count() {
    try (Use use = use()) {
      return Raw.tsr_devices_count(use.pointer);
    }
  }

  /** JSON: each one's name, memory and rates, and the link between them. */
  public String info() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_devices_info(use.pointer, out));
    }
  }
}
