#include "hccl/base/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "hccl/base/auth.h"

namespace hccl {
namespace {

// What a stranger may make OpenSSL read and keep; the handshake needs a tenth of it.
constexpr std::size_t kHandshakeCap = 4096;
constexpr std::size_t kRecord = 16384;
constexpr unsigned char kAes128GcmSha256[] = {0x13, 0x01};

// OpenSSL resumes sessions of one context only.
constexpr unsigned char kContextName[] = {'h', 'c', 'c', 'l'};

template <auto release>
struct Releaser {
  void operator()(auto* object) const { release(object); }
};
using SslContext = std::unique_ptr<SSL_CTX, Releaser<SSL_CTX_free>>;
using Ssl = std::unique_ptr<SSL, Releaser<SSL_free>>;
using BioMethod = std::unique_ptr<BIO_METHOD, Releaser<BIO_meth_free>>;
using Session = std::unique_ptr<SSL_SESSION, Releaser<SSL_SESSION_free>>;

Status no_memory() { return Status(Code::kMemory, "no memory for a TLS connection"); }

// The socket, and what has happened on it.
struct Wire {
  int fd = -1;
  bool proved = false;
  std::size_t received = 0;  // before the proof
  bool end = false;          // the peer sends no more
  int error = 0;
};

// OpenSSL's own socket methods would raise SIGPIPE, and know no cap.
int wire_read(BIO* bio, char* out, int size) {
  auto* wire = static_cast<Wire*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (!wire->proved) {
    size = static_cast<int>(
        std::min<std::size_t>(static_cast<std::size_t>(size), kHandshakeCap - wire->received));
    if (size == 0) return -1;
  }
  ssize_t got = 0;
  do {
    got = ::recv(wire->fd, out, static_cast<std::size_t>(size), 0);
  } while (got < 0 && errno == EINTR);
  if (got > 0) {
    if (!wire->proved) wire->received += static_cast<std::size_t>(got);
  } else if (got == 0) {
    wire->end = true;
  } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
    BIO_set_retry_read(bio);
  } else {
    wire->error = errno;
  }
  return static_cast<int>(got);
}

int wire_write(BIO* bio, const char* bytes, int size) {
  auto* wire = static_cast<Wire*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  ssize_t sent = 0;
  do {
    sent = ::send(wire->fd, bytes, static_cast<std::size_t>(size), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      BIO_set_retry_write(bio);
    } else {
      wire->error = errno;
    }
  }
  return static_cast<int>(sent);
}

long wire_control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return static_cast<Wire*>(BIO_get_data(bio))->end ? 1 : 0;
  return 0;
}

BioMethod wire_method() {
  BioMethod method(BIO_meth_new(BIO_TYPE_SOURCE_SINK, "hccl"));
  if (method == nullptr || BIO_meth_set_read(method.get(), wire_read) != 1 ||
      BIO_meth_set_write(method.get(), wire_write) != 1 ||
      BIO_meth_set_ctrl(method.get(), wire_control) != 1 ||
      BIO_meth_set_create(method.get(), [](BIO* bio) {
        BIO_set_init(bio, 1);
        return 1;
      }) != 1) {
    return nullptr;
  }
  return method;
}

// What the ends of a connection agree on before.
struct Agreed {
  TlsKey key;
  bool named = false;  // the peer has asked for this key
  bool other = false;  // for another one
};

// The key as OpenSSL takes it: a session to resume.
Session session_of(SSL* ssl, const TlsKey& key) {
  Session session(SSL_SESSION_new());
  if (session == nullptr ||
      SSL_SESSION_set1_master_key(session.get(), key.key.data(), key.key.size()) != 1 ||
      SSL_SESSION_set_cipher(session.get(), SSL_CIPHER_find(ssl, kAes128GcmSha256)) != 1 ||
      SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) != 1 ||
      SSL_SESSION_set1_id_context(session.get(), kContextName, sizeof kContextName) != 1) {
    return nullptr;
  }
  return session;
}

int offer_key(SSL* ssl, const EVP_MD*, const unsigned char** name, std::size_t* length,
              SSL_SESSION** session) {
  const auto* agreed = static_cast<Agreed*>(SSL_get_app_data(ssl));
  *name = reinterpret_cast<const unsigned char*>(agreed->key.name.data());
  *length = agreed->key.name.size();
  *session = session_of(ssl, agreed->key).release();
  return *session != nullptr ? 1 : 0;
}

int find_key(SSL* ssl, const unsigned char* name, std::size_t length, SSL_SESSION** session) {
  auto* agreed = static_cast<Agreed*>(SSL_get_app_data(ssl));
  const std::string_view asked(reinterpret_cast<const char*>(name), length);
  agreed->other = asked != agreed->key.name;
  if (agreed->other) return 0;
  agreed->named = true;
  *session = session_of(ssl, agreed->key).release();
  return *session != nullptr ? 1 : 0;
}

