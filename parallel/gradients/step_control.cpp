#include "parallel/gradients/step_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "runtime/base/error.h"

namespace shoal {
namespace {

// One rank's row: these, then the flags.
enum Entry {
  kSignal,
  kWritten,
  kSquareSum,  // bits of a float64
  kHash,
  kFirstFlag
};

constexpr std::array kFlags{&StepFlags::stop, &StepFlags::evaluate, &StepFlags::save,
                            &StepFlags::log, &StepFlags::log_layers};
constexpr int64_t kNumEntries = kFirstFlag + std::ssize(kFlags);

/// The sum of one number a rank, in pairs, pairs of pairs and so on: the same bits on all ranks.
double pairwise_sum(std::vector<double> terms) {
  for (size_t step = 1; step < terms.size(); step *= 2) {
    for (size_t i = 0; i + step < terms.size(); i += 2 * step) terms[i] += terms[i + step];
  }
  return terms[0];
}

StepFlags combine(const torch::Tensor& rows) {
  const auto entry = rows.accessor<int64_t, 2>();
  StepFlags agreed;
  agreed.written_step = entry[0][kWritten];
  std::vector<double> square_sums;
  for (int64_t rank = 0; rank < rows.size(0); ++rank) {
    const auto row = entry[rank];
    agreed.stop_signal = std::max(agreed.stop_signal, row[kSignal]);
    int64_t place = kFirstFlag;
    for (const auto flag : kFlags) agreed.*flag |= row[place++] != 0;
    agreed.written_step = std::min(agreed.written_step, row[kWritten]);
    square_sums.push_back(std::bit_cast<double>(row[kSquareSum]));
  }
  agreed.square_sum = pairwise_sum(std::move(square_sums));
  return agreed;
}

std::string describe(const Communicator::Counters& counters) {
  return fmt::format("{} all_reduce, {} all_to_all, {} all_gather, {} reduce_scatter, {} broadcast",
                     counters.all_reduce, counters.all_to_all, counters.all_gather,
                     counters.reduce_scatter, counters.broadcast);
}

}  // namespace

StepControl::StepControl(RankGrid& grid, const std::vector<const Communicator*>& gradient_sums)
    : comm_(grid.world->split(0, grid.world->rank())) {
  watched_ = {{"world", grid.world.get()},           {"expert", grid.expert.get()},
              {"replica", grid.replica.get()},       {"intra_node", grid.intra_node.get()},
              {"inter_node", grid.inter_node.get()}, {"GPU world", grid.gpu_world.get()}};
  std::erase_if(watched_, [](const Watched& watched) { return watched.comm == nullptr; });
  for (const Communicator* comm : gradient_sums) watched_.push_back({"gradients", comm});
}

void StepControl::throw_if_failed() const {
  for (const auto& [name, comm] : watched_) comm->throw_if_failed();
}

StepFlags StepControl::agree(const StepFlags& own) {
  throw_if_failed();
  const torch::Tensor row = torch::empty({1, kNumEntries}, torch::kLong);
  auto* entry = row.data_ptr<int64_t>();
  entry[kSignal] = own.stop_signal;
  int64_t* next = entry + kFirstFlag;
  for (const auto flag : kFlags) *next++ = own.*flag ? 1 : 0;
  entry[kWritten] = own.written_step;
  entry[kSquareSum] = std::bit_cast<int64_t>(own.square_sum);
  entry[kHash] = std::bit_cast<int64_t>(comm_->counters().order->hash);
  const torch::Tensor rows = torch::empty({comm_->size(), kNumEntries}, torch::kLong);
  const RowCounts counts(static_cast<size_t>(comm_->size()), 1);
  comm_->start_all_gather(row, rows, counts).wait();
  const torch::Tensor hash_R = rows.select(1, kHash);
  if (hash_R.ne(hash_R[0]).any().item<bool>()) report_mismatch();
  return combine(rows);
}

void StepControl::report_mismatch() {
  std::string own;
  for (const auto& [name, comm] : watched_) own += name + ": " + describe(comm->counters()) + "; ";
  own += fmt::format("order of all groups' calls {:x}", comm_->counters().order->hash);
  const std::vector<std::string> all = gather_text(*comm_, own);
  const auto other =
      std::find_if(all.begin(), all.end(), [&](const std::string& text) { return text != all[0]; });
  throw CommError(fmt::format("ranks have not made the same collective calls\n  rank 0: {}\n"
                              "  rank {}: {}",
                              all[0], other - all.begin(), *other),
                  "a rank skipped, added or reordered a call since the run began");
}

}  // namespace shoal
