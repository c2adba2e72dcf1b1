#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "parallel/comm/communicator.h"

/// Main of tests_mpi: one GoogleTest program on several MPI ranks. Rank 0 reports; another rank
/// prints only its own failures; a failure on any rank fails all. After each test the ranks meet,
/// so that a test which leaves a rank behind ends the run by its name instead of hanging.
namespace {

using std::chrono::seconds;

// A rank that failed may have left its peers inside the test; others may just be slow.
constexpr seconds kPatienceAfterFailure{20};
constexpr seconds kPatience{200};

class RankListener : public ::testing::EmptyTestEventListener {
 public:
  explicit RankListener(MPI_Comm comm) : comm_(comm) {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }

  bool any_failed() const { return any_failed_; }

 private:
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed() || rank_ == 0) return;
    std::fprintf(stderr, "rank %d of %d: %s:%d: %s\n", rank_, size_,
                 result.file_name() == nullptr ? "?" : result.file_name(), result.line_number(),
                 result.message());
  }

  void OnTestEnd(const ::testing::TestInfo& info) override {
    const std::string name = std::string(info.test_suite_name()) + "." + info.name();
    const int failed = info.result()->Failed() ? 1 : 0;
    int num_failed = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(&failed, &num_failed, 1, MPI_INT, MPI_SUM, comm_, &request);
    wait(request, name, failed != 0 ? kPatienceAfterFailure : kPatience);
    if (num_failed == 0) return;
    any_failed_ = true;
    if (rank_ == 0) {
      std::fprintf(stderr, "%s failed on %d of %d ranks\n", name.c_str(), num_failed, size_);
    }
  }

  void wait(MPI_Request& request, const std::string& name, seconds patience) const {
    const auto end = std::chrono::steady_clock::now() + patience;
    for (int done = 0; done == 0;) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done != 0) return;
      if (std::chrono::steady_clock::now() > end) {
        std::fprintf(stderr, "rank %d of %d: the other ranks do not come out of %s\n", rank_, size_,
                     name.c_str());
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
  bool any_failed_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();

  const auto world = shoal::make_mpi_communicator();
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (world->rank() != 0) delete listeners.Release(listeners.default_result_printer());
  auto* listener = new RankListener(comm);  // owned by the list from here on
  listeners.Append(listener);

  const int own = RUN_ALL_TESTS();
  return own != 0 || listener->any_failed() ? 1 : 0;
}
