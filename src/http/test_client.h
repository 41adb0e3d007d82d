// For tests: a client that sends the bytes it is told to.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "base/error.h"

namespace mt::http {

class TestClient {
 public:
  explicit TestClient(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    MT_CHECK(::connect(fd_, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
  }
  ~TestClient() { close(); }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  void send(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n = ::send(fd_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (n <= 0) return;  // the server has closed
      at += static_cast<size_t>(n);
    }
  }
  // What has come once it holds `text`, or all when the server closes or `seconds` are over.
  std::string read_until(const std::string& text, double seconds = 10) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (text.empty() || held_.find(text) == std::string::npos) {
      const std::chrono::duration<double, std::milli> left = end - std::chrono::steady_clock::now();
      pollfd p{fd_, POLLIN, 0};
      if (left.count() <= 0 || ::poll(&p, 1, static_cast<int>(left.count()) + 1) <= 0) break;
      char buffer[65536];
      const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) {
        closed_ = true;
        break;
      }
      held_.append(buffer, static_cast<size_t>(n));
    }
    return std::exchange(held_, "");
  }
  std::string read_to_end(double seconds = 10) { return read_until("", seconds); }
  bool closed() const { return closed_; }  // by the server
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
  std::string held_;
  bool closed_ = false;
};

inline std::string get(const std::string& path, const std::string& headers = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n";
}
inline std::string post(const std::string& path, const std::string& body,
                        const std::string& headers = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}
// Of the first answer in `text`; 0 if there is none.
inline int status_of(const std::string& text) {
  return text.starts_with("HTTP/1.1 ") ? std::stoi(text.substr(9, 3)) : 0;
}

}  // namespace mt::http
