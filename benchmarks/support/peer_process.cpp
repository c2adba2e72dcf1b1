#include "benchmarks/support/peer_process.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace shoal::bench {

PeerProcess::PeerProcess(const std::vector<std::string>& command) {
  std::array<int, 2> input{}, output{};
  if (pipe(input.data()) != 0 || pipe(output.data()) != 0) {
    throw std::runtime_error("no pipe for " + command.at(0));
  }
  std::signal(SIGPIPE, SIG_IGN);
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("cannot start " + command.at(0));
  if (pid_ == 0) {
    dup2(input[0], STDIN_FILENO);
    dup2(output[1], STDOUT_FILENO);
    // mpirun binds this process to its cores; the peer may use any.
    cpu_set_t any;
    std::memset(&any, 0xff, sizeof(any));
    sched_setaffinity(0, sizeof(any), &any);
    for (const int end : {input[0], input[1], output[0], output[1]}) close(end);
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
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

std::string PeerProcess::ask(const std::string& line) {
  std::fputs((line + "\n").c_str(), to_);
  std::fflush(to_);
  char* text = nullptr;
  size_t capacity = 0;
  const ssize_t length = getline(&text, &capacity, from_);
  std::string answer = length > 0 ? std::string(text, static_cast<size_t>(length)) : "";
  std::free(text);
  if (length <= 0) throw std::runtime_error("the peer process has ended");
  if (answer.back() == '\n') answer.pop_back();
  return answer;
}

}  // namespace shoal::bench
