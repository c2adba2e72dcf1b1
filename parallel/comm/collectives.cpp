#include "parallel/comm/collectives.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/device/autograd_function.h"

namespace shoal {

/// What the start and the finish of one exchange share. Holds no tensor that has this exchange in
/// its own graph for longer than a call, or graphs would never be freed.
struct ExchangeState {
  Communicator* comm = nullptr;
  RowCounts send_rows;
  RowCounts recv_rows;
  torch::Tensor received;
  torch::Tensor grad_rows;
  Pending forward;
  Pending backward;
  bool is_finished = false;

  ~ExchangeState() {
    // A graph that is dropped half way, after an error elsewhere: the rows are not needed, and
    // Pending's own destructor would end the program over them.
    for (Pending* pending : {&forward, &backward}) {
      try {
        pending->wait();
      } catch (const CommError&) {
      }
    }
  }
};

namespace {

using torch::Tensor;
using torch::autograd::Function;

Tensor empty_rows(const Tensor& like, int64_t num_rows) {
  std::vector<int64_t> sizes = like.sizes().vec();
  sizes[0] = num_rows;
  return at::empty(sizes, like.options());
}

/// An input without elements that makes a Function's outputs require gradients.
Tensor anchor(const Tensor& like) {
  return at::empty({0}, like.options().requires_grad(std::nullopt)).set_requires_grad(true);
}

bool is_in_graph(const Tensor& tensor) {
  return at::GradMode::is_enabled() && tensor.is_floating_point();
}

void send(ExchangeState& state, const Tensor& rows) {
  const Tensor sent = rows.detach().contiguous();
  state.received = empty_rows(sent, sum(state.recv_rows));
  state.forward =
      state.comm->start_all_to_all(sent, state.send_rows, state.received, state.recv_rows);
}

Tensor receive(ExchangeState& state) {
  state.forward.wait();
  return std::exchange(state.received, Tensor());
}

struct Start : Function<Start> {
  static Tensor forward(AutogradContext* ctx, const Tensor& rows, const Tensor& /*anchor*/,
                        const std::shared_ptr<ExchangeState>& state) {
    save_value(ctx, state);
    send(*state, rows);
    return at::empty({0}, rows.options().requires_grad(std::nullopt));
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& /*link_grad*/) {
    ExchangeState& state = *saved_value<std::shared_ptr<ExchangeState>>(ctx);
    state.backward.wait();
    return {std::exchange(state.grad_rows, Tensor()), Tensor(), Tensor()};
  }
};

struct Finish : Function<Finish> {
  static Tensor forward(AutogradContext* ctx, const Tensor& /*link*/,
                        const std::shared_ptr<ExchangeState>& state) {
    save_value(ctx, state);
    return receive(*state);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_second_derivatives();
    ExchangeState& state = *saved_value<std::shared_ptr<ExchangeState>>(ctx);
    const Tensor grad = grads[0].contiguous();
    state.grad_rows = empty_rows(grad, sum(state.send_rows));
    state.backward =
        state.comm->start_all_to_all(grad, state.recv_rows, state.grad_rows, state.send_rows);
    return {at::empty({0}, grad.options()), Tensor()};
  }
};

Tensor reduced(const Tensor& tensor, Communicator& comm) {
  const Tensor total = tensor.detach().clone(at::MemoryFormat::Contiguous);
  all_reduce(comm, total);
  return total;
}

struct AllReduceSum : Function<AllReduceSum> {
  static Tensor forward(AutogradContext* ctx, const Tensor& tensor, const Tensor& /*anchor*/,
                        Communicator* comm) {
    save_value(ctx, comm);
    return reduced(tensor, *comm);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_second_derivatives();
    return {reduced(grads[0], *saved_value<Communicator*>(ctx)), Tensor(), Tensor()};
  }
};

}  // namespace

StartedExchange start_all_to_all(const Tensor& rows, const RowCounts& send_rows,
                                 const RowCounts& recv_rows, Communicator& comm) {
  TORCH_CHECK(rows.dim() > 0 && rows.size(0) == sum(send_rows), "all_to_all: rank ", comm.rank(),
              " gives ", sum(send_rows), " rows in total but tensor has ", rows.sizes());
  StartedExchange started;
  started.state = std::make_shared<ExchangeState>();
  if (comm.size() == 1) {
    TORCH_CHECK(send_rows.size() == 1 && send_rows == recv_rows, "all_to_all: rank 0 sends itself ",
                send_rows, " rows but receives ", recv_rows);
    started.rows = rows;
    return started;
  }
  started.state->comm = &comm;
  started.state->send_rows = send_rows;
  started.state->recv_rows = recv_rows;
  if (is_in_graph(rows)) {
    started.link = Start::apply(rows, anchor(rows), started.state);
  } else {
    send(*started.state, rows);
  }
  return started;
}

Tensor finish_all_to_all(StartedExchange started) {
  TORCH_CHECK(started.state != nullptr && !std::exchange(started.state->is_finished, true),
              "finish_all_to_all: this exchange was not started, or is finished already");
  if (started.rows.defined()) return started.rows;
  if (!started.link.defined()) return receive(*started.state);
  return Finish::apply(started.link, started.state);
}

Tensor all_to_all(const Tensor& rows, const RowCounts& send_rows, const RowCounts& recv_rows,
                  Communicator& comm) {
  return finish_all_to_all(start_all_to_all(rows, send_rows, recv_rows, comm));
}

Tensor all_reduce_sum(const Tensor& tensor, Communicator& comm) {
  if (comm.size() == 1) return tensor;
  if (!is_in_graph(tensor)) return reduced(tensor, comm);
  return AllReduceSum::apply(tensor, anchor(tensor), &comm);
}

}  // namespace shoal
