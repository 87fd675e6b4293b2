#include "server/network.h"

#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/system_error.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace spillway::server {

#if defined(BOOST_ASIO_HAS_IO_URING_AS_DEFAULT)  // as what sockets and timers wait in

std::string_view network_name() { return "io_uring"; }

Result<> ensure_network(char** argv) {
  std::string why;
  try {
    boost::asio::io_context context(1);
    boost::asio::steady_timer timer(context);  // creates the ring
    return {};
  } catch (const boost::system::system_error& error) {
    why = error.code().message();
  }
  std::error_code ec;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ec);
  const std::string twin = (self.parent_path() / "spillway-epoll").string();
  if (!ec) execv(twin.c_str(), argv);
  return Error{ErrorCode::kUnavailable, "io_uring is refused here (" + why + ") and " + twin +
                                            " cannot be run: " + std::strerror(errno)};
}

#else

std::string_view network_name() { return "epoll"; }

Result<> ensure_network(char**) { return {}; }

#endif

}  // namespace spillway::server
