// Constants of the one exponential that every kernel uses, vector and scalar alike:
//   2^y: n = y rounded to nearest even, f = y - n (exact), 2^f by a polynomial of degree 6 with
//        value 1 at 0 (minimax on [-1/2, 1/2]: relative error 1.6e-8, 0.94 ulp as evaluated in
//        f32 with FMA), then n is added to the exponent. Below -126 the result is exactly 0.
//   e^x: n = x * log2(e) rounded, r = x - n ln 2 in two parts, then 2^(r log2(e)) and n as above.
#pragma once

namespace spillway::kernels {

inline constexpr float kExp2Coefficients[] = {
    1.0f,           0x1.62e430p-1f,  0x1.ebfbdcp-3f,  0x1.c6aee8p-5f,
    0x1.3b2d4cp-7f, 0x1.5f3e54p-10f, 0x1.41fbbcp-13f,
};
inline constexpr float kExp2Low = -126.0f;
// Adding this rounds to an integer, which then stands in the low bits of the sum.
inline constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23
inline constexpr float kLog2E = 1.44269504088896341f;
// ln 2 in two parts: 17 bits, so that n * high is exact, and the rest.
inline constexpr float kLn2High = 0x1.62e4p-1f;
inline constexpr float kLn2Low = 0x1.7f7d1cp-20f;
inline constexpr float kExpHigh = 88.0f;  // exp() saturates here
inline constexpr float kExpLow = -87.0f;  // and is 0 below

// GELU's tanh form: gelu(x) = x / (1 + exp(kGeluMinusTwo * (x + kGeluCubic x^3))).
inline constexpr float kGeluCubic = 0.044715f;
inline constexpr float kGeluMinusTwo = -2.0f * 0.797884560802865356f;  // sqrt(2 / pi)

}  // namespace spillway::kernels
