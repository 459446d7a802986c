/** Trains and runs models on every device of a machine: the Java form of the C library Tessera. */
module dev.tessera {
  exports dev.tessera;
}
