import dev.tessera.Chat;
import dev.tessera.Engine;
import dev.tessera.Event;
import dev.tessera.Model;
import dev.tessera.Request;
import dev.tessera.Runtime;
import dev.tessera.TesseraException;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * The core of a chat server for many users, without sockets: a thread for each user; the twin of samples/c/chat_server.c.
 *
 * <pre>ChatServer [--stream] MODEL [TOKENS [DEVICES [TEMPERATURE [TEMPLATE]]]]   e.g.  ChatServer chat.gguf 200 cpu:4 0.7</pre>
 */
public final class ChatServer {
  private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

  private final Engine engine;
  private final Map<String, ?> options;
  private final boolean streams;

  private ChatServer(Engine engine, Map<String, ?> options, boolean streams) {
    this.engine = engine;
    this.options = options;
    this.streams = streams;
  }

  private final class User extends Thread {
    private final BlockingQueue<Optional<String>> lines = new LinkedBlockingQueue<>(); // that wait; empty: no more come
    private final List<Chat.Message> messages = new ArrayList<>();
    private volatile Request request = null; // the latest

    User(String name) {
      super(name);
    }

    private void say(String text) {
      OUT.println(getName() + ": " + text.replaceAll("[\\x00-\\x1f]", " "));
    }

    @Override
    public void run() {
      try {
        for (Optional<String> line = lines.take(); line.isPresent(); line = lines.take()) {
          try {
            answer(line.get());
          } catch (TesseraException e) { // this user's matter alone
            say(e.getMessage());
          }
        }
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
    }

    private void answer(String line) {
      List<Chat.Message> asked = new ArrayList<>(messages);
      asked.add(new Chat.Message("user", line));
      request = engine.submitMessages(asked, options);
      StringBuilder text = new StringBuilder();
      for (Iterator<Event> events = request.events(); events.hasNext();) {
        String piece = events.next().text();
        text.append(piece);
        if (streams && !piece.isEmpty()) {
          say(piece);
        }
      }
      asked.add(new Chat.Message("assistant", text.toString()));
      messages.clear();
      messages.addAll(asked);
      if (!streams) {
        say(text.toString());
      }
    }

    void take(String line) {
      if (!line.equals("/stop")) {
        lines.add(Optional.of(line));
        return;
      }
      lines.clear();
      Request latest = request;
      if (latest != null) {
        latest.cancel(); // nothing happens to one that has ended
      }
    }
  }

  /** Ends when no more lines come and all are answered. */
  private void serve(BufferedReader input) throws IOException, InterruptedException {
    Map<String, User> users = new LinkedHashMap<>();
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      String[] parts = line.strip().split("\\s+", 2);
      if (parts[0].isEmpty()) {
        continue;
      }
      User user = users.get(parts[0]);
      if (user == null) {
        user = new User(parts[0]);
        users.put(parts[0], user);
        user.start();
      }
      user.take(parts.length > 1 ? parts[1] : "");
    }
    for (User user : users.values()) {
      user.lines.add(Optional.empty());
      user.join();
    }
  }

  public static void main(String[] args) throws IOException, InterruptedException {
    boolean streams = args.length > 0 && args[0].equals("--stream");
    List<String> given = List.of(args).subList(streams ? 1 : 0, args.length);
    if (given.isEmpty()) {
      System.err.println("usage: ChatServer [--stream] MODEL [TOKENS [DEVICES [TEMPERATURE [TEMPLATE]]]]");
      System.exit(2);
    }
    Map<String, ?> options = Map.of(
        "max_tokens", given.size() > 1 ? Long.parseLong(given.get(1)) : 200,
        "devices", given.size() > 2 ? given.get(2) : "cpu:1",
        "temperature", given.size() > 3 ? Double.parseDouble(given.get(3)) : 0.0);
    Map<String, ?> perRequest = given.size() > 4 ? Map.of("template", given.get(4)) : Map.of();
    try (Runtime runtime = new Runtime();
        Model model = Model.load(Path.of(given.get(0)));
        Engine engine = new Engine(runtime, model, options)) {
      BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
      new ChatServer(engine, perRequest, streams).serve(input);
    } catch (TesseraException e) {
      System.err.println(e.code().text() + ": " + e.getMessage());
      System.exit(1);
    }
  }
}