SslContext new_context() {
  SslContext context(SSL_CTX_new(TLS_method()));
  SSL_CTX* raw = context.get();
  if (raw == nullptr || SSL_CTX_set_min_proto_version(raw, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(raw, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(raw, "TLS_AES_128_GCM_SHA256") != 1 ||
      SSL_CTX_set1_groups_list(raw, "X25519:P-256") != 1 || SSL_CTX_set_num_tickets(raw, 0) != 1 ||
      SSL_CTX_set_session_id_context(raw, kContextName, sizeof kContextName) != 1) {
    return nullptr;
  }
  SSL_CTX_set_options(raw, SSL_OP_NO_TICKET);
  SSL_CTX_clear_options(raw, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  // A certificate is never good enough: none is trusted.
  SSL_CTX_set_verify(raw, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_psk_use_session_callback(raw, offer_key);
  SSL_CTX_set_psk_find_session_callback(raw, find_key);
  return context;
}

}  // namespace

TlsKey tls_key(const Key& secret, const Uuid& id, std::string_view purpose) {
  std::string name = "hccl ";
  name.append(view(id)).append(1, ' ').append(purpose);
  const Key key = derive(secret, "tls " + name);
  return {std::move(name), key};
}

struct TlsContext::Settings {
  BioMethod method;
  SslContext context;
  std::size_t records_per_key;
};

TlsContext::TlsContext(std::unique_ptr<Settings> settings) : settings_(std::move(settings)) {}
TlsContext::~TlsContext() = default;

Result<std::shared_ptr<const TlsContext>> TlsContext::create(std::size_t records_per_key) {
  auto settings =
      std::make_unique<Settings>(Settings{wire_method(), new_context(), records_per_key});
  ERR_clear_error();
  if (settings->method == nullptr || settings->context == nullptr) {
    return Status(Code::kInternal, "OpenSSL offers no TLS 1.3 with AES-128-GCM, or has no memory");
  }
  return std::shared_ptr<const TlsContext>(new TlsContext(std::move(settings)));
}

struct TlsStream::State {
  std::shared_ptr<const TlsContext> context;
  Side side;
  Agreed agreed;
  Wire wire;
  Ssl ssl = {};
  bool drained = true;      // the last read() met the end of what had arrived
  std::size_t records = 0;  // with the present key
  Status failure = {};
  Status write_failure = {};  // what the peer had sent before may still be read

  bool proved() const { return wire.proved; }
  Status stopped(int result);
  static Status corrupted(const char* words);
  Status refused(int reason) const;
  Status renew_key(std::size_t bytes);
};

// Success if OpenSSL only waits for the socket.
Status TlsStream::State::stopped(int result) {
  const int kind = SSL_get_error(ssl.get(), result);
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return {};
  const unsigned long error = ERR_peek_error();
  if (kind == SSL_ERROR_ZERO_RETURN) {
    failure = Status(Code::kTcpTransfer, "the peer closed the connection");
  } else if (kind == SSL_ERROR_SYSCALL && wire.error != 0) {
    failure = Status(Code::kTcpTransfer,
                     std::string("the connection failed: ") + std::strerror(wire.error));
  } else if (ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
    failure = Status(Code::kTcpTransfer,
                     proved() ? "the connection was cut" : "the peer closed the connection");
  } else if (ERR_GET_REASON(error) == ERR_R_MALLOC_FAILURE) {
    failure = no_memory();
  } else {
    const char* words = ERR_reason_error_string(error);
    failure = proved() ? corrupted(words) : refused(ERR_GET_REASON(error));
  }
  ERR_clear_error();  // the thread's list is not this library's alone
  return failure;
}

Status TlsStream::State::corrupted(const char* words) {
  return Status(Code::kRemote, std::string("the connection was corrupted on the way (") +
                                   (words != nullptr ? words : "no reason given") + ")");
}

Status TlsStream::State::refused(int reason) const {
  const char* text = "not a peer of this library";
  const bool client = side == Side::kClient;
  const bool other = agreed.other || (client && reason == SSL_R_TLSV1_ALERT_INTERNAL_ERROR);
  if (reason == SSL_R_BINDER_DOES_NOT_VERIFY ||
      (client && reason == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER)) {
    text = "the peer has another secret";
  } else if (other) {
    text = "the peer belongs to another communicator";
  } else if (agreed.named || reason == SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC) {
    text = "the handshake was altered or replayed on the way";
  }
  return Status(other ? Code::kUnavail : Code::kTcpConnect,
                std::string("authentication failed: ") + text);
}

// Both directions would stop if the message waited for the socket: it is sent when there is room.
Status TlsStream::State::renew_key(std::size_t bytes) {
  records += (bytes + kRecord - 1) / kRecord;
  if (records < context->settings_->records_per_key) return {};
  pollfd entry{wire.fd, POLLOUT, 0};
  if (::poll(&entry, 1, 0) != 1) return {};
  records = 0;
  int result = SSL_key_update(ssl.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
  if (result == 1) result = SSL_do_handshake(ssl.get());
  return result == 1 ? Status() : stopped(result);
}

TlsStream::TlsStream(std::unique_ptr<State> state) : state_(std::move(state)) {}
TlsStream::TlsStream(TlsStream&&) noexcept = default;
TlsStream& TlsStream::operator=(TlsStream&&) noexcept = default;
TlsStream::~TlsStream() = default;

Result<TlsStream> TlsStream::create(std::shared_ptr<const TlsContext> context, Side side, int fd,
                                    TlsKey key) {
  std::unique_ptr<State> state(new State{.context = std::move(context),
                                         .side = side,
                                         .agreed = {.key = std::move(key)},
                                         .wire = {.fd = fd}});
  const TlsContext::Settings& settings = *state->context->settings_;
  state->ssl.reset(SSL_new(settings.context.get()));
  BIO* bio = state->ssl != nullptr ? BIO_new(settings.method.get()) : nullptr;
  if (bio == nullptr || SSL_set_app_data(state->ssl.get(), &state->agreed) != 1) {
    BIO_free(bio);
    ERR_clear_error();
    return no_memory();
  }
  BIO_set_data(bio, &state->wire);
  SSL_set_bio(state->ssl.get(), bio, bio);
  if (side == Side::kClient) {
    SSL_set_connect_state(state->ssl.get());
  } else {
    SSL_set_accept_state(state->ssl.get());
  }
  return TlsStream(std::move(state));
}

Status TlsStream::handshake() {
  if (!state_->failure.ok() || finished()) return state_->failure;
  ERR_clear_error();
  const int result = SSL_do_handshake(state_->ssl.get());
  if (result != 1) return state_->stopped(result);
  // Both ends have used the key, or a certificate: the latter proves nothing here.
  if (SSL_session_reused(state_->ssl.get()) != 1) {
    state_->failure = state_->refused(0);
    return state_->failure;
  }
  state_->wire.proved = true;
  return {};
}

bool TlsStream::finished() const { return state_->wire.proved; }
bool TlsStream::named() const { return state_->agreed.named && state_->failure.ok(); }
int TlsStream::fd() const { return state_->wire.fd; }

Result<std::size_t> TlsStream::write(std::string_view bytes) {
  HCCL_RETURN_IF_ERROR(state_->failure);
  HCCL_RETURN_IF_ERROR(state_->write_failure);
  std::size_t all = 0;
  while (all < bytes.size()) {
    ERR_clear_error();
    std::size_t sent = 0;
    const int result =
        SSL_write_ex(state_->ssl.get(), bytes.data() + all, bytes.size() - all, &sent);
    if (result != 1) {
      const Status stopped = state_->stopped(result);
      if (stopped.code() == Code::kTcpTransfer) {
        state_->write_failure = std::exchange(state_->failure, Status());
      }
      HCCL_RETURN_IF_ERROR(stopped);
      break;
    }
    all += sent;
    HCCL_RETURN_IF_ERROR(state_->renew_key(sent));
  }
  return all;
}

Result<std::size_t> TlsStream::read(std::span<char> out) {
  std::size_t all = 0;
  state_->drained = false;
  while (state_->failure.ok() && all < out.size()) {
    ERR_clear_error();
    std::size_t got = 0;
    const int result = SSL_read_ex(state_->ssl.get(), out.data() + all, out.size() - all, &got);
    all += got;
    if (result == 1) continue;
    state_->drained = true;
    if (state_->stopped(result).ok()) break;
  }
  // What came before a failure is true, and is handed out first.
  if (all == 0 && !state_->failure.ok()) return state_->failure;
  return all;
}

bool TlsStream::pending() const {
  return !state_->drained && SSL_has_pending(state_->ssl.get()) == 1;
}

short TlsStream::wants() const { return SSL_want_write(state_->ssl.get()) ? POLLOUT : POLLIN; }

void TlsStream::close() {
  if (!state_->failure.ok() || !finished()) return;
  ERR_clear_error();
  static_cast<void>(SSL_shutdown(state_->ssl.get()));
  ERR_clear_error();
}

Status handshake(TlsStream& stream, Deadline deadline, const AbortFlag* abort) {
  for (;;) {
    HCCL_RETURN_IF_ERROR(stream.handshake());
    if (stream.finished()) return {};
    HCCL_RETURN_IF_ERROR(wait_fd(stream.fd(), stream.wants(), deadline, abort));
  }
}

Status send_all(TlsStream& stream, std::string_view bytes, Deadline deadline,
                const AbortFlag* abort) {
  for (;;) {
    HCCL_ASSIGN_OR_RETURN(const std::size_t sent, stream.write(bytes));
    bytes.remove_prefix(sent);
    if (bytes.empty()) return {};
    HCCL_RETURN_IF_ERROR(wait_fd(stream.fd(), stream.wants(), deadline, abort));
  }
}

Status recv_all(TlsStream& stream, std::span<char> bytes, Deadline deadline,
                const AbortFlag* abort) {
  for (;;) {
    HCCL_ASSIGN_OR_RETURN(const std::size_t got, stream.read(bytes));
    bytes = bytes.subspan(got);
    if (bytes.empty()) return {};
    HCCL_RETURN_IF_ERROR(wait_fd(stream.fd(), stream.wants(), deadline, abort));
  }
}

}  // namespace hccl
