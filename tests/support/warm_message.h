#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

/// How a client asks a program that has been started with warm_shim.cpp to run once more.
namespace shoal::testing {

/// The client's standard streams and working directory go along with it, as descriptors.
struct WarmRequest {
  static constexpr int kDescriptors = 4;
  size_t num_arguments, num_variables;
  size_t bytes;  ///< of arguments and environment, each ended by a zero, which follow
};

/// An address without a file.
struct WarmAddress {
  sockaddr_un address{};
  socklen_t length;
  explicit WarmAddress(const char* name) {
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path + 1, name, sizeof address.sun_path - 2);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + std::strlen(name));
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

/// Room for the descriptors of a message.
union WarmControl {
  char bytes[CMSG_SPACE(WarmRequest::kDescriptors * sizeof(int))];
  cmsghdr align;
};

/// All of `size` bytes, or false.
template <class Move>
bool move_all(Move move, int socket, char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t moved = move(socket, bytes, size);
    if (moved <= 0) return false;
    bytes += moved;
    size -= static_cast<size_t>(moved);
  }
  return true;
}

}  // namespace shoal::testing
