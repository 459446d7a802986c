package dev.tessera;

import dev.tessera.raw.Callbacks;
import dev.tessera.raw.Raw;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.function.DoubleConsumer;
import java.util.function.ToLongFunction;

/**
 * What is done with files of models, in steps and in bounded memory. progress, which may be null, hears the share that is
 * done after every step; an interrupt of the thread, or a {@link Cancellation}, ends the work. After that, or an error,
 * what was at the path written is unchanged.
 */
public final class ModelFiles {
  private ModelFiles() {}

  /** Throws where {@link Model#save} could not write {@code path} now, before hours of work. */
  public static void checkPath(Path path) {
    TesseraException.check(Raw.tsr_model_check_path(Text.path("path", path)));
  }

  /**
   * Throws where a new run would lose an earlier one's result at {@code out} or checkpoint in the folder {@code checkpoint}; it goes
   * on from {@code resumed}. Each may be an empty path.
   */
  public static void checkRunPaths(Path out, Path checkpoint, Path resumed) {
    TesseraException.check(Raw.tsr_run_check_paths(
        Text.path("out", out), Text.path("checkpoint", checkpoint), Text.path("resumed", resumed)));
  }

  /**
   * Throws what the maker of a consumer ("trainer", "run", "plan", "generator", "engine", "scorer", "embedder", "imatrix" or
   * "dataset") would throw for these options by themselves, before models and data are read.
   */
  public static void checkOptions(String consumer, Map<String, ?> options) {
    byte[] name = Text.name("consumer", consumer);
    try (OptionSet set = new OptionSet(options)) {
      TesseraException.check(Raw.tsr_options_check(set.pointer, name));
    }
  }

  /**
   * What may be meant by a word that is none of those known: the end of a message about it, such as "did you mean --lr?"; empty
   * where nothing is. The kind: "option", of another project or misspelt, or "command", of the program tessera.
   */
  public static String wordHint(String kind, String word, List<String> known) {
    byte[] kindName = Text.name("kind", kind);
    byte[] wordName = Text.name("word", word);
    Native.utf8("known", known);  // refuses null and lone surrogates
    byte[] list = Text.name("known", String.join(" ", known));
    return Native.text(null, out -> Raw.tsr_word_hint(kindName, wordName, list, out));
  }

  /**
   * Generates what the lines of a file ask for, each a JSON object such as {@code {"prompt": "Once"}}, into a file with a line of
   * results for each. fileOptions: adapters, ids, json_schema, regex, grammar, as the header lists them under
   * tsr_request_file_open; options: those of an {@link Engine}; both may be null. Failed lines have their error in their results, and are
   * counted in the report, which is JSON. What is done before an interrupt stays in {@code out} with ".part" behind its name.
   */
  public static String generate(Runtime runtime, Model model, Path in, Path out, Map<String, ?> fileOptions,
      Map<String, ?> options, DoubleConsumer progress) {
    byte[] from = Text.path("in", in);
    byte[] to = Text.path("out", out);
    long made;
    try (OptionSet set = new OptionSet(fileOptions)) {
      made = Native.made(pointer -> Raw.tsr_request_file_open(from, to, set.pointer, pointer));
    }
    try (RequestFile file = new RequestFile(model.source(), made); Handle.Use use = file.use()) {
      try (Handle.Use r = Handle.use(runtime, "runtime"); Handle.Use m = Handle.use(model, "model");
          OptionSet set = new OptionSet(options)) {
        use.check(Cancellation.guard(runtime::cancel,
            () -> Raw.tsr_request_file_start(use.pointer, r.pointer, m.pointer, set.pointer)));
      }
      Native.steps(use, null, Raw::tsr_request_file_step, progress);
      return Native.text(use, pointer -> Raw.tsr_request_file_report(use.pointer, pointer));
    }
  }

  /** Reads a .tsr file through and checks every checksum. */
  public static void verify(Path path) {
    TesseraException.check(Raw.tsr_model_verify(Text.path("path", path)));
  }

