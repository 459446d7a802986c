import dev.tessera.Hooks;
import dev.tessera.Model;
import dev.tessera.ModelSource;
import dev.tessera.Runtime;
import java.nio.ByteBuffer;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/** Callbacks on threads that Java does not know, which throw now and then; over the library that threads.c makes. */
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
    callbacks();
  }

  /** At its end threads still start, which the end of the program does not wait for. */
  private static void callbacks() {
    AtomicInteger thrown = new AtomicInteger();
    Thread.setDefaultUncaughtExceptionHandler((thread, what) -> thrown.incrementAndGet());
    AtomicInteger records = new AtomicInteger();
    AtomicInteger wrong = new AtomicInteger();
    AtomicInteger allocations = new AtomicInteger();
    AtomicInteger frees = new AtomicInteger();
    AtomicInteger starts = new AtomicInteger();
    Hooks.Memory memory = new Hooks.Memory() {
      @Override
      public long allocate(long bytes, long alignment) {
        if (bytes == 64) {
          throw new StackOverflowError("wanted");
        }
        return allocations.incrementAndGet() * alignment;
      }

      @Override
      public void deallocate(long address, long bytes) {
        frees.incrementAndGet();
        throw new IllegalStateException("wanted");
      }
    };
    Runtime runtime = new Runtime(null, new Hooks() {
      @Override
      public Memory memory() {
        return memory;
      }

      @Override
      public void threadStarted(String role, int number) {
        starts.incrementAndGet();
      }
    });
    int told = thrown.get();
    runtime.setLog(record -> {
      records.incrementAndGet();
      if (!record.text().equals("a record") && !record.text().equals("no UTF-8: \uFFFD")) {
        wrong.incrementAndGet();
      }
      throw new IllegalStateException("wanted");
    });
    while (starts.get() < 100) {
      Thread.onSpinWait();
    }
    if (allocations.get() != 8 * 199 || frees.get() != 8 * 199 || told != 8 * 200 || records.get() != 8 * 200 || wrong.get() != 0
        || thrown.get() != 2 * 8 * 200) {
      System.out.println("FAILED: " + allocations + " allocations, " + frees + " frees, " + told + " thrown; " + records
          + " records, " + wrong + " wrong, " + thrown + " thrown");
      System.exit(1);
    }
    System.out.println("ok: Java: " + records + " records and " + allocations + " allocations of such threads, and an end meanwhile");
  }
}
