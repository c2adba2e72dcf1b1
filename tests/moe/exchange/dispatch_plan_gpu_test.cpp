#include "moe/exchange/dispatch_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/moe/routing/make_routing.h"
#include "tests/support/on_gpu.h"

// Plans of the kernels have the index tensors of the plain code.
// C pieces  E ranks  u units on this rank
namespace shoal {
namespace {

using testing::values;
using Ids = std::vector<int64_t>;

/// Numbers in [0, bound), the same in each run.
class PlanDraw {
 public:
  explicit PlanDraw(uint64_t seed) : state_(seed * 2654435761u + 1) {}
  int64_t below(int64_t bound) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>(state_ >> 33) % bound;
  }

 private:
  uint64_t state_;
};

torch::Tensor ids(const Ids& numbers) { return torch::tensor(numbers, torch::kInt64); }

/// Some rows of each unit, sorted by token. One in eight is padding.
TokenAssignments some_assignments(int64_t num_units, int64_t num_tokens, PlanDraw& draw) {
  Ids token_A, rows_U;
  for (int64_t unit = 0; unit < num_units; ++unit) {
    const size_t first = token_A.size();
    for (int64_t token = 0; token < num_tokens; ++token) {
      if (draw.below(num_units) < 2) token_A.push_back(draw.below(8) == 0 ? -1 : token);
    }
    rows_U.push_back(static_cast<int64_t>(token_A.size() - first));
  }
  TokenAssignments chunk;
  chunk.token_A = ids(token_A);
  chunk.rows_U = ids(rows_U);
  chunk.num_tokens = num_tokens;
  return chunk;
}

struct PlanCase {
  UnitPlacement placement;
  std::vector<TokenAssignments> chunks;
  int64_t num_parts;
  torch::Tensor received_ECu;
  PackedType type;
};

class DispatchPlanGpu : public testing::OnGpu {
 protected:
  static TokenAssignments moved(TokenAssignments chunk, const at::Device& device) {
    // Trailing padding, as kernels leave it.
    chunk.token_A = torch::cat({chunk.token_A, torch::full({5}, -1, torch::kInt64)}).to(device);
    chunk.rows_U = chunk.rows_U.to(device);
    return chunk;
  }

  /// Plans of a rank whose units get `received_ECu` rows.
  static std::vector<DispatchPlan> plans_of(const PlanCase& test, const at::Device& device) {
    std::vector<TokenAssignments> chunks;
    for (const TokenAssignments& chunk : test.chunks) chunks.push_back(moved(chunk, device));
    std::vector<Piece> pieces = cut_into_pieces(chunks, test.placement, test.num_parts);
    if (device.is_cuda()) {
      for (Piece& piece : pieces) index_rows(piece);
    }
    const torch::Tensor sent = rows_to_send(pieces, test.placement);
    return make_plans(pieces, test.placement,
                      {values(sent.cpu()), values(test.received_ECu), test.received_ECu.to(device)},
                      test.type);
  }

  static void expect_same_index(const RowIndex& expected, const RowIndex& found) {
    expect_same(expected.token_A, found.token_A);
    expect_same(expected.row_A, found.row_A.narrow(0, 0, expected.row_A.size(0)));
    ASSERT_EQ(expected.first_T1.defined(), found.first_T1.defined());
    if (expected.first_T1.defined()) expect_same(expected.first_T1, found.first_T1);
  }

  static void expect_same_order(const torch::Tensor& expected, const torch::Tensor& found) {
    ASSERT_EQ(expected.defined(), found.defined());
    if (expected.defined()) expect_same(expected, found);
  }

