// HTTPS with a certificate made for the test.
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "server/server.h"
#include "tests/server/fake_model.h"
#include "tests/server/raw_client.h"

namespace spillway::server {
namespace {

class Tls : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("spillway-tls-" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
               std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    write_certificate();
    ServerOptions options;
    options.port = 0;
    options.certfile = cert();
    options.keyfile = key();
    auto started = Server::start(options);
    ASSERT_TRUE(started) << started.error().message;
    server_ = std::move(*started);
    server_->set_model(make_fake_model(backend_));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string cert() const { return (folder_ / "cert.pem").string(); }
  std::string key() const { return (folder_ / "key.pem").string(); }

  void write_certificate() {
    EVP_PKEY* pair = EVP_EC_gen("P-256");
    X509* x509 = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(x509), 1);
    X509_gmtime_adj(X509_getm_notBefore(x509), 0);
    X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
    X509_set_pubkey(x509, pair);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x509), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
    X509_set_issuer_name(x509, X509_get_subject_name(x509));
    X509_sign(x509, pair, EVP_sha256());
    std::unique_ptr<FILE, int (*)(FILE*)> out(std::fopen(cert().c_str(), "w"), std::fclose);
    PEM_write_X509(out.get(), x509);
    out.reset(std::fopen(key().c_str(), "w"));
    PEM_write_PrivateKey(out.get(), pair, nullptr, nullptr, 0, nullptr, nullptr);
    X509_free(x509);
    EVP_PKEY_free(pair);
  }

  // Sends `wire` over TLS and reads until `end` has come or the server closes.
  std::string talk(const std::string& wire, const std::string& end) {
    RawClient client(server_->port());
    SSL_CTX* context = SSL_CTX_new(TLS_client_method());
    SSL* ssl = SSL_new(context);
    SSL_set_fd(ssl, client.handle());
    std::string all;
    if (SSL_connect(ssl) == 1) {
      SSL_write(ssl, wire.data(), static_cast<int>(wire.size()));
      char bytes[4096];
      for (int count;
           all.find(end) == all.npos && (count = SSL_read(ssl, bytes, sizeof bytes)) > 0;) {
        all.append(bytes, static_cast<size_t>(count));
      }
    }
    SSL_free(ssl);
    SSL_CTX_free(context);
    return all;
  }

  std::filesystem::path folder_;
  std::shared_ptr<FakeBackend> backend_ = std::make_shared<FakeBackend>();
  std::unique_ptr<Server> server_;
};

TEST_F(Tls, streams_over_https) {
  const std::string body =
      R"({"messages":[{"role":"user","content":"hi"}],"stream":true,"max_tokens":5})";
  backend_->token_ms = 5;
  const std::string all = talk("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: " +
                                   std::to_string(body.size()) + "\r\n\r\n" + body,
                               "[DONE]");
  EXPECT_TRUE(all.starts_with("HTTP/1.1 200")) << all;
  EXPECT_NE(all.find("[DONE]"), all.npos);
}

TEST_F(Tls, says_goodbye_when_asked_to_close) {
  const std::string all =
      talk("GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "never");
  EXPECT_NE(all.find("\"ok\""), all.npos) << all;
}

TEST_F(Tls, plain_http_on_the_port_is_closed) {
  RawClient client(server_->port());
  client.send("GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(client.rest().find("HTTP/1.1 200"), std::string::npos);
}

TEST_F(Tls, a_client_that_leaves_is_cancelled) {
  backend_->token_ms = 10;
  const std::string body =
      R"({"messages":[{"role":"user","content":"hi"}],"stream":true,"max_tokens":4000})";
  talk("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body,
       "content");
  for (int i = 0; i < 1000 && backend_->cancelled == 0; ++i) usleep(5000);
  EXPECT_EQ(backend_->cancelled, 1);
}

TEST_F(Tls, wrong_files_are_named) {
  ServerOptions options;
  options.port = 0;
  options.certfile = key();
  options.keyfile = key();
  const auto started = Server::start(options);
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().message.find("--ssl-certfile"), std::string::npos);
}

}  // namespace
}  // namespace spillway::server