  /**
   * Writes the model's file {@code in} as the .tsr file {@code out}. Options: compress, verify, and to quantise type, pure,
   * output_type, embedding_type, imatrix, threads. JSON: what was read and what was written.
   */
  public static String convert(Path in, Path out, Map<String, ?> options, DoubleConsumer progress) {
    byte[] from = Text.path("in", in);
    byte[] to = Text.path("out", out);
    try (OptionSet set = new OptionSet(options)) {
      return convert(null, Native.made(made -> Raw.tsr_conversion_begin(0, from, to, set.pointer, made)), progress);
    }
  }

  /**
   * The same of a model in memory, which nobody must write to meanwhile: the file that {@link Model#save}, or with type
   * {@link Model#quantize}, would write.
   */
  public static String convert(Model model, Path out, Map<String, ?> options, DoubleConsumer progress) {
    return convert(model, Text.path("out", out), options, progress);
  }

  static String convert(Model model, byte[] to, Map<String, ?> options, DoubleConsumer progress) {
    try (Handle.Use use = Handle.use(model, "model"); OptionSet set = new OptionSet(options)) {
      return convert(model.source(), Native.made(use,
          made -> Raw.tsr_conversion_begin_for_model(0, use.pointer, to, set.pointer, made)), progress);
    }
  }

  static String convert(Callbacks.Source source, long conversion, DoubleConsumer progress) {
    try (Work work = new Work(source, conversion); Handle.Use use = work.use()) {
      Work.run(use, null, progress);
      return Native.text(use, made -> Raw.tsr_conversion_finish(use.pointer, made));
    }
  }

  /**
   * Writes the model's file {@code in} for other projects: a Hugging Face folder, or a GGUF file. Options: format (hf, gguf,
   * peft), adapters, merged, type, tokenizer, threads, shard_bytes, and for gguf pure, output_type, embedding_type, imatrix.
   * JSON: what was written.
   */
  public static String export(Path in, Path out, Map<String, ?> options, DoubleConsumer progress) {
    byte[] from = Text.path("in", in);
    byte[] to = Text.path("out", out);
    try (OptionSet set = new OptionSet(options)) {
      return export(made -> Raw.tsr_export_begin(0, from, to, set.pointer, made), progress);
    }
  }

  /** The same of a model in memory, which nobody must write to meanwhile. */
  public static String export(Model model, Path out, Map<String, ?> options, DoubleConsumer progress) {
    byte[] to = Text.path("out", out);
    try (Handle.Use use = Handle.use(model, "model"); OptionSet set = new OptionSet(options)) {
      return export(made -> Raw.tsr_export_begin_for_model(0, use.pointer, to, set.pointer, made), progress);
    }
  }

  private static String export(ToLongFunction<long[]> begin, DoubleConsumer progress) {
    try (Work work = new Work(Native.made(begin)); Handle.Use use = work.use()) {
      Work.run(use, null, progress);
      return Native.text(use, made -> Raw.tsr_export_finish(use.pointer, made));
    }
  }

  /**
   * Sums how large the inputs of the model's matrices are over a text of token ids, and writes an importance matrix for
   * option imatrix of {@link #convert}. Options: seq, batch, bos, name, and those that place a {@link Scorer}. JSON.
   */
  public static String writeImatrix(Runtime runtime, Model model, int[] ids, Path out, Map<String, ?> options,
      DoubleConsumer progress) {
    byte[] to = Text.path("out", out);
    Native.required("ids", ids);
    try (Handle.Use r = Handle.use(runtime, "runtime");
        Handle.Use m = Handle.use(model, "model");
        OptionSet set = new OptionSet(options);
        Work work = new Work(
            Native.made(made -> Raw.tsr_imatrix_begin(r.pointer, m.pointer, ids, to, set.pointer, made)));
        Handle.Use use = work.use()) {
      Work.run(use, runtime::cancel, progress);
      return Native.text(use, made -> Raw.tsr_imatrix_finish(use.pointer, made));
    }
  }
}
