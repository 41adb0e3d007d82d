// An HTTP/1.1 server: connections, their limits, TLS. It knows nothing of models. Threads: those of
// the server; a connection's state is touched on one at a time (its strand), and answers come from
// any thread through an Exchange.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "http/exchange.h"

namespace mt::http {

struct ServerOptions {
  std::string host = "127.0.0.1";  // an address, or a name of this machine
  uint16_t port = 0;               // 0: any free one
  int threads = 2;
  int64_t max_connections = 256;   // one more is answered with 503
  uint64_t max_body = 8 << 20;     // bytes; more: 413
  uint32_t max_header = 32 << 10;  // bytes; more: 431
  uint64_t max_unsent = 8 << 20;   // bytes of answer that a client doesn't take: it has gone
  std::chrono::milliseconds read_time{30000};   // for a whole request; longer: 408
  std::chrono::milliseconds write_time{30000};  // for the client to take a piece of an answer
  std::chrono::milliseconds idle_time{75000};   // between two requests of a connection
  std::string tls_cert_file, tls_key_file;      // PEM; both or none
  // The body of an answer that the server gives by itself (400, 408, 413, 431, 500, 503).
  std::function<std::string(int status, const std::string& message)> error_body;
};

class Server final {
 public:
  // Listens when this returns. Throws kConfig naming the port or file that can't be had.
  Server(ServerOptions options, Handler handler);
  ~Server();  // stop()
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const;
  int64_t connections() const;
  // Takes no more connections; answers that are under way have until `grace` to be sent. Then the
  // threads end. Further calls do nothing.
  void stop(std::chrono::milliseconds grace = std::chrono::milliseconds(0));

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mt::http
