#include <gtest/gtest.h>

#include "tests/support/parallel_checks.h"

namespace shoal {
namespace {

using testing::parallel_checks;
using testing::ParallelCheck;

class ParallelChecksMpi : public ::testing::TestWithParam<ParallelCheck> {};

TEST_P(ParallelChecksMpi, Hold) { GetParam().check(make_mpi_communicator()); }

INSTANTIATE_TEST_SUITE_P(All, ParallelChecksMpi, ::testing::ValuesIn(parallel_checks()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace shoal
