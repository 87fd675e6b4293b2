// What an operation that the world can fail returns. Bugs are CHECKs (check.h); disk bytes, client
// bytes, model files and missing features are Results.
#pragma once

#include <boost/system/result.hpp>
#include <cstdint>
#include <string>
#include <utility>

namespace spillway {

enum class ErrorCode : uint8_t {
  kInvalidArgument,  // the caller's input is wrong; the message says what is accepted
  kNotFound,
  kCorrupt,            // bytes do not verify
  kIo,                 // the operating system refused or failed
  kUnavailable,        // not now (loading, draining); may work later
  kUnsupported,        // a known feature that this build or model lacks
  kResourceExhausted,  // a bound was reached
  kDeadlineExceeded,
  kCancelled,
};

struct Error {
  ErrorCode code;
  std::string message;  // a sentence for a person: what was wrong, where, what is accepted
};

// Success or an Error. `value()` on an Error throws std::runtime_error with its message.
template <class T = void>
using Result = boost::system::result<T, Error>;

[[noreturn]] void throw_exception_from_error(const Error& error,
                                             const boost::source_location& where);

inline Error invalid_argument(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

}  // namespace spillway
