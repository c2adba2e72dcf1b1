#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/records/flat_record.h"

namespace shoal {

/// One metric of a run over its steps, in bounded memory: up to 2,048 points are stored exactly;
/// beyond, neighbouring points are merged repeatedly into buckets with range and mean.
class Curve {
 public:
  static constexpr size_t kMostBuckets = 2048;

  /// Neighbouring points. `count` is 0 where no value is finite: a gap in the curve.
  struct Bucket {
    double first_step = 0, last_step = 0;
    double low = std::numeric_limits<double>::infinity();
    double high = -std::numeric_limits<double>::infinity();
    double sum = 0;
    int64_t count = 0;  ///< number of finite values

    double mean() const { return sum / static_cast<double>(count); }
    /// Merges the bucket that follows.
    void join(const Bucket& next);
  };
  struct Point {
    double step = 0, value = 0;
  };

  explicit Curve(std::string key) : key_(std::move(key)) {}
  /// Adds a point. Steps must ascend; a value that is not finite leaves a gap.
  void add(double step, double value, bool is_integer = false);

  const std::string& key() const { return key_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  int64_t num_finite() const { return num_finite_; }
  int64_t num_not_finite() const { return num_not_finite_; }
  /// True if each bucket is one point.
  bool is_whole() const { return per_bucket_ == 1; }
  // Points with finite values; step and value are 0 if there are none.
  const Point& first() const { return first_; }
  const Point& last() const { return last_; }
  const Point& lowest() const { return lowest_; }
  const Point& highest() const { return highest_; }
  /// True if all values in the file are integers, as those of counts are.
  bool is_count() const { return is_count_; }
  bool is_constant() const { return lowest_.value == highest_.value; }

 private:
  std::string key_;
  std::vector<Bucket> buckets_;
  bool is_count_ = true;
  int64_t per_bucket_ = 1, in_last_ = 0;
  int64_t num_finite_ = 0, num_not_finite_ = 0;
  Point first_, last_, lowest_, highest_;
};

/// Curves of all metrics in a file of records, one per key, in order of appearance.
class CurveSet {
 public:
  /// Adds a record's numbers except its step, and derived values: `all_to_all_share`, the share of
  /// a step's time spent waiting for the all-to-all.
  void add(const FlatRecord& record);
  /// Returns null if there is none.
  const Curve* find(std::string_view key) const;
  const std::vector<Curve>& curves() const { return curves_; }

 private:
  /// Returns the curve of a key, looking at index `guess` first.
  Curve& curve(const std::string& key, size_t guess);

  std::vector<Curve> curves_;
};

/// Lists of numbers over steps, in bounded memory: up to 200 lists are stored exactly; beyond,
/// neighbouring lists are averaged repeatedly.
class ListHistory {
 public:
  static constexpr size_t kMostColumns = 200;
  struct Column {
    int64_t first_step = 0, last_step = 0;
    int64_t count = 0;  ///< number of lists
    std::vector<double> sum;

    /// Merges the column that follows.
    void join(const Column& next);
  };

  void add(int64_t step, const std::vector<double>& values);
  const std::vector<Column>& columns() const { return columns_; }

 private:
  std::vector<Column> columns_;
  int64_t per_column_ = 1;
};

}  // namespace shoal
