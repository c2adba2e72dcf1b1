// Attention of sparse queries on dense keys beside LibTorch's attention of all queries.
#include <ATen/ops/scaled_dot_product_attention.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/moe_shapes.h"
#include "benchmarks/support/machine.h"
#include "benchmarks/support/program.h"
#include "benchmarks/support/set_up.h"
#include "models/hspmn/kernels/sparse_query_attention.h"
#include "runtime/base/text.h"

// B sequences  S tokens  N query heads  M heads of keys and values  G = N / M  H head width
// R queries of all sequences
namespace shoal::bench::sparse_attention_bench {
namespace {

struct Arguments {
  int64_t tokens = 4096, heads = 8, key_heads = 2, width = 64, percent = 20;
  int64_t context = 32768, decode_batch = 16, active = 3;
  int64_t threads = 2, rounds = 0;
  std::vector<std::string> cases = {"core", "decode"};
  std::vector<int64_t> batches = {1, 4};

  int64_t queries() const { return tokens * percent / 100; }
  bool has(const char* name) const { return std::ranges::find(cases, name) != cases.end(); }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(width)); }
};

/// Where the queries of a sequence are: evenly spread, or its last tokens.
std::vector<int64_t> positions_of(const std::string& where, const Arguments& arguments) {
  const int64_t S = arguments.tokens, count = arguments.queries();
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < count; ++i) {
    positions.push_back(where == "late" ? S - count + i : (2 * i + 1) * S / (2 * count));
  }
  return positions;
}

SparseQueries queries_at(const std::vector<int64_t>& positions, int64_t sequences) {
  std::vector<int64_t> limits, offset{0};
  for (int64_t b = 0; b < sequences; ++b) {
    limits.insert(limits.end(), positions.begin(), positions.end());
    offset.push_back(static_cast<int64_t>(limits.size()));
  }
  return {torch::tensor(limits, torch::kInt64), offset};
}

/// Heads of a causal attention and the compact rows of its sparse one.
struct Core {
  torch::Tensor query_BNSH, query_RNH, key_BMSH, value_BMSH, key_BNSH, value_BNSH;
  SparseQueries queries;
  double scale;
  bool differentiated;

  Core(const Arguments& arguments, int64_t sequences, const std::string& where,
       bool is_differentiated)
      : scale(arguments.scale()), differentiated(is_differentiated) {
    const int64_t S = arguments.tokens, N = arguments.heads, M = arguments.key_heads;
    const std::vector<int64_t> positions = positions_of(where, arguments);
    queries = queries_at(positions, sequences);
    query_BNSH = leaf(normal({sequences, N, S, arguments.width}, 1));
    key_BMSH = leaf(normal({sequences, M, S, arguments.width}, 2));
    value_BMSH = leaf(normal({sequences, M, S, arguments.width}, 3));
    key_BNSH = leaf(key_BMSH.detach().repeat_interleave(N / M, 1));
    value_BNSH = leaf(value_BMSH.detach().repeat_interleave(N / M, 1));
    query_RNH = leaf(query_BNSH.detach()
                         .index_select(2, torch::tensor(positions, torch::kInt64))
                         .transpose(1, 2)
                         .reshape({-1, N, arguments.width}));
  }
  torch::Tensor leaf(const torch::Tensor& x) const {
    return x.contiguous().requires_grad_(differentiated);
  }
  torch::Tensor sparse() const {
    return sparse_query_attention(query_RNH, key_BMSH, value_BMSH, queries, scale);
  }
  torch::Tensor expanded() const {
    return at::scaled_dot_product_attention(query_BNSH, key_BNSH, value_BNSH, {}, 0.0,
                                            /*is_causal=*/true, scale);
  }
  torch::Tensor grouped() const {
    return at::scaled_dot_product_attention(query_BNSH, key_BMSH, value_BMSH, {}, 0.0,
                                            /*is_causal=*/true, scale, /*enable_gqa=*/true);
  }
  /// Multiply-adds of the logits and of their products with the values, twice.
  double sparse_flops() const {
    const double keys = (queries.limit_R + 1).sum().item<double>();
    return 4.0 * keys * static_cast<double>(query_RNH.size(1) * query_RNH.size(2));
  }
  double dense_flops() const {
    const auto S = static_cast<double>(query_BNSH.size(2));
    return 4.0 * static_cast<double>(query_BNSH.numel()) * (S + 1) / 2;
  }
  void check(const Arguments& arguments, const std::string& where) const {
    const torch::NoGradGuard no_grad;
    const torch::Tensor at = torch::tensor(positions_of(where, arguments), torch::kInt64);
    const torch::Tensor rows =
        expanded().index_select(2, at).transpose(1, 2).reshape(query_RNH.sizes());
    const double apart = (sparse() - rows).abs().max().item<double>();
    if (!(apart < 1e-4)) throw std::runtime_error(fmt::format("results differ by {}", apart));
  }
};

