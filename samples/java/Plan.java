import dev.tessera.Json;
import dev.tessera.Model;
import dev.tessera.Runtime;
import dev.tessera.TesseraException;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * Shows how a model would be trained on some devices, before anything large is allocated: the plan, the seconds of a step,
 * the bytes of each device, and what else was considered; the twin of samples/c/plan.c.
 *
 * <pre>Plan MODEL DEVICES [BATCH]        e.g.  Plan small.tsr cpu:4 8</pre>
 */
public final class Plan {
  public static void main(String[] args) {
    if (args.length < 2) {
      System.err.println("usage: Plan MODEL DEVICES [BATCH]");
      System.exit(2);
    }
    Map<String, Object> options = Map.of("devices", args[1], "batch", args.length > 2 ? Long.parseLong(args[2]) : 8);
    try (Runtime runtime = new Runtime();
        Model model = Model.load(Path.of(args[0]));
        dev.tessera.Plan plan = new dev.tessera.Plan(runtime, model, options)) {
      print(Json.object(plan.info()));
    } catch (TesseraException e) {
      System.err.println(e.code().text() + ": " + e.getMessage());
      System.exit(1);
    }
  }

  private static void print(Map<String, Object> info) {
    System.out.println("strategy " + info.get("strategy"));
    System.out.println("mesh " + (info.get("mesh").equals("") ? "none" : info.get("mesh")));
    System.out.println("step " + seconds(info.get("predicted_step_seconds")));
    for (Object item : (List<?>) info.get("devices")) {
      Map<?, ?> device = (Map<?, ?>) item;
      System.out.println("device " + device.get("name") + " " + ((Map<?, ?>) device.get("arena_bytes")).get("predicted") + " bytes");
    }
    for (Object item : (List<?>) info.get("candidates")) {
      Map<?, ?> candidate = (Map<?, ?>) item;
      System.out.println("candidate " + candidate.get("strategy") + (candidate.get("rejected").equals("")
          ? " " + seconds(candidate.get("step_seconds")) + " " + candidate.get("arena_bytes") + " bytes"
          : " rejected: " + candidate.get("rejected")));
    }
  }

  private static String seconds(Object value) {
    return String.format(Locale.ROOT, "%.6f s", ((Number) value).doubleValue());
  }
}
