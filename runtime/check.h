// CHECK: a condition whose failure is a bug in Spillway. On in every build; prints the condition,
// the place and a message, then aborts. DCHECK is for measured hot loops: on in debug builds only.
#pragma once

namespace spillway {

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace spillway

#define CHECK(condition)                                     \
  (__builtin_expect(!!(condition), 1) ? static_cast<void>(0) \
                                      : ::spillway::check_failed(#condition, __FILE__, __LINE__))

#ifdef NDEBUG
#define DCHECK(condition) static_cast<void>(0)
#else
#define DCHECK(condition) CHECK(condition)
#endif
