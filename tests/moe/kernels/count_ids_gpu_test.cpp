#include "moe/kernels/count_ids.h"

#include "tests/support/gradient_check.h"
#include "tests/support/on_gpu.h"

namespace shoal {
namespace {

class CountIdsGpu : public testing::OnGpu {};

TEST_F(CountIdsGpu, CountsAsTheCpu) {
  for (const int64_t num_ids : {1, 7, 300}) {
    const torch::Tensor ids =
        (testing::some_numbers({400, 3}, 1).abs() * static_cast<double>(num_ids))
            .floor()
            .clamp(0, num_ids)
            .to(torch::kInt64) -
        1;
    expect_same(count_ids(ids, num_ids), count_ids(on_gpu(ids), num_ids));
    const torch::Tensor none = ids.slice(0, 0, 0);
    expect_same(count_ids(none, num_ids), count_ids(on_gpu(none), num_ids));
  }
}

}  // namespace
}  // namespace shoal
