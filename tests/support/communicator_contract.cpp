#include "tests/support/communicator_contract.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <set>
#include <utility>

namespace shoal::testing {
namespace {

using torch::Tensor;

const std::vector<at::ScalarType> kMoved = {torch::kFloat, torch::kDouble, torch::kLong,
                                            torch::kByte, torch::kBFloat16};
const std::vector<at::ScalarType> kReduced = {torch::kFloat, torch::kDouble, torch::kLong,
                                              torch::kByte};

int64_t total(const RowCounts& rows) {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

/// Rows of 2x2 elements that all hold the row's number; numbers stay below 256 so that every dtype
/// holds them exactly.
Tensor rows_of(const std::vector<int64_t>& numbers, at::ScalarType dtype) {
  const auto count = static_cast<int64_t>(numbers.size());
  return torch::tensor(numbers, torch::kLong)
      .to(dtype)
      .reshape({count, 1, 1})
      .expand({count, 2, 2})
      .contiguous();
}

Tensor empty_rows(int64_t count, at::ScalarType dtype) {
  return torch::zeros({count, 2, 2}, dtype);
}

/// Rows that `from` sends to `to`; uneven, some of them none.
int64_t uneven(int64_t from, int64_t to) { return (3 * from + 2 * to) % 4; }

/// The j-th row from one rank to another.
int64_t row_number(int64_t from, int64_t to, int64_t j) { return from * 50 + to * 10 + j; }

struct Exchange {
  RowCounts send;
  RowCounts recv;
  std::vector<int64_t> sent;
  std::vector<int64_t> received;
};

Exchange uneven_exchange(const Communicator& comm) {
  Exchange exchange;
  const int64_t rank = comm.rank();
  for (int64_t peer = 0; peer < comm.size(); ++peer) {
    exchange.send.push_back(uneven(rank, peer));
    exchange.recv.push_back(uneven(peer, rank));
    for (int64_t j = 0; j < exchange.send.back(); ++j) {
      exchange.sent.push_back(row_number(rank, peer, j));
    }
    for (int64_t j = 0; j < exchange.recv.back(); ++j) {
      exchange.received.push_back(row_number(peer, rank, j));
    }
  }
  return exchange;
}

/// Rows of each rank; rank 1 has none.
RowCounts uneven_rows(const Communicator& comm) {
  RowCounts rows;
  for (int64_t rank = 0; rank < comm.size(); ++rank) rows.push_back(rank == 1 ? 0 : rank + 1);
  return rows;
}

void numbers_the_ranks(Communicator& comm) {
  const Tensor own = torch::full({1}, comm.rank(), torch::kLong);
  const Tensor all = torch::full({comm.size()}, -1, torch::kLong);
  comm.start_all_gather(own, all, RowCounts(comm.size(), 1)).wait();
  EXPECT_TRUE(at::equal(all, torch::arange(comm.size(), torch::kLong)));
}

void all_reduces_every_dtype(Communicator& comm) {
  const int64_t size = comm.size();
  for (const auto dtype : kReduced) {
    SCOPED_TRACE(c10::toString(dtype));
    const Tensor own = torch::arange(5, torch::kLong).add(10 * comm.rank()).to(dtype);
    const Tensor first = torch::arange(5, torch::kLong);
    Tensor sum = own.clone();
    all_reduce(comm, sum);
    EXPECT_TRUE(at::equal(sum, (first * size + 10 * size * (size - 1) / 2).to(dtype)));
    Tensor most = own.clone();
    all_reduce(comm, most, ReduceOp::kMax);
    EXPECT_TRUE(at::equal(most, (first + 10 * (size - 1)).to(dtype)));
    Tensor least = own.clone();
    all_reduce(comm, least, ReduceOp::kMin);
    EXPECT_TRUE(at::equal(least, first.to(dtype)));
  }
}

void all_reduces_to_equal_bits(Communicator& comm) {
  for (const int64_t length : {7, 100'003}) {  // libraries change algorithms with the size
    Tensor values = torch::arange(length, torch::kFloat).add(0.1 + 1.7 * comm.rank()).sin();
    all_reduce(comm, values);
    const Tensor all = torch::empty({comm.size(), length}, torch::kFloat);
    comm.start_all_gather(values.unsqueeze(0), all, RowCounts(comm.size(), 1)).wait();
    for (int64_t rank = 0; rank < comm.size(); ++rank) {
      EXPECT_TRUE(at::equal(all[rank], values)) << "rank " << rank;
    }
  }
}

void reduces_nothing_and_scalars(Communicator& comm) {
  Tensor nothing = torch::empty({0}, torch::kFloat);
  all_reduce(comm, nothing);
  Tensor scalar = torch::full({}, 1.5, torch::kDouble);
  all_reduce(comm, scalar);
  EXPECT_EQ(scalar.item<double>(), 1.5 * static_cast<double>(comm.size()));
}

void refuses_to_reduce_bfloat16(Communicator& comm) {
  const Tensor buffer = torch::zeros({4}, torch::kBFloat16);
  EXPECT_THROW(comm.start_all_reduce(buffer, ReduceOp::kSum), c10::Error);
  const RowCounts rows(comm.size(), 1);
  const Tensor in = torch::zeros({comm.size()}, torch::kBFloat16);
  const Tensor out = torch::zeros({1}, torch::kBFloat16);
  EXPECT_THROW(comm.start_reduce_scatter(in, out, rows), c10::Error);
}

void reduces_bfloat16(Communicator& comm) {
  const int64_t size = comm.size();
  const int64_t sum = size * (size + 1) / 2;
  const Tensor buffer = torch::full({4}, comm.rank() + 1, torch::kBFloat16);
  all_reduce(comm, buffer);
  EXPECT_TRUE(at::equal(buffer, torch::full({4}, sum, torch::kBFloat16)));
  const RowCounts rows(size, 1);
  const Tensor in = torch::full({size}, comm.rank() + 1, torch::kBFloat16);
  const Tensor out = torch::zeros({1}, torch::kBFloat16);
  comm.start_reduce_scatter(in, out, rows).wait();
  EXPECT_TRUE(at::equal(out, torch::full({1}, sum, torch::kBFloat16)));
}

void exchanges_uneven_rows_of_every_dtype(Communicator& comm) {
  const Exchange exchange = uneven_exchange(comm);
  for (const auto dtype : kMoved) {
    SCOPED_TRACE(c10::toString(dtype));
    const Tensor in = rows_of(exchange.sent, dtype);
    const Tensor out = empty_rows(total(exchange.recv), dtype);
    comm.start_all_to_all(in, exchange.send, out, exchange.recv).wait();
    EXPECT_TRUE(at::equal(out, rows_of(exchange.received, dtype)));
    EXPECT_TRUE(at::equal(in, rows_of(exchange.sent, dtype)));
  }
}

void exchanges_large_rows(Communicator& comm) {
  const int64_t width = 40'000;  // beyond what a library sends eagerly
  const RowCounts rows(comm.size(), 3);
  const Tensor in = torch::full({3 * comm.size(), width}, comm.rank(), torch::kFloat);
  const Tensor out = torch::full({3 * comm.size(), width}, -1, torch::kFloat);
  comm.start_all_to_all(in, rows, out, rows).wait();
  const Tensor sources = torch::arange(comm.size(), torch::kFloat).repeat_interleave(3);
  EXPECT_TRUE(at::equal(out, sources.unsqueeze(1).expand({-1, width})));
}

void exchanges_no_rows(Communicator& comm) {
  const RowCounts none(comm.size(), 0);
  comm.start_all_to_all(empty_rows(0, torch::kFloat), none, empty_rows(0, torch::kFloat), none)
      .wait();
  const RowCounts one(comm.size(), 1);
  const Tensor in = torch::empty({comm.size(), 0}, torch::kFloat);
  const Tensor out = torch::empty({comm.size(), 0}, torch::kFloat);
  comm.start_all_to_all(in, one, out, one).wait();
}

void gathers_uneven_rows_of_every_dtype(Communicator& comm) {
  const RowCounts rows = uneven_rows(comm);
  std::vector<int64_t> all;
  std::vector<int64_t> own;
  for (int64_t rank = 0; rank < comm.size(); ++rank) {
    for (int64_t j = 0; j < rows[static_cast<size_t>(rank)]; ++j) {
      all.push_back(row_number(rank, 0, j));
      if (rank == comm.rank()) own.push_back(all.back());
    }
  }
  for (const auto dtype : kMoved) {
    SCOPED_TRACE(c10::toString(dtype));
    const Tensor out = empty_rows(total(rows), dtype);
    comm.start_all_gather(rows_of(own, dtype), out, rows).wait();
    EXPECT_TRUE(at::equal(out, rows_of(all, dtype)));
  }
}

void reduce_scatters_uneven_rows(Communicator& comm) {
  const RowCounts rows = uneven_rows(comm);
  std::vector<int64_t> numbers(static_cast<size_t>(total(rows)));
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto own = static_cast<size_t>(comm.rank());
  const int64_t first = std::accumulate(rows.begin(), rows.begin() + comm.rank(), int64_t{0});
  for (const auto dtype : kReduced) {
    SCOPED_TRACE(c10::toString(dtype));
    const Tensor in = rows_of(numbers, dtype).add(comm.rank());
    const Tensor out = empty_rows(rows[own], dtype);
    comm.start_reduce_scatter(in, out, rows).wait();
    const int64_t size = comm.size();
    const Tensor sum = rows_of(numbers, dtype).mul(size).add(size * (size - 1) / 2);
    EXPECT_TRUE(at::equal(out, sum.narrow(0, first, rows[own])));
  }
}

void gathers_and_scatters_nothing(Communicator& comm) {
  const RowCounts none(comm.size(), 0);
  comm.start_all_gather(empty_rows(0, torch::kFloat), empty_rows(0, torch::kFloat), none).wait();
  comm.start_reduce_scatter(empty_rows(0, torch::kFloat), empty_rows(0, torch::kFloat), none)
      .wait();
  comm.start_broadcast(empty_rows(0, torch::kFloat), 0).wait();
}

void broadcasts_from_every_root(Communicator& comm) {
  for (const auto dtype : kMoved) {
    SCOPED_TRACE(c10::toString(dtype));
    for (int64_t root = 0; root < comm.size(); ++root) {
      const Tensor buffer = torch::full({3, 2}, comm.rank() + 7, dtype);
      broadcast(comm, buffer, root);
      EXPECT_TRUE(at::equal(buffer, torch::full({3, 2}, root + 7, dtype)));
    }
  }
}

void keeps_overlapping_calls_apart(Communicator& comm) {
  const Exchange exchange = uneven_exchange(comm);
  const Tensor in = rows_of(exchange.sent, torch::kFloat);
  const Tensor first_out = empty_rows(total(exchange.recv), torch::kFloat);
  const Tensor second_out = empty_rows(total(exchange.recv), torch::kFloat);
  Tensor sum = torch::ones({3}, torch::kDouble);

  Pending first = comm.start_all_to_all(in, exchange.send, first_out, exchange.recv);
  Pending reduced = comm.start_all_reduce(sum, ReduceOp::kSum);
  Pending second = comm.start_all_to_all(in.add(1), exchange.send, second_out, exchange.recv);
  // Half the ranks wait from the back.
  if (comm.rank() % 2 == 0) {
    second.wait();
    reduced.wait();
    first.wait();
  } else {
    reduced.wait();
    first.wait();
    second.wait();
  }
  const Tensor expected = rows_of(exchange.received, torch::kFloat);
  EXPECT_TRUE(at::equal(first_out, expected));
  EXPECT_TRUE(at::equal(second_out, expected.add(1)));
  EXPECT_TRUE(at::equal(sum, torch::full({3}, comm.size(), torch::kDouble)));
}

void waits_in_the_destructor_and_moves(Communicator& comm) {
  Tensor sum = torch::ones({2}, torch::kDouble);
  {
    Pending outer;
    {
      Pending inner = comm.start_all_reduce(sum, ReduceOp::kSum);
      outer = std::move(inner);
    }
  }
  EXPECT_TRUE(at::equal(sum, torch::full({2}, comm.size(), torch::kDouble)));
  Pending again = comm.start_all_reduce(sum, ReduceOp::kMax);
  again.wait();
  again.wait();
}

void splits_by_color_and_key(Communicator& comm) {
  // Even and odd ranks apart, each group in reverse order.
  const auto group = comm.split(comm.rank() % 2, -comm.rank());
  const int64_t parity = comm.rank() % 2;
  const int64_t size = (comm.size() - parity + 1) / 2;
  EXPECT_EQ(group->size(), size);
  EXPECT_EQ(group->rank(), size - 1 - comm.rank() / 2);

  Tensor sum = torch::full({1}, comm.rank(), torch::kLong);
  all_reduce(*group, sum);
  int64_t expected = 0;
  for (int64_t rank = parity; rank < comm.size(); rank += 2) expected += rank;
  EXPECT_EQ(sum.item<int64_t>(), expected);

  const auto alone = group->split(group->rank(), 0);
  EXPECT_EQ(alone->size(), 1);
}

/// Rank 0's is empty.
std::string rank_text(int64_t rank) {
  return std::string(static_cast<size_t>(rank * 3), static_cast<char>('a' + rank));
}

void gathers_texts(Communicator& comm) {
  const std::vector<std::string> all = gather_text(comm, rank_text(comm.rank()));
  ASSERT_EQ(static_cast<int64_t>(all.size()), comm.size());
  for (int64_t rank = 0; rank < comm.size(); ++rank) {
    EXPECT_EQ(all[static_cast<size_t>(rank)], rank_text(rank));
  }
}

void broadcasts_texts(Communicator& comm) {
  for (int64_t root = 0; root < comm.size(); ++root) {
    EXPECT_EQ(broadcast_text(comm, rank_text(comm.rank()), root), rank_text(root));
  }
}

void counts_calls_and_bytes(Communicator& comm) {
  const auto fresh = comm.split(0, comm.rank());
  const Exchange exchange = uneven_exchange(*fresh);
  const Tensor in = rows_of(exchange.sent, torch::kFloat);
  const Tensor out = empty_rows(total(exchange.recv), torch::kFloat);
  fresh->start_all_to_all(in, exchange.send, out, exchange.recv).wait();
  all_reduce(*fresh, torch::zeros({1}, torch::kLong));
  all_reduce(*fresh, torch::zeros({1}, torch::kLong));
  broadcast(*fresh, torch::zeros({1}, torch::kLong), 0);

  const Communicator::Counters& counters = fresh->counters();
  EXPECT_EQ(counters.all_to_all, 1);
  EXPECT_EQ(counters.all_reduce, 2);
  EXPECT_EQ(counters.broadcast, 1);
  EXPECT_EQ(counters.all_gather, 0);
  EXPECT_EQ(counters.reduce_scatter, 0);
  const int64_t own = uneven(fresh->rank(), fresh->rank());
  EXPECT_EQ(counters.sent_bytes, (total(exchange.send) - own) * 4 * 4);
  EXPECT_GE(counters.wait_seconds, 0.0);
}

/// Calls of two groups give another hash in another order.
void continues_the_list_of_calls(Communicator& comm) {
  const auto first = comm.split(0, comm.rank()), second = comm.split(0, comm.rank());
  const std::shared_ptr<Communicator::CallOrder> order = comm.counters().order;
  EXPECT_EQ(first->counters().order, order);
  EXPECT_EQ(second->counters().order, order);
  const uint64_t begin = order->hash;
  std::set<uint64_t> hashes{begin};
  for (const auto& [one, other] :
       {std::pair(first.get(), second.get()), std::pair(second.get(), first.get())}) {
    order->hash = begin;
    all_reduce(*one, torch::zeros({1}));
    all_reduce(*other, torch::zeros({1}));
    hashes.insert(order->hash);
  }
  EXPECT_EQ(hashes.size(), 3U);
}

void refuses_what_does_not_fit(Communicator& comm) {
  const RowCounts rows(comm.size(), 1);
  const Tensor good = torch::zeros({comm.size(), 3}, torch::kFloat);
  const Tensor longer = torch::zeros({comm.size() + 1, 3}, torch::kFloat);
  const Tensor wider = torch::zeros({comm.size(), 4}, torch::kFloat);
  const Tensor doubles = torch::zeros({comm.size(), 3}, torch::kDouble);
  const Tensor strided = torch::zeros({3, comm.size() + 1}, torch::kFloat).t().slice(0, 1);
  const Tensor chars = torch::zeros({comm.size(), 3}, torch::kInt);
  for (const Tensor& bad : {longer, wider, doubles, strided, chars}) {
    EXPECT_THROW(comm.start_all_to_all(bad, rows, good, rows), c10::Error);
    EXPECT_THROW(comm.start_all_to_all(good, rows, bad, rows), c10::Error);
  }
  const RowCounts too_many(comm.size() + 1, 1);
  EXPECT_THROW(comm.start_all_to_all(longer, too_many, longer, too_many), c10::Error);
  RowCounts negative(comm.size(), 1);
  negative[0] = -1;
  EXPECT_THROW(comm.start_all_gather(good, good, negative), c10::Error);
  EXPECT_THROW(comm.start_broadcast(good, comm.size()), c10::Error);
  try {
    comm.start_all_to_all(longer, rows, good, rows);
    ADD_FAILURE() << "accepted too many rows";
  } catch (const c10::Error& error) {
    const std::string expected = "all_to_all: rank " + std::to_string(comm.rank()) + " sends " +
                                 std::to_string(comm.size()) + " rows in total but tensor has [" +
                                 std::to_string(comm.size() + 1) + ", 3]";
    EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
  }
}

void meets_at_the_barrier(Communicator& comm) {
  comm.barrier();
  comm.barrier();
}

}  // namespace

std::vector<ContractCheck> communicator_contract(Bfloat16 bfloat16) {
  return {
      {"NumbersTheRanks", numbers_the_ranks},
      {"AllReducesEveryDtype", all_reduces_every_dtype},
      {"AllReducesToEqualBits", all_reduces_to_equal_bits},
      {"ReducesNothingAndScalars", reduces_nothing_and_scalars},
      bfloat16 == Bfloat16::kMoved
          ? ContractCheck{"RefusesToReduceBfloat16", refuses_to_reduce_bfloat16}
          : ContractCheck{"ReducesBfloat16", reduces_bfloat16},
      {"ExchangesUnevenRowsOfEveryDtype", exchanges_uneven_rows_of_every_dtype},
      {"ExchangesLargeRows", exchanges_large_rows},
      {"ExchangesNoRows", exchanges_no_rows},
      {"GathersUnevenRowsOfEveryDtype", gathers_uneven_rows_of_every_dtype},
      {"ReduceScattersUnevenRows", reduce_scatters_uneven_rows},
      {"GathersAndScattersNothing", gathers_and_scatters_nothing},
      {"BroadcastsFromEveryRoot", broadcasts_from_every_root},
      {"KeepsOverlappingCallsApart", keeps_overlapping_calls_apart},
      {"WaitsInTheDestructorAndMoves", waits_in_the_destructor_and_moves},
      {"SplitsByColorAndKey", splits_by_color_and_key},
      {"GathersTexts", gathers_texts},
      {"BroadcastsTexts", broadcasts_texts},
      {"CountsCallsAndBytes", counts_calls_and_bytes},
      {"ContinuesTheListOfCalls", continues_the_list_of_calls},
      {"RefusesWhatDoesNotFit", refuses_what_does_not_fit},
      {"MeetsAtTheBarrier", meets_at_the_barrier},
  };
}

}  // namespace shoal::testing
