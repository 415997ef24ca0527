#include "transport/tcp/pending_connection.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "hccl/base/bytes.h"
#include "hccl/base/error_text.h"
#include "hccl/base/socket.h"
#include "hccl/base/tls.h"

namespace hccl::transport::tcp {
namespace {

// The first byte of a TLS client's first record.
constexpr char kTlsRecord = 0x16;

// The door's answer if the mesh has ended. The answer takes the place of a proof and has the length
// of a proof. The receiver believes it without a proof, because a stranger who could send these
// bytes could as well close the connection.
constexpr std::array<char, 64> kZeroes{};
constexpr std::string_view kNoSuchMesh(kZeroes.data(), kZeroes.size());

Status unknown() { return Status(Code::kNotFound, "no mesh of the process has this name"); }

}  // namespace

std::string purpose(int server) { return "tcp data to rank " + std::to_string(server); }

Result<PendingConnection> PendingConnection::to(const Inbox& own, int peer, Fd fd,
                                                const std::shared_ptr<const TlsContext>& tls) {
  const int socket = fd.get();
  std::optional<TlsStream> stream;
  if (own.encrypted()) {
    HCCL_ASSIGN_OR_RETURN(stream, TlsStream::create(tls, TlsStream::Side::kClient, socket,
                                                    tls_key(own.key(), own.id(), purpose(peer))));
  }
  PendingConnection pending{Connection(std::move(fd), std::move(stream))};
  if (!own.encrypted()) {
    pending.handshake_.emplace(Handshake::Side::kClient, own.key(), own.id(), purpose(peer));
  }
  pending.greeting_ = ByteWriter()
                          .put(Hello{kMagic, kVersion, static_cast<std::uint32_t>(own.rank()),
                                     static_cast<std::uint32_t>(peer), Answer::kAsk})
                          .take();
  return pending;
}

PendingConnection::PendingConnection(Fd fd, Find find, Context context)
    : connection_(std::move(fd)),
      stage_(Stage::kOpening),
      find_(std::move(find)),
      context_(std::move(context)) {}

bool PendingConnection::has_spoken() {
  return spoken_ || (connection_.tls() != nullptr && connection_.tls()->named());
}

bool PendingConnection::wants_write() {
  if (stage_ == Stage::kConnecting) return true;
  return stage_ == Stage::kProving && connection_.tls() != nullptr
             ? connection_.tls()->wants() == POLLOUT
             : !out_.empty();
}

void PendingConnection::watch(int epoll, std::uint64_t tag) {
  const bool write = wants_write();
  if (watches_write_ == write) return;
  watch_fd(epoll, watches_write_.has_value() ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd(),
           write ? EPOLLIN | EPOLLOUT : EPOLLIN, tag);
  watches_write_ = write;
}

Status PendingConnection::advance() {
  if (stage_ == Stage::kConnecting) {
    if (const int error = connect_error(fd()); error != 0) {
      const bool refused = error == ECONNREFUSED;
      return Status(refused ? Code::kUnavail : Code::kTcpConnect, error_text(error));
    }
    stage_ = Stage::kProving;
    if (handshake_) out_ = handshake_->first();
  }
  if (stage_ == Stage::kOpening) HCCL_RETURN_IF_ERROR(look_at_first_byte());
  if (stage_ == Stage::kProving) HCCL_RETURN_IF_ERROR(prove());
  HCCL_RETURN_IF_ERROR(flush());
  return stage_ == Stage::kGreeting ? fill(sizeof(Hello)) : Status();
}

// A TLS client begins with a record, any other client with the first bytes of Handshake.
Status PendingConnection::look_at_first_byte() {
  char first = 0;
  const ssize_t got = ::recv(fd(), &first, 1, MSG_PEEK);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  if (got <= 0) return Status(Code::kTcpConnect, "it closed the connection");
  stage_ = Stage::kProving;
  if (first != kTlsRecord) return {};
  HCCL_ASSIGN_OR_RETURN(std::shared_ptr<const TlsContext> context, context_());
  HCCL_ASSIGN_OR_RETURN(
      TlsStream tls,
      TlsStream::create(std::move(context), fd(), [this](std::string_view name) -> TlsKey {
        inbox_ = find_(id_in_tls_name(name));
        if (inbox_ == nullptr || !inbox_->encrypted()) return {};
        return tls_key(inbox_->key(), inbox_->id(), purpose(inbox_->rank()));
      }));
  connection_.encrypt(std::move(tls));
  return {};
}

Status PendingConnection::prove() {
  while (stage_ == Stage::kProving) {
    if (connection_.tls() != nullptr) {
      const Status status = connection_.tls()->handshake();
      if (!status.ok()) return status.code() == Code::kUnavail ? unknown() : status;
      if (!connection_.tls()->finished()) return {};
      begin_greeting();
      return {};
    }
    HCCL_RETURN_IF_ERROR(flush());
    // Reads no byte beyond this stage: the following bytes belong to the next stage.
    const std::size_t wanted = handshake_ ? handshake_->wants() : Handshake::kFirst;
    HCCL_RETURN_IF_ERROR(fill(wanted));
    if (in_.size() < wanted) return {};
    if (!handshake_) {
      inbox_ = find_(Handshake::id_in(in_));
      if (inbox_ == nullptr || inbox_->encrypted()) {
        out_ = kNoSuchMesh;
        static_cast<void>(flush());
        return unknown();
      }
      handshake_.emplace(Handshake::Side::kServer, inbox_->key(), inbox_->id(),
                         purpose(inbox_->rank()));
    }
    if (in_ == kNoSuchMesh) return unknown();
    HCCL_ASSIGN_OR_RETURN(const std::string reply, handshake_->step(in_));
    spoken_ = true;
    in_.clear();
    out_ += reply;
    if (handshake_->finished()) begin_greeting();
  }
  return {};
}

void PendingConnection::begin_greeting() {
  stage_ = Stage::kGreeting;
  spoken_ = true;
  out_ += greeting_;
}

Status PendingConnection::answer(const Hello& hello) {
  out_ = ByteWriter().put(hello).take();
  HCCL_RETURN_IF_ERROR(flush());
  // These few bytes always fit into an empty socket buffer.
  return out_.empty() ? Status() : Status(Code::kTcpConnect, "the socket has no room");
}

Status PendingConnection::flush() {
  while (!out_.empty()) {
    const iovec piece{out_.data(), out_.size()};
    const auto sent = connection_.write({&piece, 1});
    if (!sent.ok()) return Status(Code::kTcpConnect, sent.status().message());
    if (*sent == 0) return {};
    out_.erase(0, *sent);
  }
  return {};
}

Status PendingConnection::fill(std::size_t wanted) {
  while (in_.size() < wanted) {
    std::array<char, 128> bytes;
    const iovec piece{bytes.data(), std::min(bytes.size(), wanted - in_.size())};
    const auto got = connection_.read({&piece, 1});
    if (!got.ok()) {
      const std::string& why = got.status().message();
      return Status(Code::kTcpConnect, why.empty() ? "it closed the connection" : why);
    }
    if (*got == 0) return {};
    in_.append(bytes.data(), *got);
  }
  return {};
}

}  // namespace hccl::transport::tcp
