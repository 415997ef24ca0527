// TLS between two ends of a wire that the test controls: the results at both ends if their keys are
// equal, if they differ, and if an attacker changes, repeats or cuts bytes on the way.
#include "hccl/base/tls.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <iostream>
#include <optional>
#include <thread>

#include "tests/support/blocking.h"

namespace hccl {
namespace {

using Side = TlsStream::Side;

constexpr Uuid kId{1, 2, 3};
const Key kSecret = [] {
  Key key{};
  key.fill(7);
  return key;
}();

std::shared_ptr<const TlsContext> context(std::size_t records = kTlsRecordsPerKey) {
  auto made = make_tls_context(records);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.value();
}

std::pair<Fd, Fd> connection() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

std::string received(int fd) {
  std::string all;
  char bytes[4096];
  for (ssize_t got = 0; (got = ::recv(fd, bytes, sizeof bytes, 0)) > 0;) {
    all.append(bytes, static_cast<std::size_t>(got));
  }
  return all;
}

void put(int fd, std::string_view bytes) {
  EXPECT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

// One end of the stream, and the socket by which the wire reaches it.
struct End {
  End(Side side, const TlsKey& key, std::shared_ptr<const TlsContext> with = context())
      : sockets(connection()),
        stream(TlsStream::create(std::move(with), side, sockets.first.get(), key).value()) {}
  int wire() const { return sockets.second.get(); }
  void cut() { sockets.second.reset(); }

  std::pair<Fd, Fd> sockets;
  TlsStream stream;
};

// Changes bytes on the way to the server (true) or to the client.
using Tamper = std::function<std::string(std::string, bool)>;

struct Pair {
  Pair(const TlsKey& clients, const TlsKey& servers,
       const std::shared_ptr<const TlsContext>& with = context())
      : client(Side::kClient, clients, with), server(Side::kServer, servers, with) {}
  explicit Pair(std::size_t records = kTlsRecordsPerKey)
      : Pair(tls_key(kSecret, kId, "test"), tls_key(kSecret, kId, "test"), context(records)) {}

  /// Carries what the ends have sent so far.
  void carry(const Tamper& tamper = {}) {
    for (const bool up : {true, false}) {
      std::string bytes = received(up ? client.wire() : server.wire());
      seen += bytes;
      if (tamper) bytes = tamper(bytes, up);
      if (!bytes.empty()) put(up ? server.wire() : client.wire(), bytes);
    }
  }
  void shake_hands(const Tamper& tamper = {}) {
    for (int i = 0; i < 4; ++i) {
      clients = client.stream.handshake();
      carry(tamper);
      servers = server.stream.handshake();
      carry(tamper);
    }
  }
  bool finished() const { return client.stream.finished() && server.stream.finished(); }

  End client;
  End server;
  Status clients;
  Status servers;
  std::string seen;  // bytes that a listener on the way sees
};

// Two ends of one connection, with nobody between them.
struct Ends {
  explicit Ends(const std::shared_ptr<const TlsContext>& with) : sockets(connection()) {
    const TlsKey key = tls_key(kSecret, kId, "test");
    client.emplace(TlsStream::create(with, Side::kClient, sockets.first.get(), key).value());
    server.emplace(TlsStream::create(with, Side::kServer, sockets.second.get(), key).value());
  }
  void shake_hands() {
    while (!client->finished() || !server->finished()) {
      ASSERT_TRUE(client->handshake().ok());
      ASSERT_TRUE(server->handshake().ok());
    }
  }
  std::pair<Fd, Fd> sockets;
  std::optional<TlsStream> client;
  std::optional<TlsStream> server;
};

bool has(const Status& status, std::string_view words) {
  return status.message().find(words) != std::string::npos;
}

Result<std::string> read(TlsStream& stream, std::size_t most = 100'000) {
  std::string bytes(most, '\0');
  HCCL_ASSIGN_OR_RETURN(const std::size_t got, stream.read(bytes));
  bytes.resize(got);
  return bytes;
}

std::string pattern(std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 + i / 251);
  return bytes;
}

TEST(Tls, BothEndsAgreeAndNobodyElseUnderstands) {
  Pair pair;
  pair.shake_hands();
  ASSERT_TRUE(pair.finished()) << pair.clients.message() << pair.servers.message();
  EXPECT_EQ(pair.client.stream.write("the first secret").value(), 16U);
  EXPECT_EQ(pair.server.stream.write("the second secret").value(), 17U);
  pair.carry();
  EXPECT_EQ(read(pair.server.stream).value(), "the first secret");
  EXPECT_EQ(read(pair.client.stream).value(), "the second secret");
  EXPECT_EQ(read(pair.client.stream).value(), "")
      << "nothing more has come, and that is no failure";
  EXPECT_EQ(pair.seen.find("secret"), std::string::npos);
  pair.client.stream.close();
  pair.carry();
  const Status end = read(pair.server.stream).status();
  EXPECT_EQ(end.code(), Code::kTcpTransfer);
  EXPECT_TRUE(has(end, "closed")) << end.message();
}

TEST(Tls, ReadsAsMuchAsIsAskedForAndSaysWhatIsLeft) {
  Pair pair;
  pair.shake_hands();
  EXPECT_EQ(pair.client.stream.write("0123456789").value(), 10U);
  pair.carry();
  EXPECT_EQ(read(pair.server.stream, 4).value(), "0123");
  EXPECT_TRUE(pair.server.stream.pending());
  EXPECT_EQ(read(pair.server.stream).value(), "456789");
  EXPECT_FALSE(pair.server.stream.pending());
}

TEST(Tls, HoldersOfAnotherKeyAreRefused) {
  Key other = kSecret;
  other[9] ^= 1;
  const TlsKey mine = tls_key(kSecret, kId, "test");
  // The same name, so that only the keys differ.
  TlsKey forged = tls_key(other, kId, "test");
  ASSERT_EQ(forged.name, mine.name);
  Pair secret(forged, mine);
  Pair purpose(tls_key(kSecret, kId, "other"), mine);
  Pair id(tls_key(kSecret, Uuid{1, 2, 4}, "test"), mine);
  for (Pair* pair : {&secret, &purpose, &id}) {
    pair->shake_hands();
    const Code code = pair == &secret ? Code::kTcpConnect : Code::kUnavail;
    EXPECT_EQ(pair->clients.code(), code) << pair->clients.message();
    EXPECT_EQ(pair->servers.code(), code) << pair->servers.message();
    const char* why = pair == &secret ? "another secret" : "another communicator";
    EXPECT_TRUE(has(pair->clients, why)) << pair->clients.message();
    EXPECT_TRUE(has(pair->servers, why)) << pair->servers.message();
    EXPECT_FALSE(pair->server.stream.named());
    EXPECT_FALSE(pair->client.stream.finished() || pair->server.stream.finished());
  }
}

TEST(Tls, StrangersAreRefusedAndMakeNobodyKeepMuch) {
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(64, '\0'),
                                   std::string("\x16\x03\x01\x3f\xff", 5) + std::string(9000, 'x'),
                                   std::string("HCCLAUT1") + std::string(500, 'x')}) {
    End server(Side::kServer, tls_key(kSecret, kId, "test"));
    put(server.wire(), bytes);
    EXPECT_EQ(server.stream.handshake().code(), Code::kTcpConnect);
    EXPECT_EQ(server.stream.handshake().code(), Code::kTcpConnect) << "it stays refused";
    EXPECT_GE(received(server.sockets.first.get()).size(), bytes.size() > 4096 ? 4096U : 0U)
        << "more than the cap was read";
  }
}