void backward(const torch::Tensor& out, const torch::Tensor& upstream,
              std::vector<torch::Tensor> leaves) {
  out.backward(upstream);
  for (torch::Tensor& leaf : leaves) leaf.mutable_grad().reset();
}

std::vector<Contender> contenders_of(const Core& core) {
  if (!core.differentiated) {
    return {{"sparse", [&] { core.sparse(); }},
            {"libtorch_expanded", [&] { core.expanded(); }},
            {"libtorch_gqa", [&] { core.grouped(); }}};
  }
  const torch::Tensor sparse_grad = normal(core.query_RNH.sizes(), 5);
  const torch::Tensor dense_grad = normal(core.query_BNSH.sizes(), 6);
  return {
      {"sparse",
       [&core, sparse_grad] {
         backward(core.sparse(), sparse_grad, {core.query_RNH, core.key_BMSH, core.value_BMSH});
       }},
      {"libtorch_expanded",
       [&core, dense_grad] {
         backward(core.expanded(), dense_grad, {core.query_BNSH, core.key_BNSH, core.value_BNSH});
       }},
      {"libtorch_gqa", [&core, dense_grad] {
         backward(core.grouped(), dense_grad, {core.query_BNSH, core.key_BMSH, core.value_BMSH});
       }}};
}

void report_row(nlohmann::json row, const std::vector<Timing>& timings, Report& report) {
  std::string line;
  for (const char* const key : {"case", "positions", "pass", "batch"}) {
    if (!row.contains(key)) continue;
    line += row[key].is_string() ? row[key].get<std::string>() + ' ' : row[key].dump() + ' ';
  }
  line = fmt::format("{:<34} {:9.2f} ms", line, timings[0].median_us * 1e-3);
  for (size_t i = 0; i < timings.size(); ++i) {
    row[timings[i].name + "_us"] = timings[i].median_us;
    if (i == 0) continue;
    const double ratio = timings[i].median_us / timings[0].median_us;
    row[timings[i].name + "_over_sparse"] = ratio;
    line += fmt::format("  {} {:.2f} x", timings[i].name, ratio);
  }
  for (const char* const key : {"least_over_sparse", "share_of_product_rate",
                                "libtorch_share_of_product_rate", "gigabytes_per_second"}) {
    if (row.contains(key)) line += fmt::format("  {} {:.2f}", key, row[key].get<double>());
  }
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  report.add(row);
}

void measure_core(const Arguments& arguments, double flops_per_us, Report& report) {
  for (const int64_t batch : arguments.batches) {
    for (const std::string where : {"uniform", "late"}) {
      for (const bool differentiated : {false, true}) {
        const Core core(arguments, batch, where, differentiated);
        core.check(arguments, where);
        const std::vector<Timing> timings =
            time_interleaved(contenders_of(core), {arguments.rounds, 2, 1});
        // The backward pass has five products where the forward pass has two.
        const double passes = differentiated ? 3.5 : 1.0;
        const double us = timings[0].median_us, dense_us = timings[1].median_us;
        report_row({{"case", "core"},
                    {"batch", batch},
                    {"positions", where},
                    {"pass", differentiated ? "forward_backward" : "forward"},
                    {"flops_ratio", core.dense_flops() / core.sparse_flops()},
                    {"share_of_product_rate", passes * core.sparse_flops() / us / flops_per_us},
                    {"libtorch_share_of_product_rate",
                     passes * core.dense_flops() / dense_us / flops_per_us}},
                   timings, report);
      }
    }
  }
}

