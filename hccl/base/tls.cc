#include "hccl/base/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "hccl/base/auth.h"
#include "hccl/base/fd.h"
#include "hccl/base/tls_wire.h"

namespace hccl {
namespace {

constexpr std::string_view kNamePrefix = "hccl ";  // each key's name begins with this text
constexpr std::size_t kRecord = 16384;
// One system call sends several records: as many as fit into one packet of the kernel.
constexpr std::size_t kGathered = 3 * kRecord;
constexpr std::size_t kOverhead = 256;
constexpr unsigned char kAes128GcmSha256[] = {0x13, 0x01};

// OpenSSL resumes only a session that has the name of its context.
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

// The key of a connection, and the request for a key in the client's first message.
struct Agreed {
  TlsKey key;
  TlsKeyFinder find = {};
  bool named = false;  // the peer has asked for this key
  bool other = false;  // the peer has asked for another key
};

// The key in OpenSSL's form: a session to resume.
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
  try {
    if (agreed->find) agreed->key = agreed->find(asked);
  } catch (...) {  // no memory; an exception must not pass OpenSSL
    return 0;
  }
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
  // Rejects every certificate: none is trusted.
  SSL_CTX_set_verify(raw, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_read_ahead(raw, 1);
  SSL_CTX_set_default_read_buffer_len(raw, kGathered + 4 * kOverhead);
  SSL_CTX_set_psk_use_session_callback(raw, offer_key);
  SSL_CTX_set_psk_find_session_callback(raw, find_key);
  return context;
}

}  // namespace

Uuid id_in_tls_name(std::string_view name) {
  Uuid id{};
  if (name.size() > kNamePrefix.size() + id.size() && name.starts_with(kNamePrefix)) {
    std::memcpy(id.data(), name.data() + kNamePrefix.size(), id.size());
  }
  return id;
}

TlsKey tls_key(const Key& secret, const Uuid& id, std::string_view purpose) {
  std::string name(kNamePrefix);
  name.append(view(id)).append(1, ' ').append(purpose);
  const Key key = derive(secret, "tls " + name);
  return {std::move(name), key};
}

struct TlsContext {
  BioMethod method;
  SslContext context;
  std::size_t records_per_key;
};

Result<std::shared_ptr<const TlsContext>> make_tls_context(std::size_t records_per_key) {
  auto made = std::make_shared<const TlsContext>(
      TlsContext{BioMethod(new_tls_wire_method()), new_context(), records_per_key});
  ERR_clear_error();
  if (made->method == nullptr || made->context == nullptr) {
    return Status(Code::kInternal, "OpenSSL offers no TLS 1.3 with AES-128-GCM, or has no memory");
  }
  return made;
}

struct TlsStream::State {
  std::shared_ptr<const TlsContext> context;
  Side side;
  Agreed agreed;
  TlsWire wire;
  Ssl ssl = {};
  bool finished = false;  // the handshake is over, and its last message is sent
  short wants = POLLIN;
  std::size_t encrypted = 0;  // encrypted bytes that write() has not reported yet
  bool drained = true;        // the last read() reached the end of the data that had arrived
  std::size_t records = 0;    // records under the present key
  Status failure = {};
  Status write_failure = {};  // data that the peer had sent before may still be read