// A peer without the key may still have a certificate.
TEST(Tls, CertificateIsNoProof) {
  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  ASSERT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> settings(SSL_CTX_new(TLS_method()),
                                                             SSL_CTX_free);
  SSL_CTX_use_certificate(settings.get(), certificate.get());
  SSL_CTX_use_PrivateKey(settings.get(), key.get());
  std::unique_ptr<SSL, decltype(&SSL_free)> server(SSL_new(settings.get()), SSL_free);
  End client(Side::kClient, tls_key(kSecret, kId, "test"));
  SSL_set_fd(server.get(), client.wire());
  Status status;
  for (int i = 0; i < 4; ++i) {
    status = client.stream.handshake();
    static_cast<void>(SSL_accept(server.get()));
  }
  EXPECT_EQ(status.code(), Code::kTcpConnect);
  EXPECT_FALSE(client.stream.finished());
}

TEST(Tls, EveryFlippedByteOfAHandshakeEndsIt) {
  Pair clean;
  clean.shake_hands();
  ASSERT_TRUE(clean.finished());
  const auto with = context();
  const TlsKey key = tls_key(kSecret, kId, "test");
  int harmless = 0;
  for (std::size_t at = 0; at < clean.seen.size(); ++at) {
    Pair pair(key, key, with);
    std::size_t passed = 0;
    pair.shake_hands([&](std::string bytes, bool) {
      if (at >= passed && at < passed + bytes.size()) bytes[at - passed] ^= 0x20;
      passed += bytes.size();
      return bytes;
    });
    // A client that has sent its last message gets the error at its first read.
    const bool refused = !pair.clients.ok() || !pair.servers.ok() || !read(pair.client.stream).ok();
    if (!refused && pair.finished()) ++harmless;
  }
  // The minor version in the headers of the two unencrypted records has no meaning (RFC 8446, 5.1).
  EXPECT_EQ(harmless, 2) << "of " << clean.seen.size();
}

