// One request and its answer, as a handler sees them: no sockets.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mt::http {

struct Request {
  std::string method;                                        // "GET"
  std::string path;                                          // without the query, as sent
  std::vector<std::pair<std::string, std::string>> headers;  // names as sent
  std::string body;
  std::string client;  // its address

  // "" if there is none; names without regard to case, the first of several.
  std::string header(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string body;
  std::string type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// Answers one request, once: respond(), or begin(), any number of write() and end(). Of any thread;
// nothing blocks. After the client has gone, or the answer was given, calls do nothing.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const Request& request() const = 0;
  virtual void respond(Response response) = 0;
  // The head of an answer whose body comes in pieces; `head.body` is the first.
  virtual void begin(Response head) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end() = 0;
  // Called once when the client goes away before its answer is whole, also while nothing is
  // written; at once if it has gone. On a thread of the server; must not block.
  virtual void on_gone(std::function<void()> call) = 0;
};

// Called on a thread of the server: may take a while for a long text, but must not wait for a
// model. What it throws is answered with 500.
using Handler = std::function<void(const std::shared_ptr<Exchange>&)>;

}  // namespace mt::http