  bool proved() const { return wire.proved; }
  Status stopped(int result);
  static Status corrupted(const char* words);
  Status refused(int reason) const;
  Status renew_key(std::size_t bytes);
  Status encrypt(std::string_view bytes);
};

// Returns success if OpenSSL only has to wait for the socket; else sets and returns `failure`.
Status TlsStream::State::stopped(int result) {
  const int kind = SSL_get_error(ssl.get(), result);
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return {};
  const unsigned long error = ERR_peek_error();
  if (kind == SSL_ERROR_ZERO_RETURN) {
    failure = Status(Code::kTcpTransfer, "the peer closed the connection");
  } else if (kind == SSL_ERROR_SYSCALL && wire.error != 0) {
    failure = io_failure("the connection failed", wire.error);
  } else if (ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
    failure = Status(Code::kTcpTransfer,
                     proved() ? "the connection was cut" : "the peer closed the connection");
  } else if (ERR_GET_REASON(error) == ERR_R_MALLOC_FAILURE) {
    failure = no_memory();
  } else {
    const char* words = ERR_reason_error_string(error);
    failure = proved() ? corrupted(words) : refused(ERR_GET_REASON(error));
  }
  ERR_clear_error();  // the program also uses this thread's list of errors
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

Status TlsStream::State::renew_key(std::size_t bytes) {
  records += (bytes + kRecord - 1) / kRecord;
  if (records < context->records_per_key) return {};
  records = 0;
  int result = SSL_key_update(ssl.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
  if (result == 1) result = SSL_do_handshake(ssl.get());
  return result == 1 ? Status() : stopped(result);
}

// Encrypts a few records of these bytes.
Status TlsStream::State::encrypt(std::string_view bytes) {
  wire.out.reserve(std::min(bytes.size(), kGathered + kRecord) + 2 * kOverhead);
  while (encrypted < bytes.size() && wire.out.size() < kGathered) {
    ERR_clear_error();
    std::size_t done = 0;
    const int result =
        SSL_write_ex(ssl.get(), bytes.data() + encrypted, bytes.size() - encrypted, &done);
    if (result != 1) return stopped(result);
    encrypted += done;
    HCCL_RETURN_IF_ERROR(renew_key(done));
  }
  return {};
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
  const TlsContext& settings = *state->context;
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

Result<TlsStream> TlsStream::create(std::shared_ptr<const TlsContext> context, int fd,
                                    TlsKeyFinder find) {
  auto stream = create(std::move(context), Side::kServer, fd, TlsKey{});
  if (stream.ok()) stream->state_->agreed.find = std::move(find);
  return stream;
}

Status TlsStream::handshake() {
  State& state = *state_;
  if (!state.failure.ok() || finished()) return state.failure;
  if (!state.proved()) {
    ERR_clear_error();
    const int result = SSL_do_handshake(state.ssl.get());
    // The handshake used either the key or a certificate. A certificate proves nothing here, so it
    // counts as a failure.
    if (result != 1) {
      static_cast<void>(state.stopped(result));
    } else if (SSL_session_reused(state.ssl.get()) != 1) {
      state.failure = state.refused(0);
    } else {
      state.wire.proved = true;
    }
  }
  const bool sent = state.wire.flush();
  state.wants = sent ? POLLIN : POLLOUT;
  state.finished = state.proved() && sent;
  return state.failure;
}

bool TlsStream::finished() const { return state_->finished; }
bool TlsStream::named() const { return state_->agreed.named && state_->failure.ok(); }

Result<std::size_t> TlsStream::write(std::string_view bytes) {
  State& state = *state_;
  HCCL_RETURN_IF_ERROR(state.failure);
  HCCL_RETURN_IF_ERROR(state.write_failure);
  std::size_t all = 0;
  do {
    HCCL_RETURN_IF_ERROR(state.encrypt(bytes.substr(all)));
    const bool sent = state.wire.flush();
    if (state.wire.error != 0) {
      state.write_failure = Status(Code::kTcpTransfer, std::string("the connection failed: ") +
                                                           std::strerror(state.wire.error));
      return state.write_failure;
    }
    state.wants = sent ? POLLIN : POLLOUT;
    if (!sent) break;
    all += std::exchange(state.encrypted, 0);
  } while (all < bytes.size());
  return all;
}

Result<std::size_t> TlsStream::read(std::span<char> out) {
  std::size_t all = 0;
  state_->drained = false;
  state_->wants = POLLIN;
  while (state_->failure.ok() && all < out.size()) {
    ERR_clear_error();
    std::size_t got = 0;
    const int result = SSL_read_ex(state_->ssl.get(), out.data() + all, out.size() - all, &got);
    all += got;
    if (result == 1) continue;
    state_->drained = true;
    if (state_->stopped(result).ok()) break;
    state_->wire.flush();  // OpenSSL may have an alert to send
  }
  // Bytes that came before a failure are authentic, and are returned first.
  if (all == 0 && !state_->failure.ok()) return state_->failure;
  return all;
}

bool TlsStream::pending() const {
  return !state_->drained && SSL_has_pending(state_->ssl.get()) == 1;
}

short TlsStream::wants() const { return state_->wants; }

void TlsStream::close() {
  if (!state_->failure.ok() || !finished()) return;
  ERR_clear_error();
  static_cast<void>(SSL_shutdown(state_->ssl.get()));
  ERR_clear_error();
  state_->wire.flush();
}

}  // namespace hccl
