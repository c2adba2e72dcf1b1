#include "runtime/kernels/matrix_chunks.h"

#include <gtest/gtest.h>

#include <vector>

namespace shoal {
namespace {

std::vector<torch::Tensor> make_tensors() {
  return {torch::zeros({100, 300}), torch::zeros({3, 40, 50}), torch::zeros({0, 4, 4}),
          torch::zeros({7})};
}
const std::vector<int64_t> kMatrices = {1, 3, 0, 1};

TEST(MatrixChunks, CoverEachElementOnceAndStayWithinAMatrix) {
  const std::vector<torch::Tensor> tensors = make_tensors();
  const MatrixChunks chunks(tensors, kMatrices);
  int64_t offset = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const TensorChunk& chunk = chunks[i];
    EXPECT_EQ(chunk.offset, offset);
    offset += chunk.size;
    if (chunk.tensor == 1) {
      EXPECT_EQ(chunk.begin / 2000, (chunk.begin + chunk.size - 1) / 2000);
      EXPECT_EQ(chunk.matrix, 1 + chunk.begin / 2000);
    }
    tensors[static_cast<size_t>(chunk.tensor)]
        .view(-1)
        .slice(0, chunk.begin, chunk.begin + chunk.size)
        .add_(1);
  }
  EXPECT_EQ(offset, 36007);
  for (const torch::Tensor& tensor : tensors) EXPECT_TRUE(tensor.eq(1).all().item<bool>());
}

TEST(MatrixChunks, GroupsHoldWholeMatricesUpToTheirLimit) {
  const std::vector<torch::Tensor> tensors = make_tensors();
  const MatrixChunks chunks(tensors, kMatrices);
  // The matrix of 30,000 stands alone; of those of 2,000 two fit, the third takes the vector along.
  std::vector<std::vector<int64_t>> matrices;
  size_t next = 0;
  for (const MatrixChunks::Group& group : chunks.groups_of(4000)) {
    EXPECT_EQ(group.first, next);
    next = group.last;
    matrices.push_back({chunks[group.first].matrix, chunks[group.last - 1].matrix});
  }
  EXPECT_EQ(next, chunks.size());
  EXPECT_EQ(matrices, (std::vector<std::vector<int64_t>>{{0, 0}, {1, 2}, {3, 4}}));
}

TEST(MatrixChunks, ForEachVisitsAGroupOnce) {
  const std::vector<torch::Tensor> tensors = {torch::zeros({900, 1000})};
  const MatrixChunks chunks(tensors, std::vector<int64_t>{900});
  std::vector<int> visits(chunks.size());
  chunks.for_each({100, 800}, [&](size_t i) { ++visits[i]; });
  for (size_t i = 0; i < visits.size(); ++i) EXPECT_EQ(visits[i], i >= 100 && i < 800 ? 1 : 0) << i;
}

TEST(MatrixChunks, OfNothingHaveNoWork) {
  const MatrixChunks chunks({}, {});
  EXPECT_TRUE(chunks.groups_of(1).empty());
  chunks.for_each([](size_t) { FAIL(); });
}

}  // namespace
}  // namespace shoal