  static void expect_same_plan(const DispatchPlan& expected, const DispatchPlan& found,
                               bool is_by_kernel) {
    expect_same_index(expected.index, found.index);
    expect_same_order(expected.order_A, found.order_A);
    EXPECT_EQ(expected.send_rows, found.send_rows);
    EXPECT_EQ(expected.recv_rows, found.recv_rows);
    expect_same_order(expected.to_units_R, found.to_units_R);
    expect_same_order(expected.to_arrival_R, found.to_arrival_R);
    expect_same(expected.to_send.piece_W, found.to_send.piece_W);
    expect_same(expected.received.piece_W, found.received.piece_W);
    expect_same_index(expected.to_send.index, found.to_send.index);
    expect_same(expected.received.row_R, found.received.row_R);
    EXPECT_EQ(expected.received.num_rows, found.received.num_rows);
    EXPECT_EQ(expected.rows_u.rows_u(), found.rows_u.rows_u());
    ASSERT_EQ(found.rows_u.end_u().defined(), is_by_kernel);
    ASSERT_EQ(found.received.held_B.defined(), is_by_kernel);
    if (!is_by_kernel) return;
    const torch::Tensor row_R = expected.received.row_R;
    expect_same(torch::full({expected.received.num_rows}, -1, torch::kInt64)
                    .index_copy_(0, row_R, torch::arange(row_R.size(0))),
                found.received.held_B);
    expect_same(ids(expected.rows_u.rows_u()).cumsum(0).to(torch::kInt32), found.rows_u.end_u());
  }
};

TEST_F(DispatchPlanGpu, HasTheIndicesOfTheCpu) {
  const std::vector<UnitPlacement> placements{
      UnitPlacement::contiguous(8, 2), UnitPlacement({1, 0, 0, 2, 1, 2, 0, 1, 0}, 3),
      UnitPlacement({0, 0, 2, 2, 2}, 3), UnitPlacement::contiguous(300, 7)};
  const std::vector<PackedType> types{{torch::kBFloat16, torch::kFloat32, 16},
                                      {torch::kFloat32, torch::kFloat64, 3},
                                      {torch::kBFloat16, torch::kFloat64, 1}};
  PlanDraw draw(1);
  for (const UnitPlacement& placement : placements) {
    for (const auto& [num_chunks, num_parts] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {2, 1}, {1, 3}}) {
      PlanCase test{placement, {}, num_parts, {}, types[0]};
      for (int64_t c = 0; c < num_chunks; ++c) {
        test.chunks.push_back(some_assignments(placement.num_units(), 20, draw));
      }
      for (int64_t rank = 0; rank < placement.num_ranks(); ++rank) {
        const auto own = static_cast<int64_t>(placement.units_of_rank(rank).size());
        Ids counts;
        for (int64_t i = 0; i < placement.num_ranks() * num_parts * num_chunks * own; ++i) {
          counts.push_back(std::max<int64_t>(0, draw.below(9) - 3));
        }
        test.received_ECu = ids(counts).view({placement.num_ranks(), num_parts * num_chunks, own});
        for (const PackedType& type : types) {
          test.type = type;
          const auto expected = plans_of(test, torch::kCPU), found = plans_of(test, gpu_);
          ASSERT_EQ(expected.size(), found.size());
          for (size_t i = 0; i < found.size(); ++i) {
            expect_same_plan(expected[i], found[i], true);
          }
        }
      }
    }
  }
}

// More than the kernel takes are planned by LibTorch's operators.
TEST_F(DispatchPlanGpu, PlansForManyRanksAndUnitsToo) {
  struct Size {
    int64_t ranks, own_units;
    bool is_by_kernel;
  };
  PlanDraw draw(2);
  for (const Size& size :
       {Size{240, 1, true}, {241, 1, false}, {50, 100, true}, {3, 1667, false}}) {
    const int64_t num_units = size.ranks * size.own_units;
    PlanCase test{UnitPlacement::contiguous(num_units, size.ranks),
                  {},
                  1,
                  {},
                  {torch::kFloat32, torch::kFloat32, 3}};
    test.chunks.push_back(some_assignments(num_units, 20, draw));
    Ids counts;
    for (int64_t i = 0; i < num_units; ++i) counts.push_back(draw.below(3));
    test.received_ECu = ids(counts).view({size.ranks, 1, size.own_units});
    expect_same_plan(plans_of(test, torch::kCPU).front(), plans_of(test, gpu_).front(),
                     size.is_by_kernel);
  }
}

}  // namespace
}  // namespace shoal
