#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define SHOAL_HOST_DEVICE __host__ __device__ __forceinline__
#elif defined(__GNUC__)
#define SHOAL_HOST_DEVICE [[gnu::always_inline]] inline
#else
#define SHOAL_HOST_DEVICE inline
#endif

/// Counter-based random numbers with equal bits on CPU and GPU: each number is a function of its
/// key alone, independent of other numbers, ranks and threads.
///
/// A stream (seed, purpose, layer, step) becomes a `StreamKey`. In it, value `index` of row `id` is
/// value `index % kLanes` of the block with Philox counter (id, index / kLanes).
///
/// A block has 128 bits: 4 float or 2 double values of any distribution (`kLanes`). Float values
/// are not rounded double values: a uniform float has 23 random bits, a uniform double 52.
///
/// Floating-point numbers are only processed by +, ×, fma and sqrt, which IEEE 754 rounds
/// correctly; products and sums meet only inside fma, so that compilers cannot contract anything.
/// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3" (Philox4x32-10); Box
/// and Muller 1958. The polynomials are minimax fits made for this file.
namespace shoal::philox {

/// 128 random bits.
struct Words {
  uint32_t w[4];
};

/// Key of a stream; `tag` fills the word of the Philox counter that row and block do not use.
struct StreamKey {
  uint32_t key[2];
  uint32_t tag;
};

enum class Distribution : int {
  kUniform,  ///< in the open interval (0, 1)
  kNormal,   ///< mean 0, standard deviation 1; at most 6.7 (float) or 8.6 (double) from 0
  kGumbel,   ///< -log(-log(u)); from -2.9 to 22.2 (float), from -3.7 to 36.8 (double)
};

/// Number of values in a block.
template <class Real>
inline constexpr uint32_t kLanes = 16 / sizeof(Real);

SHOAL_HOST_DEVICE Words philox4x32_10(Words counter, uint32_t key0, uint32_t key1) {
  Words x = counter;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * x.w[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * x.w[2];
    x = {{static_cast<uint32_t>(product1 >> 32) ^ x.w[1] ^ key0, static_cast<uint32_t>(product1),
          static_cast<uint32_t>(product0 >> 32) ^ x.w[3] ^ key1, static_cast<uint32_t>(product0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return x;
}

/// The key of a stream: (layer, step) encrypted under a key made of (seed, purpose).
SHOAL_HOST_DEVICE StreamKey stream_key(uint64_t seed, uint32_t purpose, uint64_t layer,
                                       uint64_t step) {
  const Words run = philox4x32_10(
      {{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), purpose, 0x53484F41u}},
      0x243F6A88u, 0x85A308D3u);
  const Words draw =
      philox4x32_10({{static_cast<uint32_t>(layer), static_cast<uint32_t>(layer >> 32),
                      static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)}},
                    run.w[0], run.w[1]);
  return {{draw.w[0], draw.w[1]}, draw.w[2]};
}

/// The bits of values [block · kLanes, (block + 1) · kLanes) of row `id`.
SHOAL_HOST_DEVICE Words words_at(const StreamKey& key, uint64_t id, uint32_t block) {
  return philox4x32_10(
      {{block, static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32), key.tag}}, key.key[0],
      key.key[1]);
}

/// An integer in [0, count): the high half of a 64-bit product.
SHOAL_HOST_DEVICE uint64_t scale_to(const Words& words, uint64_t count) {
  const uint64_t low = uint64_t{words.w[0]} * (count & 0xFFFFFFFFu);
  const uint64_t mid0 = uint64_t{words.w[1]} * (count & 0xFFFFFFFFu);
  const uint64_t mid1 = uint64_t{words.w[0]} * (count >> 32);
  const uint64_t high = uint64_t{words.w[1]} * (count >> 32);
  const uint64_t carry = (low >> 32) + (mid0 & 0xFFFFFFFFu) + (mid1 & 0xFFFFFFFFu);
  return high + (mid0 >> 32) + (mid1 >> 32) + (carry >> 32);
}

// ---- arithmetic that compilers cannot contract or approximate

#if defined(__CUDA_ARCH__)
SHOAL_HOST_DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
SHOAL_HOST_DEVICE double fma(double a, double b, double c) { return __fma_rn(a, b, c); }
SHOAL_HOST_DEVICE float root(float a) { return __fsqrt_rn(a); }
SHOAL_HOST_DEVICE double root(double a) { return __dsqrt_rn(a); }
#else
SHOAL_HOST_DEVICE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
SHOAL_HOST_DEVICE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
SHOAL_HOST_DEVICE float root(float a) { return __builtin_sqrtf(a); }
SHOAL_HOST_DEVICE double root(double a) { return __builtin_sqrt(a); }
#endif

template <class To, class From>
SHOAL_HOST_DEVICE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

/// Horner's rule; highest power first. Unrolled, so that callers' loops can be vectorised.
template <class Real, class... Coefficients>
SHOAL_HOST_DEVICE Real polynomial(Real x, Real first, Coefficients... coefficients) {
  Real sum = first;
  ((sum = fma(sum, x, coefficients)), ...);
  return sum;
}

/// Polynomials, and constants to split a number into exponent and mantissa.
template <class Real>
struct Numbers;

template <>
struct Numbers<float> {
  using Bits = uint32_t;
  static constexpr int kMantissaBits = 23;
  static constexpr Bits kTwoThirds = 0x3F2AAAABu;
  static constexpr Bits kExponentOffset = 128;
  static constexpr Bits kMagicBits = 0x4B000000u;  // 2^23
  static constexpr float kMagic = 8388608.0f;
  static constexpr float kLog2 = 0x1.62e43p-1f;
  /// log(1 + f) = f + f²(-1/2 + f·log_tail(f)) for f in [-1/3, 1/3], relative error 2^-27.
  SHOAL_HOST_DEVICE static float log_tail(float f) {
    return polynomial(f, -0x1.07eebap-3f, 0x1.1e6b38p-3f, -0x1.f31aa6p-4f, 0x1.1ed63ap-3f,
                      -0x1.559d7ep-3f, 0x1.99d034p-3f, -0x1.fffef2p-3f, 0x1.555506p-2f);
  }
  /// For |x| <= 1/2: sin(xπ/2) = x·sin_over_x(x²), 2^-28; cos(xπ/2) = 1 + x²·cos_tail(x²), 2^-33.
  SHOAL_HOST_DEVICE static float sin_over_x(float square) {
    return polynomial(square, -0x1.2d9302p-8f, 0x1.465e92p-4f, -0x1.4abbbap-1f, 0x1.921fb6p+0f);
  }
  SHOAL_HOST_DEVICE static float cos_tail(float square) {
    return polynomial(square, 0x1.d9d58p-11f, -0x1.55c5ep-6f, 0x1.03c1dep-2f, -0x1.3bd3ccp+0f);
  }
};

template <>
struct Numbers<double> {
  using Bits = uint64_t;
  static constexpr int kMantissaBits = 52;
  static constexpr Bits kTwoThirds = 0x3FE5555555555555u;
  static constexpr Bits kExponentOffset = 1024;
  static constexpr Bits kMagicBits = 0x4330000000000000u;  // 2^52
  static constexpr double kMagic = 4503599627370496.0;
  static constexpr double kLog2 = 0x1.62e42fefa39efp-1;
  /// Polynomials as for float; relative errors 2^-56, 2^-58 and 2^-64.
  SHOAL_HOST_DEVICE static double log_tail(double f) {
    return polynomial(
        f, 0x1.5a19c85c93d8bp-4, -0x1.6136ef8501779p-4, 0x1.58621a25aa7ecp-5, -0x1.76b868aa16a4fp-5,
        0x1.ef31894cacaabp-5, -0x1.05c3fdb82e9ccp-4, 0x1.1072fd495f4e6p-4, -0x1.2413ee3e2e742p-4,
        0x1.3b1cf0a988af7p-4, -0x1.555c05b7f9146p-4, 0x1.745cbff4bd64ep-4, -0x1.9999621cca213p-4,
        0x1.c71c73bcd2d59p-4, -0x1.0000008569000p-3, 0x1.2492492169d49p-3, -0x1.555555540d653p-3,
        0x1.999999999e6adp-3, -0x1.000000000095dp-2, 0x1.5555555555543p-2);
  }
  SHOAL_HOST_DEVICE static double sin_over_x(double square) {
    return polynomial(square, 0x1.e3eeda978efe1p-25, -0x1.e30063ad7ec11p-19, 0x1.50782fca4650ep-13,
                      -0x1.32d2cce2d5425p-8, 0x1.466bc67758700p-4, -0x1.4abbce625be41p-1,
                      0x1.921fb54442d18p+0);
  }
  SHOAL_HOST_DEVICE static double cos_tail(double square) {
    return polynomial(square, -0x1.b263c544b9b98p-28, 0x1.f9cc40b33a125p-22, -0x1.a6d1ec7e1413cp-16,
                      0x1.e1f5068367bd1p-11, -0x1.55d3c7e3c9280p-6, 0x1.03c1f081b5aaep-2,
                      -0x1.3bd3cc9be45dep+0);
  }
};

/// exponent · log(2) + log(1 + f).
template <class Real>
SHOAL_HOST_DEVICE Real log_of_parts(Real exponent, Real f) {
  using N = Numbers<Real>;
  const Real inner = fma(f, N::log_tail(f), Real(-0.5));
  return fma(exponent, N::kLog2, fma(f * f, inner, f));
}

/// x = (1 + f) · 2^exponent with 1 + f in [2/3, 4/3).
template <class Real>
struct LogParts {
  Real exponent, f;
};

template <class Real>
SHOAL_HOST_DEVICE LogParts<Real> log_parts(Real x) {
  using N = Numbers<Real>;
  using Bits = typename N::Bits;
  constexpr Bits kOffset = N::kExponentOffset << N::kMantissaBits;
  const Bits bits = bits_as<Bits>(x);
  const Bits shifted = (bits - N::kTwoThirds + kOffset) >> N::kMantissaBits;
  const Bits mantissa = bits - (shifted << N::kMantissaBits) + kOffset;
  const Real exponent =
      bits_as<Real>(N::kMagicBits | shifted) - (N::kMagic + static_cast<Real>(N::kExponentOffset));
  return {exponent, bits_as<Real>(mantissa) - Real(1)};
}

/// Natural logarithm of a positive normal number, within 2 ulp.
template <class Real>
SHOAL_HOST_DEVICE Real log(Real x) {
  const LogParts<Real> parts = log_parts(x);
  return log_of_parts(parts.exponent, parts.f);
}

/// log(1 - v) for v in (0, 1), within 2 ulp also for small v.
template <class Real>
SHOAL_HOST_DEVICE Real log_of_complement(Real v) {
  const Real u = Real(1) - v;
  const Real lost = (Real(1) - u) - v;
  const LogParts<Real> parts = log_parts(u);
  // For small v the exponent is 0 and f becomes -v; elsewhere `lost` is negligible.
  return log_of_parts(parts.exponent, parts.f + lost);
}

template <class Real>
struct SinCos {
  Real sin, cos;
};

/// Sine and cosine of (quadrant + x) · π/2, |x| <= 1/2, within 2 ulp.
template <class Real>
SHOAL_HOST_DEVICE SinCos<Real> sincos_of_quarters(uint32_t quadrant, Real x) {
  using N = Numbers<Real>;
  const Real square = x * x;
  const Real sin = x * N::sin_over_x(square);
  const Real cos = fma(square, N::cos_tail(square), Real(1));
  const bool swaps = (quadrant & 1u) != 0;
  const Real s = swaps ? cos : sin;
  const Real c = swaps ? sin : cos;
  return {(quadrant & 2u) != 0 ? -s : s, ((quadrant + 1u) & 2u) != 0 ? -c : c};
}

// ---- from bits to numbers

/// Uniform in (0, 1): odd multiples of 2^-24.
SHOAL_HOST_DEVICE float uniform_of(uint32_t w) {
  return fma(static_cast<float>(static_cast<int32_t>(w >> 9)), 0x1p-23f, 0x1p-24f);
}

/// Uniform in (0, 1) from 31 random bits, scaled by 1 - 2^-24 so that float rounding never gives 1.
SHOAL_HOST_DEVICE float fine_uniform_of(uint32_t w) {
  const uint32_t k = (w >> 1) - (w >> 25);
  return fma(static_cast<float>(static_cast<int32_t>(k)), 0x1p-31f, 0x1p-32f);
}

/// Uniform in (0, 1): odd multiples of 2^-53.
SHOAL_HOST_DEVICE double uniform_of(uint32_t high, uint32_t low) {
  const uint64_t word = (uint64_t{high} << 32 | low) & 0x000FFFFFFFFFFFFFu;
  return bits_as<double>(0x3FF0000000000000u | word) - (1.0 - 0x1p-53);
}

/// -log(-log(1 - v)). Accurate for small v, whose Gumbel value is large.
template <class Real>
SHOAL_HOST_DEVICE Real gumbel_of(Real v) {
  return -log(-log_of_complement(v));
}

/// A pair of normal values: radius from u in (0, 1), angle from quadrant and x in [-1/2, 1/2].
template <class Real>
SHOAL_HOST_DEVICE void box_muller(Real u, uint32_t quadrant, Real x, Real* out) {
  const Real radius = root(Real(-2) * log(u));
  const SinCos<Real> angle = sincos_of_quarters(quadrant, x);
  out[0] = radius * angle.cos;
  out[1] = radius * angle.sin;
}

SHOAL_HOST_DEVICE void box_muller(uint32_t w0, uint32_t w1, float* out) {
  const int32_t centred = static_cast<int32_t>(w1 & 0x3FFFFFFFu) - (1 << 29);
  box_muller(fine_uniform_of(w0), w1 >> 30, static_cast<float>(centred) * 0x1p-30f, out);
}

template <Distribution kDistribution>
SHOAL_HOST_DEVICE float value_of(uint32_t w) {
  static_assert(kDistribution != Distribution::kNormal, "normal values come in pairs");
  return kDistribution == Distribution::kUniform ? uniform_of(w) : gumbel_of(fine_uniform_of(w));
}

/// Writes the kLanes values of a block, 4 float or 2 double, to `out`.
template <Distribution kDistribution>
SHOAL_HOST_DEVICE void values_of(const Words& words, float* out) {
  if constexpr (kDistribution == Distribution::kNormal) {
    box_muller(words.w[0], words.w[1], out);
    box_muller(words.w[2], words.w[3], out + 2);
  } else {
    out[0] = value_of<kDistribution>(words.w[0]);
    out[1] = value_of<kDistribution>(words.w[1]);
    out[2] = value_of<kDistribution>(words.w[2]);
    out[3] = value_of<kDistribution>(words.w[3]);
  }
}

template <Distribution kDistribution>
SHOAL_HOST_DEVICE void values_of(const Words& words, double* out) {
  const double u0 = uniform_of(words.w[0], words.w[1]);
  const double u1 = uniform_of(words.w[2], words.w[3]);
  if constexpr (kDistribution == Distribution::kNormal) {
    box_muller(u0, words.w[2] >> 30, u1 - 0.5, out);
  } else if constexpr (kDistribution == Distribution::kUniform) {
    out[0] = u0;
    out[1] = u1;
  } else {
    out[0] = gumbel_of(u0);
    out[1] = gumbel_of(u1);
  }
}

}  // namespace shoal::philox
