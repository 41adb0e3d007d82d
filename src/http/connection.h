// One connection: requests one after another, each answered before the next is looked at. While an
// answer is made a read stays open, so that the client's going is noticed. Beast; only server.cc
// includes this.
#pragma once

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "http/answer_text.h"
#include "http/server.h"

namespace mt::http {

namespace net = boost::asio;
namespace beast = boost::beast;
using net::ip::tcp;
using Fault = boost::system::error_code;
using Strand = net::strand<net::io_context::executor_type>;
using Socket = net::basic_stream_socket<tcp, Strand>;
using TlsSocket = net::ssl::stream<Socket>;

// What a server's connections share.
struct Shared {
  ServerOptions options;
  Handler handler;
  std::atomic<int64_t> connections{0};
  std::atomic<bool> stopping{false};
};

class AnyConnection {
 public:
  virtual ~AnyConnection() = default;
  // Ends it: when its answer is sent (gently), or now. Of any thread.
  virtual void close(bool gently) = 0;
};

template <typename Stream>
class Connection final : public AnyConnection,
                         public std::enable_shared_from_this<Connection<Stream>> {
 public:
  template <typename... Args>
  Connection(std::shared_ptr<Shared> shared, Args&&... args)
      : shared_(std::move(shared)),
        stream_(std::forward<Args>(args)...),
        read_timer_(stream_.get_executor()),
        write_timer_(stream_.get_executor()) {
    ++shared_->connections;
  }
  ~Connection() override { --shared_->connections; }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start() {
    net::post(stream_.get_executor(), [self = this->shared_from_this()] { self->open(); });
  }
  void close(bool gently) override {
    net::post(stream_.get_executor(), [self = this->shared_from_this(), gently] {
      self->keep_ = false;
      if (!gently || self->exchange_ == nullptr) self->shut();
    });
  }

 private:
  // A handler's side. It may outlive the connection.
  class Answer final : public Exchange {
   public:
    Answer(std::shared_ptr<Connection> connection, Request request)
        : connection_(std::move(connection)), request_(std::move(request)) {}
    const Request& request() const override { return request_; }
    void respond(Response response) override {
      pass([r = std::move(response)](Connection& c) { c.send_whole(r); });
    }
    void begin(Response head) override {
      pass([h = std::move(head)](Connection& c) { c.send_head(h); });
    }
    void write(std::string piece) override {
      pass([p = std::move(piece)](Connection& c) { c.send_piece(p); });
    }
    void end() override {
      pass([](Connection& c) { c.send_end(); });
    }
    void on_gone(std::function<void()> call) override {
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!gone_) {
          if (connection_ != nullptr) on_gone_ = std::move(call);
          return;
        }
      }
      call();
    }
    // The answer is over; the client took it or not.
    void finish(bool gone) {
      std::function<void()> call;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (connection_ == nullptr) return;
        connection_ = nullptr;
        gone_ = gone;
        call = std::exchange(on_gone_, nullptr);
      }
      if (gone && call) call();
    }

   private:
    template <typename Do>
    void pass(Do act) {
      std::shared_ptr<Connection> c;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        c = connection_;
      }
      if (c == nullptr) return;
      Connection& target = *c;
      net::post(target.stream_.get_executor(),
                [c = std::move(c), self = this_answer(), act = std::move(act)]() mutable {
                  if (c->exchange_ == self) act(*c);
                });
    }
    std::shared_ptr<Answer> this_answer() const { return self_.lock(); }

    friend class Connection;
    std::weak_ptr<Answer> self_;
    std::mutex mutex_;
    std::shared_ptr<Connection> connection_;  // null when the answer is over
    const Request request_;
    bool gone_ = false;
    std::function<void()> on_gone_;
  };

  static constexpr bool kTls = std::is_same_v<Stream, TlsSocket>;
  Socket& socket() {
    if constexpr (kTls) {
      return stream_.next_layer();
    } else {
      return stream_;
    }
  }

  // A call back on the strand that keeps the connection alive.
  template <typename Do>
  auto then(Do act) {
    return [self = this->shared_from_this(), act = std::move(act)](Fault fault, auto&&... rest) {
      act(*self, fault, rest...);
    };
  }
  void arm(net::steady_timer& timer, std::chrono::milliseconds time, void (Connection::*act)()) {
    timer.expires_after(time);
    timer.async_wait(then([act](Connection& c, Fault fault) {
      if (!fault) (c.*act)();
    }));
  }

  void open() {
    if constexpr (kTls) {
      arm(read_timer_, shared_->options.read_time, &Connection::shut);
      stream_.async_handshake(net::ssl::stream_base::server, then([](Connection& c, Fault fault) {
                                c.read_timer_.cancel();
                                if (fault) return c.shut();
                                c.ready();
                              }));
    } else {
      ready();
    }
  }
  void ready() {
    if (shut_) return;
    if (shared_->connections > shared_->options.max_connections) {
      refuse(503,
             fmt::format("too many connections: {} at most", shared_->options.max_connections));
    } else {
      arm(read_timer_, shared_->options.idle_time, &Connection::shut);
    }
    read_more();
  }

  // The only read. It stays open while an answer is made, and what comes then is a later request.
  void read_more() {
    if (shut_ || reads_ || (exchange_ != nullptr && buffer_.size() > kMostAhead)) return;
    reads_ = true;
    // Not into buffer_ itself, from which requests are taken meanwhile.
    stream_.async_read_some(
        net::buffer(incoming_), then([](Connection& c, Fault fault, size_t count) {
          c.reads_ = false;
          if (fault) return c.shut();
          const auto to = c.buffer_.prepare(count);
          c.buffer_.commit(net::buffer_copy(to, net::buffer(c.incoming_, count)));
          c.parse();
          c.read_more();
        }));
  }

  void parse() {
    if (refused_ || closes_) return buffer_.clear();
    while (!shut_ && !refused_ && exchange_ == nullptr && buffer_.size() > 0) {
      if (!parser_) begin_request();
      Fault fault;
      buffer_.consume(parser_->put(buffer_.data(), fault));
      if (fault && fault != beast::http::error::need_more) return refuse_bytes(fault);
      if (parser_->is_done()) {
        handle();
      } else if (parser_->is_header_done()) {
        say_continue();
      }
      if (fault) return;
    }
  }
  void begin_request() {
    parser_.emplace();
    parser_->eager(true);
    parser_->header_limit(shared_->options.max_header);
    parser_->body_limit(shared_->options.max_body);
    continued_ = false;
    arm(read_timer_, shared_->options.read_time, &Connection::late);
  }
  // curl waits for this before it sends a long body.
  void say_continue() {
    const auto& head = parser_->get();
    if (continued_ || head.version() < 11) return;
    continued_ = true;
    if (beast::iequals(head[beast::http::field::expect], "100-continue")) {
      queue("HTTP/1.1 100 Continue\r\n\r\n");
    }
  }

  void late() {
    if (parser_ && !refused_) refuse(408, "the request took too long to arrive");
  }

  void refuse_bytes(Fault fault) {
    using beast::http::error;
    const ServerOptions& o = shared_->options;
    if (fault == error::body_limit) {
      refuse(413, fmt::format("the body is too large: {} bytes at most", o.max_body));
    } else if (fault == error::header_limit) {
      refuse(431, fmt::format("the header is too large: {} bytes at most", o.max_header));
    } else {
      refuse(400, "not HTTP: " + fault.message());
    }
  }

  // Says no and closes, but reads what the client still sends: closing on unread bytes would reset
  // the connection and take the answer with it.
  void refuse(int status, const std::string& message) {
    refused_ = true;
    read_timer_.cancel();
    const auto& make = shared_->options.error_body;
    queue(whole_text({status, make ? make(status, message) : message + "\n"}, {.keep = false}));
    buffer_.clear();
  }

  Request take_request() {
    auto message = parser_->release();
    parser_.reset();
    keep_ = message.keep_alive();
    version_ = static_cast<int>(message.version());
    Request request;
    request.method = std::string(message.method_string());
    request.path = std::string(message.target());
    request.path.resize(std::min(request.path.find('?'), request.path.size()));
    for (const auto& field : message) {
      request.headers.emplace_back(field.name_string(), field.value());
    }
    request.body = std::move(message.body());
    Fault ignored;
    const auto peer = socket().remote_endpoint(ignored);
    if (!ignored) request.client = peer.address().to_string();
    head_only_ = request.method == "HEAD";
    return request;
  }

  void handle() {
    read_timer_.cancel();
    const auto answer = std::make_shared<Answer>(this->shared_from_this(), take_request());
    answer->self_ = answer;
    exchange_ = answer;
    ended_ = streams_ = false;
    try {
      shared_->handler(answer);
    } catch (const std::exception& e) {
      const auto& make = shared_->options.error_body;
      answer->respond({500, make ? make(500, e.what()) : "internal error\n"});
    }
  }

  // --- answering, on the strand ---

  AnswerForm form() const {
    const bool keep = keep_ && !shared_->stopping;
    return {.version = version_, .keep = keep, .head_only = head_only_};
  }
  void send_whole(const Response& response) {
    if (streams_ || ended_) return;
    ended_ = true;
    queue(whole_text(response, form()));
  }
  void send_head(const Response& head) {
    if (streams_ || ended_) return;
    streams_ = true;
    if (version_ < 11) keep_ = false;  // the end of the connection is the end of the body
    queue(head_text(head, form()));
    send_piece(head.body);
  }
  void send_piece(const std::string& piece) {
    if (!streams_ || ended_ || piece.empty() || head_only_) return;
    queue(version_ < 11 ? piece : chunk_text(piece));
  }
  void send_end() {
    if (!streams_ || ended_) return;
    ended_ = true;
    queue(version_ < 11 || head_only_ ? "" : kLastChunk);
  }

  void queue(std::string text) {
    if (shut_) return;
    // One piece may be longer than that.
    if (!out_.empty() && unsent_ + text.size() > shared_->options.max_unsent) return shut();
    unsent_ += text.size();
    out_.push_back(std::move(text));
    if (out_.size() == 1) send_next();
  }
  void send_next() {
    arm(write_timer_, shared_->options.write_time, &Connection::shut);
    net::async_write(stream_, net::buffer(out_.front()),
                     then([](Connection& c, Fault fault, size_t) {
                       c.write_timer_.cancel();
                       if (fault) return c.shut();
                       c.unsent_ -= c.out_.front().size();
                       c.out_.pop_front();
                       if (!c.out_.empty()) return c.send_next();
                       if (c.refused_) return c.shut_gently();
                       if (c.exchange_ != nullptr && c.ended_) c.finish_answer();
                     }));
  }
  void finish_answer() {
    std::exchange(exchange_, nullptr)->finish(false);
    if (!keep_ || shared_->stopping) return shut_gently();
    arm(read_timer_, shared_->options.idle_time, &Connection::shut);
    parse();
    read_more();
  }

  void shut_gently() {
    if (shut_) return;
    closes_ = true;
    Fault ignored;
    socket().shutdown(tcp::socket::shutdown_send, ignored);
    arm(write_timer_, kLinger, &Connection::shut);  // or the client's end comes before
    parse();
    read_more();
  }
  void shut() {
    if (shut_) return;
    shut_ = true;
    read_timer_.cancel();
    write_timer_.cancel();
    Fault ignored;
    socket().close(ignored);
    if (exchange_ != nullptr) std::exchange(exchange_, nullptr)->finish(true);
  }

  static constexpr size_t kReadAtOnce = 16 << 10;
  static constexpr size_t kMostAhead = 64 << 10;  // of later requests, while one is answered
  static constexpr std::chrono::milliseconds kLinger{2000};

  std::shared_ptr<Shared> shared_;
  Stream stream_;
  net::steady_timer read_timer_, write_timer_;
  std::array<char, kReadAtOnce> incoming_;
  beast::flat_buffer buffer_;  // read and not yet taken
  std::optional<beast::http::request_parser<beast::http::string_body>> parser_;
  std::shared_ptr<Answer> exchange_;  // while a request is answered
  std::deque<std::string> out_;
  uint64_t unsent_ = 0;
  int version_ = 11;
  bool keep_ = true, head_only_ = false, streams_ = false, ended_ = false;
  bool continued_ = false, reads_ = false;
  bool refused_ = false, closes_ = false, shut_ = false;  // by us; once the answer is sent; over
};

}  // namespace mt::http
