// Preloaded into a program, stops it where its libraries are initialised and main() would begin,
// and makes a copy of the process for each client (warm_client_program.cpp) that connects to
// WARM_NAME: the copy goes on with the client's arguments, environment, streams and folder. What a
// program loads before it begins is loaded once for many runs.
#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "tests/support/warm_message.h"

namespace {

using shoal::testing::WarmRequest;
using Main = int (*)(int, char**, char**);
using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);

Main program = nullptr;

/// Leaves the destructors of libraries out, which take as long as what a short command does.
int run_and_leave(int argc, char** argv, char** environment) {
  const int code = program(argc, argv, environment);
  if (std::getenv("OMPI_COMM_WORLD_RANK") != nullptr) return code;  // MPI ends behind main()
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  std::_Exit(code);
}

/// What a copy begins with: arguments, null, environment, null.
struct Begin {
  int num_arguments = 0;
  std::vector<char*>* words = nullptr;
};

bool take_descriptors(int socket, WarmRequest& request) {
  shoal::testing::WarmControl control{};
  iovec part{&request, sizeof request};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  if (recvmsg(socket, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC) !=
      static_cast<ssize_t>(sizeof request)) {
    return false;
  }
  int descriptors[WarmRequest::kDescriptors];
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr) return false;
  std::memcpy(descriptors, CMSG_DATA(header), sizeof descriptors);
  for (int i = 0; i < 3; ++i) dup2(descriptors[i], i);
  return fchdir(descriptors[3]) == 0;
}

Begin read_words(int socket, const WarmRequest& request) {
  auto* text = new std::string(request.bytes, '\0');
  if (!shoal::testing::move_all(read, socket, text->data(), text->size())) std::_Exit(125);
  auto* words = new std::vector<char*>;
  char* next = text->data();
  const auto take = [&](size_t count) {
    for (size_t i = 0; i < count; ++i, next += std::strlen(next) + 1) words->push_back(next);
    words->push_back(nullptr);
  };
  take(request.num_arguments);
  take(request.num_variables);
  return {static_cast<int>(request.num_arguments), words};
}

/// Takes over the client's cores and limits.
void become_like(int socket) {
  ucred client{};
  socklen_t size = sizeof client;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &client, &size) != 0) std::_Exit(125);
  cpu_set_t cores;
  if (sched_getaffinity(client.pid, sizeof cores, &cores) == 0) {
    sched_setaffinity(0, sizeof cores, &cores);
  }
  for (int resource = 0; resource < RLIM_NLIMITS; ++resource) {
    rlimit limit;
    const auto which = static_cast<__rlimit_resource>(resource);
    if (prlimit(client.pid, which, nullptr, &limit) == 0) setrlimit(which, &limit);
  }
}

/// Returns in a copy that is to run. The process that waits for it tells the client how it ended,
/// and ends it where the client has ended.
Begin run_for(int socket) {
  std::signal(SIGCHLD, SIG_DFL);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  WarmRequest request{};
  if (!take_descriptors(socket, request)) std::_Exit(125);
  become_like(socket);
  const Begin begin = read_words(socket, request);
  const pid_t copy = fork();
  if (copy == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(socket);
    return begin;
  }
  for (int i = 0; i < 3; ++i) close(i);
  pollfd ends[] = {{socket, POLLIN, 0},
                   {static_cast<int>(syscall(SYS_pidfd_open, copy, 0)), POLLIN, 0}};
  poll(ends, 2, -1);
  if (ends[0].revents != 0) kill(copy, SIGKILL);
  int status = 0;
  waitpid(copy, &status, 0);
  shoal::testing::move_all(write, socket, reinterpret_cast<char*>(&status), sizeof status);
  std::_Exit(0);
}

/// Listens until the parent ends; returns in copies alone.
Begin serve(const char* name) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const shoal::testing::WarmAddress address(name);
  const int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listening, address.get(), address.length) != 0 || listen(listening, 64) != 0) {
    std::_Exit(125);
  }
  std::signal(SIGCHLD, SIG_IGN);
  while (true) {
    const int client = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    if (fork() == 0) {
      close(listening);
      return run_for(client);
    }
    close(client);
  }
}

}  // namespace

#define END_ARGUMENTS void (*init)(), void (*fini)(), void (*rtld_fini)(), void* stack_end
extern "C" int __libc_start_main(Main main, int argc, char** argv, END_ARGUMENTS) {
  const auto start = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  // Not yet initialised by the C library: `environ` follows the arguments.
  const char* name = nullptr;
  for (char** variable = argv + argc + 1; *variable != nullptr; ++variable) {
    if (std::strncmp(*variable, "WARM_NAME=", 10) == 0) name = *variable + 10;
  }
  if (name == nullptr) return start(main, argc, argv, init, fini, rtld_fini, stack_end);
  const Begin begin = serve(name);
  program = main;
  environ = begin.words->data() + begin.num_arguments + 1;
  return start(run_and_leave, begin.num_arguments, begin.words->data(), init, fini, rtld_fini,
               stack_end);
}
