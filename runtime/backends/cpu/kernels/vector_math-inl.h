// Vector exp, tanh, erf and the activations made of them, f32. Included once per instruction set.
#if defined(TSR_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TSR_VECTOR_MATH_INL_H_
#undef TSR_VECTOR_MATH_INL_H_
#else
#define TSR_VECTOR_MATH_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// exp(x), relative error below 1.5e-7 (Cephes polynomial on [-ln2/2, ln2/2]). Below -87.3 the result is 0,
// above 88.7 infinity; NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V fast_exp(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V bounded = hn::Min(hn::Max(x, hn::Set(d, -87.336544f)), hn::Set(d, 88.722839f));
  const V n = hn::Round(hn::Mul(bounded, hn::Set(d, 1.44269504088896341f)));
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), bounded);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  V p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  // 2^n in two factors: n = 128 is within range of the result but not of one exponent field.
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  const auto bias = hn::Set(di, 127);
  const V scale1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const V scale2 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
  V y = hn::Mul(hn::Mul(p, scale1), scale2);
  y = hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.336544f)), y);
  y = hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.722839f)), hn::Set(d, HUGE_VALF), y);
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

// 1 / (1 + exp(-x))
template <class D, class V = hn::Vec<D>>
HWY_INLINE V fast_sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, fast_exp(d, hn::Neg(x))));
}

// tanh(x): odd polynomial near 0 (Cephes), 1 - 2 / (exp(2|x|) + 1) elsewhere; relative error below 3e-7.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V fast_tanh(D d, V x) {
  const V one = hn::Set(d, 1.0f), two = hn::Set(d, 2.0f);
  const V magnitude = hn::Abs(x);
  const V e = fast_exp(d, hn::Mul(magnitude, two));
  const V large = hn::CopySignToAbs(hn::Sub(one, hn::Div(two, hn::Add(e, one))), x);
  const V z = hn::Mul(x, x);
  V p = hn::Set(d, -5.70498872745e-3f);
  p = hn::MulAdd(p, z, hn::Set(d, 2.06390887954e-2f));
  p = hn::MulAdd(p, z, hn::Set(d, -5.37397155531e-2f));
  p = hn::MulAdd(p, z, hn::Set(d, 1.33314422036e-1f));
  p = hn::MulAdd(p, z, hn::Set(d, -3.33332819422e-1f));
  const V small = hn::MulAdd(hn::Mul(p, z), x, x);
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.625f)), small, large);
}

// The standard normal distribution function 0.5 (1 + erf(x / sqrt 2)); absolute error below 1.5e-7
// (Abramowitz and Stegun 7.1.26), relative to itself in the left tail too since erfc is not formed by
// subtraction.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V normal_cdf(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V z = hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678118654752f));
  const V t = hn::Div(one, hn::MulAdd(z, hn::Set(d, 0.3275911f), one));
  V p = hn::Set(d, 1.061405429f);
  p = hn::MulAdd(p, t, hn::Set(d, -1.453152027f));
  p = hn::MulAdd(p, t, hn::Set(d, 1.421413741f));
  p = hn::MulAdd(p, t, hn::Set(d, -0.284496736f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.254829592f));
  const V tail = hn::Mul(hn::Mul(hn::Set(d, 0.5f), hn::Mul(p, t)), fast_exp(d, hn::Neg(hn::Mul(z, z))));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
}

// gelu, tanh form: x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh(D d, V x) {
  const V u2 = hn::Mul(hn::Mul(x, hn::Set(d, 1.5957691216057308f)),
                       hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.044715f), hn::Set(d, 1.0f)));
  return hn::Mul(x, fast_sigmoid(d, u2));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_erf(D d, V x) {
  return hn::Mul(x, normal_cdf(d, x));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V silu(D d, V x) {
  return hn::Mul(x, fast_sigmoid(d, x));
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
