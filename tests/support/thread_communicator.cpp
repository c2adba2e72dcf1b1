#include "tests/support/thread_communicator.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "parallel/comm/communicator_checks.h"
#include "runtime/base/error.h"

namespace shoal::testing {
namespace {

/// What a rank calls; equal `signature`s on all ranks or the call fails.
struct Call {
  std::string signature;
  torch::Tensor in;
  torch::Tensor out;
  RowCounts send_rows;
  RowCounts recv_rows;
  int64_t color = 0;
  int64_t key = 0;
};

struct Group;

/// One collective: what has been posted, then the outcome.
struct Slot {
  explicit Slot(int64_t size) : calls(static_cast<size_t>(size)) {}
  std::vector<Call> calls;
  std::vector<std::shared_ptr<Group>> children;  // of a split, by rank
  int64_t num_posted = 0;
  int64_t num_waiting = 0;
  bool is_done = false;
  std::string error;
};

/// The whole run: one lock for everything, since data moves under it.
struct Job {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> doing;  // by world rank: the call it waits in, or how it left
  int64_t num_running = 0;
  int64_t num_waiting = 0;
  std::string failure;  // why every later call fails

  void fail(const std::string& why) {
    if (failure.empty()) failure = why;
    changed.notify_all();
  }

  std::string all_doings() const {
    std::string text;
    for (size_t rank = 0; rank < doing.size(); ++rank) {
      text += "\n  rank " + std::to_string(rank) + ": " +
              (doing[rank].empty() ? "running" : doing[rank]);
    }
    return text;
  }

