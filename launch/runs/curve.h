#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/records/flat_record.h"

namespace shoal {

/// One metric of a run over its steps, in bounded memory: keeps up to 2,048 points; beyond that,
/// repeatedly joins neighbours into as many buckets with their range and mean.
class Curve {
 public:
  static constexpr size_t kMostBuckets = 2048;

  /// Neighbouring points. With a `count` of 0 none is finite: a gap in the curve.
  struct Bucket {
    double first_step = 0, last_step = 0;
    double low = std::numeric_limits<double>::infinity();
    double high = -std::numeric_limits<double>::infinity();
    double sum = 0;
    int64_t count = 0;  ///< number of finite values

    double mean() const { return sum / static_cast<double>(count); }
    /// Adds the points of the following bucket.
    void join(const Bucket& next);
  };
  struct Point {
    double step = 0, value = 0;
  };

  explicit Curve(std::string key) : key_(std::move(key)) {}
  /// Adds a point; steps must ascend, and a value that is not finite leaves a gap.
  void add(double step, double value, bool is_integer = false);

  const std::string& key() const { return key_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  int64_t num_finite() const { return num_finite_; }
  int64_t num_not_finite() const { return num_not_finite_; }
  /// True if each bucket is a single point.
  bool is_whole() const { return per_bucket_ == 1; }
  // Points among the finite values; zeros without any.
  const Point& first() const { return first_; }
  const Point& last() const { return last_; }
  const Point& lowest() const { return lowest_; }
  const Point& highest() const { return highest_; }
  /// True if all values were written as integers, as counts are.
  bool is_count() const { return is_count_; }
  bool is_constant() const { return lowest_.value == highest_.value; }

 private:
  void join_neighbours();

  std::string key_;
  std::vector<Bucket> buckets_;
  bool is_count_ = true;
  int64_t per_bucket_ = 1, in_last_ = 0;
  int64_t num_finite_ = 0, num_not_finite_ = 0;
  Point first_, last_, lowest_, highest_;
};

/// The metrics of one kind of records, a curve for each key, in the order in which keys appear.
class CurveSet {
 public:
  /// Adds the record's numbers except the step, and derived values: `all_to_all_share`, the share
  /// of a step's time spent waiting for exchanges.
  void add(const FlatRecord& record);
  /// Null if there is no such key.
  const Curve* find(std::string_view key) const;
  const std::vector<Curve>& curves() const { return curves_; }
  bool empty() const { return curves_.empty(); }

 private:
  /// The curve of a key; `guess`: its probable index.
  Curve& curve(const std::string& key, size_t guess);

  std::vector<Curve> curves_;
};

/// Lists of numbers over steps, in bounded memory: keeps up to 512; beyond that, repeatedly
/// averages neighbours.
class ListHistory {
 public:
  static constexpr size_t kMostColumns = 512;
  struct Column {
    int64_t first_step = 0, last_step = 0;
    int64_t count = 0;  ///< number of lists
    std::vector<double> sum;

    /// Adds the lists of the following column.
    void join(const Column& next);
  };

  void add(int64_t step, const std::vector<double>& values);
  const std::vector<Column>& columns() const { return columns_; }

 private:
  std::vector<Column> columns_;
  int64_t per_column_ = 1;
};

}  // namespace shoal
