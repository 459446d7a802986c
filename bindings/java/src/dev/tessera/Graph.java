package dev.tessera;

import dev.tessera.raw.Raw;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.function.ToLongBiFunction;

/** A model as a graph of ops, built node by node or read from text. */
public final class Graph extends Handle {
  private static final int MAX_RANK = Raw.TSR_MAX_RANK;

  /** A tensor of one graph. */
  public record Value(Graph graph, int number) {}

  /** Type of a value; extents that are symbols are negative, as {@link #symbol} gave them. */
  public record Type(DType dtype, List<Long> dims) {}

  /** An empty one. */
  public Graph() {
    this(Native.made(Raw::tsr_graph_new));
  }

  Graph(long pointer) {
    super("graph", Raw::tsr_graph_free, true, null, pointer);
  }

  /** The graph of a text, as {@link #text} makes it. */
  public static Graph parse(String text) {
    byte[] given = Text.bytes("text", text);
    return new Graph(Native.made(out -> Raw.tsr_graph_parse(given, out)));
  }

  /** Its text. */
  public String text() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_graph_print(use.pointer, out));
    }
  }

  /** An extent that is known later: "B", the batch, and "T", the sequence, are bound by trainers. */
  public long symbol(String name) {
    return symbol(name, 0);
  }

  /** The same with its largest value; 0: no limit. */
  public long symbol(String name, long capacity) {
    byte[] given = Text.name("name", name);
    long[] extent = new long[1];
    try (Use use = use()) {
      use.check(Raw.tsr_graph_symbol(use.pointer, given, capacity, extent));
    }
    return extent[0];
  }

  /** Declares an input. */
  public Value input(String name, DType dtype, long... dims) {
    byte[] given = Text.name("name", name);
    int number = Native.required("dtype", dtype).number();
    long[] extents = Native.required("dims", dims);
    int[] out = new int[1];
    try (Use use = use()) {
      use.check(Raw.tsr_graph_input(use.pointer, given, number, extents, out));
    }
    return new Value(this, out[0]);
  }

  /** Declares a parameter. */
  public Value parameter(String name, DType dtype, long... dims) {
    byte[] given = Text.name("name", name);
    int number = Native.required("dtype", dtype).number();
    long[] extents = Native.required("dims", dims);
    int[] out = new int[1];
    try (Use use = use()) {
      use.check(Raw.tsr_graph_parameter(use.pointer, given, number, extents, out));
    }
    return new Value(this, out[0]);
  }

  /** Adds a node; its first result. */
  public Value node(String op, Value... inputs) {
    return node(op, Arrays.asList(Native.required("inputs", inputs)), null);
  }

  /** The same with attributes. */
  public Value node(String op, List<Value> inputs, Map<String, ?> attributes) {
    List<Value> results = nodes(op, inputs, attributes);
    if (results.isEmpty()) {
      throw TesseraException.invalid("op " + op + " has no result, wanted one: call nodes");
    }
    return results.get(0);
  }

  /** Adds a node; all its results. */
  public List<Value> nodes(String op, List<Value> inputs, Map<String, ?> attributes) {
    byte[] name = Text.name("op", op);
    int[] numbers = new int[Native.required("inputs", inputs).size()];
    for (int i = 0; i < numbers.length; ++i) {
      numbers[i] = number("input " + i + " of " + op, inputs.get(i));
    }
    int[] outputs = new int[64];
    long[] count = new long[1];
    try (Use use = use(); OptionSet set = new OptionSet(attributes)) {
      use.check(Raw.tsr_graph_node(use.pointer, name, numbers, set.pointer, outputs, count));
    }
    List<Value> results = new ArrayList<>();
    for (int i = 0; i < Math.min(count[0], outputs.length); ++i) {
      results.add(new Value(this, outputs[i]));
    }
    return results;
  }

  private int number(String what, Value value) {
    if (value == null || value.graph() != this) {
      throw TesseraException.invalid(what + (value == null ? " is null" : " is a value of another graph") + ", wanted one of this");
    }
    return value.number();
  }

  private long unsigned(String what, Value value) {
    return Integer.toUnsignedLong(number(what, value));
  }

  /** Scope of the nodes added from here on: "block.0.attention". */
  public void scope(String scope) {
    byte[] given = Text.name("scope", scope);
    try (Use use = use()) {
      use.check(Raw.tsr_graph_scope(use.pointer, given));
    }
  }

  /** Gives a value another name. */
  public void rename(Value value, String name) {
    byte[] given = Text.name("name", name);
    try (Use use = use()) {
      use.check(Raw.tsr_graph_rename(use.pointer, unsigned("value", value), given));
    }
  }

  /** A parameter that is not trainable gets no gradient, no optimizer state and no memory for either. */
  public void setTrainable(Value parameter, boolean trainable) {
    try (Use use = use()) {
      use.check(Raw.tsr_graph_set_trainable(use.pointer, unsigned("parameter", parameter), trainable ? 1 : 0));
    }
  }

  /** Makes a value fetchable under a name. */
  public void output(String name, Value value) {
    byte[] given = Text.name("name", name);
    try (Use use = use()) {
      use.check(Raw.tsr_graph_output(use.pointer, given, unsigned("value", value)));
    }
  }

  /** The value of a name. */
  public Value find(String name) {
    byte[] given = Text.name("name", name);
    int[] out = new int[1];
    try (Use use = use()) {
      use.check(Raw.tsr_graph_find(use.pointer, given, out));
    }
    return new Value(this, out[0]);
  }

  /** Type of a value. */
  public Type type(Value value) {
    int[] dtype = new int[1];
    int[] rank = new int[1];
    long[] dims = new long[MAX_RANK];
    try (Use use = use()) {
      use.check(Raw.tsr_graph_type(use.pointer, unsigned("value", value), dtype, rank, dims));
    }
    return new Type(DType.of(dtype[0]), Arrays.stream(dims, 0, rank[0]).boxed().toList());
  }

  /** With the inputs "labels" and "loss_scale" and the output "loss" of a language model. */
  public Graph tokenLoss() {
    return derived(Raw::tsr_graph_token_loss);
  }

  /** With the input "segments", which tells padding from text. */
  public Graph segments() {
    return derived(Raw::tsr_graph_segments);
  }

  /** The loss alone. */
  public Graph evaluation() {
    return derived(Raw::tsr_graph_evaluation);
  }

  /** The whole training step. Options: optimizer and its settings, clip_norm, loss_scaling. */
  public Graph training(Map<String, ?> options) {
    try (OptionSet set = new OptionSet(options)) {
      return derived((graph, out) -> Raw.tsr_graph_training(graph, set.pointer, out));
    }
  }

  /**
   * One step of a language model over sequences whose keys and values are in pages. Options: context, rows, page_size,
   * pages, sample.
   */
  public Graph decoding(Map<String, ?> options) {
    try (OptionSet set = new OptionSet(options)) {
      return derived((graph, out) -> Raw.tsr_graph_decoding(graph, set.pointer, out));
    }
  }

  private Graph derived(ToLongBiFunction<Long, long[]> call) {
    try (Use use = use()) {
      return new Graph(Native.made(use, out -> call.applyAsLong(use.pointer, out)));
    }
  }

  /** JSON: what it computes, reads, writes and keeps on one device. Options: batch, symbols, nodes. */
  public String profile(Map<String, ?> options) {
    try (Use use = use(); OptionSet set = new OptionSet(options)) {
      return Native.text(use, out -> Raw.tsr_graph_profile(use.pointer, set.pointer, out));
    }
  }
}
