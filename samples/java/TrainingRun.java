import dev.tessera.Dataset;
import dev.tessera.Model;
import dev.tessera.Run;
import dev.tessera.RunEvent;
import dev.tessera.Runtime;
import dev.tessera.TesseraException;
import dev.tessera.Tokenizer;
import dev.tessera.Trainer;
import java.math.BigDecimal;
import java.math.MathContext;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/**
 * Trains a model on a text with evaluations, the best checkpoint, patience, samples and a report, as {@code tessera train} does.
 * Where an earlier run with the same OUT was killed, it goes on from that one's checkpoint; the twin of samples/c/training_run.c.
 *
 * <pre>TrainingRun MODEL DATA OUT [STEPS]        e.g.  TrainingRun small.tsr notes.txt tuned.tsr 60</pre>
 */
public final class TrainingRun {
  public static void main(String[] args) {
    if (args.length < 3) {
      System.err.println("usage: TrainingRun MODEL DATA OUT [STEPS]");
      System.exit(2);
    }
    String out = args[2];
    Map<String, Object> options = new HashMap<>(Map.of("out", out, "eval_every", 10, "keep_best", true, "patience", 3,
        "keep", 2, "samples", "Once upon a time", "report", out + ".html"));
    try {
      options.put("resume", Run.resumedFolder(Path.of(out)));
    } catch (TesseraException.NotFound e) {
      // It begins.
    }
    long steps = args.length > 3 ? Long.parseLong(args[3]) : 60;
    try (Runtime runtime = new Runtime();
        Model model = Model.load(Path.of(args[0]));
        Tokenizer tokenizer = model.tokenizer();
        Dataset dataset = Dataset.open(Path.of(args[1]), tokenizer, Map.of("seq", 32, "eval_fraction", 0.1));
        Trainer trainer = new Trainer(runtime, model, dataset, Map.of("batch", 8, "lr", 1e-3, "steps", steps));
        Run run = new Run(trainer, options)) {
      run.stream().map(TrainingRun::line).forEach(System.out::println);
      System.out.println(run.outcome().orElseThrow());
    } catch (TesseraException e) {
      System.err.println(e.code().text() + ": " + e.getMessage());
      System.exit(1);
    }
  }

  private static String line(RunEvent event) {
    String loss = new BigDecimal(event.loss()).round(new MathContext(9)).stripTrailingZeros().toPlainString();
    return switch (event.kind()) {
      case STEP -> "step " + event.step() + " loss " + loss;
      case EVALUATION -> "eval_loss " + loss;
      default -> event.details();
    };
  }
}