TEST(Tls, FlippedByteEndsTheStreamOnBothEnds) {
  for (const std::size_t at : {0U, 2U, 4U, 5U, 20U, 40U}) {
    SCOPED_TRACE("byte " + std::to_string(at));
    Pair pair;
    pair.shake_hands();
    EXPECT_TRUE(pair.client.stream.write("a true record").ok());
    pair.carry();
    EXPECT_TRUE(pair.client.stream.write("a record that is changed").ok());
    pair.carry([&](std::string bytes, bool up) {
      if (up) bytes[at] ^= 1;
      return bytes;
    });
    // If the flipped bit makes the record longer, the server waits for more bytes. 1000 bytes are
    // enough.
    EXPECT_TRUE(pair.client.stream.write(pattern(1000)).ok());
    pair.carry();
    EXPECT_EQ(read(pair.server.stream).value(), "a true record");
    const Status server = read(pair.server.stream).status();
    pair.carry();
    const Status client = read(pair.client.stream).status();
    for (const Status& status : {server, client}) {
      EXPECT_EQ(status.code(), Code::kRemote);
      EXPECT_TRUE(has(status, "corrupted")) << status.message();
    }
    EXPECT_EQ(pair.client.stream.write("more").status().code(), Code::kRemote) << "it is final";
  }
}

TEST(Tls, RepeatedMissingAndReorderedRecordsAreRefused) {
  for (const int how : {0, 1, 2}) {
    Pair pair;
    pair.shake_hands();
    std::vector<std::string> records;
    for (const char* text : {"one", "two"}) {
      EXPECT_TRUE(pair.client.stream.write(text).ok());
      records.push_back(received(pair.client.wire()));
    }
    put(pair.server.wire(),
        how == 0 ? records[0] + records[0] : (how == 1 ? records[1] : records[1] + records[0]));
    if (how == 0) {
      EXPECT_EQ(read(pair.server.stream).value(), "one");
    }
    EXPECT_EQ(read(pair.server.stream).status().code(), Code::kRemote);
  }
}

