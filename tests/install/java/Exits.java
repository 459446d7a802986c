import dev.tessera.Engine;
import dev.tessera.Event;
import dev.tessera.Model;
import dev.tessera.Request;
import dev.tessera.Runtime;
import dev.tessera.Tokenizer;
import java.util.Iterator;
import java.util.Map;

/** Ends while requests are in progress, some of which are waited for, and nothing is closed. */
final class Exits {
  private Exits() {}

  public static void main(String[] arguments) {
    Runtime runtime = new Runtime();
    Model model = Model.create("llama:L=2,C=64,H=4,F=128,V=256,T=8192", null);
    model.setTokenizer(Tokenizer.bytes());
    Engine engine = new Engine(runtime, model, Map.of("context", 4000, "cache_tokens", 20000));
    Request first = engine.submit("A", null);
    engine.submit("A", Map.of("logits", true)).text();
    Given.daemon(() -> {
      for (Iterator<Event> events = engine.submit("A", Map.of("logits", true)).events(); events.hasNext();) {
        events.next();
      }
    });
    Engine other = new Engine(runtime, model, Map.of("context", 4000));
    other.submit("A", null);
    Given.daemon(() -> other.events().forEachRemaining(event -> {}));
    first.events().next();
    System.out.println("ended");
  }
}
