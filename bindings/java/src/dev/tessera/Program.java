package dev.tessera;

import dev.tessera.raw.Raw;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/** What plans come to: per device a fixed arena and a list of instructions. Immutable. */
public final class Program extends Handle {
  /** A graph with its plan, run by name. */
  public record Entry(String name, Graph graph, Plan plan) {}

  /** Entries share parameters and state by name. */
  public Program(Devices devices, List<Entry> entries) {
    super("program", Raw::tsr_program_free, false, null, make(devices, entries));
  }

  private static long make(Devices devices, List<Entry> entries) {
    List<byte[]> names = new ArrayList<>();
    List<Handle> used = new ArrayList<>();
    for (Entry entry : Native.required("entries", entries)) {
      if (entry == null || entry.graph() == null || entry.plan() == null) {
        throw TesseraException.invalid("entry " + names.size() + " has a null, wanted a name, a graph and a plan");
      }
      byte[] name = Text.name("name of entry " + names.size(), entry.name());
      names.add(java.util.Arrays.copyOf(name, name.length + 1));
      used.add(entry.graph());
      used.add(entry.plan());
    }
    List<Handle> locked = used.stream().distinct().sorted(Comparator.comparingLong(Handle::order)).toList();
    List<Use> uses = new ArrayList<>();
    try (Use d = use(devices, "devices")) {
      for (Handle handle : locked) {
        uses.add(handle.use());
      }
      long[] graphs = new long[names.size()];
      long[] plans = new long[names.size()];
      for (int i = 0; i < graphs.length; ++i) {
        graphs[i] = uses.get(locked.indexOf(used.get(2 * i))).pointer;
        plans[i] = uses.get(locked.indexOf(used.get(2 * i + 1))).pointer;
      }
      byte[] all = Native.joinedBytes("names", names);
      return Native.made(out -> Raw.tsr_raw_program_new(d.pointer, all, graphs, plans, out));
    } finally {
      uses.forEach(Use::close);
    }
  }

  /** JSON: fingerprint, bytes of each device, instructions of each entry. */
  public String info() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_program_info(use.pointer, out));
    }
  }

  /** The instructions of a device. */
  public String print(int rank) {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_program_print(use.pointer, rank, out));
    }
  }
}
