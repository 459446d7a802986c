package dev.tessera;

import dev.tessera.raw.Callbacks;
import dev.tessera.raw.Raw;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SeekableByteChannel;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.DoubleConsumer;

/**
 * A graph, named parameter values, a tokenizer and metadata. Values of a file stay in the file, which must not be written to
 * while the model lives. What is done with a model's file, without loading it, is in {@link ModelFiles}.
 */
public final class Model extends Handle {
  Model(Callbacks.Source source, long pointer) {
    super("model", Raw::tsr_model_free, false, source, pointer);
  }

  /** From a .tsr, GGUF or safetensors file, or a Hugging Face folder. */
  public static Model load(Path path) {
    byte[] name = Text.path("path", path);
    return new Model(null, Native.made(out -> Raw.tsr_model_load(name, out)));
  }

  /**
   * The same in steps: progress, which may be null, hears the share that is done, and an interrupt or a {@link Cancellation}
   * ends it. Options: verify.
   */
  public static Model load(Path path, Map<String, ?> options, DoubleConsumer progress) {
    byte[] name = Text.path("path", path);
    try (OptionSet set = new OptionSet(options);
        Work loading = new Work(Native.made(out -> Raw.tsr_model_begin_load(0, name, set.pointer, out)));
        Use use = loading.use()) {
      Work.run(use, null, progress);
      return new Model(null, Native.made(out -> Raw.tsr_model_finish(use.pointer, out)));
    }
  }

  /**
   * From a file in a direct buffer, such as a mapped one, from its position to its limit. The model keeps the memory, whose
   * content must stay as it is until the model, and what was made from it, is freed.
   */
  public static Model load(ByteBuffer file) {
    ByteBuffer slice = Tensor.direct("file", file);
    return new Model(null, Native.made(out -> Raw.tsr_raw_model_load_bytes(slice, out)));
  }

  /** From a channel, which is the model's from here on: it is closed once nothing reads it any more. */
  public static Model load(SeekableByteChannel channel) throws IOException {
    return load(ModelSource.of(channel));
  }

  /** From whatever yields the bytes of a file. */
  public static Model load(ModelSource source) throws IOException {
    long size = Native.required("source", source).size();
    Callbacks.Source callbacks = ModelSource.callbacks(source);
    long[] out = new long[1];
    TesseraException.check(Raw.tsr_raw_model_load_reader(callbacks, size, out), callbacks);
    return new Model(callbacks, out[0]);
  }

  /** Without weights, from family and sizes: "llama:L=2,C=64,H=4,F=128,V=256,T=128". Options: seed. */
  public static Model create(String description, Map<String, ?> options) {
    byte[] given = Text.name("description", description);
    try (OptionSet set = new OptionSet(options)) {
      return new Model(null, Native.made(out -> Raw.tsr_model_new(given, set.pointer, out)));
    }
  }

  /** From a graph of one's own, which is copied. Options: seed. */
  public static Model of(Graph graph, Map<String, ?> options) {
    try (Use use = use(graph, "graph"); OptionSet set = new OptionSet(options)) {
      return new Model(null, Native.made(out -> Raw.tsr_model_new_from_graph(use.pointer, set.pointer, out)));
    }
  }

  /**
   * A model with new low-rank adapters, which alone train. Options: rank, alpha, on, exclude, layers, ranks, alphas, rslora,
   * dora, init, dropout, also.
   */
  public Model withAdapters(Map<String, ?> options) {
    try (Use use = use(); OptionSet set = new OptionSet(options)) {
      return new Model(source(), Native.made(use, out -> Raw.tsr_model_add_adapters(use.pointer, set.pointer, out)));
    }
  }

  /**
   * The model of a method of training, "full", "lora" or "qlora:TYPE", as {@link Plan#methods} names them.
   * adapters: options of {@link #withAdapters}.
   */
  public Model forMethod(String method, Map<String, ?> adapters) {
    byte[] given = Text.name("method", method);
    try (Use use = use(); OptionSet set = new OptionSet(adapters)) {
      return new Model(source(),
          Native.made(use, out -> Raw.tsr_model_for_method(use.pointer, given, set.pointer, out)));
    }
  }

  /** A model with the adapters of a file: a folder of PEFT, or a GGUF adapter. */
  public Model loadAdapters(Path path) {
    byte[] name = Text.path("path", path);
    try (Use use = use()) {
      return new Model(source(), Native.made(use, out -> Raw.tsr_model_load_adapters(use.pointer, name, 0, out)));
    }
  }

  /**
   * A model with this many rows in its token table and head; 0: the table's, or the tokenizer's tokens where those are more.
   * Options: tokens (a JSON array of texts), special, multiple, seed.
   */
  public Model resizeTokens(long rows, Map<String, ?> options) {
    try (Use use = use(); OptionSet set = new OptionSet(options)) {
      return new Model(source(),
          Native.made(use, out -> Raw.tsr_model_resize_tokens(use.pointer, rows, set.pointer, out)));
    }
  }

