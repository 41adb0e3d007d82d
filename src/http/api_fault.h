// What the API says no with: OpenAI's error objects.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/error.h"

namespace mt::http {

// A request that is refused: a 4xx, and the field that is wrong ("" if none is).
class ApiFault final : public Error {
 public:
  ApiFault(int status, std::string param, const std::string& message, std::string code = "")
      : Error(ErrorKind::kConfig, message),
        status_(status),
        param_(std::move(param)),
        code_(std::move(code)) {}
  int status() const { return status_; }
  const std::string& param() const { return param_; }
  const std::string& code() const { return code_; }

 private:
  int status_;
  std::string param_, code_;
};

template <typename... Args>
ApiFault bad_field(std::string param, fmt::format_string<Args...> format, Args&&... args) {
  return {400, std::move(param), fmt::format(format, std::forward<Args>(args)...)};
}

// {"error": {"message", "type", "param", "code"}}; long messages are cut.
std::string error_body(int status, const std::string& message, const std::string& param = "",
                       const std::string& code = "");

}  // namespace mt::http
