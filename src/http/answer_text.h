// The bytes of an answer (HTTP/1.1, RFC 9112).
#pragma once

#include <string>

#include "http/exchange.h"

namespace mt::http {

struct AnswerForm {
  int version = 11;        // of the request: 10 or 11
  bool keep = true;        // the connection stays open
  bool head_only = false;  // the request was HEAD
};

std::string whole_text(const Response& response, const AnswerForm& form);
// The head of an answer in chunks (HTTP/1.0: in bytes up to the end of the connection).
std::string head_text(const Response& head, const AnswerForm& form);
std::string chunk_text(const std::string& piece);  // of a piece that isn't empty
constexpr const char* kLastChunk = "0\r\n\r\n";

}  // namespace mt::http
