#include "http/server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <condition_variable>
#include <thread>
#include <vector>

#include "base/error.h"
#include "http/connection.h"

namespace mt::http {
namespace {

std::optional<net::ssl::context> tls_context(const ServerOptions& options) {
  if (options.tls_cert_file.empty() && options.tls_key_file.empty()) return std::nullopt;
  if (options.tls_cert_file.empty() || options.tls_key_file.empty()) {
    throw fail(ErrorKind::kConfig, "tls_cert_file and tls_key_file: one needs the other");
  }
  net::ssl::context context(net::ssl::context::tls_server);
  context.set_options(net::ssl::context::default_workarounds | net::ssl::context::no_tlsv1 |
                      net::ssl::context::no_tlsv1_1);
  Fault fault;
  context.use_certificate_chain_file(options.tls_cert_file, fault);
  if (fault) {
    throw fail(ErrorKind::kConfig, "tls_cert_file={}: no certificate in PEM form can be read ({})",
               options.tls_cert_file, fault.message());
  }
  context.use_private_key_file(options.tls_key_file, net::ssl::context::pem, fault);
  if (fault) {
    throw fail(ErrorKind::kConfig,
               "tls_key_file={}: no private key of that certificate in PEM form can be read ({})",
               options.tls_key_file, fault.message());
  }
  return context;
}

}  // namespace

struct Server::State {
  State(ServerOptions options, Handler handler)
      : shared(std::make_shared<Shared>()),
        tls(tls_context(options)),
        context(options.threads),
        acceptor(net::make_strand(context)),
        pause(acceptor.get_executor()) {
    shared->options = std::move(options);
    shared->handler = std::move(handler);
  }

  void listen() {
    const ServerOptions& o = shared->options;
    const auto cannot = [&](const Fault& fault) {
      return fail(ErrorKind::kConfig, "host={} port={}: can't listen there ({})", o.host, o.port,
                  fault.message());
    };
    Fault fault;
    tcp::resolver resolver(context);
    const auto found =
        resolver.resolve(o.host, std::to_string(o.port),
                         tcp::resolver::passive | tcp::resolver::numeric_service, fault);
    if (fault) {
      throw fail(ErrorKind::kConfig, "host={}: no address of this machine ({})", o.host,
                 fault.message());
    }
    const tcp::endpoint at = found.begin()->endpoint();
    acceptor.open(at.protocol(), fault);
    if (!fault) acceptor.set_option(net::socket_base::reuse_address(true), fault);
    if (!fault) acceptor.bind(at, fault);
    if (!fault) acceptor.listen(net::socket_base::max_listen_connections, fault);
    if (fault) throw cannot(fault);
    port = acceptor.local_endpoint().port();
    accept();
    for (int i = 0; i < o.threads; ++i) threads.emplace_back([this] { context.run(); });
  }

  void accept() {
    acceptor.async_accept(net::make_strand(context), [this](Fault fault, Socket socket) {
      if (fault == net::error::operation_aborted || shared->stopping) return;
      if (fault) {  // no more files, say: not at once again
        pause.expires_after(std::chrono::milliseconds(50));
        pause.async_wait([this](Fault stopped) {
          if (!stopped) accept();
        });
        return;
      }
      take(std::move(socket));
      accept();
    });
  }

  void take(Socket socket) {
    // Those beyond the limit are told so, but not any number of them.
    if (shared->connections >= 2 * shared->options.max_connections) return;
    Fault ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    if (tls) {
      keep(std::make_shared<Connection<TlsSocket>>(shared, std::move(socket), *tls));
    } else {
      keep(std::make_shared<Connection<Socket>>(shared, std::move(socket)));
    }
  }
  template <typename C>
  void keep(const std::shared_ptr<C>& connection) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      std::erase_if(open, [](const auto& c) { return c.expired(); });
      open.push_back(connection);
    }
    connection->start();
  }

  void close_all(bool gently) {
    const std::lock_guard<std::mutex> lock(mutex);
    for (const auto& c : open) {
      if (const auto connection = c.lock()) connection->close(gently);
    }
  }

  void stop(std::chrono::milliseconds grace) {
    if (threads.empty()) return;
    shared->stopping = true;
    net::post(acceptor.get_executor(), [this] {
      Fault ignored;
      acceptor.close(ignored);
      pause.cancel();
    });
    close_all(true);
    const auto until = std::chrono::steady_clock::now() + grace;
    while (shared->connections > 0 && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    close_all(false);
    for (std::thread& thread : threads) thread.join();  // run() returns when nothing is left
    threads.clear();
  }

  std::shared_ptr<Shared> shared;
  std::optional<net::ssl::context> tls;
  net::io_context context;
  net::basic_socket_acceptor<tcp, Strand> acceptor;
  net::steady_timer pause;
  uint16_t port = 0;
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::vector<std::weak_ptr<AnyConnection>> open;
};

Server::Server(ServerOptions options, Handler handler)
    : state_(std::make_unique<State>(std::move(options), std::move(handler))) {
  state_->listen();
}

Server::~Server() { stop(); }

uint16_t Server::port() const { return state_->port; }
int64_t Server::connections() const { return state_->shared->connections; }
void Server::stop(std::chrono::milliseconds grace) { state_->stop(grace); }

}  // namespace mt::http
