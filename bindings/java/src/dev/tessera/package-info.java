/**
 * Trains and runs models on every device of a machine. A thin layer over the C library, whose header tessera.h is the manual:
 * each class has the header's noun for its name, and takes as Map the options that the header lists there, with null for all
 * defaults. Reports are JSON as text; {@link dev.tessera.Json} reads it.
 *
 * <ul>
 *   <li>{@link dev.tessera.Handle}: when objects are freed, and which thread may use them.
 *   <li>{@link dev.tessera.TesseraException}: what is thrown.
 *   <li>{@link dev.tessera.Cancellation}: how calls are ended.
 * </ul>
 *
 * <pre>{@code
 * try (Runtime runtime = new Runtime();
 *     Model model = Model.load(Path.of("tuned.tsr"));
 *     Generator generator = new Generator(runtime, model, Map.of("devices", "cpu:2", "max_tokens", 100))) {
 *   generator.texts("Once upon a time").forEach(System.out::print);
 * }
 * }</pre>
 */
package dev.tessera;
