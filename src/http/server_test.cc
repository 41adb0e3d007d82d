// The server against raw sockets: what clients do, and what they shouldn't.
#include "http/server.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <thread>

#include "http/test_client.h"

namespace mt::http {
namespace {

using std::chrono::milliseconds;

bool soon(const std::function<bool()>& holds, double seconds = 5) {
  for (double t = 0; t < seconds; t += 0.005) {
    if (holds()) return true;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return holds();
}

class ServerTest : public ::testing::Test {
 protected:
  // /echo answers its body, /hold waits for somebody to use `held`.
  void start() {
    options.error_body = [](int status, const std::string& message) {
      return "{" + std::to_string(status) + ": " + message + "}";
    };
    server = std::make_unique<Server>(options, [this](const std::shared_ptr<Exchange>& exchange) {
      const Request& r = exchange->request();
      if (r.path == "/throw") throw std::runtime_error("a bug");
      if (r.path != "/hold") {
        return exchange->respond({200, r.method + " " + r.path + " " + r.body, "text/plain"});
      }
      exchange->on_gone([this] { ++gone; });
      held.set_value(exchange);
    });
  }
  std::shared_ptr<Exchange> take_held() {
    auto exchange = held.get_future().get();
    held = {};
    return exchange;
  }
  void expect_alive() {
    TestClient client(server->port());
    client.send(get("/alive"));
    EXPECT_EQ(status_of(client.read_until("alive")), 200);
  }

  ServerOptions options;
  std::unique_ptr<Server> server;
  std::promise<std::shared_ptr<Exchange>> held;
  std::atomic<int> gone{0};
};

TEST_F(ServerTest, AnswersOneRequestAfterAnother) {
  start();
  TestClient client(server->port());
  client.send(post("/a?q=1", "one"));
  EXPECT_EQ(client.read_until("one"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 11\r\n\r\nPOST /a one");
  // All at once, the last in pieces.
  const std::string last = post("/d", "four");
  client.send(post("/b", "two") + post("/c", "three") + last.substr(0, 9));
  client.send(last.substr(9));
  const std::string all = client.read_until("four");
  EXPECT_LT(all.find("POST /b two"), all.find("POST /c three"));
  EXPECT_LT(all.find("POST /c three"), all.find("POST /d four"));
  client.send(
      "POST /e HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_NE(client.read_until("abcde").find("POST /e abcde"), std::string::npos);
  client.send(get("/f", "Connection: close\r\n"));
  EXPECT_NE(client.read_to_end().find("GET /f "), std::string::npos);
  EXPECT_TRUE(client.closed());
}

TEST_F(ServerTest, APipelinedRequestWaitsForTheAnswerBeforeIt) {
  start();
  TestClient client(server->port());
  client.send(get("/hold") + get("/after"));
  const auto exchange = take_held();
  std::this_thread::sleep_for(milliseconds(50));
  exchange->respond({200, "first"});
  const std::string all = client.read_until("/after");
  EXPECT_LT(all.find("first"), all.find("/after"));
  EXPECT_EQ(gone, 0);
}

TEST_F(ServerTest, HeadHasNoBodyAndContinueIsSaid) {
  start();
  TestClient client(server->port());
  client.send("HEAD /x HTTP/1.1\r\nHost: x\r\n\r\n" + get("/y"));
  const std::string all = client.read_until("GET /y");
  EXPECT_EQ(all.find("HEAD /x"), std::string::npos);
  client.send("POST /z HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("abc");
  EXPECT_EQ(status_of(client.read_until("abc")), 200);
}

TEST_F(ServerTest, StreamsFromAnotherThread) {
  start();
  for (const std::string version : {"1.1", "1.0"}) {
    TestClient client(server->port());
    client.send("GET /hold HTTP/" + version + "\r\nHost: x\r\n\r\n");
    const auto exchange = take_held();
    exchange->begin({.type = "text/event-stream"});
    exchange->write("one ");
    EXPECT_NE(client.read_until("one ").find("text/event-stream"), std::string::npos);
    std::thread other([&] {
      for (int i = 0; i < 100; ++i) exchange->write("piece ");
      exchange->end();
      exchange->write("too late");
    });
    if (version == "1.1") {
      const std::string rest = client.read_until("\r\n0\r\n\r\n");
      EXPECT_EQ(rest.find("too late"), std::string::npos);
      EXPECT_EQ(rest.size(), 100 * std::string("6\r\npiece \r\n").size() + 5);
      client.send(get("/next"));
      EXPECT_EQ(status_of(client.read_until("/next")), 200);
    } else {
      EXPECT_EQ(client.read_to_end().size(), 600);
      EXPECT_TRUE(client.closed());
    }
    other.join();
  }
  EXPECT_EQ(gone, 0);
}

// The part that most servers can't: nothing is being written.
TEST_F(ServerTest, AClientThatGoesAwayIsNoticed) {
  start();
  for (const std::string& also : {std::string(), get("/later")}) {
    gone = 0;
    TestClient client(server->port());
    client.send(get("/hold") + also);
    const auto exchange = take_held();
    EXPECT_EQ(gone, 0);
    client.close();
    EXPECT_TRUE(soon([&] { return gone == 1; })) << also;
    exchange->respond({200, "nobody reads this"});
    bool told = false;
    exchange->on_gone([&] { told = true; });
    EXPECT_TRUE(told);
  }
  EXPECT_TRUE(soon([&] { return server->connections() == 0; }));
  expect_alive();
}

TEST_F(ServerTest, AClientThatTakesNothingHasGone) {
  options.max_unsent = 1 << 20;
  options.write_time = milliseconds(300);
  start();
  for (const size_t piece : {size_t{1} << 16, size_t{8} << 20}) {  // too many of them; too slowly
    gone = 0;
    TestClient client(server->port());
    client.send(get("/hold"));
    const auto exchange = take_held();
    exchange->begin({});
    for (int i = 0; i < 400 && gone == 0; ++i) {
      exchange->write(std::string(piece, 'x'));
      std::this_thread::sleep_for(milliseconds(2));
      if (piece > options.max_unsent) break;
    }
    EXPECT_TRUE(soon([&] { return gone == 1; })) << piece;
  }
  expect_alive();
}

TEST_F(ServerTest, LimitsOfHeaderBodyAndTime) {
  options.max_body = 1000;
  options.max_header = 2000;
  options.read_time = milliseconds(200);
  start();
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\n";
  const std::vector<std::pair<std::string, int>> cases{
      {post("/", std::string(1001, 'x')), 413},
      {head + "Content-Length: 99999999999\r\n\r\n", 413},
      {head + "Transfer-Encoding: chunked\r\n\r\n7d0\r\n" + std::string(2000, 'x'), 413},
      {get("/", "X: " + std::string(3000, 'x') + "\r\n"), 431},
      {"GET /" + std::string(5000, 'x'), 431},
      {"hello there\r\n\r\n", 400},
      {std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + "\r\n\r\n", 400},
      {head + "Content-Length: abc\r\n\r\n", 400},
      {head + "Content-Length: -1\r\n\r\n", 400},
      {head + "Content-Length: 3\r\nContent-Length: 5\r\n\r\nabcde", 400},
      {head + "Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n", 400},
      {"GET / HTTP/9.9\r\n\r\n", 400},
      {"GET / HT", 408},
      {head + "Content-Length: 10\r\n\r\nabc", 408},
  };
  for (const auto& [bytes, status] : cases) {
    TestClient client(server->port());
    client.send(bytes);
    const std::string answer = client.read_to_end();
    EXPECT_EQ(status_of(answer), status) << bytes.substr(0, 100) << "\n" << answer;
    EXPECT_NE(answer.find("{" + std::to_string(status) + ": "), std::string::npos) << answer;
    expect_alive();
  }
  EXPECT_TRUE(soon([&] { return server->connections() == 0; }));
}

// Slow-loris: a byte now and then doesn't hold a connection for ever.
TEST_F(ServerTest, ADripOfBytesIsCutOff) {
  options.read_time = milliseconds(300);
  options.idle_time = milliseconds(300);
  start();
  TestClient slow(server->port()), idle(server->port());
  const std::string request = get("/a", "X-Slow: " + std::string(400, 'a') + "\r\n");
  const auto begin = std::chrono::steady_clock::now();
  std::string answer;
  for (size_t i = 0; i < request.size() && answer.empty(); ++i) {
    slow.send(request.substr(i, 1));
    answer = slow.read_until("}", 0.01);
  }
  EXPECT_EQ(status_of(answer), 408);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_EQ(idle.read_to_end(), "");
  EXPECT_TRUE(idle.closed());
}

TEST_F(ServerTest, ConnectionsBeyondTheLimitAreTold) {
  options.max_connections = 3;
  start();
  std::vector<std::unique_ptr<TestClient>> open;
  for (int i = 0; i < 3; ++i) {
    open.push_back(std::make_unique<TestClient>(server->port()));
    open.back()->send(get("/x"));
    EXPECT_EQ(status_of(open.back()->read_until("/x")), 200);
  }
  {
    TestClient more(server->port());
    more.send(get("/x"));
    EXPECT_EQ(status_of(more.read_to_end()), 503);
  }
  open.clear();
  EXPECT_TRUE(soon([&] { return server->connections() == 0; }));
  expect_alive();
}

TEST_F(ServerTest, AHandlerThatThrowsEndsNothing) {
  start();
  TestClient client(server->port());
  client.send(get("/throw"));
  EXPECT_EQ(status_of(client.read_until("a bug")), 500);
  client.send(get("/next"));
  EXPECT_EQ(status_of(client.read_until("/next")), 200);
}

TEST_F(ServerTest, StopsWhenAnswersAreSent) {
  start();
  TestClient client(server->port()), idle(server->port());
  client.send(get("/hold"));
  const auto exchange = take_held();
  auto stopping = std::async(std::launch::async, [&] { server->stop(milliseconds(20'000)); });
  EXPECT_EQ(idle.read_to_end(), "");
  exchange->respond({200, "the last"});
  EXPECT_NE(client.read_to_end().find("the last"), std::string::npos);
  client.close();
  idle.close();
  stopping.get();
  EXPECT_EQ(gone, 0);
}

TEST_F(ServerTest, StopsAtOnceWithoutGrace) {
  start();
  TestClient client(server->port());
  client.send(get("/hold"));
  const auto exchange = take_held();
  server->stop();
  EXPECT_EQ(gone, 1);
  EXPECT_EQ(server->connections(), 0);
}

TEST_F(ServerTest, WhatCannotBeHadIsNamed) {
  start();
  const auto message = [&](ServerOptions o) -> std::string {
    try {
      Server another(std::move(o), {});
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const std::string port = std::to_string(server->port());
  EXPECT_EQ(message({.port = server->port()}),
            "host=127.0.0.1 port=" + port + ": can't listen there (Address already in use)");
  EXPECT_EQ(message({.host = "192.0.2.1"}),
            "host=192.0.2.1 port=0: can't listen there (Cannot assign requested address)");
  EXPECT_NE(message({.host = "no such name"}).find("host=no such name: no address"),
            std::string::npos);
  EXPECT_NE(message({.tls_cert_file = "/nowhere"}).find("one needs the other"), std::string::npos);
  EXPECT_NE(message({.tls_cert_file = "/nowhere", .tls_key_file = "/nowhere"})
                .find("tls_cert_file=/nowhere: no certificate"),
            std::string::npos);
}

// --- TLS ---

// A certificate for localhost that signs itself, and its key.
class Certificate {
 public:
  Certificate() {
    std::string name = (std::filesystem::temp_directory_path() / "mt_http_XXXXXX").string();
    MT_CHECK(::mkdtemp(name.data()) != nullptr);
    folder_ = name;
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* x = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(x));
    X509_sign(x, key, EVP_sha256());
    FILE* file = std::fopen(cert().c_str(), "w");
    PEM_write_X509(file, x);
    std::fclose(file);
    file = std::fopen(this->key().c_str(), "w");
    PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
    X509_free(x);
    EVP_PKEY_free(key);
  }
  ~Certificate() { std::filesystem::remove_all(folder_); }
  std::string cert() const { return folder_ + "/cert.pem"; }
  std::string key() const { return folder_ + "/key.pem"; }

 private:
  std::string folder_;
};

class TlsClient {
 public:
  TlsClient(uint16_t port, const Certificate& certificate)
      : context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_load_verify_file(context_, certificate.cert().c_str());
    SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
    bio_ = BIO_new_ssl_connect(context_);
    BIO_set_conn_hostname(bio_, ("127.0.0.1:" + std::to_string(port)).c_str());
    connected = BIO_do_handshake(bio_) == 1;
  }
  ~TlsClient() {
    BIO_free_all(bio_);
    SSL_CTX_free(context_);
  }
  void send(const std::string& bytes) {
    BIO_write(bio_, bytes.data(), static_cast<int>(bytes.size()));
  }
  std::string read_until(const std::string& text) {
    std::string out;
    char buffer[4096];
    while (out.find(text) == std::string::npos) {
      const int n = BIO_read(bio_, buffer, sizeof buffer);
      if (n <= 0) break;
      out.append(buffer, static_cast<size_t>(n));
    }
    return out;
  }
  bool connected = false;

 private:
  SSL_CTX* context_;
  BIO* bio_;
};

TEST_F(ServerTest, SpeaksTls) {
  const Certificate certificate;
  options.tls_cert_file = certificate.cert();
  options.tls_key_file = certificate.key();
  options.read_time = milliseconds(1000);
  start();
  {
    TlsClient client(server->port(), certificate);
    ASSERT_TRUE(client.connected);
    client.send(post("/a", "secret"));
    EXPECT_NE(client.read_until("secret").find("POST /a secret"), std::string::npos);
    client.send(get("/hold"));
    const auto exchange = take_held();
    exchange->begin({});
    for (int i = 0; i < 1000; ++i) exchange->write("piece ");
    exchange->end();
    EXPECT_GT(client.read_until("\r\n0\r\n\r\n").size(), 6000);
    client.send(get("/hold"));
    take_held();
  }
  EXPECT_TRUE(soon([&] { return gone == 1; })) << "a client that goes away";
  TestClient plain(server->port()), silent(server->port());
  plain.send(get("/x"));
  EXPECT_EQ(plain.read_to_end().find("HTTP"), std::string::npos);
  EXPECT_TRUE(plain.closed());
  silent.read_to_end();
  EXPECT_TRUE(silent.closed()) << "a handshake that never comes";
}

}  // namespace
}  // namespace mt::http
