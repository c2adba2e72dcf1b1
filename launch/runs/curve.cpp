#include "launch/runs/curve.h"

#include <algorithm>
#include <cmath>

namespace shoal {
namespace {

/// Joins pairs of neighbours; the last item may be alone.
template <class Item>
void join_pairs(std::vector<Item>& items) {
  const size_t half = (items.size() + 1) / 2;
  for (size_t i = 0; i < half; ++i) {
    Item pair = std::move(items[2 * i]);
    if (2 * i + 1 < items.size()) pair.join(items[2 * i + 1]);
    items[i] = std::move(pair);
  }
  items.resize(half);
}

}  // namespace

void Curve::Bucket::join(const Bucket& next) {
  last_step = next.last_step;
  low = std::min(low, next.low);
  high = std::max(high, next.high);
  sum += next.sum;
  count += next.count;
}

void ListHistory::Column::join(const Column& next) {
  last_step = next.last_step;
  count += next.count;
  sum.resize(std::max(sum.size(), next.sum.size()));
  for (size_t i = 0; i < next.sum.size(); ++i) sum[i] += next.sum[i];
}

void Curve::add(double step, double value, bool is_integer) {
  is_count_ = is_count_ && is_integer;
  if (buckets_.empty() || in_last_ == per_bucket_) {
    if (buckets_.size() == kMostBuckets) {
      join_pairs(buckets_);
      per_bucket_ *= 2;
    }
    buckets_.push_back({.first_step = step});
    in_last_ = 0;
  }
  Bucket& bucket = buckets_.back();
  bucket.last_step = step;
  ++in_last_;
  if (!std::isfinite(value)) {
    ++num_not_finite_;
    return;
  }
  bucket.low = std::min(bucket.low, value);
  bucket.high = std::max(bucket.high, value);
  bucket.sum += value;
  ++bucket.count;
  last_ = {step, value};
  if (num_finite_++ == 0) first_ = lowest_ = highest_ = last_;
  if (value < lowest_.value) lowest_ = last_;
  if (value > highest_.value) highest_ = last_;
}

void CurveSet::add(const FlatRecord& record) {
  const double step = record.number("step", 0.0);
  for (size_t i = 0; i < record.size(); ++i) {
    const FlatRecord::Field& field = record[i];
    if (field.kind != FlatRecord::Kind::kNumber || field.key == "step") continue;
    curve(field.key, i).add(step, field.number, field.is_integer);
  }
  // Uses the average number of samples per step, since the batch size is constant within a run.
  const double nothing = std::nan("");
  const double wait_ms = record.number("all_to_all_ms", nothing);
  const double samples_per_step = record.number("samples", nothing) / step;
  const double rate = record.number("samples_per_second", nothing);
  const double share = wait_ms / 1e3 * rate / samples_per_step;
  // Intervals with an evaluation include its waits, but not its time: drops shares above 1.
  if (!std::isnan(share) && share <= 1) {
    curve("all_to_all_share", curves_.size()).add(step, share);
  }
}

const Curve* CurveSet::find(std::string_view key) const {
  const auto found = std::ranges::find(curves_, key, &Curve::key);
  return found == curves_.end() ? nullptr : &*found;
}

Curve& CurveSet::curve(const std::string& key, size_t guess) {
  // Records of one kind usually have the same keys in the same order.
  for (size_t i = std::min(guess, curves_.size()); i-- > 0;) {
    if (curves_[i].key() == key) return curves_[i];
  }
  const auto found = std::ranges::find(curves_, key, &Curve::key);
  return found != curves_.end() ? *found : curves_.emplace_back(key);
}

void ListHistory::add(int64_t step, const std::vector<double>& values) {
  const Column column{step, step, 1, values};
  if (columns_.empty() || columns_.back().count >= per_column_) {
    if (columns_.size() == kMostColumns) {
      join_pairs(columns_);
      per_column_ *= 2;
    }
    columns_.push_back(column);
  } else {
    columns_.back().join(column);
  }
}

}  // namespace shoal
