// What a client is told when its request cannot be served: OpenAI's error object.
#pragma once

#include <boost/system/result.hpp>
#include <string>
#include <utility>

#include "runtime/result.h"

namespace spillway::server {

struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string message = {};  // for a person; never another client's text
  std::string param = {};    // the request's field at fault, "" (null on the wire) if none
  std::string code = {};     // machine readable, "" (null on the wire) if none
};

template <class T = void>
using ApiResult = boost::system::result<T, ApiError>;

[[noreturn]] void throw_exception_from_error(const ApiError& error,
                                             const boost::source_location& where);

// 400 with the field at fault.
ApiError bad_field(std::string param, std::string message, std::string code = "");
// What the layers below report, as a client sees it.
ApiError from_error(const Error& error);
// {"error":{"message":...,"type":...,"param":...,"code":...}}
std::string error_body(const ApiError& error);

}  // namespace spillway::server
