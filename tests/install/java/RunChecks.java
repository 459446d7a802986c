import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import java.util.Arrays;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.launcher.Launcher;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/** Runs test classes of JUnit 5, named by the arguments: a line for each test, and status 1 where one fails. */
public final class RunChecks implements TestExecutionListener {
  private int passed = 0;
  private int failed = 0;

  public static void main(String[] names) {
    RunChecks checks = new RunChecks();
    Launcher launcher = LauncherFactory.create();
    launcher.execute(LauncherDiscoveryRequestBuilder.request()
        .selectors(Arrays.stream(names).map(name -> selectClass(name)).toList()).build(), checks);
    System.exit(checks.failed == 0 && checks.passed > 0 ? 0 : 1);
  }

  @Override
  public void executionSkipped(TestIdentifier test, String reason) {
    ++failed;
    System.out.println("FAILED: Java: " + test.getDisplayName() + ": skipped: " + reason);
  }

  @Override
  public void executionFinished(TestIdentifier test, TestExecutionResult result) {
    if (result.getStatus() != TestExecutionResult.Status.SUCCESSFUL) {
      ++failed;
      System.out.println("FAILED: Java: " + test.getDisplayName());
      result.getThrowable().ifPresent(RunChecks::print);
    } else if (test.isTest()) {
      ++passed;
      System.out.println("ok: Java: " + test.getDisplayName());
    }
  }

  /** What was thrown, and where in the tests. */
  private static void print(Throwable thrown) {
    String text = thrown.toString();
    System.out.println("  " + text.substring(0, Math.min(text.length(), 2000)));
    for (StackTraceElement frame : thrown.getStackTrace()) {
      if (!frame.getClassName().matches("(java|jdk|org[.]junit|org[.]opentest4j)[.].*")) {
        System.out.println("    at " + frame);
      }
    }
    if (thrown.getCause() != null) {
      print(thrown.getCause());
    }
  }
}
