#include "http/answer_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

namespace mt::http {
namespace {

const char* reason(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Payload Too Large";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    default: return "Unknown";
  }
}

std::string begin_text(const Response& response, const AnswerForm& form) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n", response.status,
                                reason(response.status), response.type);
  for (const auto& [name, value] : response.headers) {
    out += fmt::format("{}: {}\r\n", name, value);
  }
  if (!form.keep) {
    out += "Connection: close\r\n";
  } else if (form.version < 11) {
    out += "Connection: keep-alive\r\n";
  }
  return out;
}

}  // namespace

std::string Request::header(std::string_view name) const {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
  };
  for (const auto& [key, value] : headers) {
    if (std::equal(key.begin(), key.end(), name.begin(), name.end(), same)) return value;
  }
  return "";
}

std::string whole_text(const Response& response, const AnswerForm& form) {
  std::string out = begin_text(response, form);
  out += fmt::format("Content-Length: {}\r\n\r\n", response.body.size());
  if (!form.head_only) out += response.body;
  return out;
}

std::string head_text(const Response& head, const AnswerForm& form) {
  std::string out = begin_text(head, form);
  if (form.version >= 11) out += "Transfer-Encoding: chunked\r\n";
  return out + "\r\n";
}

std::string chunk_text(const std::string& piece) {
  return fmt::format("{:x}\r\n", piece.size()) + piece + "\r\n";
}

}  // namespace mt::http
