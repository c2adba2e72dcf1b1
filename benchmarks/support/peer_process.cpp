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
#include <utility>

namespace shoal::bench {
namespace {

constexpr int kNotFound = 127;     // by execlp, and by shells
constexpr int kLacksPackage = 69;  // as serve.py

std::string describe_end(int status) {
  return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                             : "exit code " + std::to_string(WEXITSTATUS(status));
}

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
                                                const std::string& script,
                                                const std::string& needs) {
  std::unique_ptr<PeerProcess> peer(new PeerProcess(python, script));
  const std::string line = peer->read_line();
  if (line == "ready") return peer;
  const int status = peer->end();
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (line.empty() && (code == kNotFound || code == kLacksPackage)) {
    std::printf("peers/%s: absent, since %s\n", script.c_str(),
                code == kNotFound ? ("there is no '" + python + "'").c_str()
                                  : ("'" + python + "' has no " + needs).c_str());
    return nullptr;
  }
  throw std::runtime_error("peers/" + script + ": '" + python + "' " +
                           (line.empty() ? "ended" : "answered '" + line + "' and ended") +
                           " with " + describe_end(status) +
                           " instead of answering 'ready'; its own messages are above");
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
    _exit(kNotFound);
  }
  close(input[0]);
  close(output[1]);
  to_ = fdopen(input[1], "w");
  from_ = fdopen(output[0], "r");
}

PeerProcess::~PeerProcess() {
  if (to_ != nullptr) end();
}

int PeerProcess::end() {
  std::fclose(std::exchange(to_, nullptr));
  std::fclose(std::exchange(from_, nullptr));
  int status = 0;
  waitpid(pid_, &status, 0);
  return status;
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
