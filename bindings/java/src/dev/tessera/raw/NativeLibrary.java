package dev.tessera.raw;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;

/**
 * Finds and loads libtessera_java.so, and libtessera.so with it. In this order:
 *
 * <ol>
 *   <li>the folder of the system property {@code dev.tessera.library.path}, and no other place then;
 *   <li>java.library.path, where a package of the system puts it;
 *   <li>the natives jar on the class path, unpacked to a private folder under java.io.tmpdir or, where nothing there may
 *       be executed, under the cache folder.
 * </ol>
 */
final class NativeLibrary {
  private static final String FILE = "libtessera_java.so";

  private NativeLibrary() {}

  static void load() {
    List<String> tried = new ArrayList<>();
    String folder = System.getProperty("dev.tessera.library.path");
    if (folder != null) {
      System.load(Path.of(folder).toAbsolutePath().resolve(FILE).toString());
    } else if (!loadInstalled(tried) && !loadUnpacked(tried)) {
      throw new UnsatisfiedLinkError("tessera: " + FILE + " was not found; tried " + String.join("; ", tried)
          + ". Put tessera-natives.jar on the class path, or name its folder by -Ddev.tessera.library.path");
    }
    checkVersion();
  }

  private static boolean loadInstalled(List<String> tried) {
    try {
      System.loadLibrary("tessera_java");
      return true;
    } catch (UnsatisfiedLinkError e) {
      tried.add("java.library.path: " + e.getMessage());
      return false;
    }
  }

  private static boolean loadUnpacked(List<String> tried) {
    String platform = "linux-" + (System.getProperty("os.arch").equals("amd64") ? "x86_64" : System.getProperty("os.arch"));
    String resources = "dev/tessera/natives/" + platform + "/";
    ClassLoader loader = NativeLibrary.class.getClassLoader();
    List<String> names;
    try (InputStream list = loader.getResourceAsStream(resources + "files.txt")) {
      if (list == null) {
        tried.add("the class path: no natives jar for " + platform);
        return false;
      }
      names = new String(list.readAllBytes(), StandardCharsets.UTF_8).lines().toList();
    } catch (IOException e) {
      tried.add("the natives jar: " + e);
      return false;
    }
    for (Path parent : List.of(Path.of(System.getProperty("java.io.tmpdir")), cacheFolder())) {
      try {
        loadFrom(unpack(loader, resources, names, parent), names);
        return true;
      } catch (IOException | UnsatisfiedLinkError e) {
        tried.add(parent + ": " + e.getMessage());
      }
    }
    return false;
  }

  private static Path cacheFolder() {
    String cache = System.getenv("XDG_CACHE_HOME");
    return cache != null && !cache.isEmpty() ? Path.of(cache, "tessera")
        : Path.of(System.getProperty("user.home"), ".cache", "tessera");
  }

  private static Path unpack(ClassLoader loader, String resources, List<String> names, Path parent) throws IOException {
    Files.createDirectories(parent);
    Path folder = Files.createTempDirectory(parent, "tessera-java-",
        PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
    try {
      for (String name : names) {
        try (InputStream from = loader.getResourceAsStream(resources + name)) {
          if (from == null) {
            throw new IOException("the natives jar has no " + name);
          }
          Files.copy(from, folder.resolve(name));
        }
        Files.setPosixFilePermissions(folder.resolve(name), PosixFilePermissions.fromString("rw-------"));
      }
      return folder;
    } catch (IOException e) {
      remove(folder, names);
      throw e;
    }
  }

  /**
   * What is mapped needs its files no longer, except plugins, which the library looks for next to itself later. Until the end
   * the folder stays too: were it gone, somebody else could make it again, with a plugin in it.
   */
  private static void loadFrom(Path folder, List<String> names) {
    try {
      System.load(folder.resolve(FILE).toString());
    } catch (Throwable thrown) {
      remove(folder, names);
      throw thrown;
    }
    try {
      java.lang.Runtime.getRuntime().addShutdownHook(new Thread(() -> remove(folder, names)));
    } catch (IllegalStateException e) { // loaded while the program ends
      remove(folder, names);
    }
    for (String name : names) {
      if (!name.matches("libtessera_(?!java).*")) {
        folder.resolve(name).toFile().delete();
      }
    }
  }

  private static void remove(Path folder, List<String> names) {
    try {
      for (String name : names) {
        Files.deleteIfExists(folder.resolve(name));
      }
      Files.deleteIfExists(folder);
    } catch (IOException e) {
      // A file that stays in a temporary folder is no reason to fail.
    }
  }

  private static void checkVersion() {
    long built = RawJNI.tsr_raw_header_version();
    if (built != RawConstants.TSR_VERSION) {
      throw new UnsatisfiedLinkError("tessera: " + FILE + " is of version " + built + ", these classes are of "
          + RawConstants.TSR_VERSION + ": use the jar and the library of one release");
    }
    long status = RawJNI.tsr_version_check(RawConstants.TSR_VERSION);
    if (status != 0) {
      String message = new String(RawJNI.tsr_status_message(status), StandardCharsets.UTF_8);
      RawJNI.tsr_status_free(status);
      throw new UnsatisfiedLinkError("tessera: " + message);
    }
  }
}
