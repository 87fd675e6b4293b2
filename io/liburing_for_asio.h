// Included before everything in the targets that run Asio on io_uring (server/CMakeLists.txt).
//
// Asio 1.81 queues cancellations and timer removals without setting user_data, and relies on
// liburing to have cleared it. liburing since 2.2 does not: such an entry carries the user_data of
// whatever used the slot before, and its completion is taken for the end of another socket's read
// or write, whose buffer the kernel still owns. So every entry starts out clear here.
#pragma once

#include <liburing.h>

inline struct io_uring_sqe* spillway_get_clear_sqe(struct io_uring* ring) {
  struct io_uring_sqe* sqe = io_uring_get_sqe(ring);
  if (sqe != nullptr) io_uring_sqe_set_data64(sqe, 0);
  return sqe;
}

#define io_uring_get_sqe spillway_get_clear_sqe
