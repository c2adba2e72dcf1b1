#include "runtime/random/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <set>
#include <tuple>

#include "runtime/random/random.h"

namespace shoal::philox {
namespace {

struct KnownAnswer {
  Words counter;
  uint32_t key0, key1;
  Words expected;
};

// From the test vectors that come with Random123.
TEST(Philox, GivesTheKnownAnswersOfRandom123) {
  const KnownAnswer answers[] = {
      {{{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
      {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
       0xffffffff,
       0xffffffff,
       {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
      {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
       0xa4093822,
       0x299f31d0,
       {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
  };
  for (const KnownAnswer& answer : answers) {
    const Words words = philox4x32_10(answer.counter, answer.key0, answer.key1);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(words.w[i], answer.expected.w[i]);
  }
}

TEST(Philox, EveryPartOfAStreamChangesItsKey) {
  std::set<std::tuple<uint32_t, uint32_t, uint32_t>> keys;
  constexpr uint64_t kHigh = uint64_t{1} << 32;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, kHigh}) {
    for (const uint32_t purpose : {0u, 1u}) {
      for (const uint64_t layer : {uint64_t{0}, uint64_t{1}, kHigh}) {
        for (const uint64_t step : {uint64_t{0}, uint64_t{1}, kHigh}) {
          const StreamKey key = stream_key(seed, purpose, layer, step);
          keys.insert({key.key[0], key.key[1], key.tag});
        }
      }
    }
  }
  EXPECT_EQ(keys.size(), 54u);
}

// A checkpoint and a recipe's seed mean these numbers: they may never change.
TEST(Philox, TheMappingFromStreamsToBitsIsFrozen) {
  const StreamKey key = stream_key(1, 2, 3, 4);
  const Words words = words_at(key, (uint64_t{5} << 32) + 6, 7);
  const uint32_t expected[] = {0xddb8628a, 0xcf8d0d1d, 0xdf91539f, 0xa79bad03};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(words.w[i], expected[i]);
}

TEST(Philox, ScaleToIsTheHighHalfOfTheProduct) {
  const uint64_t counts[] = {1, 2, 3, 10, 0xFFFFFFFFu, uint64_t{1} << 32, UINT64_MAX};
  for (uint32_t block = 0; block < 1000; ++block) {
    const Words words = words_at(stream_key(1, 1, 1, 1), 0, block);
    const uint64_t bits = uint64_t{words.w[1]} << 32 | words.w[0];
    for (const uint64_t count : counts) {
      const auto product = static_cast<unsigned __int128>(bits) * count;
      EXPECT_EQ(scale_to(words, count), static_cast<uint64_t>(product >> 64));
    }
  }
}

/// |value - reference| in units of the last place of the reference; infinity for a NaN.
template <class Real>
double ulps(Real value, long double reference) {
  if (std::isnan(value)) return std::numeric_limits<double>::infinity();
  const Real magnitude =
      std::max(std::abs(static_cast<Real>(reference)), std::numeric_limits<Real>::min());
  const Real unit = std::nextafter(magnitude, std::numeric_limits<Real>::infinity()) - magnitude;
  return static_cast<double>(std::abs(static_cast<long double>(value) - reference) / unit);
}

template <class Real>
class PhiloxMath : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(PhiloxMath, Reals);

TYPED_TEST(PhiloxMath, LogIsWithinTwoUlps) {
  double worst = 0;
  for (int i = 1; i < 400000; ++i) {
    const auto x = static_cast<TypeParam>(std::exp2(-53.0 * i / 400000.0) * (1 + i % 7 * 1e-4));
    worst = std::max(worst, ulps(log(x), std::log(static_cast<long double>(x))));
  }
  EXPECT_LT(worst, 2.0);
  EXPECT_EQ(log(TypeParam(1)), TypeParam(0));
}

TYPED_TEST(PhiloxMath, LogOfComplementIsWithinTwoUlps) {
  double worst = 0;
  for (int i = 1; i < 400000; ++i) {
    const TypeParam small = static_cast<TypeParam>(std::exp2(-50.0 * i / 400000.0));
    for (const TypeParam v : {small, 1 - small}) {
      if (v <= 0 || v >= 1) continue;
      worst = std::max(worst, ulps(log_of_complement(v), std::log1p(-static_cast<long double>(v))));
    }
  }
  EXPECT_LT(worst, 2.0);
}

TYPED_TEST(PhiloxMath, SinCosAreWithinTwoUlpsInEveryQuadrant) {
  double worst = 0;
  for (int i = 0; i <= 100000; ++i) {
    const auto x = static_cast<TypeParam>(i / 100000.0 - 0.5);
    const long double angle = static_cast<long double>(x) * std::numbers::pi_v<long double> / 2;
    const long double s = std::sin(angle);
    const long double c = std::cos(angle);
    const long double sines[] = {s, c, -s, -c};
    for (uint32_t quadrant = 0; quadrant < 4; ++quadrant) {
      const SinCos<TypeParam> result = sincos_of_quarters(quadrant, x);
      worst = std::max(worst, ulps(result.sin, sines[quadrant]));
      worst = std::max(worst, ulps(result.cos, sines[(quadrant + 1) % 4]));
    }
  }
  EXPECT_LT(worst, 2.0);
}

TEST(Philox, UniformNumbersStayInsideTheOpenIntervalAtTheExtremes) {
  for (const uint32_t w : {0u, 0xFFFFFFFFu}) {
    EXPECT_GT(uniform_of(w), 0.0f);
    EXPECT_LT(uniform_of(w), 1.0f);
    EXPECT_GT(fine_uniform_of(w), 0.0f);
    EXPECT_LT(fine_uniform_of(w), 1.0f);
    EXPECT_GT(uniform_of(w, w), 0.0);
    EXPECT_LT(uniform_of(w, w), 1.0);
    EXPECT_TRUE(std::isfinite(gumbel_of(fine_uniform_of(w))));
    EXPECT_TRUE(std::isfinite(gumbel_of(uniform_of(w, w))));
  }
  EXPECT_EQ(uniform_of(0u), 0x1p-24f);
  EXPECT_EQ(uniform_of(0xFFFFFFFFu), 1 - 0x1p-24f);
  EXPECT_EQ(uniform_of(0u, 0u), 0x1p-53);
  EXPECT_EQ(uniform_of(0xFFFFFFFFu, 0xFFFFFFFFu), 1 - 0x1p-53);
}

TEST(Philox, FineUniformNumbersGrowWithTheirBits) {
  float last = 0;
  for (uint64_t w = 0; w <= 0xFFFFFFFFu; w += 99991) {
    const float value = fine_uniform_of(static_cast<uint32_t>(w));
    ASSERT_GE(value, last) << w;
    last = value;
  }
}

/// Compares the vectorised rows with plain calls, which this file compiles for the oldest
/// processor: contraction or an approximate instruction would show here.
template <class Real, Distribution kDistribution, class Rows>
void expect_rows_equal_plain_calls(const Rows& rows) {
  constexpr int64_t kRows = 4000;
  constexpr uint32_t kBlocks = 5;
  const torch::Tensor id_N = torch::arange(kRows) * 0x123456789;
  const torch::Tensor drawn_NP = rows(Stream{1, Purpose{2}, 3, 4}, id_N, kBlocks * kLanes<Real>,
                                      c10::CppTypeToScalarType<Real>::value);
  const Real* drawn = drawn_NP.template const_data_ptr<Real>();
  for (int64_t row = 0; row < kRows; ++row) {
    for (uint32_t block = 0; block < kBlocks; ++block, drawn += kLanes<Real>) {
      Real plain[kLanes<Real>];
      const auto id = static_cast<uint64_t>(row) * 0x123456789;
      values_of<kDistribution>(words_at(stream_key(1, 2, 3, 4), id, block), plain);
      ASSERT_EQ(std::memcmp(plain, drawn, sizeof(plain)), 0) << row << " " << block;
    }
  }
}

TYPED_TEST(PhiloxMath, VectorisedRowsEqualPlainCallsBitByBit) {
  expect_rows_equal_plain_calls<TypeParam, Distribution::kUniform>(uniform_rows);
  expect_rows_equal_plain_calls<TypeParam, Distribution::kNormal>(normal_rows);
  expect_rows_equal_plain_calls<TypeParam, Distribution::kGumbel>(gumbel_rows);
}

}  // namespace
}  // namespace shoal::philox
