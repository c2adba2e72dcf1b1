// Answers many command lines of `shoal` in one start: each in a copy of this process, which has
// loaded LibTorch already. Scripts of tests/cli ask it by `answer` of common.sh.
//
// Standard input has requests: the folder to be in, the number of words, the words, each ended by a
// NUL. The answer goes to `stdout` and `stderr` in that folder, its exit code to standard output.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#define main run_shoal
#include "launch/main.cpp"
#undef main

namespace {

void redirect(int to, const char* file, int flags) {
  const int from = open(file, flags, 0644);
  if (from < 0 || dup2(from, to) < 0) _exit(126);
  close(from);
}

/// In the child: ends with the program's exit code.
[[noreturn]] void answer(const std::string& folder, std::vector<std::string> words) {
  if (chdir(folder.c_str()) != 0) _exit(126);
  redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
  redirect(STDOUT_FILENO, "stdout", O_WRONLY | O_CREAT | O_TRUNC);
  redirect(STDERR_FILENO, "stderr", O_WRONLY | O_CREAT | O_TRUNC);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::exit(run_shoal(static_cast<int>(words.size()), argv.data()));
}

}  // namespace

int main(int /*argc*/, char** argv) {
  std::string folder, number;
  while (std::getline(std::cin, folder, '\0') && std::getline(std::cin, number, '\0')) {
    std::vector<std::string> words{argv[1]};
    for (int left = std::stoi(number); left > 0; --left) {
      std::getline(std::cin, words.emplace_back(), '\0');
    }
    const pid_t child = fork();
    if (child == 0) answer(folder, std::move(words));
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return EXIT_FAILURE;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    std::printf("%d\n", code);
    std::fflush(stdout);
  }
  return EXIT_SUCCESS;
}
