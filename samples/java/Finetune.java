import dev.tessera.Dataset;
import dev.tessera.Model;
import dev.tessera.Plan;
import dev.tessera.Runtime;
import dev.tessera.TesseraException;
import dev.tessera.Tokenizer;
import dev.tessera.Trainer;
import java.math.BigDecimal;
import java.math.MathContext;
import java.nio.file.Path;
import java.util.Map;

/**
 * Fine-tunes a model on a text file, on all devices named, and saves it; the twin of samples/c/finetune.c.
 *
 * <pre>Finetune MODEL TEXT OUT [DEVICES [STEPS]]        e.g.  Finetune small.tsr notes.txt tuned.tsr cpu:4 100</pre>
 */
public final class Finetune {
  public static void main(String[] args) {
    if (args.length < 3) {
      System.err.println("usage: Finetune MODEL TEXT OUT [DEVICES [STEPS]]");
      System.exit(2);
    }
    try {
      run(args);
    } catch (TesseraException e) {
      System.err.println(e.code().text() + ": " + e.getMessage());
      System.exit(1);
    }
  }

  private static void run(String[] args) {
    long steps = args.length > 4 ? Long.parseLong(args[4]) : 20;
    Map<String, Object> options = Map.of("devices", args.length > 3 ? args[3] : "cpu:2", "batch", 8, "steps", steps,
        "lr", 3e-3, "schedule", "cosine", "eval_batches", 4);
    try (Runtime runtime = new Runtime();
        Model model = Model.load(Path.of(args[0]));
        Tokenizer tokenizer = model.tokenizer();
        Dataset dataset = Dataset.open(Path.of(args[1]), tokenizer, Map.of("seq", 32, "eval_fraction", 0.05));
        Trainer trainer = new Trainer(runtime, model, dataset, options);
        Plan plan = trainer.plan()) {
      System.out.println("plan " + plan.info());
      for (long i = 0; i < steps; ++i) {
        Trainer.Step step = trainer.step();
        System.out.println("step " + step.step() + " loss " + nineDigits(step.loss()));
      }
      System.out.println("eval_loss " + nineDigits(trainer.evaluate()));
      trainer.store(model);
      model.save(Path.of(args[2]));
    }
  }

  /** As C prints %.9g. */
  private static String nineDigits(double value) {
    return new BigDecimal(value).round(new MathContext(9)).stripTrailingZeros().toPlainString();
  }
}
