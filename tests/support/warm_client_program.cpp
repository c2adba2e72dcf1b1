// Has the program that listens at WARM_NAME run with these arguments, here: with this environment,
// these streams and this folder. Ends as it ends.
#include <fcntl.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/support/warm_message.h"

using shoal::testing::WarmRequest;

namespace {

int fail(const char* what) {
  std::perror(what);
  return 125;
}

/// The request with the descriptors.
bool send_request(int socket, WarmRequest& request) {
  const int descriptors[WarmRequest::kDescriptors] = {0, 1, 2, open(".", O_PATH | O_DIRECTORY)};
  shoal::testing::WarmControl control{};
  iovec part{&request, sizeof request};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof descriptors);
  std::memcpy(CMSG_DATA(header), descriptors, sizeof descriptors);
  return sendmsg(socket, &message, 0) == static_cast<ssize_t>(sizeof request);
}

}  // namespace

int main(int argc, char** argv) {
  const char* name = std::getenv("WARM_NAME");
  if (name == nullptr) return fail("WARM_NAME is not set");
  const shoal::testing::WarmAddress address(name);
  const int socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(socket_, address.get(), address.length) != 0) return fail("connect");
  std::string text;
  WarmRequest request{static_cast<size_t>(argc), 0, 0};
  for (int i = 0; i < argc; ++i) text.append(argv[i]).push_back('\0');
  for (char** variable = environ; *variable != nullptr; ++variable, ++request.num_variables) {
    text.append(*variable).push_back('\0');
  }
  request.bytes = text.size();
  if (!send_request(socket_, request)) return fail("sendmsg");
  if (!shoal::testing::move_all(write, socket_, text.data(), text.size())) return fail("write");
  int status = 0;
  if (!shoal::testing::move_all(read, socket_, reinterpret_cast<char*>(&status), sizeof status)) {
    return fail("read");
  }
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  std::signal(WTERMSIG(status), SIG_DFL);
  std::raise(WTERMSIG(status));
  return 125;
}
