#include "benchmarks/support/peer_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace shoal::bench {
namespace {

// mpirun binds this process to its cores; a peer may use any.
void use_all_cores() {
  cpu_set_t any;
  std::memset(&any, 0xff, sizeof(any));
  sched_setaffinity(0, sizeof(any), &any);
}

// A program may have been carried to another machine than the one that built it.
std::string script_path(const std::string& script) {
  const std::string path = SHOAL_BENCHMARK_PEERS "/" + script;
  return std::filesystem::exists(path) ? path : "benchmarks/peers/" + script;
}

}  // namespace

std::unique_ptr<PeerProcess> PeerProcess::start(const std::string& python,
                                                const std::string& script) {
  std::unique_ptr<PeerProcess> peer(new PeerProcess(python, script));
  if (peer->read_line() == "ready") return peer;
  std::printf("peers/%s: absent, since '%s' has no PyTorch 2.11 (pip install torch)\n",
              script.c_str(), python.c_str());
  return nullptr;
}

PeerProcess::PeerProcess(const std::string& python, const std::string& script) {
  const std::string path = script_path(script);
  std::array<int, 2> input{}, output{};
  // Closed in every child: a peer ends when the one end of its input that is left closes.
  if (pipe2(input.data(), O_CLOEXEC) != 0 || pipe2(output.data(), O_CLOEXEC) != 0) {
    throw std::runtime_error("no pipe for " + python);
  }
  std::signal(SIGPIPE, SIG_IGN);
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("cannot start " + python);
  if (pid_ == 0) {
    use_all_cores();
    dup2(input[0], STDIN_FILENO);
    dup2(output[1], STDOUT_FILENO);
    execlp(python.c_str(), python.c_str(), path.c_str(), nullptr);
    _exit(127);
  }
  close(input[0]);
  close(output[1]);
  to_ = fdopen(input[1], "w");
  from_ = fdopen(output[0], "r");
}

PeerProcess::~PeerProcess() {
  std::fclose(to_);
  std::fclose(from_);
  int status = 0;
  waitpid(pid_, &status, 0);
}

nlohmann::json PeerProcess::ask(const nlohmann::json& question) {
  std::fputs((question.dump() + "\n").c_str(), to_);
  std::fflush(to_);
  const std::string answer = read_line();
  if (answer.empty()) throw std::runtime_error("the peer process has ended; its message is above");
  return nlohmann::json::parse(answer);
}

std::string PeerProcess::read_line() {
  char* text = nullptr;
  size_t capacity = 0;
  const ssize_t length = getline(&text, &capacity, from_);
  std::string line = length > 0 ? std::string(text, static_cast<size_t>(length)) : "";
  std::free(text);
  if (line.ends_with('\n')) line.pop_back();
  return line;
}

}  // namespace shoal::bench
