import dev.tessera.Model;
import dev.tessera.ModelSource;
import java.nio.ByteBuffer;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/** Reads of threads that Java does not know, which throw now and then; over the library that threads.c makes. */
public final class ForeignThreads {
  public static void main(String[] args) throws Exception {
    AtomicInteger reads = new AtomicInteger();
    AtomicInteger closes = new AtomicInteger();
    Set<Boolean> daemons = ConcurrentHashMap.newKeySet();
    for (int i = 0; i < 20; ++i) {
      Model.load(new ModelSource() {
        @Override
        public long size() {
          return 100;
        }

        @Override
        public void read(long offset, ByteBuffer out) {
          daemons.add(Thread.currentThread().isDaemon());
          reads.incrementAndGet();
          if (offset == 7) {
            throw new IllegalStateException("wanted");
          }
          if (offset == 8) {
            throw new StackOverflowError("wanted");
          }
          out.put((byte) 1);
        }

        @Override
        public void close() {
          closes.incrementAndGet();
          throw new IllegalStateException("wanted");
        }
      }).close();
    }
    int alive = Thread.activeCount();
    if (reads.get() != 20 * 8 * 200 || closes.get() != 20 || !daemons.equals(Set.of(true)) || alive > 2) {
      System.out.println("FAILED: " + reads + " reads, " + closes + " closes, daemons " + daemons + ", threads " + alive);
      System.exit(1);
    }
    System.out.println("ok: Java: " + reads + " reads of threads that Java did not know, which it has forgotten again");
  }
}