  /** A model without adapters that computes what this does. */
  public Model mergeAdapters() {
    try (Use use = use()) {
      return new Model(source(), Native.made(use, out -> Raw.tsr_model_merge_adapters(use.pointer, out)));
    }
  }

  /** Writes a .tsr file, all of it or nothing. */
  public void save(Path path) {
    save(path, null);
  }

  /** The same. Options: compress. */
  public void save(Path path, Map<String, ?> options) {
    byte[] name = Text.path("path", path);
    try (Use use = use(); OptionSet set = new OptionSet(options)) {
      use.check(Raw.tsr_model_save(use.pointer, name, set.pointer));
    }
  }

  /**
   * The same in steps: progress, which may be null, hears the share that is done, and an interrupt or a {@link Cancellation}
   * ends it, with what was at the path unchanged. Nobody must write to the model meanwhile. Options: those of
   * {@link ModelFiles#convert(Model, Path, Map, DoubleConsumer)}, which this is.
   */
  public void save(Path path, Map<String, ?> options, DoubleConsumer progress) {
    ModelFiles.convert(this, Text.path("path", path), options, progress);
  }

  /**
   * Writes a .tsr file with weights in fewer bits; the model stays as it is. runtime, which may be null, is the one whose
   * {@link Runtime#cancel} ends it. Options: type, which is needed, and the others of {@link ModelFiles#convert}. JSON: what each
   * tensor became, and its error.
   */
  public String quantize(Runtime runtime, Path path, Map<String, ?> options) {
    byte[] name = Text.path("path", path);
    try (Use r = optional(runtime); Use use = use(); OptionSet set = new OptionSet(options)) {
      Runnable cancel = runtime == null ? () -> {} : runtime::cancel;
      return Native.text(use, out -> Cancellation.guard(cancel,
          () -> Raw.tsr_model_quantize(r.pointer, use.pointer, name, set.pointer, out)));
    }
  }

  /** JSON: what the model holds. */
  public String info() {
    try (Use use = use()) {
      return Native.text(use, out -> Raw.tsr_model_info(use.pointer, out));
    }
  }

  /** The value of a key of the metadata; empty where there is none. */
  public Optional<String> metadata(String key) {
    byte[] name = Text.name("key", key);
    try (Use use = use()) {
      return Optional.ofNullable(Native.shortText(use,
          (buffer, size) -> Raw.tsr_model_metadata(use.pointer, name, buffer, size)));
    }
  }

  /** Sets it; "" removes it. */
  public void setMetadata(String key, String value) {
    byte[] name = Text.name("key", key);
    byte[] given = Text.name("value", value);
    try (Use use = use()) {
      use.check(Raw.tsr_model_set_metadata(use.pointer, name, given));
    }
  }

  /** Names of the parameters, in the graph's order. */
  public List<String> parameters() {
    long[] count = new long[1];
    List<String> names = new ArrayList<>();
    try (Use use = use()) {
      use.check(Raw.tsr_model_parameter_count(use.pointer, count));
      for (long i = 0; i < count[0]; ++i) {
        long number = i;
        names.add(Native.shortText(use,
            (buffer, size) -> Raw.tsr_model_parameter_name(use.pointer, number, buffer, size)));
      }
    }
    return names;
  }

  /** A parameter's value: a view, which stays as it was when the model changes. */
  public Tensor read(String parameter) {
    byte[] name = Text.name("parameter", parameter);
    try (Use use = use()) {
      return new Tensor(source(), Native.made(use, out -> Raw.tsr_model_read(use.pointer, name, out)));
    }
  }

  /** Sets a parameter's value; the model keeps the tensor's memory. */
  public void write(String parameter, Tensor value) {
    byte[] name = Text.name("parameter", parameter);
    try (Use use = use(); Use given = use(value, "value")) {
      use.check(Raw.tsr_model_write(use.pointer, name, given.pointer));
    }
  }

  /** A copy of its graph. */
  public Graph graph() {
    try (Use use = use()) {
      return new Graph(Native.made(use, out -> Raw.tsr_model_graph(use.pointer, out)));
    }
  }

  /** Its tokenizer; {@link TesseraException.NotFound} where it has none. */
  public Tokenizer tokenizer() {
    try (Use use = use()) {
      return new Tokenizer(Native.made(use, out -> Raw.tsr_model_tokenizer(use.pointer, out)));
    }
  }

  /** Gives it a tokenizer; null removes it. */
  public void setTokenizer(Tokenizer tokenizer) {
    try (Use use = use(); Use given = optional(tokenizer)) {
      use.check(Raw.tsr_model_set_tokenizer(use.pointer, given.pointer));
    }
  }
}