TEST(Tls, CutIsNoFarewell) {
  Pair pair;
  pair.shake_hands();
  EXPECT_TRUE(pair.client.stream.write("half of what").ok());
  pair.carry();
  pair.server.cut();
  EXPECT_EQ(read(pair.server.stream).value(), "half of what");
  const Status status = read(pair.server.stream).status();
  EXPECT_EQ(status.code(), Code::kTcpTransfer);
  EXPECT_TRUE(has(status, "cut")) << status.message();
}

TEST(Tls, LastWordsAreReadAfterAWriteHasFailed) {
  Ends ends(context());
  ends.shake_hands();
  EXPECT_TRUE(ends.server->write("last words").ok());
  ends.sockets.second.reset();
  EXPECT_EQ(ends.client->write("are you there?").status().code(), Code::kTcpTransfer);
  EXPECT_EQ(ends.client->write("are you there?").status().code(), Code::kTcpTransfer);
  EXPECT_EQ(read(*ends.client).value(), "last words");
  EXPECT_EQ(read(*ends.client).status().code(), Code::kTcpTransfer);
}

TEST(Tls, RecordedConversationIsRefused) {
  std::string recorded;
  {
    Pair pair;
    pair.shake_hands();
    EXPECT_TRUE(pair.client.stream.write("do it").ok());
    Pair other;
    const auto record = [&](std::string bytes, bool up) {
      if (up) recorded += bytes;
      return bytes;
    };
    other.shake_hands(record);
    EXPECT_TRUE(other.client.stream.write("do it").ok());
    other.carry(record);
    ASSERT_EQ(read(other.server.stream).value(), "do it");
  }
  End server(Side::kServer, tls_key(kSecret, kId, "test"));
  put(server.wire(), recorded);
  const Status status = server.stream.handshake();
  EXPECT_EQ(status.code(), Code::kTcpConnect);
  EXPECT_TRUE(has(status, "replayed")) << status.message();
  EXPECT_FALSE(server.stream.finished());
}

TEST(Tls, LongDataPassesAFullSocketAndManyKeys) {
  Ends ends(context(5));
  ends.shake_hands();
  const std::string sent = pattern(std::size_t{3} << 20);
  std::string got;
  std::size_t at = 0;
  int stops = 0;
  while (got.size() < sent.size()) {
    // Each call may pass the remaining bytes at another address.
    const std::string rest = sent.substr(at);
    const auto written = ends.client->write(rest);
    ASSERT_TRUE(written.ok()) << written.status().message();
    if (*written < rest.size()) ++stops;
    at += *written;
    const auto part = read(*ends.server);
    ASSERT_TRUE(part.ok()) << part.status().message();
    got += *part;
  }
  EXPECT_TRUE(got == sent);
  EXPECT_GT(stops, 0) << "the socket was never full";
}

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// Sends with blocking calls from two threads; prints the rate of a core.
TEST(Tls, CarriesBulkData) {
  Ends ends(context());
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  const std::string sent = pattern(std::size_t{64} << 20);
  double sending = 0;
  std::thread sender([&] {
    EXPECT_TRUE(handshake(*ends.client, ends.sockets.first.get(), deadline).ok());
    sending = cpu_seconds();
    EXPECT_TRUE(send_all(*ends.client, ends.sockets.first.get(), sent, deadline).ok());
    sending = cpu_seconds() - sending;
  });
  EXPECT_TRUE(handshake(*ends.server, ends.sockets.second.get(), deadline).ok());
  std::string got(sent.size(), '\0');
  const double begun = cpu_seconds();
  EXPECT_TRUE(recv_all(*ends.server, ends.sockets.second.get(), got, deadline).ok());
  const double receiving = cpu_seconds() - begun;
  sender.join();
  EXPECT_TRUE(got == sent);
  const double size = static_cast<double>(sent.size()) / 1e9;
  std::cout << "  a core sends " << size / sending << " GB/s, receives " << size / receiving
            << " GB/s\n";
}

}  // namespace
}  // namespace hccl