  void check_progress() {
    if (num_running > 0 && num_waiting == num_running && failure.empty()) {
      fail("every rank waits for one that does not come:" + all_doings());
    }
  }
};

using Mover = std::function<void(Slot&)>;

struct Group {
  Job* job;
  std::vector<int64_t> world_ranks;
  std::map<int64_t, std::shared_ptr<Slot>> slots;  // those not posted by all yet
};

void copy_rows(const torch::Tensor& from, int64_t from_row, torch::Tensor& to, int64_t to_row,
               int64_t rows) {
  const int64_t bytes = row_bytes(from);
  if (rows * bytes == 0) return;
  std::memcpy(static_cast<char*>(to.data_ptr()) + to_row * bytes,
              static_cast<const char*>(from.data_ptr()) + from_row * bytes,
              static_cast<size_t>(rows * bytes));
}

int64_t rows_before(const RowCounts& rows, size_t rank) {
  int64_t sum = 0;
  for (size_t i = 0; i < rank; ++i) sum += rows[i];
  return sum;
}

torch::Tensor reduced(const Slot& slot, ReduceOp op) {
  torch::Tensor result = slot.calls[0].in.clone();
  for (size_t rank = 1; rank < slot.calls.size(); ++rank) {
    const torch::Tensor& next = slot.calls[rank].in;
    if (op == ReduceOp::kSum) {
      result.add_(next);
    } else if (op == ReduceOp::kMax) {
      result = at::maximum(result, next);
    } else {
      result = at::minimum(result, next);
    }
  }
  return result;
}

void move_all_reduce(Slot& slot, ReduceOp op) {
  const torch::Tensor result = reduced(slot, op);
  for (Call& call : slot.calls) call.out.copy_(result);
}

void move_all_to_all(Slot& slot) {
  for (size_t to = 0; to < slot.calls.size(); ++to) {
    Call& receiver = slot.calls[to];
    for (size_t from = 0; from < slot.calls.size(); ++from) {
      const Call& sender = slot.calls[from];
      if (sender.send_rows[to] != receiver.recv_rows[from]) {
        slot.error = "all_to_all: rank " + std::to_string(from) + " sends " +
                     std::to_string(sender.send_rows[to]) + " rows to rank " + std::to_string(to) +
                     ", which expects " + std::to_string(receiver.recv_rows[from]);
        return;
      }
      copy_rows(sender.in, rows_before(sender.send_rows, to), receiver.out,
                rows_before(receiver.recv_rows, from), sender.send_rows[to]);
    }
  }
}

void move_all_gather(Slot& slot) {
  for (Call& receiver : slot.calls) {
    int64_t row = 0;
    for (const Call& sender : slot.calls) {
      copy_rows(sender.in, 0, receiver.out, row, sender.in.size(0));
      row += sender.in.size(0);
    }
  }
}

void move_reduce_scatter(Slot& slot) {
  const torch::Tensor result = reduced(slot, ReduceOp::kSum);
  int64_t row = 0;
  for (Call& receiver : slot.calls) {
    copy_rows(result, row, receiver.out, 0, receiver.out.size(0));
    row += receiver.out.size(0);
  }
}

void move_broadcast(Slot& slot, int64_t root) {
  for (Call& call : slot.calls) call.out.copy_(slot.calls[static_cast<size_t>(root)].in);
}

void move_split(Slot& slot, const Group& parent) {
  std::vector<size_t> order(slot.calls.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return slot.calls[a].key < slot.calls[b].key; });
  std::map<int64_t, std::shared_ptr<Group>> by_color;
  slot.children.resize(order.size());
  for (const size_t rank : order) {
    std::shared_ptr<Group>& group = by_color[slot.calls[rank].color];
    if (!group) group = std::make_shared<Group>(Group{parent.job, {}, {}});
    group->world_ranks.push_back(parent.world_ranks[rank]);
    slot.children[rank] = group;
  }
}

/// Moves the data once all have posted the same call.
void complete(Slot& slot, const Group& group, const Mover& move) {
  for (size_t rank = 1; rank < slot.calls.size() && slot.error.empty(); ++rank) {
    if (slot.calls[rank].signature == slot.calls[0].signature) continue;
    slot.error = "ranks " + std::to_string(group.world_ranks[0]) + " and " +
                 std::to_string(group.world_ranks[rank]) +
                 " call different collectives: " + slot.calls[0].signature + " and " +
                 slot.calls[rank].signature;
  }
  torch::NoGradGuard no_grad;
  if (slot.error.empty()) move(slot);
  slot.calls.clear();  // the callers' Pending objects hold the buffers
  slot.is_done = true;
  group.job->num_waiting -= slot.num_waiting;
  group.job->changed.notify_all();
}

std::string text_of(const RowCounts& rows) { return fmt::format("[{}]", fmt::join(rows, ",")); }

std::string signature(Collective kind, const torch::Tensor& tensor, const std::string& more) {
  return std::string(name_of(kind)) + "(" + c10::toString(tensor.scalar_type()) + ", " + more + ")";
}

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Group> group, int64_t rank, const Counters* parent = nullptr)
      : group_(std::move(group)),
        rank_(rank),
        size_(static_cast<int64_t>(group_->world_ranks.size())),
        counters_(make_counters(parent)) {}

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  const Counters& counters() const override { return *counters_; }

  std::unique_ptr<Communicator> split(int64_t color, int64_t key, Traffic /*traffic*/) override {
    Call call{"split()", {}, {}, {}, {}, color, key};
    const auto slot = post(std::move(call), [group = group_](Slot& s) { move_split(s, *group); });
    wait(slot, "split()");
    const std::shared_ptr<Group>& child = slot->children[static_cast<size_t>(rank_)];
    const auto& ranks = child->world_ranks;
    const auto place = std::find(ranks.begin(), ranks.end(), world_rank());
    return std::make_unique<ThreadCommunicator>(child, place - ranks.begin(), counters_.get());
  }

  Pending start_all_reduce(torch::Tensor buffer, ReduceOp op) override {
    check_all_reduce(buffer);
    const std::string more =
        std::to_string(static_cast<int>(op)) + ", " + std::to_string(buffer.numel());
    return start(Collective::kAllReduce, {more, buffer, buffer, {}, {}},
                 [op](Slot& slot) { move_all_reduce(slot, op); });
  }

  Pending start_all_to_all(torch::Tensor in, const RowCounts& send_rows, torch::Tensor out,
                           const RowCounts& recv_rows) override {
    check_all_to_all(*this, in, send_rows, out, recv_rows);
    counters_->sent_bytes += rows_to_others(*this, send_rows) * row_bytes(in);
    const std::string more = std::to_string(row_bytes(in)) + " bytes a row";
    return start(Collective::kAllToAll, {more, in, out, send_rows, recv_rows}, move_all_to_all);
  }

  Pending start_all_gather(torch::Tensor in, torch::Tensor out, const RowCounts& rows) override {
    check_all_gather(*this, in, out, rows);
    const std::string more = text_of(rows) + " x " + std::to_string(row_bytes(in));
    return start(Collective::kAllGather, {more, in, out, {}, {}}, move_all_gather);
  }

  Pending start_reduce_scatter(torch::Tensor in, torch::Tensor out,
                               const RowCounts& rows) override {
    check_reduce_scatter(*this, in, out, rows);
    const std::string more = text_of(rows) + " x " + std::to_string(row_bytes(in));
    return start(Collective::kReduceScatter, {more, in, out, {}, {}}, move_reduce_scatter);
  }

  Pending start_broadcast(torch::Tensor buffer, int64_t root) override {
    check_broadcast(*this, buffer, root);
    const std::string more = "from " + std::to_string(root) + ", " + std::to_string(buffer.numel());
    return start(Collective::kBroadcast, {more, buffer, buffer, {}, {}},
                 [root](Slot& slot) { move_broadcast(slot, root); });
  }

  void barrier(std::chrono::milliseconds limit) override {
    const auto slot = post({"barrier()", {}, {}, {}, {}}, [](Slot&) {});
    // Short limits are those of tests in which a rank never comes. A longer wait counts as one
    // without a limit: if all ranks wait, it ends at once.
    if (limit > std::chrono::minutes(1)) return wait(slot, "barrier()");
    Job& job = *group_->job;
    std::unique_lock lock(job.mutex);
    const auto is_over = [&] { return slot->is_done || !job.failure.empty(); };
    if (!job.changed.wait_for(lock, limit, is_over)) fail_barrier(rank_, size_, limit);
    if (!slot->is_done) throw CommError("barrier(): " + failure_text());
  }
  void throw_if_failed() const override {}

  [[noreturn]] void abort(int exit_code) override {
    throw ThreadRankAborted(world_rank(), exit_code);
  }

 private:
  int64_t world_rank() const { return group_->world_ranks[static_cast<size_t>(rank_)]; }

  /// `call.signature` comes with the sizes only; the kind and dtype are put before them.
  Pending start(Collective kind, Call call, const Mover& move) {
    count_call(*counters_, kind);
    call.signature = signature(kind, call.in, call.signature);
    std::string name = call.signature;
    std::vector<torch::Tensor> buffers{call.in, call.out};
    const auto slot = post(std::move(call), move);
    // By value: a Pending may outlive the communicator.
    auto finish = [self = *this, slot, name] { self.wait(slot, name); };
    return {std::move(finish), std::move(buffers)};
  }

  std::shared_ptr<Slot> post(Call call, const Mover& move) {
    const std::lock_guard lock(group_->job->mutex);
    if (!group_->job->failure.empty()) throw CommError(call.signature + ": " + failure_text());
    const int64_t sequence = sequence_++;
    std::shared_ptr<Slot>& entry = group_->slots[sequence];
    if (!entry) entry = std::make_shared<Slot>(size_);
    const std::shared_ptr<Slot> slot = entry;
    slot->calls[static_cast<size_t>(rank_)] = std::move(call);
    if (++slot->num_posted == size_) {
      group_->slots.erase(sequence);
      complete(*slot, *group_, move);
    }
    return slot;
  }

  void wait(const std::shared_ptr<Slot>& slot, const std::string& name) const {
    const auto start = std::chrono::steady_clock::now();
    Job& job = *group_->job;
    std::unique_lock lock(job.mutex);
    if (!slot->is_done && job.failure.empty()) {
      job.doing[static_cast<size_t>(world_rank())] = "waits in " + name;
      ++slot->num_waiting;
      ++job.num_waiting;
      job.check_progress();
      job.changed.wait(lock, [&] { return slot->is_done || !job.failure.empty(); });
      if (!slot->is_done) --job.num_waiting;
      job.doing[static_cast<size_t>(world_rank())].clear();
    }
    counters_->wait_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!slot->is_done) throw CommError(name + ": " + failure_text());
    if (!slot->error.empty()) throw CommError(slot->error);
  }

  std::string failure_text() const {
    return "rank " + std::to_string(world_rank()) + " cannot go on: " + group_->job->failure;
  }

  std::shared_ptr<Group> group_;
  int64_t rank_;
  int64_t size_;
  int64_t sequence_ = 0;
  std::shared_ptr<Counters> counters_;
};

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

