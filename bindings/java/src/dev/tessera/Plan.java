package dev.tessera;

import dev.tessera.raw.Callbacks;
import dev.tessera.raw.Raw;
import java.nio.file.Path;
import java.util.Map;
import java.util.function.DoubleConsumer;

/**
 * How a model will be computed on some devices, with the time it should take and the bytes that each device will hold.
 * Immutable. Planning allocates none of that memory.
 */
public final class Plan extends Handle {
  Plan(long pointer) {
    super("plan", Raw::tsr_plan_free, false, null, pointer);
  }

  /** The plan that a {@link Trainer}, or with mode "generate" a {@link Generator}, would make from these options; mode, pins. */
  public Plan(Runtime runtime, Model model, Map<String, ?> options) {
    this(make(runtime, model, options));
  }

  private static long make(Runtime runtime, Model model, Map<String, ?> options) {
    try (Use r = use(runtime, "runtime"); Use m = use(model, "model"); OptionSet set = new OptionSet(options)) {
      return Native.made(m, out -> Cancellation.guard(runtime::cancel,
          () -> Raw.tsr_plan_new(r.pointer, m.pointer, set.pointer, out)));
    }
  }

  /**
   * The same in steps: progress, which may be null, hears the share that is done, and an interrupt or a {@link Cancellation}
   * ends this planning alone.
   */
  public Plan(Runtime runtime, Model model, Map<String, ?> options, DoubleConsumer progress) {
    this(make(runtime, model, options, progress));
  }

  private static long make(Runtime runtime, Model model, Map<String, ?> options, DoubleConsumer progress) {
    try (Use r = use(runtime, "runtime"); Use m = use(model, "model"); OptionSet set = new OptionSet(options)) {
      return plan(source(model),
          Native.made(m, out -> Raw.tsr_plan_begin(r.pointer, m.pointer, set.pointer, out)), progress);
    }
  }

  private static long plan(Callbacks.Source source, long pointer, DoubleConsumer progress) {
    try (Work planning = new Work(source, pointer); Use use = planning.use()) {
      Work.run(use, null, progress);
      return Native.made(use, out -> Raw.tsr_plan_finish(use.pointer, out));
    }
  }

  /**
   * JSON: the methods that could train a model, the richest first, with their bytes, and the first that fits, for {@link
   * Model#forMethod}. Options: those of {@link Trainer}, and method; adapters: those of {@link Model#withAdapters}; dataset may
   * be null.
   */
  public static String methods(Runtime runtime, Model model, Dataset dataset, Map<String, ?> options,
      Map<String, ?> adapters) {
    try (Use r = use(runtime, "runtime"); Use m = use(model, "model"); Use d = optional(dataset);
        OptionSet set = new OptionSet(options); OptionSet of = new OptionSet(adapters)) {
      return Native.text(m, out -> Cancellation.guard(runtime::cancel,
          () -> Raw.tsr_plan_methods(r.pointer, m.pointer, d == null ? 0 : d.pointer, set.pointer, of.pointer, out)));
    }
  }

  /**
   * JSON: the bytes on each device to generate a text, to train adapters and to train all parameters. Options: devices and what else
   * places a {@link Trainer}, context, seq, batch, rank.
   */
  public static String memoryNeeds(Runtime runtime, Model model, Map<String, ?> options) {
    try (Use r = use(runtime, "runtime"); Use m = use(model, "model"); OptionSet set = new OptionSet(options)) {
      return Native.text(m, out -> Cancellation.guard(runtime::cancel,
          () -> Raw.tsr_model_needs(r.pointer, m.pointer, set.pointer, out)));
    }
  }