/// One step of decoding: of a batch some sequences attend, others each time, to a long cache.
void measure_decode(const Arguments& arguments, Report& report) {
  const torch::NoGradGuard no_grad;
  const int64_t B = arguments.decode_batch, N = arguments.heads, M = arguments.key_heads;
  const int64_t P = arguments.context, H = arguments.width, active = arguments.active;
  const torch::Tensor key = normal({1, M, P, H}, 2).repeat({B, 1, 1, 1});
  const torch::Tensor value = normal({1, M, P, H}, 3).repeat({B, 1, 1, 1});
  const torch::Tensor query = normal({B, N, H}, 1);
  std::vector<torch::Tensor> rows;
  std::vector<SparseQueries> steps;
  for (int64_t first = 0; first < B; ++first) {
    std::vector<int64_t> attends(static_cast<size_t>(B), 0), offset{0};
    for (int64_t i = 0; i < active; ++i) {
      attends[static_cast<size_t>((first + i * B / active) % B)] = 1;
    }
    for (const int64_t one : attends) offset.push_back(offset.back() + one);
    rows.push_back(query.index_select(0, torch::tensor(attends).nonzero().squeeze(1)));
    steps.push_back({torch::full({active}, P - 1, torch::kInt64), offset});
  }
  size_t step = 0;
  const auto sparse = [&] {
    step = (step + 1) % steps.size();
    return sparse_query_attention(rows[step], key, value, steps[step], arguments.scale());
  };
  const auto dense = [&] {
    return at::scaled_dot_product_attention(query.view({B, M, N / M, H}), key, value, {}, 0.0,
                                            /*is_causal=*/false, arguments.scale());
  };
  const double apart = (dense().view({B, N, H})[B - 1] -
                        [&] {
                          step = static_cast<size_t>(B - 2);
                          return sparse()[active - 1];
                        }())
                           .abs()
                           .max()
                           .item<double>();
  if (!(apart < 1e-4)) throw std::runtime_error(fmt::format("decoding differs by {}", apart));
  const std::vector<Timing> timings =
      time_interleaved({{"sparse", [&] { sparse(); }}, {"libtorch_all", [&] { dense(); }}},
                       {arguments.rounds, 2, 1});
  const double bytes = 2.0 * 4.0 * static_cast<double>(active * M * P * H);
  report_row({{"case", "decode"},
              {"batch", B},
              {"active", active},
              {"context", P},
              {"keys_ratio", static_cast<double>(B) / static_cast<double>(active)},
              {"gigabytes_per_second", bytes / timings[0].median_us * 1e-3}},
             timings, report);
}

int run(int argc, char** argv) {
  Program program("sparse_attention",
                  "Attention of a part of the queries on all keys, and LibTorch's causal attention "
                  "of all queries, with keys and values expanded before and with its native "
                  "grouped-query attention; and a step of decoding. float32.",
                  15);
  Arguments arguments;
  program.add_choices("--case", arguments.cases, "what to measure; all if left out");
  program.add("--batch", arguments.batches, "sequences at once");
  program.add("--tokens", arguments.tokens, "of a sequence");
  program.add("--heads", arguments.heads, "of queries");
  program.add("--key-heads", arguments.key_heads, "of keys and values");
  program.add("--width", arguments.width, "of a head");
  program.add("--percent", arguments.percent, "of the tokens that attend");
  program.add("--context", arguments.context, "keys of a sequence while decoding");
  program.add("--decode-batch", arguments.decode_batch, "sequences that are decoded");
  program.add("--active", arguments.active, "of those, how many attend in a step");
  program.add("--threads", arguments.threads, "threads");
  return program.run(argc, argv, [&](Report& report) {
    arguments.rounds = program.rounds();
    set_up(arguments.threads, report);
    const double flops_per_us = measure_product_rate(report);
    if (arguments.has("core")) measure_core(arguments, flops_per_us, report);
    if (arguments.has("decode")) measure_decode(arguments, report);
  });
}

const Benchmark kBenchmark("sparse_attention", run);

}  // namespace
}  // namespace shoal::bench::sparse_attention_bench
