// The one coroutine type. A Task is lazy: it runs when awaited or spawned into a Scope.
// Take parameters by value; never make a capturing lambda a coroutine (g++ 12 and lifetimes).
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#ifndef BOOST_ASIO_HAS_IO_URING
#error "link spillway_runtime: without its definitions coroutine frames overrun"
#endif

namespace spillway {

namespace asio = boost::asio;

template <class T = void>
using Task = asio::awaitable<T>;

}  // namespace spillway