  /**
   * JSON: the memory of a trainer and of engines over one model, together, before anything is allocated. The first two are options of
   * {@link Trainer} and of {@link Engine}; the last: engines (their number), weights (trainer or model), memory_limit of all.
   */
  public static String jointly(Runtime runtime, Model model, Dataset dataset, Map<String, ?> trainer, Map<String, ?> engine,
      Map<String, ?> options) {
    try (Use r = use(runtime, "runtime"); Use m = use(model, "model"); Use d = optional(dataset);
        OptionSet of = new OptionSet(trainer); OptionSet with = new OptionSet(engine); OptionSet set = new OptionSet(options)) {
      return Native.text(m, out -> Cancellation.guard(runtime::cancel, () -> Raw.tsr_plan_jointly(
          r.pointer, m.pointer, d == null ? 0 : d.pointer, of.pointer, with.pointer, set.pointer, out)));
    }
  }

  /** For any graph. Options: batch, symbols, parallel, pins, memory_limit. */
  public static Plan forGraph(Devices devices, Graph graph, Map<String, ?> options) {
    try (Use d = use(devices, "devices"); Use g = use(graph, "graph"); OptionSet set = new OptionSet(options)) {
      return new Plan(Native.made(out -> Raw.tsr_plan_new_for_graph(d.pointer, g.pointer, set.pointer, out)));
    }
  }

  /** The same in steps, as those of a model. */
  public static Plan forGraph(Devices devices, Graph graph, Map<String, ?> options, DoubleConsumer progress) {
    try (Use d = use(devices, "devices"); Use g = use(graph, "graph"); OptionSet set = new OptionSet(options)) {
      return new Plan(plan(null,
          Native.made(out -> Raw.tsr_plan_begin_for_graph(d.pointer, g.pointer, set.pointer, out)), progress));
    }
  }

  /** A plan of this very graph from its {@link #text}. */
  public static Plan parse(Devices devices, Graph graph, String text) {
    byte[] given = Text.bytes("text", text);
    try (Use d = use(devices, "devices"); Use g = use(graph, "graph")) {
      return new Plan(Native.made(out -> Raw.tsr_plan_parse_for_graph(d.pointer, g.pointer, given, out)));
    }
  }

  /** A plan of this very graph from a file of {@link #save}. */
  public static Plan load(Devices devices, Graph graph, Path path) {
    byte[] name = Text.path("path", path);
    try (Use d = use(devices, "devices"); Use g = use(graph, "graph")) {
      return new Plan(Native.made(out -> Raw.tsr_plan_load_for_graph(d.pointer, g.pointer, name, out)));
    }
  }

  /** As text that can be edited and given back as option plan_file. */
  public String text() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_plan_text(use.pointer, out));
    }
  }

  /** JSON: mesh, strategy, predicted seconds, bytes of each device, candidates. */
  public String info() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_plan_info(use.pointer, out));
    }
  }

  /** What one run should do, as a trace of Chrome's form; needs the option trace. */
  public String trace() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_plan_trace(use.pointer, out));
    }
  }

  /** Writes {@link #text}. */
  public void save(Path path) {
    byte[] name = Text.path("path", path);
    try (Use use = use()) {
      use.check(Raw.tsr_plan_save(use.pointer, name));
    }
  }

  /** JSON: why the plan is as it is and what it comes to. */
  public String explain() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_plan_explain(use.pointer, out));
    }
  }

  /** The same as one HTML page. */
  public String page() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_plan_page(use.pointer, out));
    }
  }

  /** JSON: what one training step takes on a cluster that need not be present. Options: cluster, which is needed, and more. */
  public static String estimate(String description, Map<String, ?> options) {
    byte[] given = Text.name("description", description);
    try (OptionSet set = new OptionSet(options)) {
      return Native.text(null, out -> Raw.tsr_plan_estimate(given, set.pointer, out));
    }
  }

  /** The same explained, as an HTML page. */
  public static String estimatePage(String description, Map<String, ?> options) {
    byte[] given = Text.name("description", description);
    try (OptionSet set = new OptionSet(options)) {
      return Native.text(null, out -> Raw.tsr_plan_estimate_page(given, set.pointer, out));
    }
  }

  /** Checks a certificate of {@link #estimate}; {@link TesseraException.Corrupt} names the first claim that does not hold. */
  public static String check(String certificate) {
    byte[] given = Text.name("certificate", certificate);
    return Native.text(null, out -> Raw.tsr_plan_check(given, out));
  }
}
