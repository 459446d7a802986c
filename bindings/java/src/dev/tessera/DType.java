package dev.tessera;

import dev.tessera.raw.Raw;

/** Element types. Those from Q8_0 on are codes that mean something in blocks or with a scale; see the header's table. */
public enum DType {
  F32, F64, F16, BF16, I32, I64, I8, U8, Q8_0, Q4_0, E4M3, E5M2, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ1_S, IQ1_M,
  IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ4_NL, IQ4_XS, TQ1_0, TQ2_0, MXFP4, NVFP4, Q1_0, Q2_0, NF4;

  /** The value of tsr_dtype. */
  public int number() {
    return ordinal();
  }

  /** Its name in the library: "f32". */
  public String text() {
    return Text.string(Raw.tsr_dtype_name(number()));
  }

  static DType of(int number) {
    if (number < 0 || number >= values().length) {
      throw TesseraException.of(TesseraException.Code.UNSUPPORTED,
          "found the element type " + number + " (" + Text.string(Raw.tsr_dtype_name(number)) + "), which these classes do not "
              + "know; wanted one of their release", null);
    }
    return values()[number];
  }
}
