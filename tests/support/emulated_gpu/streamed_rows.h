#pragma once

#include <torch/types.h>

#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "tests/support/emulated_gpu/accesses.h"
#include "tests/support/emulated_gpu/counts.h"
#include "tests/support/forwarding_communicator.h"

namespace shoal::testing {

/// Transfers between thread ranks of which each has an emulated GPU. They run on a stream of their
/// own, behind the work of the stream on which they were started, as NCCL's do: `in` is read when
/// the transfer starts, `out` is not a number until it arrives, which wait() makes the current
/// stream wait for. Tensors of the CPU travel as with `inner`.
class StreamedRows : public ForwardingCommunicator {
 public:
  /// A planted fault: what one transfer leaves out.
  enum class Omission { kNone, kWaitBefore, kWaitAfter, kBuffers };
  struct Fault {
    Omission omission = Omission::kNone;
    int64_t call = 0;  ///< from 0
  };

  explicit StreamedRows(std::unique_ptr<Communicator> inner) : StreamedRows(std::move(inner), {}) {}
  StreamedRows(std::unique_ptr<Communicator> inner, const Fault& fault)
      : ForwardingCommunicator(std::move(inner)),
        stream_(emulated_gpu::pool_stream(emulated_gpu::current_device_index())),
        fault_(fault) {}

  size_t stream() const { return stream_; }

  Pending start_all_to_all(torch::Tensor in, const RowCounts& send_rows, torch::Tensor out,
                           const RowCounts& recv_rows) override {
    return transfer({"all_to_all", in, out},
                    [&](const torch::Tensor& host_in, const torch::Tensor& host_out) {
                      return inner_.start_all_to_all(host_in, send_rows, host_out, recv_rows);
                    });
  }
  Pending start_all_reduce(torch::Tensor buffer, ReduceOp op) override {
    return transfer({"all_reduce", buffer, buffer},
                    [&](const torch::Tensor& in, const torch::Tensor&) {
                      return inner_.start_all_reduce(in, op);
                    });
  }

 private:
  struct Buffers {
    const char* name;
    torch::Tensor in, out;
  };

  /// A transfer under way. Its result is written once it is there and may be seen.
  class Flight {
   public:
    Flight(const Buffers& buffers, emulated_gpu::Event finished)
        : in(on_host(buffers.in)),
          out(buffers.in.is_same(buffers.out) ? in : on_host(buffers.out)),
          finished_(std::move(finished)),
          to_(buffers.out.numel() == 0 ? nullptr : buffers.out.data_ptr()) {}

    const torch::Tensor in, out;  ///< of the host
    std::optional<Pending> inner;

    void wait(bool waits) {
      inner->wait();
      {
        const std::lock_guard lock(mutex_);
        is_there_ = true;
        write();
      }
      if (waits) emulated_gpu::wait_on_stream(emulated_gpu::current_stream(), finished_);
    }
    void become_visible() {
      const std::lock_guard lock(mutex_);
      is_visible_ = true;
      write();
    }

   private:
    static torch::Tensor on_host(const torch::Tensor& tensor) {
      const emulated_gpu::OpenMemory open;
      torch::Tensor copy = torch::empty(tensor.sizes(), tensor.scalar_type());
      if (tensor.numel() > 0) std::memcpy(copy.data_ptr(), tensor.data_ptr(), copy.nbytes());
      return copy;
    }
    void write() {
      if (!is_there_ || !is_visible_ || to_ == nullptr) return;
      const emulated_gpu::OpenMemory open;
      if (emulated_gpu::is_device_memory(to_, out.nbytes())) {
        std::memcpy(to_, out.data_ptr(), out.nbytes());
      }
    }

    emulated_gpu::Event finished_;
    void* to_;
    std::mutex mutex_;
    bool is_there_ = false, is_visible_ = false;
  };

  using Start = std::function<Pending(const torch::Tensor& in, const torch::Tensor& out)>;
  Pending transfer(const Buffers& buffers, const Start& start) {
    using namespace emulated_gpu;
    if (!buffers.in.is_cuda()) return start(buffers.in, buffers.out);
    const Omission omission = num_calls_++ == fault_.call ? fault_.omission : Omission::kNone;
    if (omission != Omission::kWaitBefore) {
      wait_on_stream(stream_, record_event(emulated_gpu::current_stream()));
    }
    const Work work = queue_work(buffers.name, stream_);
    note_read(work, buffers.in.storage().data());
    note_write(work, buffers.out.storage().data());
    const auto flight = std::make_shared<Flight>(buffers, record_event(stream_));
    flight->inner = start(flight->in, flight->out);
    if (!buffers.in.is_same(buffers.out) && buffers.out.numel() > 0) {
      const OpenMemory open;
      std::memset(buffers.out.data_ptr(), 0xff, buffers.out.nbytes());  // NaN and -1
    }
    add_late_effect(work, Arrival::kOnDevice, [flight] { flight->become_visible(); });
    std::vector<torch::Tensor> kept;
    if (omission != Omission::kBuffers) kept = {buffers.in, buffers.out};
    return {[flight, omission] { flight->wait(omission != Omission::kWaitAfter); }, kept};
  }

  size_t stream_;
  Fault fault_;
  int64_t num_calls_ = 0;
};

}  // namespace shoal::testing
