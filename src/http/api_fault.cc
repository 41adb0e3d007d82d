#include "http/api_fault.h"

#include "base/json.h"

namespace mt::http {
namespace {

constexpr size_t kMostMessage = 500;  // a message may hold what the client sent

const char* type_of(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 429: return "rate_limit_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
  }
}

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

std::string error_body(int status, const std::string& message, const std::string& param,
                       const std::string& code) {
  const std::string shown =
      message.size() <= kMostMessage ? message : message.substr(0, kMostMessage) + "...";
  return Json(Json::Object{{"error", Json::Object{{"message", shown},
                                                  {"type", type_of(status)},
                                                  {"param", or_null(param.substr(0, 100))},
                                                  {"code", or_null(code)}}}})
      .dump();
}

}  // namespace mt::http