/// One rank's thread. The first failure of the run is kept in `first_error`.
void run_rank(const std::shared_ptr<Group>& world, int64_t rank,
              const std::function<void(std::unique_ptr<Communicator>)>& body,
              std::exception_ptr& first_error) {
  at::set_num_threads(1);
  std::exception_ptr error;
  try {
    body(std::make_unique<ThreadCommunicator>(world, rank));
  } catch (...) {
    error = std::current_exception();
  }
  Job& job = *world->job;
  const std::lock_guard lock(job.mutex);
  if (error && !first_error) first_error = error;
  if (error) job.fail("rank " + std::to_string(rank) + " failed: " + text_of(error));
  job.doing[static_cast<size_t>(rank)] = "has returned";
  --job.num_running;
  job.check_progress();
  job.changed.notify_all();
}

}  // namespace

void run_owning_ranks(int64_t num_ranks,
                      const std::function<void(std::unique_ptr<Communicator> world)>& body) {
  Job job;
  job.doing.resize(static_cast<size_t>(num_ranks));
  job.num_running = num_ranks;
  const auto world = std::make_shared<Group>(Group{&job, {}, {}});
  for (int64_t rank = 0; rank < num_ranks; ++rank) world->world_ranks.push_back(rank);

  std::exception_ptr first_error;
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] { run_rank(world, rank, body, first_error); });
  }
  for (std::thread& thread : threads) thread.join();
  if (first_error) std::rethrow_exception(first_error);
}

void run_ranks(int64_t num_ranks, const std::function<void(Communicator& world)>& body) {
  run_owning_ranks(num_ranks, [&](std::unique_ptr<Communicator> world) { body(*world); });
}

}  // namespace shoal::testing
